"""A conversation with a model: the turns so far, and the commands that change them."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from itertools import chain

from ..ui import Messages, show_note
from .session import Session

__all__ = ["Chat"]

PROMPT = "> "


class Chat:
    """A conversation of questions and answers, which keeps as many of the last turns as the model's context holds."""

    def __init__(self, session: Session, system: str | None, words: Messages):
        self._session = session
        self._system = system
        self._words = words
        self._turns: list[tuple[str, str]] = []

    def run(self) -> None:
        """Read lines and answer them, until /exit, the end of the input, or Ctrl-C between answers."""
        if sys.stdin.isatty():
            with suppress(ImportError):  # some Pythons are built without readline
                import_module("readline")
            show_note(self._words("chat_start"))
        while True:
            try:
                line = _read_line()
            except (EOFError, KeyboardInterrupt):
                if sys.stdin.isatty():
                    show_note()
                return
            if line.strip() == "/exit":
                return
            with suppress(KeyboardInterrupt):  # Ctrl-C before or after an answer
                self._take(line.strip())

    def _take(self, line: str) -> None:
        command, _, text = line.partition(" ")
        if command == "/reset":
            self._turns.clear()
            show_note(self._words("chat_forgotten"))
        elif command == "/system":
            self._system = text.strip() or None
            show_note(self._words("chat_system", text=self._system or self._words("chat_none")))
        elif command == "/help":
            show_note(self._words("chat_help"))
        elif command.startswith("/"):
            show_note(self._words("chat_unknown", command=command))
        elif line:
            self._answer(line)

    def _answer(self, question: str) -> None:
        prompt, turns = self._fit(question)
        context = self._session.context
        if len(prompt) >= context:
            show_note(self._words("chat_too_long", count=len(prompt), context=context), style="red")
            return
        if forgotten := len(self._turns) - len(turns):
            show_note(self._words("chat_full", context=context, forgotten=forgotten, count=len(self._turns)))
        reply = self._session.reply(prompt)
        self._turns = [*turns, (question, reply.text)]
        is_after_echo = not reply.text or (
            reply.interrupted and reply.text.endswith("\n")
        )  # after the ^C that the terminal shows
        show_note(f"\n{reply.line}" if is_after_echo else reply.line)

    def _fit(self, question: str) -> tuple[list[int], list[tuple[str, str]]]:
        """Return the tokens of the prompt, and the turns in the prompt: as many of the last turns as leave room for the
        answer. The room for the answer is at most a quarter of the context."""
        room = max(1, min(self._session.max_tokens, self._session.context // 4))
        for start in range(len(self._turns) + 1):
            turns = self._turns[start:]
            prompt = self._session.encode_chat(self._system, [*chain.from_iterable(turns), question])
            if len(prompt) + room <= self._session.context:
                break
        return prompt, turns


def _read_line() -> str:
    """Return a line of stdin, with line editing on a terminal. Raise an EOFError at the end of the input."""
    if not sys.stdin.isatty():
        return input()
    if sys.stdout.isatty():
        return input(PROMPT)
    print(PROMPT, end="", file=sys.stderr, flush=True)  # `input` would write the prompt to stdout, among the answers
    return input()
