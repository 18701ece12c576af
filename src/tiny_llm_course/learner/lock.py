"""A lock that lets one command at a time change a learner's files. When a process ends, its lock is released."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from ..ui import Phrase

__all__ = ["locked"]

PATIENCE = 30.0  # the most seconds that a command waits; the holder's changes take a fraction of a second
SILENCE = 1.0  # seconds after which a waiting command names the command that holds the lock
PAUSE = 0.02


@contextmanager
def locked(file: Path, name: str) -> Iterator[None]:
    """Hold the lock of this file during the block. If the file system has no locks, run the block without one.

    name: the command's name, which other commands show while they wait.

    Raises:
        CommandError: another process has held the lock for too long.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = file.open("a+b", buffering=0)
    except OSError:  # a read-only or full disk, which the command will report when it writes
        yield
        return
    with lock:
        _wait(lock)
        with suppress(OSError):  # on a full disk, the lock works, but the name is missing
            lock.truncate(0)
            lock.write(f"{name} {os.getpid()}".encode())
        yield


def _wait(lock: IO[bytes]) -> None:
    from ..ui import CommandError, Messages, show_note

    start, is_told = time.monotonic(), False
    while not _taken(lock):
        waited = time.monotonic() - start
        if waited > PATIENCE:
            raise CommandError("locked", other=_holder(lock), seconds=round(PATIENCE), exit_code=1)
        if waited > SILENCE and not is_told:
            is_told = True
            show_note(Messages()("lock_waiting", other=_holder(lock)))
        time.sleep(PAUSE)


def _taken(lock: IO[bytes]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _holder(lock: IO[bytes]) -> Phrase:
    """Return the name and the process id of the command that holds the lock."""
    from ..ui import phrase

    lock.seek(0)
    name, _, process = lock.read().decode(errors="replace").rpartition(" ")
    return phrase("locked_by", name=name or "?", process=process or "?")
