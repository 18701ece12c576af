"""`tiny-llm test`: runs the tests of a week, a day or a task, and shows a line for each task and the first failure."""

from __future__ import annotations

import math
import os
import re
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from ..catalogue import entry_of
from ..learner.asked import asked_day, asked_days, asked_task
from ..learner.conflict import conflict_in_package
from ..learner.next_steps import show_next_step
from ..learner.packages import PACKAGES, package_of
from ..learner.places import ROOT
from ..learner.progress import SKIPPED, SOLVED
from ..learner.reporting import reporting
from ..learner.workspace import Place, Workspace, changing
from ..native.kernel_files import ensure_extension
from ..native.machine import processors
from ..tasks.syllabus import Day, TaskId, day_of
from ..ui import CommandError, Lang, Messages, phrase, show, wrapped
from .ahead import compile_ahead
from .pytest_process import TIME_LIMIT, Result, Run, files_of, pytest_command, run_tests
from .remarks import show_remarks
from .second_look import show_second_look
from .task_lines import TaskLines, open_task_of

__all__ = [
    "Kept",
    "compile_rest",
    "keep_progress",
    "offer_report",
    "run",
    "show_failure",
    "show_outcome",
    "time_limit",
]

A_LINE = re.compile(r'\.(py|cpp|h|metal)(:|", line )\d')  # a file and a line number, in a message
NONE_CHOSEN = 5  # pytest's exit code
MAX_PROCESSES = 8  # each needs about a quarter of a gigabyte


def run(
    context: typer.Context,
    week: Annotated[str | None, typer.Option(metavar="N", help="Only this week. Default: all.")] = None,
    day: Annotated[str | None, typer.Option(metavar="N", help="Only this day of the week. Default: all.")] = None,
    impl: Annotated[
        str,
        typer.Option(metavar="|".join(PACKAGES), help="Whose code is tested: the reference, or yours in src/tiny_llm."),
    ] = "mine",
    every: Annotated[bool, typer.Option("--all", help="Show every failure, not only the first.")] = False,
    lang: Lang = None,
) -> None:
    """Test the course, a week, a day or a task, and show the first thing to mend.

    One task: ./course test w1d1.1, or ./course test --week 1 --day 1 -- -k task_1. One day: ./course test w1d1
    Any other option goes to pytest, whose own output is then shown: -v, -x, --lf, --pdb, --junitxml=FILE, ...
    A test may take 30 seconds, compiling aside. A slow machine can have more: TINY_LLM_TIME_LIMIT=90 ./course test
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
    if found := asked_day(re.sub(r"^w(\d+)d(\d+)$", r"\1.\2", name)):
        return [found], arguments[1:]
    if re.match(r"w\d", name):
        task = asked_task(arguments[0]).id
        return [day_of(task)], ["-k", f"test_task_{task.task}_", *arguments[1:]]
    return asked_days(week, day), arguments


def _chooses_only(arguments: list[str]) -> bool:
    """Tell whether the arguments for pytest only choose tests."""
    return not arguments or (arguments[0] == "-k" and len(arguments) == 2)


def time_limit() -> float:
    """Return how many seconds a test may take: TINY_LLM_TIME_LIMIT from the environment, or the default.

    Raises:
        CommandError: TINY_LLM_TIME_LIMIT is not a number above 0.
    """
    text = os.environ.get("TINY_LLM_TIME_LIMIT") or str(TIME_LIMIT)
    with suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise CommandError("wrong_value", option="TINY_LLM_TIME_LIMIT", expected=phrase("above", least=0), got=text)


def _pytest(days: list[Day], package: str, arguments: list[str]) -> int:
    """Run pytest in a subprocess, so that no error in a learner's file reaches this command. Return its exit code."""
    arguments = [f"--time-limit={time_limit()}", *arguments]
    process = subprocess.Popen(pytest_command(files_of(days), package, arguments))
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # pytest got it too, and ends with its own summary
            continue


def _summarised(days: list[Day], package: str, arguments: list[str], every: bool, words: Messages) -> int:
    """Run the tests, show what became of them, and return the exit code."""
    is_mine = package == PACKAGES["mine"]
    lines = TaskLines(days, Workspace() if is_mine else None, words)
    if is_mine and len(days) == 1:
        compile_ahead(days[0])
    jobs = min(processors(), MAX_PROCESSES)
    done = run_tests(days, package, arguments, lines.update, time_limit=time_limit(), jobs=jobs)
    lines.finish(done)
    if not done.results and not done.problem:
        raise _nothing_chosen(days, arguments)
    workspace, kept = _kept(done) if is_mine else (Workspace(), Kept())
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


def compile_rest(done: Run) -> None:
    """Compile in the background the known mistakes that there was no time to try on each task's first failure."""
    for task in done.left:
        failed = next(result.test for result in done.of(task) if result.outcome == "failed")
        compile_ahead(day_of(task), failed)


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


