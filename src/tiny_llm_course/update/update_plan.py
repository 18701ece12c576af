"""Plans an update: which files the update writes, and where the learner's work in these files goes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from pathlib import Path

from ..base.whole_files import content_of
from ..learner.git import Git, GitFile
from ..learner.workspace import Workspace
from ..tasks.imports import redirected, relative_module, relocated
from ..tasks.regions import SUFFIXES, is_native
from ..tasks.source_text import decoded, encoded
from ..tasks.splice import SpliceError, UnfitError, definitions
from ..tasks.syllabus import TaskId, day_of
from ..tasks.task_code import StubError, lines_of
from ..ui import Phrase, phrase
from .contracts import SYLLABUS, Changed, changed_contracts, new_tasks
from .lost_lines import LostLines
from .merging import Moves, merge, unix_ends
from .moves import heirs, moved_tasks, shared_places
from .retired import code_of_task, retire
from .written import tasks_by_name, written

__all__ = ["LEARNERS", "Old", "UpdatePlan", "plan_update"]

LEARNERS = "src/tiny_llm/"
OLD = ".tiny-llm/old"  # the folder for code of tasks whose contract changed


@dataclass(frozen=True)
class Old:
    """A learner's code for a task that the course has changed. file: the learner's file that had the code. kept: the
    file that keeps the code. new: the task's new stub, keyed by file."""

    task: TaskId
    file: Path
    kept: Path
    code: str
    new: Mapping[Path, str]


@dataclass
class UpdatePlan:
    """The plan of an update. In the comments, "yours" refers to the learner's files in src/tiny_llm."""

    files: dict[Path, bytes | None] = field(default_factory=dict)  # None: the file is removed
    seen: dict[Path, bytes | None] = field(default_factory=dict)  # the contents of the same files before the update
    merged: list[Path] = field(default_factory=list)  # yours into which newer stubs are merged
    moved: list[tuple[Path, Path]] = field(default_factory=list)  # yours that moved: old and new path
    carried: list[tuple[str, Path, Path]] = field(default_factory=list)  # your tasks that moved: name, old and new file
    changed: Changed = field(default_factory=dict)  # tasks that the course has changed, and that are open again
    added: list[TaskId] = field(default_factory=list)  # new tasks
    old: list[Old] = field(default_factory=list)  # your code for changed tasks
    kept: list[Path] = field(default_factory=list)  # yours that the course no longer has, with code that you need
    outdated: list[Path] = field(default_factory=list)  # yours that the course no longer has, and that you do not need
    shared: list[tuple[Path, Path]] = field(default_factory=list)  # yours that you edited, and the course's replacement
    followed: list[Path] = field(default_factory=list)  # yours whose imports now name the course's replacement
    dropped: list[Path] = field(default_factory=list)  # yours whose tasks are all in other files now
    replaced: list[tuple[Path, LostLines]] = field(default_factory=list)  # your lines that the course's lines replace
    signatures: list[tuple[Path, str, str]] = field(default_factory=list)  # your file, your signature, the new one
    edited: list[Path] = field(default_factory=list)  # files of the course that the learner had changed
    executable: list[Path] = field(default_factory=list)
    unrecorded: list[Path] = field(default_factory=list)  # up to date on disk, but not in the clone's last commit
    refused: list[Phrase] = field(default_factory=list)  # the reason why each file cannot be merged

    def put(self, path: Path, content: bytes | None) -> None:
        self.seen[path] = content_of(path)
        self.files[path] = content


def plan_update(workspace: Workspace, git: Git, head: str, new: str) -> UpdatePlan:
    """Return the plan of an update to the commit `new`. Nothing is written."""
    plan = UpdatePlan()
    common = git.base(head, new)
    base, theirs = git.files(common) if common else {}, git.files(new)
    recorded = git.files(head)
    for name, entry in theirs.items():
        if not _is_learners(name):
            _plan_file(plan, workspace.root / name, entry, (base or recorded).get(name), git)
    for name in base.keys() - theirs.keys():
        path = workspace.root / name
        if not _is_learners(name) and path.exists():
            plan.edited += [] if base[name].holds(path.read_bytes()) else [path]
            plan.put(path, None)
    differing = {name for name in theirs.keys() | base.keys() if recorded.get(name) != theirs.get(name)}
    of_course = (workspace.root / name for name in sorted(differing) if not _is_learners(name))
    plan.unrecorded = [path for path in of_course if path not in plan.files]
    known, newer = (files.get(SYLLABUS) for files in (base or recorded, theirs))
    if known and newer:
        syllabuses = [git.content(entry).decode() for entry in (known, newer)]
        plan.changed, plan.added = changed_contracts(*syllabuses), new_tasks(*syllabuses)
    _Merges(plan, workspace, git, base, theirs).plan()
    return plan


