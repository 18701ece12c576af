"""Reads the versions of the course and their commits from CHANGELOG.md.

This module imports no other module of the course, because scripts/history.py uses this module before any package is
installed.
"""

from __future__ import annotations

import re

__all__ = ["CHANGELOG", "read_versions"]

CHANGELOG = "CHANGELOG.md"
VERSION = re.compile(
    r"^## (?P<version>\d+\.\d+\.\d+) \(\d{4}-\d\d-\d\d\)\n\nCommit `(?P<commit>[0-9a-f]{40})`\.$", re.MULTILINE
)


def read_versions(changelog: str) -> dict[str, str]:
    """Return the commits of the versions, keyed by version, with the newest version first."""
    return {match["version"]: match["commit"] for match in VERSION.finditer(changelog)}
