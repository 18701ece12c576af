"""`tiny-llm report`: describes an unexplained failure, in a file that you can attach to an issue."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import typer

from ..base.arguments import OUT, Out, TaskArgument
from ..base.machine import about
from ..base.packages import PACKAGES
from ..base.places import ROOT, address
from ..base.reporting import reporting
from ..learner.next_steps import chosen_task, show_next
from ..learner.workspace import Workspace
from ..native import mlx_extension
from ..native.kernel_files import ensure_extension
from ..pytest_runs.test_run import PytestRun, asked_time_limit, run_tests
from ..tasks.syllabus import TaskId, day_of
from ..testing.task_lines import TaskLines, open_task_of
from ..ui import CommandError, Lang, Messages, Phrase, os_reason, phrase, show
from .own_code import own_code
from .reported import SHOWN, SOURCES, written

__all__ = ["report", "write_new"]


def report(task: TaskArgument = None, out: Out = OUT, lang: Lang = None) -> None:
    """Write your code for a task, the failed tests, and the versions of your system and packages into a file that you
    can attach to an issue."""
    with reporting(lang) as words:
        workspace = Workspace()
        chosen = chosen_task(task, workspace)
        if chosen is None:
            show_next(workspace, words)
            return
        if problem := workspace.broken(day_of(chosen.id)):
            raise CommandError("report_broken", problem=problem, exit_code=1)
        code = own_code(workspace, chosen.id)
        run = _tested(chosen.id, workspace, words)
        if run.interrupted:
            raise typer.Exit(130)
        if run.failures or run.problem:
            file = write_new(out, chosen.id, written(chosen, code, run, list(_versions())))
            names = ", ".join(SOURCES + path for path in code)
            shown = min(len(run.failures), SHOWN)
            text = words("report_wrote", file=file, task=chosen.id, code=names, shown=shown, issue=_issue())
            show("\n" + text.strip("\n"))
            if chosen.id in run.named:
                show("\n" + words("report_named", id=run.named[chosen.id], command=chosen.id.test_command))
        elif stubs := [result for result in run.results if result.outcome == "unsolved"]:
            raise CommandError("report_stub", stub=min(map(open_task_of, stubs)), exit_code=1)
        else:
            show("\n" + words("report_passed", task=chosen.id))


def _tested(task: TaskId, workspace: Workspace, words: Messages) -> PytestRun:
    """Run all tests of the task as `test` does, and show the task's line."""
    days, package = [day_of(task)], PACKAGES["mine"]
    ensure_extension(package, days, words)
    lines = TaskLines(days, workspace, words)
    run = run_tests(days, package, ["-k", f"test_task_{task.task}_"], lines.update, time_limit=asked_time_limit())
    lines.finish(run)
    return run


def write_new(folder: Path, task: TaskId, text: str) -> Path:
    """Write the report into a new file, and return the file's path. Older reports are kept."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = (f"report-{task}{f'-{number}' if number > 1 else ''}.md" for number in count(1))
        file = next(folder / name for name in names if not (folder / name).exists())
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError("viz_out_folder", folder=folder, reason=os_reason(error)) from None
    return file


def _versions() -> Iterator[str]:
    """Yield lines with the versions on which a test's result can depend. No line identifies a person."""
    known = about("", "tiny-llm", "mlx", "numpy")
    if commit := _commit():
        yield f"course: commit {commit}"
    yield ", ".join(f"{name} {number}" for name, number in known["versions"].items())
    yield f"compiler: {mlx_extension.compiler() or 'none'}"
    yield f"machine: {known['machine']}"
    yield f"system: {platform.platform()}"


def _commit() -> str:
    """Return the last commit that changed the course's commands. A learner's own commits do not count, because they do
    not change commands. Return "" if git is missing."""
    if shutil.which("git") is None:
        return ""
    command = ["git", "log", "-1", "--format=%h", "--", "src/tiny_llm_course"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def _issue() -> Phrase:
    """Return a phrase that says where to send reports: to the project's issues, if the project has an address."""
    url = address()
    return phrase("report_issue_at", address=f"{url}/issues") if url else phrase("report_issue")
