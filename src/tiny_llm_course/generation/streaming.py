"""Shows a model's text while it is generated. On a terminal, lines are broken between words."""

from __future__ import annotations

from typing import Any, TextIO

from ..ui import styled, terminal_width
from ..ui.wrapping import columns, units

__all__ = ["Plain", "TerminalText", "output"]

_CONTROL = {code: "\ufffd" for code in [*range(32), *range(127, 160)] if chr(code) not in "\n\t"}


class Plain:
    """The output to a file or another program: the model's text, unchanged."""

    def __init__(self, out: TextIO):
        self._out = out

    def add(self, text: str) -> None:
        print(text, end="", file=self._out, flush=True)

    def end(self) -> None:
        """Do nothing, because no text is held back."""


class TerminalText:
    """The output to a terminal, without the control characters that a model may produce.

    A word is held back until it is complete, because only then is it clear on which line it fits. Text on the terminal
    is never moved, so the terminal's width may change at any time. style: the arguments of `styled`.
    """

    def __init__(self, out: TextIO, **style: Any):
        self._out, self._style = out, style
        self._held = ""  # a word that may not be complete
        self._column = 0

    def add(self, text: str) -> None:
        pieces = units(self._held + text.translate(_CONTROL))
        self._held = pieces.pop() if pieces and pieces[-1] != "\n" else ""
        self._show(pieces)

    def end(self) -> None:
        """Show the word that is held back, after the last text."""
        self._show([self._held])
        self._held = ""

    def _show(self, pieces: list[str]) -> None:
        width = terminal_width(self._out)
        text = "".join(self._placed(unit, width) for unit in pieces)
        print(styled(text, out=self._out, **self._style), end="", file=self._out, flush=True)

    def _placed(self, unit: str, width: int) -> str:
        """Return a unit of text, with a line break before it if it does not fit on this line."""
        if unit == "\n":
            self._column = 0
            return unit
        text = (" " * self._column + unit).expandtabs()[self._column :]
        if self._column and self._column + columns(text) > width:
            text = text.lstrip()
            self._column = 0
            start = "\n" if text else ""
        else:
            start = ""
        self._column += columns(text)
        if self._column > width:  # the terminal breaks a word that is longer than a line
            self._column = (self._column - 1) % width + 1
        return start + text


def output(out: TextIO, **style: Any) -> TerminalText | Plain:
    """Return the object that shows text on this stream. style: the arguments of `styled`."""
    return TerminalText(out, **style) if out.isatty() else Plain(out)
