"""`tiny-llm test`: runs the tests of a week, a day or a task, and shows a line for each task and the first failure."""

from __future__ import annotations

import re
import subprocess
from typing import Annotated

import typer

from ..base.arguments import asked_day, asked_days, asked_task
from ..base.conflict import conflict_in_package
from ..base.machine import processors
from ..base.packages import PACKAGES, package_of
from ..base.places import ROOT
from ..base.reporting import reporting
from ..diagnosis.ahead import compile_ahead
from ..learner.next_steps import show_next_step
from ..learner.workspace import Workspace, changing
from ..native.kernel_files import ensure_extension
from ..pytest_runs.test_run import PytestRun, asked_time_limit, files_of, pytest_command, run_tests
from ..tasks.syllabus import Day, day_of
from ..ui import CommandError, Lang, Messages, phrase
from .outcome import compile_rest, offer_report, show_outcome
from .progress_change import ProgressChange, keep_progress
from .task_lines import TaskLines

__all__ = ["run"]

NONE_CHOSEN = 5  # pytest's exit code
MAX_PROCESSES = 8  # each process needs about a quarter of a gigabyte of memory


def run(
    context: typer.Context,
    week: Annotated[str | None, typer.Option(metavar="N", help="Only this week. Default: all weeks.")] = None,
    day: Annotated[str | None, typer.Option(metavar="N", help="Only this day of that week. Default: all days.")] = None,
    impl: Annotated[
        str,
        typer.Option(metavar="|".join(PACKAGES), help="The code to test: the reference's, or yours in src/tiny_llm."),
    ] = "mine",
    every: Annotated[bool, typer.Option("--all", help="Show every failure, not only the first.")] = False,
    lang: Lang = None,
) -> None:
    """Test the course, a week, a day or a task, and show the first problem to fix.

    One task: ./course test w1d1.1, or ./course test --week 1 --day 1 -- -k task_1. One day: ./course test w1d1
    Any other option goes to pytest, whose own output is then shown: -v, -x, --lf, --pdb, --junitxml=FILE, ...
    A test may take 30 seconds, not counting compilation.
    To allow 90 seconds on a slow machine: TINY_LLM_TIME_LIMIT=90 ./course test
    """
    with reporting(lang) as words:
        package = package_of(impl)
        days, arguments = _chosen(context.args, week, day)
        if not (ROOT / "tests" / days[0].test_file).exists():
            raise CommandError("tests_missing", folder=ROOT / "tests")
        if package == PACKAGES["mine"] and (problem := conflict_in_package(ROOT, Workspace().package)):
            raise problem
        ensure_extension(package, days, words)
        if _chooses_only(arguments):
            raise typer.Exit(_summarised(days, package, arguments, every, words))
        raise typer.Exit(_pytest(days, package, arguments))


def _chosen(arguments: list[str], week: str | None, day: str | None) -> tuple[list[Day], list[str]]:
    """Return the days to test and the arguments for pytest.

    The first argument may name a task (w1d2.1) or a day (w1d2 or 1.2).
    """
    name = arguments[0].lower() if arguments else ""
    if asked := asked_day(re.sub(r"^w(\d+)d(\d+)$", r"\1.\2", name)):
        return [asked], arguments[1:]
    if re.match(r"w\d", name):
        task = asked_task(arguments[0]).id
        return [day_of(task)], ["-k", f"test_task_{task.task}_", *arguments[1:]]
    return asked_days(week, day), arguments


def _chooses_only(arguments: list[str]) -> bool:
    """Tell whether the arguments for pytest only choose tests."""
    return not arguments or (arguments[0] == "-k" and len(arguments) == 2)


def _pytest(days: list[Day], package: str, arguments: list[str]) -> int:
    """Run pytest in a subprocess, so that no error in a learner's file reaches this command. Return pytest's exit
    code."""
    arguments = [f"--time-limit={asked_time_limit()}", *arguments]
    process = subprocess.Popen(pytest_command(files_of(days), package, arguments))
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # pytest was interrupted too, and ends with its own summary
            continue


def _summarised(days: list[Day], package: str, arguments: list[str], every: bool, words: Messages) -> int:
    """Run the tests, show their results, and return the exit code."""
    is_mine = package == PACKAGES["mine"]
    lines = TaskLines(days, Workspace() if is_mine else None, words)
    if is_mine and len(days) == 1:
        compile_ahead(days[0])
    jobs = min(processors(), MAX_PROCESSES)
    done = run_tests(days, package, arguments, lines.update, time_limit=asked_time_limit(), jobs=jobs)
    lines.finish(done)
    if not done.results and not done.problem:
        raise _nothing_chosen(days, arguments)
    workspace, kept = _kept(done) if is_mine else (Workspace(), ProgressChange())
    is_explained = show_outcome(done, kept, every, words)
    if is_mine and workspace.has_solutions and not is_explained:
        offer_report(done, words)
    compile_rest(done)
    if done.interrupted:
        return 130
    if done.problem or any(result.outcome != "passed" for result in done.results):
        return 1
    solved = [day for day in days if any(done.is_solved(task.id) for task in day.tasks)]
    if is_mine and solved:
        show_next_step(solved[-1], workspace, words)
    return 0


def _nothing_chosen(days: list[Day], arguments: list[str]) -> CommandError:
    known = [
        phrase(
            "tasks_of_day",
            week=day.week,
            day=day.number,
            tasks=", ".join(f"task_{task.id.task}" for task in day.tasks),
        )
        for day in days
    ]
    return CommandError("no_test_chosen", arguments=" ".join(arguments), known=known, exit_code=NONE_CHOSEN)


def _kept(done: PytestRun) -> tuple[Workspace, ProgressChange]:
    """Record a run in the learner's progress. Return the workspace and the change."""
    with changing("test") as workspace:
        return workspace, keep_progress(workspace, done)
