"""Where the course is on this machine."""

from __future__ import annotations

from pathlib import Path

__all__ = ["IS_CLONE", "ROOT", "SRC"]

SRC = Path(__file__).resolve().parents[2]  # where the packages are: src of a clone, or else site-packages
ROOT = SRC.parent
IS_CLONE = (ROOT / "pyproject.toml").is_file()
