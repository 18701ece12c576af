"""`tiny-llm grade` and `report`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..files import write_whole
from ..problems import CommandError, reporting
from ..syllabus import select_days
from ..terminal import show
from .formats import EACH, TOGETHER, from_json
from .grades import Grade, Limits, default_jobs, grade_all
from .html_report import html_report
from .submissions import find_submissions

__all__ = ["grade", "report"]

FORMATS = ("table", *TOGETHER, *EACH)


def grade(
    paths: Annotated[
        list[Path], typer.Argument(metavar="DIR_OR_ZIP...", help="Submissions, or folders of submissions.")
    ],
    week: Annotated[str | None, typer.Option(metavar="N", help="Only this week. Default: all.")] = None,
    day: Annotated[str | None, typer.Option(metavar="N", help="Only this day of the week. Default: all.")] = None,
    form: Annotated[
        str, typer.Option("--format", metavar="NAME", help=f"{', '.join(FORMATS)}. The last three: a file each.")
    ] = "table",
    out: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Where to write: a file, or a folder for a file each.")
    ] = None,
    hidden: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder with more tests, marked with tasks.")
    ] = None,
    jobs: Annotated[int, typer.Option(metavar="N", help="How many to grade at once. 0: one for each CPU.")] = 0,
    patience: Annotated[float, typer.Option(metavar="S", help="Seconds that a test waits for one answer.")] = 10,
    seconds: Annotated[float, typer.Option(metavar="S", help="Seconds for all tests of a submission.")] = 300,
    memory: Annotated[int, typer.Option(metavar="MIB", help="Memory of a submission. Not enforced on macOS.")] = 4096,
) -> None:
    """Grade submissions with the course's own tests: a point for each task of which all tests pass.

    The code of a submission runs in a process of its own, which never sees a score.
    """
    with reporting():
        limits = Limits(patience, seconds, memory * 2**20)
        _check(paths, form, out, hidden, jobs, limits)
        days = select_days(week, day)
        submissions = find_submissions(paths)
        progress = _Progress(len(submissions), form == "table" and out is None)
        grades = grade_all(submissions, days, hidden, limits, jobs or default_jobs(), progress.add)
        progress.end()
        if form in EACH:
            assert out
            for one in grades:
                content = json.dumps(EACH[form](one), indent=1, ensure_ascii=False)
                write_whole(out / f"{_file_name(one.name)}.json", content.encode())
        elif form in TOGETHER:
            text = TOGETHER[form](grades)
            if out:
                write_whole(out, text.encode())
            else:
                typer.echo(text, nl=False)


def report(
    grades: Annotated[Path, typer.Argument(metavar="GRADES", help="What `grade --format json --out GRADES` wrote.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write the page.")] = Path("report.html"),
) -> None:
    """Make one page of grades: tasks by students, and the most common mistakes. Beside it the same as CSV."""
    with reporting():
        try:
            found = from_json(grades.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CommandError(f"{grades}: {error}") from None
        write_whole(out, html_report(found).encode())
        write_whole(out.with_suffix(".csv"), TOGETHER["csv"](found).encode())
        show(f"wrote {out} and {out.with_suffix('.csv')}")


def _check(paths: list[Path], form: str, out: Path | None, hidden: Path | None, jobs: int, limits: Limits) -> None:
    for path in paths:
        if not path.exists():
            raise CommandError(f"{path}: there is no such file or folder")
    if form not in FORMATS:
        raise CommandError(f"--format: expected one of {', '.join(FORMATS)}, got {form!r}")
    if form in EACH and out is None:
        raise CommandError(f"--format {form} writes a file for each submission: expected --out FOLDER, got none")
    if hidden is not None and not any(hidden.glob("*.py")):
        raise CommandError(f"--hidden: expected a folder with test files, got {hidden}")
    if jobs < 0 or limits.patience <= 0 or limits.seconds <= 0 or limits.memory <= 0:
        raise CommandError("--jobs, --patience, --seconds, --memory: expected numbers above 0")


class _Progress:
    """A line for each submission as it is graded, and on a terminal a counter."""

    def __init__(self, count: int, prints: bool):
        self._count, self._done, self._prints = count, 0, prints

    def add(self, grade: Grade) -> None:
        self._done += 1
        self._clear()
        if self._prints:
            passed = "".join("x" if task.points else "." if task.outcome == "unsolved" else "-" for task in grade.tasks)
            problem = f"  {grade.problem.splitlines()[0]}" if grade.problem else ""
            show(f"{grade.points:>3} of {len(grade.tasks)}  {passed}  {grade.name}{problem}")
        if sys.stderr.isatty():
            typer.echo(f"{self._done} of {self._count} graded", nl=False, err=True)

    def end(self) -> None:
        self._clear()
        if self._prints:
            show("x passed, - failed, . not begun; one sign a task", dim=True)

    @staticmethod
    def _clear() -> None:
        if sys.stderr.isatty():
            typer.echo("\r\x1b[K", nl=False, err=True)


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.()-]+", "_", name).lstrip(".") or "submission"
