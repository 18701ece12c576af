"""Where pictures go, and what is said of them."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path

from ..language import Messages
from ..problems import CommandError
from ..terminal import show
from ..workspace import ROOT

__all__ = ["Output", "install_command"]


class Output:
    """A folder that files are written into, each named in a line on stdout.

    folder: is made if it is not there.
    """

    def __init__(self, folder: Path, say: Messages):
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")
        self._folder = folder
        self.say = say

    def picture(self, name: str, draw: Callable[[], bytes]) -> None:
        """Write what `draw` makes, or say how to install what it needs."""
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            show(self.say("viz_no_matplotlib", command=install_command()), fg="yellow")
            return
        self.file(name, draw())

    def file(self, name: str, content: bytes) -> None:
        path = self._folder / name
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        except OSError as error:
            raise CommandError(
                f"--out: expected a folder that can be written to, got {self._folder}: {error.strerror}"
            ) from None
        show(self.say("viz_wrote", file=path))


def install_command(root: Path = ROOT, environment: Path = Path(sys.prefix)) -> str:
    """How pictures' library gets into a virtual environment: by the tool that made it."""
    settings, pdm = environment / "pyvenv.cfg", environment / "bin" / "pdm"
    if not (root / "pyproject.toml").exists():
        return "pip install 'tiny-llm[viz]'"
    if settings.exists() and "\nuv = " in settings.read_text(encoding="utf-8"):
        return "uv sync --extra viz"
    if pdm.exists():  # ./course put it there
        return f"{os.path.relpath(pdm)} install -G viz"
    return "pdm install -G viz" if (root / ".pdm-python").exists() else "pip install -e '.[viz]'"
