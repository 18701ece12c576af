"""`tiny-llm test`: the tests of a week, a day or a task, in a pytest of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from .problems import CommandError, reporting
from .session import PACKAGES, package_of
from .syllabus import Day, select_days

__all__ = ["ROOT", "run"]

ROOT = Path(__file__).resolve().parents[2]  # of the clone: the course is installed from it, not copied out of it


def run(
    context: typer.Context,
    week: Annotated[str | None, typer.Option(metavar="N", help="Only this week. Default: all.")] = None,
    day: Annotated[str | None, typer.Option(metavar="N", help="Only this day of the week. Default: all.")] = None,
    impl: Annotated[
        str,
        typer.Option(metavar="|".join(PACKAGES), help="Whose code is tested: the reference, or yours in src/tiny_llm."),
    ] = "mine",
) -> None:
    """Test the course, a week, a day or a task. What is not known here goes to pytest.

    One task: tiny-llm test --week 1 --day 1 -- -k task_1
    """
    with reporting():
        package = package_of(impl)
        try:
            days = select_days(week, day)
        except ValueError as error:
            raise CommandError(str(error)) from None
        raise typer.Exit(_pytest(days, package, context.args))


def _pytest(days: list[Day], package: str, arguments: list[str]) -> int:
    """Its exit code. In a subprocess, so that no error in a learner's file reaches this command."""
    files = [str(ROOT / "tests" / day.test_file) for day in days]
    if not Path(files[0]).exists():
        raise CommandError(f"the tests are not in {ROOT / 'tests'}; run this in a clone of the course")
    options = ["-q", "--no-header", "--tb=short", f"--rootdir={ROOT}", "-c", str(ROOT / "pyproject.toml")]
    options += ["-p", "no:hypothesispytest", "-p", "no:anyio"]  # a second of imports that no day test needs
    command = [sys.executable, "-m", "pytest", *options, f"--impl={package}", *arguments, *files]
    process = subprocess.Popen(command)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # pytest got it too, and ends with its own summary
            continue