@dataclass
class Kept:
    """What a run changes in the learner's progress."""

    solved: list[TaskId] = field(default_factory=list)  # by this run, and not before
    skipped: list[TaskId] = field(default_factory=list)  # still marked as skipped, though their tests passed
    stubs: dict[TaskId, Place] = field(default_factory=dict)  # where each unfinished task's first stub is


def _kept(done: Run) -> tuple[Workspace, Kept]:
    """Record a run in the learner's progress. Return the workspace, and what the run changed."""
    with changing("test") as workspace:
        return workspace, keep_progress(workspace, done)


def keep_progress(workspace: Workspace, done: Run) -> Kept:
    """Record which tasks are solved and which mistakes were named."""
    states: dict[TaskId, str | None] = {}
    kept = Kept(stubs=workspace.stubs)
    diagnosed: dict[TaskId, str | None] = {}
    for task in done.collected:
        results = done.of(task)
        before = workspace.state(task)
        if done.is_solved(task):
            states[task] = before or SOLVED  # a task that was skipped stays so
            kept.solved += [task] if before is None else []
            kept.skipped += [task] if before == SKIPPED else []
        elif any(result.outcome != "passed" for result in results):
            states[task] = None
        if results:
            diagnosed[task] = done.named.get(task)
    workspace.note("diagnosed", diagnosed)
    workspace.progress.set(states)
    return kept


def show_outcome(done: Run, kept: Kept, every: bool, words: Messages) -> bool:
    """Show the first failure or stub, and what was learned. Return whether a failure was explained."""
    failures, is_explained = done.failures, False
    stubs = [result for result in done.results if result.outcome == "unsolved"]
    if done.problem and all(failure.message != done.problem for failure in failures):
        show()
        show(words("run_ended", test=done.running or "pytest", problem=done.problem).strip("\n"), fg="red")
    for failure in failures if every else failures[:1]:
        show()
        is_explained |= show_failure(failure, done, words)
    if failures and not every:
        first = failures[0].task
        show("\n" + words("run_again", task=first, command=first.test_command).strip("\n"))
    if failures[1:] and not every:
        show("\n" + words("run_more", count=len(failures) - 1), dim=True)
    if done.num_not_run and failures:
        show("\n" + words("run_not_run", count=done.num_not_run), dim=True)
    if stubs and not failures and not done.problem:
        show()
        _show_stub(min(stubs, key=open_task_of), kept.stubs, words)
    if kept.skipped:
        listed = ", ".join(map(str, kept.skipped))
        show("\n" + words("run_skipped", tasks=listed, first=kept.skipped[0]).strip("\n"), dim=True)
    for new in kept.solved:
        show()
        show(words("learned", task=new), fg="green")
        show(wrapped(words.of(entry_of(new).learned)))
    show_remarks(done, words)
    show(words("run_seconds", count=len(done.results), seconds=f"{done.seconds:.1f}"), dim=True)
    return is_explained


def offer_report(done: Run, words: Messages) -> None:
    """Offer `report` if the first failure names neither a known mistake nor a line of code."""
    first = next(iter(done.failures), None)
    if first and not (first.task in (done.named | done.left) or first.frames or A_LINE.search(first.message)):
        show(words("report_offer", task=first.task), dim=True)


def show_failure(failure: Result, done: Run, words: Messages) -> bool:
    """Show what a test expected, what it got, where, and the mistake that explains it, if it is a known one.

    Returns whether anything explains it: that mistake, advice, or a second look.
    """
    show(f"{failure.task}: {failure.test}", fg="red", bold=True)
    if failure.doc:
        show(f"  {failure.doc}".replace("\n", "\n  "), italic=True)
    for frame in failure.frames[-3:]:
        show(f"  {os.path.relpath(frame['file'])}:{frame['line']} ({frame['function']})")
        show(f"      {frame['code']}")
    show("  " + failure.message.replace("\n", "\n  "))
    if failure.printed:
        show(f"  {words('run_printed')}\n  " + failure.printed.rstrip().replace("\n", "\n  "), dim=True)
    if mistake := entry_of(failure.task).mistake(done.named.get(failure.task)):
        show(f"\n{words('run_named')} ({mistake.id})", fg="yellow", bold=True)
        show(wrapped(words.of(mistake.diagnosis)))
    elif failure.advice:
        key, values = failure.advice
        show("\n" + wrapped(words(key, **values)), fg="yellow")
    elif left := done.left.get(failure.task):
        show("\n" + words("run_left", compared=left[1] - left[0], count=left[1]).strip("\n"), dim=True)
    seen = mistake is None and show_second_look(failure, done, words)
    return bool(mistake or failure.advice or seen)


def _show_stub(stub: Result, stubs: dict[TaskId, Place], words: Messages) -> None:
    """Show where code is still to be written."""
    task = open_task_of(stub)
    show(f"NotImplementedError: {stub.stub['message'].partition('. ')[0]}.", fg="yellow")
    found = stubs.get(task) or Place(Path(stub.stub["file"]), stub.stub["line"])  # a Python file raises a kernel's stub
    place = f"{os.path.relpath(found.file)}:{found.line}"
    show(words("run_stub", place=place, task=task, command=task.test_command).strip("\n"))
