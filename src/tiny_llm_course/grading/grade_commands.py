"""`tiny-llm grade` and `grade-report`."""

from __future__ import annotations

import json
import re
from itertools import count
from pathlib import Path
from typing import Annotated

import typer

from ..base.arguments import asked_days
from ..base.machine import processors
from ..base.reporting import reporting
from ..base.whole_files import write_whole
from ..learner.workspace import Workspace
from ..native import mlx_extension
from ..native.kernel_files import has_kernels
from ..ui import CommandError, Lang, Messages, one_of, os_reason, phrase, show, show_note
from .board import Board
from .ending import like_ctrl_c
from .formats import EACH, TOGETHER, from_json
from .grades import Grade, GradingLimits, grade_all
from .html_report import html_report
from .kept_grades import KeptGrades
from .protection import protection, told
from .sandbox import NONE
from .submissions import find_submissions

__all__ = ["grade", "grade_report"]

FORMATS = (*TOGETHER, *EACH)
LONGEST = 200  # the most bytes of a file's name, not counting the suffix


def grade(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Submissions, or folders of submissions.")],
    week: Annotated[str | None, typer.Option(metavar="N", help="Only this week. Default: all weeks.")] = None,
    day: Annotated[str | None, typer.Option(metavar="N", help="Only this day of that week. Default: all days.")] = None,
    form: Annotated[
        str,
        typer.Option(
            "--format", metavar="NAME", help=f"{', '.join(FORMATS)}. The last three write a file per submission."
        ),
    ] = "table",
    out: Annotated[
        Path | None, typer.Option(metavar="PATH", help="The file to write, or the folder for a file per submission.")
    ] = None,
    hidden: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A folder with more tests. Each test is marked with its task.")
    ] = None,
    jobs: Annotated[
        int, typer.Option(metavar="N", help="How many submissions to grade at once. 0 means one per CPU.")
    ] = 0,
    patience: Annotated[
        float, typer.Option(metavar="S", help="Seconds that a test waits for one answer from the submission.")
    ] = 10,
    seconds: Annotated[float, typer.Option(metavar="S", help="Seconds for all tests of a submission.")] = 300,
    memory: Annotated[
        int, typer.Option(metavar="MIB", help="Memory that a submission may use. Not enforced on macOS.")
    ] = 4096,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Grade everything again, even if nothing has changed.")
    ] = False,
    untrusted: Annotated[bool, typer.Option("--untrusted", help="Refuse to grade without a sandbox.")] = False,
    lang: Lang = None,
) -> None:
    """Grade submissions with the course's own tests: a point for each task whose tests all pass.

    The code of a submission runs in a process of its own, which never sees a score.

    A submission is a folder, a ZIP or tar archive, or a single file such as lee_attention.py.
    The table has a row per submission. If a submission has no package tiny_llm, the row says what was found instead.

    Finished grades are kept in .tiny-llm/grades. If you interrupt the command, run it again to grade the rest.
    A submission is graded again if the submission, the tests or the course has changed.
    """
    with reporting(lang) as words, like_ctrl_c():
        limits = GradingLimits(patience, seconds, memory * 2**20, protection().sandbox)
        _check(paths, form, out, hidden, jobs, limits)
        if untrusted and limits.sandbox == NONE:
            raise CommandError("grade_untrusted", reason=protection().reason, exit_code=1)
        days = asked_days(week, day)
        if has_kernels(days) and not mlx_extension.is_current(Workspace().native):
            mlx_extension.build(Workspace().native, words, show_note)
        submissions = find_submissions(paths, out)
        kept = KeptGrades(Workspace().root / ".tiny-llm" / "grades", days, hidden, limits)
        taken_over = {} if fresh else kept.find(submissions)
        if taken_over:
            show_note(words("grade_taken_over", taken=len(taken_over), count=len(submissions)))
        board = Board(submissions, kept, prints=form == "table" and out is None)
        for grade in taken_over.values():
            board.show(grade)
        open_ = [submission for submission in submissions if submission.name not in taken_over]
        try:
            grade_all(open_, days, hidden, limits, jobs or processors(), board.add)
        except KeyboardInterrupt:
            board.interrupt(words)
            raise
        board.end(words)
        if form != "table" or out:
            show_note(told())
        _write(board.grades, form, out, words)


def _write(grades: list[Grade], form: str, out: Path | None, words: Messages) -> None:
    if form in EACH:
        assert out
        for one, file in zip(grades, _file_names([grade.name for grade in grades]), strict=True):
            content = json.dumps(EACH[form](one), indent=1, ensure_ascii=False)
            write_whole(out / file, content.encode())
        show_note(words("grade_wrote", count=len(grades), folder=out))
    elif out:
        write_whole(out, TOGETHER[form](grades).encode())
        show_note(words("viz_wrote", file=out))
    elif form != "table":
        typer.echo(TOGETHER[form](grades).encode(), nl=False)  # UTF-8, whatever the locale


def grade_report(
    grades: Annotated[Path, typer.Argument(metavar="GRADES", help="The file from `grade --format json --out GRADES`.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write the page.")] = Path("report.html"),
    lang: Lang = None,
) -> None:
    """Make a page with each student's grade for each task, and with the most common mistakes. Also write the grades to
    a CSV file next to the page."""
    with reporting(lang) as words:
        try:
            read = from_json(grades.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            reason = os_reason(error) if isinstance(error, OSError) else str(error)
            raise CommandError("grades_unreadable", file=grades, reason=reason) from None
        write_whole(out, html_report(read, words).encode())
        write_whole(out.with_suffix(".csv"), TOGETHER["csv"](read).encode())
        show(words("viz_wrote", file=f"{out}, {out.with_suffix('.csv')}"))


def _check(
    paths: list[Path], form: str, out: Path | None, hidden: Path | None, jobs: int, limits: GradingLimits
) -> None:
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


def _file_names(names: list[str]) -> list[str]:
    """Choose a different file name for each grade, even if two submissions' names differ only in characters that a file
    name cannot have."""
    files: list[str] = []
    taken: set[str] = set()
    for name in names:
        stem = re.sub(r"[^\w.()-]+", "_", name).lstrip(".") or "submission"
        stem = stem.encode()[:LONGEST].decode(errors="ignore")
        numbered = (f"{stem}.json" if number == 1 else f"{stem}-{number}.json" for number in count(1))
        files.append(next(file for file in numbered if file.casefold() not in taken))
        taken.add(files[-1].casefold())
    return files
