"""Runs a slow program: yields the output line by line, and ends all of the program's processes if the user presses
Ctrl-C."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

__all__ = ["Child", "running"]

TICK = 1.0  # seconds without a line, after which `lines` yields None
GRACE = 5.0  # seconds in which an interrupted process can clean up


class Child:
    """A running process, whose stdout and stderr are one stream.

    returncode: the exit code, or None until `lines` has yielded every line.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None):
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # so that Ctrl-C reaches the process once, through `end`
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    def lines(self) -> Iterator[str | None]:
        """Yield each line as soon as it arrives, and None after each second without a line."""
        while True:
            try:
                line = self._lines.get(timeout=TICK)
            except queue.Empty:
                yield None
                continue
            if line is None:
                self._process.wait()
                return
            yield line.rstrip("\n")

    def end(self) -> None:
        """Interrupt the process and all processes that it started. If the process has not ended after GRACE
        seconds, kill all of these processes."""
        for sent in (signal.SIGINT, signal.SIGKILL):
            if self._process.poll() is not None:
                return
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, sent)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)


@contextmanager
def running(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Iterator[Child]:
    """Start a process, and end it when the block ends, even if Ctrl-C ends the block."""
    child = Child(command, environment)
    try:
        yield child
    finally:
        child.end()
