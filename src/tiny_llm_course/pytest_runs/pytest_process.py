"""Runs pytest in a process of its own, and reads the events that pytest writes into a pipe."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

__all__ = ["PytestProcess"]

_MEANING = {
    **dict.fromkeys(("SIGSEGV", "SIGBUS"), ": is there an index beyond an array, or a pointer to nothing?"),
    **dict.fromkeys(
        ("SIGILL", "SIGTRAP"),
        ": it reached a line that the compiler took to be unreachable: does a function end without its `return`?",
    ),
    "SIGFPE": ": an integer was divided by zero",
}
_EXIT = 5  # seconds in which the process must end after its last event
_USUAL = (0, 1, 5)  # exit codes: all tests passed, some tests failed, there were no tests


class PytestProcess:
    """A running pytest process.

    command: the command line, to which this class adds the option `--events`. folder: the working directory, which
    Python searches first for imports. None: the current directory.
    """

    def __init__(self, command: list[str], folder: Path | None = None):
        self.descriptor, write = os.pipe()
        self.heard = monotonic()  # the time of the last event
        self.left: Counter[str] | None = None  # task -> tests without a result; None until pytest has chosen tests
        self.running = ""  # the test that is running
        self.is_compiling = False  # whether that test waits for a compiler
        self.is_over = False  # whether all tests have ended, and their results have arrived
        self.was_killed = False  # whether `end` was called with a reason to kill the process
        self._about: dict[str, Any] | None = None
        self._pending = b""
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (`end` closes it)
        try:
            self._process = subprocess.Popen(
                [*command, f"--events={write}"],
                pass_fds=[write],
                stdout=self._output,
                stderr=self._output,
                cwd=folder,
                start_new_session=True,
            )
        finally:
            os.close(write)

    def events(self) -> list[dict[str, Any]] | None:
        """Wait for data, and return the events that are complete. Return None if the process has closed the pipe."""
        data = os.read(self.descriptor, 65536)
        if not data:
            return None
        self.heard = monotonic()
        *lines, self._pending = (self._pending + data).split(b"\n")
        events = [json.loads(line) for line in lines]
        for event in events:
            match event:
                case {"event": "chosen", "tests": tests}:
                    self.left = Counter(tests)
                case {"event": "start", "test": test, "about": about}:
                    self.running, self._about = test, about
                case {"event": "compiling", "file": file}:
                    self.is_compiling = bool(file)
                case {"event": "end"}:
                    self.is_over = True
                case {"event": "result", "task": task} if self.left is not None:
                    self.running = ""
                    self.left[task] -= 1
        return events

    def kill(self) -> None:
        """Kill the process and all processes that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def end(self, problem: str) -> tuple[str, dict[str, Any] | None]:
        """End the process and all processes that it started.

        problem: the reason to kill the process now, or "" if the process has written its last event. If `problem` is
        "", the process has a few seconds to end by itself. The process may keep running after its tests, because Python
        waits for threads that never end.

        Return the problem ("" if there was none), and a description of the test that was running (None if no test was
        running).
        """
        self.was_killed = bool(problem)
        has_ended = False
        try:
            if not problem:
                self._process.wait(timeout=_EXIT)
                has_ended = True
        except subprocess.TimeoutExpired:
            pass
        finally:
            self.kill()
            os.close(self.descriptor)
        code = self._process.wait()
        with self._output:
            if not self.running and (code in _USUAL or (self.is_over and not has_ended)):
                return problem, None
            self._output.seek(0)
            output = self._output.read().decode(errors="replace")
        return problem or _death(code, output), self._about if self.running else None


def _death(code: int, output: str) -> str:
    if code < 0:
        name = signal.Signals(-code).name
        return f"the code under test ended Python with {name}" + _MEANING.get(name, "")
    return output.strip()[-4000:] or f"pytest ended with exit code {code}"
