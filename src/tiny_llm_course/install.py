"""How packages get into the virtual environment, by the tool that made it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from .workspace import ROOT

__all__ = ["install_command"]


def install_command(extra: str = "", root: Path = ROOT, environment: Path = Path(sys.prefix)) -> str:
    """What to type for an extra's packages; for none, for those that come with the course."""
    settings, pdm = environment / "pyvenv.cfg", environment / "bin" / "pdm"
    if not (root / "pyproject.toml").exists():
        return f"pip install 'tiny-llm[{extra}]'" if extra else "pip install tiny-llm"
    if settings.exists() and "\nuv = " in settings.read_text(encoding="utf-8"):
        return f"uv sync --extra {extra}" if extra else "uv sync --inexact"
    if pdm.exists() or (root / ".pdm-python").exists():  # the first: ./course put it there
        command = os.path.relpath(pdm) if pdm.exists() else "pdm"
        return f"{command} install -G {extra}" if extra else f"{command} install --prod"
    return f"pip install -e '.[{extra}]'" if extra else "pip install -e ."
