"""The project's public address: one value in pyproject.toml, empty until there is one."""

from __future__ import annotations

from ..tasks.toml import read_toml
from .places import IS_CLONE, ROOT

__all__ = ["address"]


def address() -> str:
    """The URL of the repository, without a slash at its end. Empty: links to it are left out."""
    if not IS_CLONE:
        return ""
    return str(read_toml(ROOT / "pyproject.toml")["tool"]["tiny-llm"]["address"])
