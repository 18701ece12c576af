"""Shows how a test run ended: the first failure with its explanation, or the lessons of the solved tasks."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ..catalogue import entry_of
from ..diagnosis.ahead import compile_ahead
from ..diagnosis.second_look import show_second_look
from ..learner.workspace import CodePlace
from ..pytest_runs.test_run import PytestRun, Result
from ..tasks.syllabus import TaskId, day_of
from ..ui import Messages, show, wrapped
from .progress_change import ProgressChange
from .remarks import show_remarks
from .task_lines import open_task_of

__all__ = ["A_LINE", "compile_rest", "offer_report", "show_failure", "show_outcome"]

A_LINE = re.compile(r'\.(py|cpp|h|metal)(:|", line )\d')  # a file and a line number, in a message


def compile_rest(done: PytestRun) -> None:
    """Compile, in the background, the known mistakes that the run had no time to try on each task's first failure."""
    for task in done.left:
        failed = next(result.test for result in done.of(task) if result.outcome == "failed")
        compile_ahead(day_of(task), failed)


def show_outcome(done: PytestRun, kept: ProgressChange, every: bool, words: Messages) -> bool:
    """Show the first failure or stub, and the lesson of each newly solved task.

    Return whether a failure was explained.
    """
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


def offer_report(done: PytestRun, words: Messages) -> None:
    """Offer `report` if the first failure matches no known mistake and shows no line of code."""
    first = next(iter(done.failures), None)
    if first and not (first.task in (done.named | done.left) or first.frames or A_LINE.search(first.message)):
        show(words("report_offer", task=first.task), dim=True)


def show_failure(failure: Result, done: PytestRun, words: Messages) -> bool:
    """Show the message of a failure, the lines that led to the failure, and its explanation if there is one.

    Return whether a known mistake, advice or a second look (second_look.py) explains the failure.
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


def _show_stub(stub: Result, stubs: dict[TaskId, CodePlace], words: Messages) -> None:
    """Show where the learner still has to write code."""
    task = open_task_of(stub)
    show(f"NotImplementedError: {stub.stub['message'].partition('. ')[0]}.", fg="yellow")
    # look in `stubs` first, because the error of a stub in C++ or Metal names a Python file
    location = stubs.get(task) or CodePlace(Path(stub.stub["file"]), stub.stub["line"])
    place = f"{os.path.relpath(location.file)}:{location.line}"
    show(words("run_stub", place=place, task=task, command=task.test_command).strip("\n"))
