"""Lets signals end a command as Ctrl-C does."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from ..ui import Messages, show_note

__all__ = ["like_ctrl_c"]

SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def like_ctrl_c() -> Iterator[None]:
    """Let SIGTERM and SIGHUP interrupt the block as Ctrl-C does. The exit code is 128 plus the signal's number.

    A signal that the process already ignores, such as SIGHUP under `nohup`, stays ignored.
    """
    came: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        came.append(number)
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in (number for number, handler in before.items() if handler != signal.SIG_IGN):
        signal.signal(number, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        if not came:
            raise
        show_note("\n" + Messages()("interrupted"))
        raise typer.Exit(128 + came[0]) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
