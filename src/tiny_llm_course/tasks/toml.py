"""Reads TOML in every version of Python that the course supports."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["parse_toml", "read_toml"]


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file."""
    return parse_toml(path.read_text(encoding="utf-8"))


def parse_toml(text: str) -> dict[str, Any]:
    """Parse the text of a TOML file."""
    return tomllib.loads(text)
