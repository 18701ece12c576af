"""Writes pictures, and prints their paths."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

from ..base.extras import install_command
from ..ui import CommandError, Messages, os_reason, show

__all__ = ["Output"]


class Output:
    """A folder for the files that a command writes. A line on stdout names each written file.

    folder: the path of the folder, which is created if it does not exist.
    """

    def __init__(self, folder: Path, words: Messages):
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")
        self._folder = folder
        self.words = words

    def picture(self, name: str, draw: Callable[[], bytes]) -> None:
        """Write the picture that `draw` returns. If matplotlib is missing, only say how to install matplotlib."""
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            show(self.words("viz_no_matplotlib", command=install_command("viz")), fg="yellow")
            return
        self.file(name, draw())

    def file(self, name: str, content: bytes) -> None:
        path = self._folder / name
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        except OSError as error:
            raise CommandError("viz_out_folder", folder=self._folder, reason=os_reason(error)) from None
        show(self.words("viz_wrote", file=path))