def _is_learners(name: str) -> bool:
    return name.startswith(LEARNERS) and name.endswith(SUFFIXES)


def _plan_file(plan: UpdatePlan, path: Path, entry: GitFile, known: GitFile | None, git: Git) -> None:
    """Plan the update of a file of the course. known: the file in the course from which the clone was made."""
    now = content_of(path)
    if now is not None and entry.holds(now):
        return
    if now is not None and not (known and known.holds(now)):
        plan.edited.append(path)
    plan.put(path, git.content(entry))
    if entry.is_executable:
        plan.executable.append(path)


class _Merges:
    """The plan for the learner's files. A file's name is its path in the learner's package."""

    def __init__(
        self,
        plan: UpdatePlan,
        workspace: Workspace,
        git: Git,
        base: Mapping[str, GitFile],
        theirs: Mapping[str, GitFile],
    ):
        self._plan = plan
        self._workspace = workspace
        self._git, self._base = git, base
        entries = {name.removeprefix(LEARNERS): entry for name, entry in theirs.items() if _is_learners(name)}
        changed = [name for name, entry in entries.items() if base.get(LEARNERS + name) != entry]
        missing = [name for name in entries if not self._path(name).exists()]
        days = [day_of(task) for task in plan.changed]
        asked = [f"{module}{suffix}" for day in days for module in day.modules for suffix in SUFFIXES]
        wanted = dict.fromkeys([*changed, *missing, *(name for name in asked if name in entries)])
        self._new = {name: git.content(entries[name]).decode() for name in wanted}
        of_course = {name.removeprefix(LEARNERS) for name in base if _is_learners(name)}
        stubs = of_course or {file.relative_to(workspace.package).as_posix() for file in workspace.all_files()}
        self._gone = sorted(stubs - entries.keys())
        self._shared = shared_places(self._gone, theirs)
        self._old = {name: self._stub(name) for name in sorted(stubs & {*self._new, *self._gone})}
        self._yours = {name: text for name in [*self._new, *self._gone] if (text := self._read(name)) is not None}
        self._original = dict(self._yours)
        self._helpers: dict[str, frozenset[str]] = {}  # file -> your definitions that changed tasks' code uses

    def plan(self) -> None:
        if self._plan.refused:
            return
        try:
            self._retire()
            moves = self._moves()
        except SpliceError as error:
            self._refuse(error, "")
            return
        for name, new in self._new.items():
            self._plan_one(name, new, moves.get(name, Moves()))
        self._follow()

    def _retire(self) -> None:
        """Put stubs in place of the learner's code for tasks whose contracts have changed."""
        for name in [name for name in self._yours if name in self._old]:
            retired = retire(self._yours[name], self._old[name], self._shown(name), self._plan.changed)
            self._yours[name], self._helpers[name] = retired.text, retired.helpers
            for task, code in retired.code.items():
                left = self._plan.changed[task]
                new = {self._path(other): code_of_task(text, task, other, left) for other, text in self._new.items()}
                kept = self._workspace.root / OLD / f"{task}{Path(name).suffix}"
                asked = {path: text for path, text in new.items() if text}
                self._plan.old.append(Old(task, self._path(name), kept, code, asked))

    def _moves(self) -> dict[str, Moves]:
        """Move the text of each removed file to its heir. Then return the tasks that moved, keyed by file."""
        self._inherit()
        arrived: dict[str, dict[str, str]] = {}
        left: dict[str, dict[str, str]] = {}
        for name, here, there in moved_tasks(self._old, self._new):
            if self._is_written(name, here):
                if self._is_written(name, there):  # the learner wrote the task in both files, so both stay
                    continue
                source = self._yours[here] if is_native(here) else relocated(self._yours[here], here, there)
                arrived.setdefault(there, {})[name] = source
                self._plan.carried.append((name, self._path(here), self._path(there)))
            left.setdefault(here, {})[name] = relative_module(there, here)
        return {name: Moves(arrived.get(name, {}), left.get(name, {})) for name in self._new}

    def _is_written(self, task: str, name: str) -> bool:
        return name in self._yours and task in written(self._yours[name], [task], self._shown(name))

    def _inherit(self) -> None:
        heir_of = heirs(self._old, self._new)
        for name in self._gone:
            if name not in self._yours:
                continue
            heir = heir_of.get(name)
            if heir and heir not in self._yours:
                written(self._yours[name], (), self._shown(name))  # raises an error if the file cannot be parsed
                for texts in (self._yours, self._old):
                    texts[heir] = texts[name] if is_native(name) else relocated(texts[name], name, heir)
                del self._old[name]
                self._plan.moved.append((self._path(name), self._path(heir)))
                self._plan.put(self._path(name), None)
            elif self._is_untouched(name) or self._has_moved(name):
                self._plan.dropped += [] if self._is_untouched(name) else [self._path(name)]
                self._plan.put(self._path(name), None)
            elif name in self._shared and not self._own_definitions(name):
                self._plan.shared.append((self._path(name), self._workspace.root / "src" / self._shared[name]))
                self._plan.put(self._path(name), None)
            elif self._has_no_more_use(name):
                self._plan.outdated.append(self._path(name))
                self._plan.put(self._path(name), None)
            else:
                self._plan.kept.append(self._path(name))

    def _has_moved(self, name: str) -> bool:
        """Tell whether all tasks that the learner wrote in this file are in another file now."""
        tasks = tasks_by_name(self._old[name], name)
        moved = {task for task, here, _ in moved_tasks(self._old, self._new) if here == name}
        return bool(moved) and {*written(self._yours[name], tasks, self._shown(name))} <= moved

    def _has_no_more_use(self, name: str) -> bool:
        """Tell whether a Python file has neither code for tasks nor other definitions that the learner still needs."""
        if is_native(name):
            return False
        tasks = tasks_by_name(self._old[name], name)
        own = self._own_definitions(name)
        return own <= self._helpers.get(name, frozenset()) and not written(self._yours[name], tasks, self._shown(name))

    def _own_definitions(self, name: str) -> set[str]:
        """Return the names that the learner defined in a Python file."""
        return set() if is_native(name) else {*definitions(self._yours[name])} - {*definitions(self._old[name])}

    def _follow(self) -> None:
        """In all of the learner's modules, redirect imports of files that are now in a shared package."""
        gone = {
            name: place for name, place in self._shared.items() if self._plan.files.get(self._path(name), b"") is None
        }
        places = {name: place[:-3].replace("/", ".") for name, place in gone.items() if name.endswith(".py")}
        for path in sorted(self._workspace.package.rglob("*.py")) if places else ():
            content = self._plan.files.get(path, content_of(path))
            if content is None:
                continue
            with suppress(SyntaxError, UnicodeDecodeError):  # the learner's other files may be faulty
                text = decoded(content)
                followed = redirected(text, path.relative_to(self._workspace.package).as_posix(), places)
                if followed != text:
                    self._plan.followed += [] if path in self._plan.merged else [path]
                    self._plan.put(path, encoded(followed, content))

    def _is_untouched(self, name: str) -> bool:
        return unix_ends(self._yours[name]) == unix_ends(self._old.get(name, ""))

    def _plan_one(self, name: str, new: str, moves: Moves) -> None:
        path = self._path(name)
        before = content_of(path)
        yours, old = self._yours.get(name, new), self._old.get(name, new)
        if name not in self._old:  # the file is new to the course
            self._plan.edited += [path] if yours != new else []
            yours = new
        try:
            merged = merge(yours, old, new, self._shown(name), moves)
        except SpliceError as error:
            self._refuse(error, name)
            return
        self._plan.signatures += [(path, *pair) for pair in merged.signatures]
        self._plan.replaced += [(path, self._in_original(name, lines)) for lines in merged.replaced]
        content = encoded(merged.text, before or b"")
        if content != before:
            self._plan.put(path, content)
            self._plan.merged += [path] if name in self._yours else []

    def _in_original(self, name: str, lines: LostLines) -> LostLines:
        """Return the numbers that these lines had in the learner's file before `_retire` put stubs into it."""
        mine, original = self._yours.get(name, ""), self._original.get(name, "")
        if mine == original or not original:
            return lines
        blocks = SequenceMatcher(None, lines_of(mine), lines_of(original), autojunk=False).get_matching_blocks()
        shifts = {block.a + i + 1: block.b - block.a for block in blocks for i in range(block.size)}
        return replace(
            lines,
            first=lines.first + shifts.get(lines.first, 0),
            last=lines.last + shifts.get(lines.last, 0),
        )

    def _refuse(self, error: SpliceError, name: str) -> None:
        if isinstance(error, UnfitError):
            self._plan.refused.append(phrase("update_unfit", file=self._shown(name)))
        else:
            self._plan.refused.append(phrase("splice_unreadable", reason=error.__cause__ or error))

    def _stub(self, name: str) -> str:
        """Return the stub from which the learner's file began."""
        if entry := self._base.get(LEARNERS + name):
            return self._git.content(entry).decode()
        try:
            return self._workspace.stub(self._path(name))
        except (StubError, UnicodeDecodeError) as error:  # someone has edited the reference
            self._plan.refused.append(phrase("update_reference", reason=error))
            return ""

    def _read(self, name: str) -> str | None:
        content = content_of(self._path(name))
        try:
            return None if content is None else decoded(content)
        except UnicodeDecodeError as error:
            self._plan.refused.append(phrase("not_utf8", file=self._shown(name), reason=error))
            return None

    def _path(self, name: str) -> Path:
        return self._workspace.package / name

    def _shown(self, name: str) -> str:
        return os.path.relpath(self._path(name))
