"""A conversation: what was said so far, and the lines that change it."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from itertools import chain

from .problems import say
from .session import Session

__all__ = ["Chat"]

HELP = """\
/reset        forget the conversation
/system TEXT  give the model another system prompt; without TEXT, none
/help         this list
/exit         the end, as Ctrl-D
Ctrl-C stops an answer; anything else you type is said to the model."""
PROMPT = "> "


class Chat:
    """Turns of question and answer, as many as the model's context holds."""

    def __init__(self, session: Session, system: str | None):
        self._session = session
        self._system = system
        self._turns: list[tuple[str, str]] = []

    def run(self) -> None:
        """Read a line, answer it, until the lines end or Ctrl-C is pressed between answers."""
        if sys.stdin.isatty():
            with suppress(ImportError):  # some Pythons are built without
                import_module("readline")
            say("/help lists the commands, Ctrl-D ends.")
        while True:
            try:
                line = _read_line()
            except (EOFError, KeyboardInterrupt):
                if sys.stdin.isatty():
                    say()
                return
            if line.strip() == "/exit":
                return
            with suppress(KeyboardInterrupt):  # before or after an answer
                self._take(line.strip())

    def _take(self, line: str) -> None:
        command, _, text = line.partition(" ")
        if command == "/reset":
            self._turns.clear()
            say("The conversation is forgotten.")
        elif command == "/system":
            self._system = text.strip() or None
            say(f"system prompt: {self._system or 'none'}")
        elif command == "/help":
            say(HELP)
        elif command.startswith("/"):
            say(f"There is no command {command}; /help lists them.")
        elif line:
            self._answer(line)

    def _answer(self, question: str) -> None:
        prompt, turns = self._fit(question)
        context = self._session.context
        if len(prompt) >= context:
            say(f"That has {len(prompt)} tokens, and the context is {context}: say it in fewer words.", style="red")
            return
        if forgotten := len(self._turns) - len(turns):
            say(f"The context of {context} tokens is full: forgot the oldest {forgotten} of {len(self._turns)} turns.")
        reply = self._session.reply(prompt)
        self._turns = [*turns, (question, reply.text)]
        is_after_echo = not reply.text or (
            reply.interrupted and reply.text.endswith("\n")
        )  # a line that begins with ^C
        say(f"\n{reply.line}" if is_after_echo else reply.line)

    def _fit(self, question: str) -> tuple[list[int], list[tuple[str, str]]]:
        """The prompt's tokens, and as many of the last turns as leave the answer its room, a quarter at most."""
        room = max(1, min(self._session.max_tokens, self._session.context // 4))
        for start in range(len(self._turns) + 1):
            turns = self._turns[start:]
            prompt = self._session.encode_chat(self._system, [*chain.from_iterable(turns), question])
            if len(prompt) + room <= self._session.context:
                break
        return prompt, turns


def _read_line() -> str:
    """A line of stdin, with line editing on a terminal. Raises EOFError at the end."""
    if not sys.stdin.isatty():
        return input()
    if sys.stdout.isatty():
        return input(PROMPT)
    print(PROMPT, end="", file=sys.stderr, flush=True)  # `input` would write it to stdout, among the answers
    return input()
