"""Turns the exceptions of a command into lines for the user and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import typer

from ..tasks.syllabus import TaskId, day_of, weeks
from ..tasks.unsolved import Stub, task_in_message, unsolved
from ..ui.errors import CommandError, one_of, os_reason, show_note
from ..ui.language import LANGUAGES, Messages, phrase, speaking
from .places import SHARED, SRC

__all__ = ["UnfinishedError", "is_learners", "needing", "reporting"]


class UnfinishedError(Exception):
    """The error raised when a command calls a stub."""

    def __init__(self, stubs: list[Stub]):
        super().__init__(stubs)
        self.stubs = stubs  # the stubs that the command needs, in the order of the course


@contextmanager
def needing(tasks: Collection[TaskId]) -> Iterator[None]:
    """Turn a stub's error into an UnfinishedError that lists the remaining stubs of these tasks.

    tasks: the tasks whose code the command needs.

    Raises:
        UnfinishedError: the block called a stub.
    """
    try:
        yield
    except NotImplementedError as error:
        met = task_in_message(str(error))
        stubs = [stub for stub in unsolved(_directory()) if stub.task in tasks or stub.task == met]
        if met is None or not stubs:
            raise
        raise UnfinishedError(stubs) from error


@contextmanager
def reporting(language: str | None = None) -> Iterator[Messages]:
    """Turn the exceptions of a command into lines on stderr and an exit code.

    Errors in `tiny_llm` are explained to the learner, who wrote that package. Other programming errors are raised
    again.
    language: the language of the command's messages and errors, as given with --lang. None: the locale's language.
    """
    is_known = language in (None, *LANGUAGES)
    with speaking(language if is_known else None) as words, _reported():
        if not is_known:
            raise CommandError("wrong_value", option="--lang", expected=one_of(LANGUAGES), got=language)
        yield words


@contextmanager
def _reported() -> Iterator[None]:
    try:
        yield
    except CommandError as problem:
        show_note(Messages()("error", problem=problem), style="red")
        raise typer.Exit(problem.exit_code) from None
    except UnfinishedError as unfinished:
        show_note(_open_tasks(unfinished.stubs), style="red")
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        show_note("\n" + Messages()("interrupted"))
        raise typer.Exit(130) from None
    except FloatingPointError as error:  # a model's logits are not finite
        cause = phrase("not_finite_mine") if _is_of_package(error) else phrase("not_finite")
        show_note(Messages()("error", problem=cause), style="red")
        raise typer.Exit(1) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that flushing at exit does not fail
        raise typer.Exit(0) from None
    except Exception as error:
        if _is_of_package(error):
            text = _explain(error)
        elif isinstance(error, OSError) and error.filename:
            text = Messages()("error", problem=phrase("os_problem", file=error.filename, reason=os_reason(error)))
        else:
            raise
        show_note(text, style="red")
        raise typer.Exit(1) from None


def is_learners(error: Exception) -> bool:
    """Tell whether an error was raised in a file of `tiny_llm` that learners write, or by MLX when such a file called
    MLX."""
    frames = _frames(error, *(SRC / package for package in SHARED.values()))
    written = {module.rpartition("/")[2] for week in weeks() for day in week.days for module in day.modules}
    last = Path(frames[-1].filename) if frames else Path()
    return last.is_relative_to(_directory()) and last.stem in written


def _explain(error: Exception) -> str:
    met = task_in_message(str(error)) if isinstance(error, NotImplementedError) else None
    if met and (stubs := [stub for stub in unsolved(_directory()) if 0 < stub.task.week <= met.week]):
        return _open_tasks(stubs)  # tasks of later weeks do not build on week 0
    if type(error).__name__ == "CompileError":
        return str(error)
    if isinstance(error, SyntaxError) and (problem := _conflict(error)):
        return Messages()("error", problem=problem)
    imports = isinstance(error, SyntaxError)  # the traceback only shows which modules imported the file
    where = [] if imports else traceback.format_list(_frames(error)[-3:])
    return "".join([Messages()("error_in_package") + "\n", *where, *traceback.format_exception_only(error)]).rstrip()


def _conflict(error: SyntaxError) -> CommandError | None:
    """Return the error about git's conflict markers if these markers caused the syntax error. Otherwise return None."""
    from .conflict import conflict_in  # imported here, since few commands need this module
    from .places import ROOT

    return conflict_in(ROOT, Path(error.filename or ""))


def _open_tasks(stubs: list[Stub]) -> str:
    first, words = stubs[0], Messages()
    return words(
        "package_unfinished",
        count=len({stub.task for stub in stubs}),
        task=first.task,
        week=first.task.week,
        day=first.task.day,
        chapter=words.of(day_of(first.task).chapter),
        file=f"{os.path.relpath(first.file)}:{first.line}",
        command=first.task.test_command,
    )


def _is_of_package(error: Exception) -> bool:
    """Tell whether an error's traceback shows a file of `tiny_llm`, or whether the error says that such a file cannot
    be parsed or does not exist."""
    unparsed = isinstance(error, SyntaxError) and Path(error.filename or "").is_relative_to(_directory())
    absent = isinstance(error, ImportError) and str(error.name).startswith("tiny_llm.")
    return unparsed or absent or bool(_frames(error))


def _frames(error: Exception, *more: Path) -> list[traceback.FrameSummary]:
    """Return the frames of the traceback whose files are in `tiny_llm` or in one of the folders in `more`."""
    frames = traceback.extract_tb(error.__traceback__)
    return [frame for frame in frames if any(map(Path(frame.filename).is_relative_to, (_directory(), *more)))]


def _directory() -> Path:
    spec = find_spec("tiny_llm")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0])
