"""Where the course is on this machine."""

from __future__ import annotations

from pathlib import Path

__all__ = ["IS_CLONE", "ROOT", "SHARED", "SRC"]

SRC = Path(__file__).resolve().parents[2]  # where the packages are: src of a clone, or else site-packages
ROOT = SRC.parent
IS_CLONE = (ROOT / "pyproject.toml").is_file()
# The packages that the learner's package and the reference import, by the names that tests use.
SHARED = {"given": "tiny_llm_given", "native": "tiny_llm_native"}
