"""The commands that write into a learner's files: `tiny-llm solution`, `reset` and `undo`. These commands make a backup
first."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Annotated

import typer

from ..base.arguments import TaskArgument, asked_day, asked_task
from ..base.conflict import conflict_in
from ..base.places import ROOT
from ..base.reporting import reporting
from ..tasks.plan import CORE
from ..tasks.regions import is_native
from ..tasks.source_text import decoded, encoded
from ..tasks.splice import SpliceError, UnfitError, definitions, restore, splice
from ..tasks.syllabus import Day, Task, TaskId, day_of
from ..ui import CommandError, Lang, Messages, one_of, phrase, show
from .backups import ChangedSinceError
from .next_steps import chosen_task, show_next
from .progress import SKIPPED
from .workspace import Workspace, changing

__all__ = ["reset", "solution", "undo"]


def solution(
    task: TaskArgument = None,
    apply: Annotated[bool, typer.Option("--apply", help="Write the solution into your file.")] = False,
    day: Annotated[
        str | None,
        typer.Option(metavar="W.D", help="Fill in all open tasks of a day, such as 1.2, and mark them as skipped."),
    ] = None,
    path: Annotated[
        str | None,
        typer.Option(metavar=CORE, help="Fill in the days that this path leaves out before its next task."),
    ] = None,
    lang: Lang = None,
) -> None:
    """Show a task's solution as a diff against your code, or write it into your files."""
    with reporting(lang) as words, changing("solution") as workspace:
        given = [name for name, value in (("TASK", task), ("--day", day), ("--path", path)) if value is not None]
        if len(given) > 1:
            raise CommandError("exclusive", one=given[0], other=given[1])
        if day is not None:
            _fill_in_day(_day(day), workspace, words)
            return
        if path is not None:
            _fill_in_path(path, workspace, words)
            return
        chosen = chosen_task(task, workspace)
        if chosen is None:
            show_next(workspace, words)
        elif not workspace.has_solutions:
            raise CommandError("withheld", task=chosen.id, exit_code=1)
        elif apply:
            _write(
                workspace,
                _with_solutions(workspace, [chosen]),
                {chosen.id: SKIPPED},
                words,
                "what_solution",
                task=chosen.id,
            )
        else:
            _show(workspace, chosen, words)


def reset(
    task: Annotated[str, typer.Argument(metavar="TASK", help="A task's id, such as w1d1.1.")], lang: Lang = None
) -> None:
    """Put a task's stub back in place of your code."""
    with reporting(lang) as words, changing("reset") as workspace:
        chosen = asked_task(task)
        changed = {}
        for file, names in workspace.parts(day_of(chosen.id), chosen.id).items():
            changed[file] = _with_stubs(workspace, file, names, _read(file))
        changed = {file: text for file, text in changed.items() if text != _read(file)}
        if changed:
            _write(workspace, changed, {chosen.id: None}, words, "what_reset", task=chosen.id)
        else:
            show(words("already_stub", task=chosen.id))


def undo(lang: Lang = None) -> None:
    """Take back the last solution, reset or update."""
    with reporting(lang) as words, changing("undo") as workspace:
        try:
            done = workspace.backups.undo()
        except ChangedSinceError as changed:
            file, copy = os.path.relpath(changed.path), os.path.relpath(changed.copy)
            raise CommandError("changed_since", file=file, copy=copy, exit_code=1) from None
        if done is None:
            show(words("nothing_to_undo"))
            return
        show(words("undone", what=words.of(done.reason), files=_listed(done.files, workspace)))


def _fill_in_day(day: Day, workspace: Workspace, words: Messages) -> None:
    open_ = [task for task in day.tasks if workspace.state(task.id) is None]
    if not workspace.has_solutions:
        raise CommandError("withheld", task=day.tasks[0].id, exit_code=1)
    if not open_:
        show(words("day_done", week=day.week, day=day.number))
        return
    listed = ", ".join(str(task.id) for task in open_)
    _fill_in(open_, workspace, words, "what_day", week=day.week, day=day.number, tasks=listed)


def _fill_in_path(path: str, workspace: Workspace, words: Messages) -> None:
    """Fill in the open tasks that a path leaves out before its next task."""
    if path != CORE:
        raise CommandError("wrong_value", option="--path", expected=one_of([CORE]), got=path)
    if not workspace.has_solutions:
        raise CommandError("path_withheld", exit_code=1)
    following = workspace.next_task(path)
    open_ = workspace.left_out(path, following) if following else []
    if not open_:
        show(words("path_filled"))
        return
    days = dict.fromkeys(f"{task.id.week}.{task.id.day}" for task in open_)
    _fill_in(open_, workspace, words, "what_path", days=", ".join(days), count=len(open_))
    show()
    show_next(Workspace(), words)  # a new Workspace, because the files have changed


