"""What a learner has done: one line of text for each task, and one for the path, in a file that can be committed,
edited or deleted."""

from __future__ import annotations

import re
from pathlib import Path

from .files import write_whole
from .plan import ALL, PATHS
from .syllabus import TaskId

__all__ = ["SKIPPED", "SOLVED", "Progress"]

SOLVED, SKIPPED = "solved", "skipped"

_HEADER = """\
# Your progress in tiny-llm: a task and its state, solved or skipped. Written by `tiny-llm test` and `solution`.
# You may commit this file, edit it, or delete it to begin anew.
"""
_PATH = re.compile(r"path\s+(\w+)")


class Progress:
    """The file. Lines that it does not understand, such as tasks of a newer course, stay as they are."""

    def __init__(self, file: Path):
        self.file = file
        self._lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []

    def state(self, task: TaskId) -> str | None:
        """SOLVED, SKIPPED or None, which is open."""
        states = [match[1] for line in self._lines if (match := _entry(task).match(line))]
        return states[-1] if states and states[-1] in (SOLVED, SKIPPED) else None

    @property
    def path(self) -> str:
        """The path that the learner follows."""
        chosen = [match[1] for line in self._lines if (match := _PATH.match(line))]
        return chosen[-1] if chosen and chosen[-1] in PATHS else ALL

    def follow(self, path: str) -> None:
        """Remember a path: in the first line, so that it is not in the way when later lines are taken back."""
        if path == self.path:
            return
        lines = [line for line in self._lines if not _PATH.match(line)]
        self._lines = [f"path {path}", *lines] if path != ALL else lines
        write_whole(self.file, self.changed({}))

    def changed(self, states: dict[TaskId, str | None]) -> bytes:
        """What the file should hold so that these tasks have these states."""
        lines = [line for line in self._lines if not any(_entry(task).match(line) for task in states)]
        lines = [line for line in lines if line not in _HEADER.splitlines()]
        lines += [f"{task} {state}" for task, state in sorted(states.items()) if state]
        return "\n".join([*_HEADER.splitlines(), *filter(str.strip, lines), ""]).encode()

    def set(self, states: dict[TaskId, str | None]) -> None:
        """Change the states of some tasks; write the file if that changes anything."""
        if any(self.state(task) != state for task, state in states.items()):
            content = self.changed(states)
            write_whole(self.file, content)
            self._lines = content.decode().splitlines()


def _entry(task: TaskId) -> re.Pattern[str]:
    return re.compile(rf"{re.escape(str(task))}\s+(\w+)")
