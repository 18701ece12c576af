"""A learner's progress: a file with one line for each task and one line for the learner's path. The learner may commit,
edit or delete the file."""

from __future__ import annotations

import re
from pathlib import Path

from ..base.whole_files import write_whole
from ..tasks.plan import ALL, PATHS
from ..tasks.syllabus import TaskId

__all__ = ["SKIPPED", "SOLVED", "Progress", "without_change"]

SOLVED, SKIPPED = "solved", "skipped"

_HEADER = """\
# Your progress in tiny-llm: a task and its state, solved or skipped. Written by `tiny-llm test` and `solution`.
# You may commit this file, edit it, or delete it to begin anew.
"""
_PATH = re.compile(r"path\s+(\w+)")


class Progress:
    """The progress file. Lines that this version of the course does not understand, such as lines about tasks of a
    newer version, stay unchanged."""

    def __init__(self, file: Path):
        self.file = file
        self._lines = _decoded(file.read_bytes()) if file.exists() else []

    def state(self, task: TaskId) -> str | None:
        """Return SOLVED, SKIPPED, or None for an open task."""
        states = [match[1] for line in self._lines if (match := _entry(task).match(line))]
        return states[-1] if states and states[-1] in (SOLVED, SKIPPED) else None

    @property
    def path(self) -> str:
        """Return the path that the learner follows."""
        chosen = [match[1] for line in self._lines if (match := _PATH.match(line))]
        return chosen[-1] if chosen and chosen[-1] in PATHS else ALL

    def follow(self, path: str) -> None:
        """Record in the file that the learner follows this path from now on. The path has a line of its own, so that
        `undo` can take back changes to the states of tasks without touching the path."""
        if path == self.path:
            return
        lines = [line for line in self._lines if not _PATH.match(line)]
        self._lines = [f"path {path}", *lines] if path != ALL else lines
        write_whole(self.file, self.changed({}))

    def changed(self, states: dict[TaskId, str | None]) -> bytes:
        """Return the content that the file would have with these new states of tasks."""
        lines = [line for line in self._lines if not any(_entry(task).match(line) for task in states)]
        lines = [line for line in lines if line not in _HEADER.splitlines()]
        lines += [f"{task} {state}" for task, state in sorted(states.items()) if state]
        return _encoded([*_HEADER.splitlines(), *filter(str.strip, lines)])

    def set(self, states: dict[TaskId, str | None]) -> None:
        """Change the states of some tasks, and write the file if its content changes."""
        if any(self.state(task) != state for task, state in states.items()):
            content = self.changed(states)
            write_whole(self.file, content)
            self._lines = _decoded(content)


def _decoded(content: bytes) -> list[str]:
    return content.decode("utf-8-sig", errors="surrogateescape").splitlines()


def _encoded(lines: list[str]) -> bytes:
    """Return the content of a file with these lines. Bytes that are not UTF-8 stay unchanged."""
    return "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape")


def without_change(now: bytes, after: bytes, before: bytes) -> bytes:
    """Return the present content of the file without the change from `before` to `after`. Lines that have changed since
    then stay."""
    is_now, was_after, was_before = (_lines_by_key(content) for content in (now, after, before))
    for key in [*was_after, *was_before]:
        if is_now.get(key) == was_after.get(key) != was_before.get(key):
            is_now.pop(key, None)
            is_now |= {key: was_before[key]} if key in was_before else {}
    return _encoded(list(is_now.values()))


def _lines_by_key(content: bytes) -> dict[str, str]:
    """Return the lines, keyed by task. The key of the path's line is `path`, and any other line without a task is its
    own key. If two lines name the same task, the later line counts."""
    return {_key(line): line for line in _decoded(content)}


def _key(line: str) -> str:
    match = re.match(r"(w\d+d\d+\.\d+|path)\s", line)
    return match[1] if match else line


def _entry(task: TaskId) -> re.Pattern[str]:
    return re.compile(rf"{re.escape(str(task))}\s+(\w+)")
