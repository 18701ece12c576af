"""What a model thinks, on stderr; and its answer, on stdout."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from .language import Messages

__all__ = ["ShownThinking", "show_piece"]

_CONTROL = {code: "\ufffd" for code in [*range(32), *range(127, 160)] if chr(code) not in "\n\t"}


class ShownThinking:
    """Thinking, dimmed where stderr is a terminal, between two lines that say so.

    It goes to stderr even on a terminal, since a program that reads stdout wants the answer. text: all of it.
    """

    def __init__(self) -> None:
        self.text = ""
        self._console: Any = None  # once there is something

    def without(self, tokens: Iterable[int], thoughts: Any) -> Iterator[int]:
        """Pass on the tokens of the answer, and show the text of the others."""
        for token in tokens:
            thought = thoughts.take(token)
            if thought:
                self.text += thought
                self._show(thought)
            elif thought is None:
                if self._console:
                    self._show(f"\n\n{Messages()('thinking_over')}\n")
                    self._console = None
                yield token

    def end(self) -> None:
        """End the line in which the thinking stopped."""
        if self._console:
            self._show("\n")

    def _show(self, text: str) -> None:
        if self._console is None:
            from rich.console import Console

            self._console = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
            self._show(f"{Messages()('thinking_begins')}\n")
        self._console.print(_harmless(text, sys.stderr), style="dim", end="")


def show_piece(text: str) -> None:
    """Print a piece of the answer at once."""
    print(_harmless(text, sys.stdout), end="", flush=True)


def _harmless(text: str, stream: TextIO) -> str:
    """A terminal is spared the control characters that a model may produce."""
    return text.translate(_CONTROL) if stream.isatty() else text
