"""The course's folders on this machine, and its public address."""

from __future__ import annotations

from pathlib import Path

from ..tasks.toml import read_toml

__all__ = ["IS_CLONE", "ROOT", "SHARED", "SRC", "address"]

SRC = Path(__file__).resolve().parents[2]  # the folder of the packages: src in a clone, otherwise site-packages
ROOT = SRC.parent
IS_CLONE = (ROOT / "pyproject.toml").is_file()
# The packages that both the learner's package and the reference import, keyed by their names in tests.
SHARED = {"given": "tiny_llm_given", "native": "tiny_llm_native"}


def address() -> str:
    """Return the URL of the repository, without a trailing slash. If the URL is empty, links to the repository are
    left out."""
    if not IS_CLONE:
        return ""
    return str(read_toml(ROOT / "pyproject.toml")["tool"]["tiny-llm"]["address"])
