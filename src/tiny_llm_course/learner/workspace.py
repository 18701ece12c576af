"""A learner's clone of the course: its files, and the learner's progress."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from ..base.places import ROOT, SRC
from ..base.whole_files import write_whole
from ..tasks.plan import days_of
from ..tasks.regions import SUFFIXES, code_files, is_native, parts_of, regions
from ..tasks.stubs import make_stub
from ..tasks.syllabus import Day, Task, TaskId, select_days, tasks
from ..tasks.task_code import StubError, parse
from ..tasks.unsolved import Stub, unsolved
from .backups import Backups
from .lock import locked
from .progress import Progress, without_change

__all__ = ["CodePlace", "Workspace", "changing", "settle"]

FIRST_WEEK = 1  # week 0 is a warm-up
PRISTINE = Path(__file__).parents[1] / "pristine"  # the folder of the stubs, if this copy has no solutions


@dataclass(frozen=True)
class CodePlace:
    """The file and line of a task's code."""

    file: Path
    line: int


class Workspace:
    """A learner's clone of the course, at `root`."""

    def __init__(self, root: Path = ROOT):
        self.root = root
        source = SRC if root == ROOT else root / "src"
        self.package, self.reference = source / "tiny_llm", source / "tiny_llm_ref"
        self.native = source / "tiny_llm_native"  # the code that runs both packages' kernels
        self.progress = Progress(root / "progress.txt")
        merges = {self.progress.file.name: without_change}
        self.backups = Backups(root / ".tiny-llm" / "backups", root, merges, self._take_back_commit)

    @property
    def has_solutions(self) -> bool:
        """Tell whether this copy has the solutions. An instructor can hand out a copy without solutions."""
        return (self.reference / "basics.py").is_file()

    @cached_property
    def stubs(self) -> dict[TaskId, CodePlace]:
        """Return the tasks that still have stubs, each with the place of its first stub."""
        files = {(day.week, day.number): self.files(day) for day in select_days(None, None)}

        def rank(stub: Stub) -> tuple[TaskId, int, int]:
            """Return a stub's rank in the order in which learners write code: by task, then by file in the order of the
            syllabus, then by line."""
            of_day = files.get((stub.task.week, stub.task.day), [])
            return stub.task, of_day.index(stub.file) if stub.file in of_day else len(of_day), stub.line

        places: dict[TaskId, CodePlace] = {}
        for stub in sorted(unsolved(self.package), key=rank):
            places.setdefault(stub.task, CodePlace(stub.file, stub.line))
        return places

    def state(self, task: TaskId) -> str | None:
        """Return SOLVED, SKIPPED, or None for an open task. A task with a stub is open, even if the learner solved the
        task earlier."""
        return None if task in self.stubs else self.progress.state(task)

    def open_tasks(self, path: str | None = None) -> list[Task]:
        """Return the open tasks of a path, by default the learner's path."""
        return [task for task in _tasks_on(path or self.progress.path) if self.state(task.id) is None]

    def left_out(self, path: str, until: Task) -> list[Task]:
        """Return the open tasks before `until` that a path leaves out. Week 0, the warm-up, does not count."""
        on_path = _tasks_on(path)
        between = (task for task in tasks() if task.id.week >= FIRST_WEEK and task.id < until.id)
        return [task for task in between if task not in on_path and self.state(task.id) is None]

    def next_task(self, path: str | None = None) -> Task | None:
        """Return the next open task on a path, by default the learner's path. Prefer an open task in the learner's
        current week or later to one in an earlier week. Return None if no task is open.

        The course begins with week 1. Tasks of week 0 are returned only if the learner has begun week 0, and has done
        no task of another week yet.
        """
        open_ = self.open_tasks(path)
        week = max((task.id.week for task in tasks() if self.state(task.id)), default=FIRST_WEEK)
        open_ = [task for task in open_ if task.id.week >= min(week, FIRST_WEEK)]
        return next((task for task in open_ if task.id.week >= week), next(iter(open_), None))

    @property
    def is_untouched(self) -> bool:
        """Tell whether no task is solved or skipped."""
        return not any(self.state(task.id) for task in tasks())

    def place(self, day: Day, task: Task) -> CodePlace:
        """Return the place of a task's code, or of its stub."""
        if task.id in self.stubs:
            return self.stubs[task.id]
        for file in self.files(day):
            source = file.read_text(encoding="utf-8-sig", errors="replace") if file.exists() else ""
            for number, line in enumerate(source.splitlines(), start=1):
                if line.strip().startswith(("Task: ", "// task ")) and str(task.id) in line:
                    return CodePlace(file, number)
        return CodePlace(self.files(day)[0], 1)

    def files(self, day: Day) -> list[Path]:
        """Return the learner's files for a day."""
        originals = (sorted(self._originals.glob(f"{module}.*")) for module in day.modules)
        return [self._yours(file) for files in originals for file in files if file.suffix in SUFFIXES]

    def all_files(self) -> list[Path]:
        """Return all of the learner's files for which the course has a stub."""
        return [self._yours(file) for file in code_files(self._originals)]

    def _yours(self, original: Path) -> Path:
        return self.package / original.relative_to(self._originals)

    @property
    def _originals(self) -> Path:
        return self.reference if self.has_solutions else PRISTINE

    def broken(self, day: Day) -> str | None:
        """Return a message if one of a day's files is missing, or has a conflict or a syntax error. Otherwise return
        None."""
        from ..base.conflict import conflict_in  # imported here, since tests load this module and need no messages
        from ..ui import Messages

        for file in self.files(day):
            name = file.relative_to(self.root).as_posix()
            if not file.exists():
                return Messages()("file_missing", file=name, task=day.tasks[0].id)
            if problem := conflict_in(self.root, file):
                return str(problem)
            try:
                (regions if is_native(file) else parse)(file.read_text(encoding="utf-8-sig", errors="replace"), name)
            except StubError as error:
                return f"SyntaxError: {error}"
        return None

    def solution(self, file: Path) -> str:
        """Return the reference's version of a learner's file."""
        return (self.reference / file.relative_to(self.package)).read_text(encoding="utf-8")

    def stub(self, file: Path) -> str:
        """Return the stub from which a learner's file began."""
        if self.has_solutions:
            return make_stub(self.solution(file), filename=file.name)
        return (PRISTINE / file.relative_to(self.package)).read_text(encoding="utf-8")

    def parts(self, day: Day, task: TaskId) -> dict[Path, list[str]]:
        """Return the names of a task's functions, keyed by file."""
        sources = {file: self.solution(file) if self.has_solutions else self.stub(file) for file in self.files(day)}
        names_by_file = {file: parts_of(source, file.name).get(task, []) for file, source in sources.items()}
        return {file: names for file, names in names_by_file.items() if names}

    @property
    def notes(self) -> dict[str, Any]:
        """Return the notes that the course keeps from one command to the next: the hints shown, and the mistakes that
        the last test run named."""
        try:
            notes = json.loads(self._notes_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return notes if isinstance(notes, dict) else {}

    def note(self, key: str, values: Mapping[TaskId, Any]) -> None:
        """Store a value for each of these tasks under this key."""
        notes = self.notes
        about = notes.get(key)
        new = {str(task): value for task, value in values.items()}
        notes[key] = (about if isinstance(about, dict) else {}) | new
        write_whole(self._notes_file, json.dumps(notes, indent=2).encode())

    def noted(self, key: str, task: TaskId) -> Any:
        """Return the value that `note` stored for a task under this key. Return None if there is no such value."""
        about = self.notes.get(key)
        return about.get(str(task)) if isinstance(about, dict) else None

    @property
    def _notes_file(self) -> Path:
        return self.root / ".tiny-llm" / "notes.json"

    def _take_back_commit(self, copies: Path) -> None:
        from .git import take_back_commit  # imported here, since only `update` makes commits

        take_back_commit(self.root, copies)


@contextmanager
def changing(command: str) -> Iterator[Workspace]:
    """Lock the clone for a command that changes the learner's files, progress or notes. Other such commands wait.

    If an earlier command was killed while writing, that command's changes are taken back first.
    """
    from ..ui import Messages, show_note

    Messages.load()  # now, like git in the next line, since `update` and `undo` replace the course's files
    import_module(".git", __package__)
    with locked(ROOT / ".tiny-llm" / "lock", f"./course {command}"):
        if reason := Workspace().backups.take_back_interrupted():
            words = Messages()
            show_note(words("interrupted_command", what=words.of(reason)))
        yield Workspace()


def settle() -> None:
    """Before another command runs, wait for a command that is writing, or take back the changes of a killed command."""
    if Workspace().backups.interrupted():
        with changing("next"):
            pass


def _tasks_on(path: str) -> list[Task]:
    return [task for day in days_of(path) for task in day.tasks]
