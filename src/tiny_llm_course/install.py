"""How the packages of an extra get into the virtual environment, by the tool that made it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from .workspace import ROOT

__all__ = ["install_command"]


def install_command(extra: str, root: Path = ROOT, environment: Path = Path(sys.prefix)) -> str:
    """What to type."""
    settings, pdm = environment / "pyvenv.cfg", environment / "bin" / "pdm"
    if not (root / "pyproject.toml").exists():
        return f"pip install 'tiny-llm[{extra}]'"
    if settings.exists() and "\nuv = " in settings.read_text(encoding="utf-8"):
        return f"uv sync --extra {extra}"
    if pdm.exists():  # ./course put it there
        return f"{os.path.relpath(pdm)} install -G {extra}"
    return f"pdm install -G {extra}" if (root / ".pdm-python").exists() else f"pip install -e '.[{extra}]'"
