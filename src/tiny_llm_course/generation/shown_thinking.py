"""Shows on stderr the thinking that precedes a model's answer."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from ..model.package_protocols import Thoughts
from ..ui import Messages
from .streaming import Plain, TerminalText, output

__all__ = ["ShownThinking"]


class ShownThinking:
    """Shows a model's thinking on stderr, between two lines that mark it, and dims it on a terminal.

    The thinking does not go to stdout, because a program that reads stdout wants only the answer. text: the text of the
    thinking so far.
    """

    def __init__(self) -> None:
        self.text = ""
        self._lines: TerminalText | Plain | None = None  # None while there is no thinking to show

    def without(self, tokens: Iterable[int], thoughts: Thoughts) -> Iterator[int]:
        """Yield the tokens of the answer, and show the text of the thinking tokens."""
        for token in tokens:
            thought = thoughts.take(token)
            if thought:
                self.text += thought
                self._show(thought)
            elif thought is None:
                self._finish(f"\n\n{Messages()('thinking_over')}\n")
                yield token

    def end(self) -> None:
        """End the last line of the thinking."""
        self._finish("\n")

    def _show(self, text: str) -> None:
        if self._lines is None:
            self._lines = output(sys.stderr, dim=True)
            self._lines.add(f"{Messages()('thinking_begins')}\n")
        self._lines.add(text)

    def _finish(self, text: str) -> None:
        if self._lines is not None:
            self._lines.add(text)
            self._lines.end()
            self._lines = None