def _fill_in(open_: list[Task], workspace: Workspace, words: Messages, what: str, **values: object) -> None:
    states: dict[TaskId, str | None] = {task.id: SKIPPED for task in open_}
    _write(workspace, _with_solutions(workspace, open_), states, words, what, **values)


def _with_solutions(workspace: Workspace, chosen: list[Task]) -> dict[Path, str]:
    """Return new texts, keyed by file, for the learner's files in which these tasks are written. In these texts, the
    reference's code replaces the learner's code for the tasks."""
    texts: dict[Path, str] = {}
    for task in chosen:
        for file, names in workspace.parts(day_of(task.id), task.id).items():
            before = texts[file] if file in texts else _read(file)
            texts[file] = _spliced(workspace, file, workspace.solution(file), names, before)
    return texts


def _with_stubs(workspace: Workspace, file: Path, names: list[str], before: str) -> str:
    """Return a learner's file with stubs in place of these functions. If the file no longer has one of the functions,
    the function's stub is added."""
    stub = workspace.stub(file)
    try:
        restored = restore(before or stub, stub, names, os.path.relpath(file))
    except SpliceError as error:
        raise _explained(error, file, names, before) from None
    return _spliced(workspace, file, stub, names, restored)


def _spliced(workspace: Workspace, file: Path, source: str, names: list[str], before: str) -> str:
    try:
        return splice(before or workspace.stub(file), source, names, os.path.relpath(file))
    except SpliceError as error:
        raise _explained(error, file, names, before) from None


def _explained(error: SpliceError, file: Path, names: list[str], before: str) -> CommandError:
    """Explain why a file was not changed: the file cannot be parsed, or lacks the code to replace."""
    name = os.path.relpath(file)
    if problem := conflict_in(ROOT, file):
        return problem
    if isinstance(error, UnfitError):
        return CommandError("splice_unfit", reason=error.__cause__, exit_code=1)
    if error.__cause__ is not None:
        return CommandError("splice_unreadable", reason=error.__cause__, exit_code=1)
    if is_native(file):
        missing = next(task for task in names if f"// task {task} begin" not in before)
        return CommandError("splice_markers", file=name, task=missing, exit_code=1)
    defined = definitions(before)
    missing_names = ", ".join(name for name in names if name not in defined)
    return CommandError("splice_renamed", file=name, names=missing_names, exit_code=1)


def _write(
    workspace: Workspace,
    texts: dict[Path, str],
    states: dict[TaskId, str | None],
    words: Messages,
    what: str,
    **values: object,
) -> None:
    reason = words.in_all(what, **values)
    files: dict[Path, bytes | None] = {
        file: encoded(text, file.read_bytes() if file.exists() else b"") for file, text in texts.items()
    }
    workspace.backups.write(files | {workspace.progress.file: workspace.progress.changed(states)}, reason)
    show(words("wrote", files=_listed(list(files), workspace), what=words.of(reason)))


def _show(workspace: Workspace, task: Task, words: Messages) -> None:
    difference: list[str] = []
    for file, text in _with_solutions(workspace, [task]).items():
        name = file.relative_to(workspace.root).as_posix()
        yours, theirs = _read(file).splitlines(keepends=True), text.splitlines(keepends=True)
        difference += difflib.unified_diff(
            yours, theirs, f"{name} ({words('diff_yours')})", f"{name} ({words('diff_solution')})"
        )
    if not difference:
        show(words("solution_same", task=task.id))
        return
    colours = {"+": "green", "-": "red", "@": "cyan"}
    for line in difference:
        show(line.rstrip("\n"), fg=colours.get(line[0]))
    show("\n" + words("solution_apply", task=task.id), dim=True)


def _day(text: str) -> Day:
    if (day := asked_day(text)) is None:
        raise CommandError("wrong_value", option="--day", expected=phrase("week_and_day"), got=text)
    return day


def _read(file: Path) -> str:
    """Return the text of a learner's file, with its line ends. A missing file counts as empty."""
    if not file.exists():
        return ""
    try:
        return decoded(file.read_bytes())
    except UnicodeDecodeError as error:
        raise CommandError("not_utf8", file=os.path.relpath(file), reason=error, exit_code=1) from None


def _listed(files: list[Path], workspace: Workspace) -> str:
    if len(files) > 9:
        return f"{len(files)}"
    return ", ".join(file.relative_to(workspace.root).as_posix() for file in files)
