"""`tiny-llm grade` and `grade-report`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from .. import bridge
from ..asked import asked_days
from ..build_ext import has_kernels
from ..files import write_whole
from ..language import Lang, Messages, phrase
from ..problems import CommandError, one_of, os_reason, reporting, say
from ..runner import processors
from ..terminal import show
from ..workspace import Workspace
from .formats import EACH, TOGETHER, from_json, legend, table_line
from .grades import Grade, Limits, grade_all
from .html_report import html_report
from .submissions import find_submissions

__all__ = ["grade", "grade_report"]

FORMATS = (*TOGETHER, *EACH)


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
    lang: Lang = None,
) -> None:
    """Grade submissions with the course's own tests: a point for each task of which all tests pass.

    The code of a submission runs in a process of its own, which never sees a score.
    """
    with reporting(lang) as words:
        limits = Limits(patience, seconds, memory * 2**20)
        _check(paths, form, out, hidden, jobs, limits)
        days = asked_days(week, day)
        if has_kernels(days) and not bridge.is_current(Workspace().reference):
            bridge.build([Workspace().reference], words, say)
        submissions = find_submissions(paths)
        live = form == "table" and out is None
        progress = _Progress([submission.name for submission in submissions], live)
        grades = grade_all(submissions, days, hidden, limits, jobs or processors(), progress.add)
        progress.end()
        if form in EACH:
            assert out
            for one in grades:
                content = json.dumps(EACH[form](one), indent=1, ensure_ascii=False)
                write_whole(out / f"{_file_name(one.name)}.json", content.encode())
            say(words("grade_wrote", count=len(grades), folder=out))
        elif out:
            write_whole(out, TOGETHER[form](grades).encode())
            say(words("viz_wrote", file=out))
        elif not live:
            typer.echo(TOGETHER[form](grades), nl=False)


def grade_report(
    grades: Annotated[Path, typer.Argument(metavar="GRADES", help="What `grade --format json --out GRADES` wrote.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write the page.")] = Path("report.html"),
    lang: Lang = None,
) -> None:
    """Make one page of grades: tasks by students, and the most common mistakes. Beside it the same as CSV."""
    with reporting(lang) as words:
        try:
            found = from_json(grades.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            reason = os_reason(error) if isinstance(error, OSError) else str(error)
            raise CommandError("grades_unreadable", file=grades, reason=reason) from None
        write_whole(out, html_report(found, words).encode())
        write_whole(out.with_suffix(".csv"), TOGETHER["csv"](found).encode())
        show(words("viz_wrote", file=f"{out}, {out.with_suffix('.csv')}"))


def _check(paths: list[Path], form: str, out: Path | None, hidden: Path | None, jobs: int, limits: Limits) -> None:
    for path in paths:
        if not path.exists():
            raise CommandError("no_such_path", path=path)
    if form not in FORMATS:
        raise CommandError("wrong_value", option="--format", expected=one_of(FORMATS), got=form)
    if form in EACH and (out is None or out.is_file()):
        raise CommandError("grade_folder", form=form)
    if form in TOGETHER and out is not None and out.is_dir():
        raise CommandError("grade_file", form=form, out=out)
    if hidden is not None and not any(hidden.glob("*.py")):
        raise CommandError("grade_hidden", folder=hidden)
    if jobs < 0:
        raise CommandError("wrong_value", option="--jobs", expected=phrase("at_least", least=0), got=jobs)
    for option, limit in (
        ("--patience", limits.patience),
        ("--seconds", limits.seconds),
        ("--memory", limits.memory // 2**20),
    ):
        if limit <= 0:
            raise CommandError("wrong_value", option=option, expected=phrase("above", least=0), got=limit)


class _Progress:
    """The table, a line for each submission, in their order and as soon as may be; on a terminal a counter below."""

    def __init__(self, names: list[str], prints: bool):
        self._count, self._prints = len(names), prints
        self._waiting = names
        self._done: dict[str, Grade] = {}

    def add(self, grade: Grade) -> None:
        self._done[grade.name] = grade
        self._clear()
        while self._waiting and self._waiting[0] in self._done:
            line = table_line(self._done[self._waiting.pop(0)])
            if self._prints:
                show(line)
        if sys.stderr.isatty():
            typer.echo(Messages()("grade_done", done=len(self._done), count=self._count), nl=False, err=True)

    def end(self) -> None:
        self._clear()
        if self._prints:
            show(legend(), dim=True)

    @staticmethod
    def _clear() -> None:
        if sys.stderr.isatty():
            typer.echo("\r\x1b[K", nl=False, err=True)


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.()-]+", "_", name).lstrip(".") or "submission"
