"""`tiny-llm test`: the tests of a week, a day or a task, in a pytest of their own."""

from __future__ import annotations

import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from .syllabus import Day, select_days

__all__ = ["ROOT", "Impl", "run"]

ROOT = Path(__file__).resolve().parents[2]  # of the clone: the course is installed from it, not copied out of it


class Impl(str, Enum):
    """Whose code runs."""

    mine = "mine"
    ref = "ref"

    @property
    def package(self) -> str:
        return {"mine": "tiny_llm", "ref": "tiny_llm_ref"}[self.value]


def run(
    context: typer.Context,
    week: Annotated[str | None, typer.Option(metavar="N", help="Only this week.")] = None,
    day: Annotated[str | None, typer.Option(metavar="N", help="Only this day of the week.")] = None,
    impl: Annotated[Impl, typer.Option(help="Test your code (src/tiny_llm) or the reference.")] = Impl.mine,
) -> None:
    """Run the tests of the course, or of a week, a day, a task. What is not known here goes to pytest.

    tiny-llm test --week 1 --day 1 -- -k task_1
    """
    try:
        days = select_days(week, day)
    except ValueError as error:
        typer.echo(f"tiny-llm test: {error}", err=True)
        raise typer.Exit(2) from None
    raise typer.Exit(_pytest(days, impl, context.args))


def _pytest(days: list[Day], impl: Impl, arguments: list[str]) -> int:
    """Its exit code. In a subprocess, so that no error in a learner's file reaches this command."""
    files = [str(ROOT / "tests" / day.test_file) for day in days]
    if not Path(files[0]).exists():
        typer.echo(f"tiny-llm test: the tests are not in {ROOT / 'tests'}; run it in a clone of the course", err=True)
        return 2
    options = ["-q", "--no-header", "--tb=short", f"--rootdir={ROOT}", "-c", str(ROOT / "pyproject.toml")]
    options += ["-p", "no:hypothesispytest", "-p", "no:anyio"]  # a second of imports that no day test needs
    command = [sys.executable, "-m", "pytest", *options, f"--impl={impl.package}", *arguments, *files]
    process = subprocess.Popen(command)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # pytest got it too, and ends with its own summary
            continue
