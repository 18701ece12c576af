"""Shows the progress of grading."""

from __future__ import annotations

import io
import sys

import typer

from ..ui import Messages, os_reason, show, show_note
from .formats import legend, table_line
from .grades import Grade
from .kept_grades import KeptGrades
from .protection import told
from .submissions import Submission

__all__ = ["Board"]


class Board:
    """The display of grades while submissions are graded. The board also saves each finished grade.

    prints: whether to print a table with a line for each submission. The lines keep the order of the submissions, and
    each line is printed as early as this order allows. A terminal also shows a counter after the table.
    """

    def __init__(self, submissions: list[Submission], kept: KeptGrades, prints: bool):
        self._submissions, self._kept, self._prints = {one.name: one for one in submissions}, kept, prints
        self._waiting = list(self._submissions)
        self._done: dict[str, Grade] = {}
        self._problem: OSError | None = None  # why a grade could not be saved
        if isinstance(sys.stdout, io.TextIOWrapper):  # names may have characters that the stream's encoding lacks
            sys.stdout.reconfigure(errors="backslashreplace")

    @property
    def grades(self) -> list[Grade]:
        """Return the grades in the order of the submissions."""
        return [self._done[name] for name in self._submissions]

    def add(self, grade: Grade) -> None:
        self._problem = self._kept.add(self._submissions[grade.name], grade) or self._problem
        self.show(grade)

    def show(self, grade: Grade) -> None:
        self._done[grade.name] = grade
        self._clear()
        while self._waiting and self._waiting[0] in self._done:
            line = table_line(self._done[self._waiting.pop(0)])
            if self._prints:
                show(line)
        if sys.stderr.isatty():
            typer.echo(Messages()("grade_done", done=len(self._done), count=len(self._submissions)), nl=False, err=True)

    def end(self, words: Messages) -> None:
        self._clear()
        self._kept.prune()
        self._tell_problem(words)
        if self._prints:
            show(legend(), dim=True)
            show(told())

    def interrupt(self, words: Messages) -> None:
        self._clear()
        self._tell_problem(words)
        show_note(words("grade_unfinished", done=len(self._done), count=len(self._submissions)))

    def _tell_problem(self, words: Messages) -> None:
        if problem := self._problem:
            show_note(words("grade_not_kept", file=problem.filename, reason=os_reason(problem)), style="yellow")

    @staticmethod
    def _clear() -> None:
        if sys.stderr.isatty():
            typer.echo("\r\x1b[K", nl=False, err=True)
