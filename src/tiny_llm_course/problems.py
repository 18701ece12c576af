"""What goes wrong in a command, in lines for the person who called it."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import typer

from .syllabus import SyllabusError, day_of, weeks
from .terminal import as_called
from .unsolved import Stub, task_in_message, unsolved

__all__ = ["CommandError", "is_learners", "reporting", "say"]


class CommandError(Exception):
    """One line: what is wrong, what was expected, what to do. Exit code 2: the call is at fault; 1: something else."""

    def __init__(self, message: str, exit_code: int = 2):
        super().__init__(" ".join(message.split()))
        self.exit_code = exit_code


def say(text: str = "", style: str = "dim") -> None:
    """Print on stderr, which keeps stdout for what was asked for."""
    from rich.console import Console  # here, so that commands that say nothing start sooner

    Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True).print(as_called(text), style=style)


@contextmanager
def reporting() -> Iterator[None]:
    """Turn what a command raises into lines on stderr and an exit code.

    Errors of `tiny_llm` are explained to the learner who wrote it; other programming errors go through.
    """
    try:
        yield
    except (CommandError, SyllabusError) as problem:
        say(f"error: {problem}", style="red")
        raise typer.Exit(getattr(problem, "exit_code", 2)) from None
    except KeyboardInterrupt:
        say("\ninterrupted")
        raise typer.Exit(130) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is flushed at exit
        raise typer.Exit(0) from None
    except Exception as error:
        if _is_of_package(error):
            text = _explain(error)
        elif isinstance(error, OSError) and error.filename:
            text = f"error: {error.filename}: {error.strerror}"
        else:
            raise
        say(text, style="red")
        raise typer.Exit(1) from None


def is_learners(error: Exception) -> bool:
    """Whether an error was raised, or passed on by MLX, in a file of `tiny_llm` that the course has learners write."""
    frames = _frames(error)
    written = {module.rpartition("/")[2] for week in weeks() for day in week.days for module in day.modules}
    return bool(frames) and Path(frames[-1].filename).stem in written


def _explain(error: Exception) -> str:
    stubs = [stub for stub in unsolved(_directory()) if stub.task.week]  # nothing builds on week 0
    if isinstance(error, NotImplementedError) and task_in_message(str(error)) and stubs:
        return _open_tasks(stubs)
    if type(error).__name__ == "CompileError":
        return str(error)
    imports = isinstance(error, SyntaxError)  # whose traceback only says who imported the file
    where = [] if imports else traceback.format_list(_frames(error)[-3:])
    return "".join(["error in src/tiny_llm:\n", *where, *traceback.format_exception_only(error)]).rstrip()


def _open_tasks(stubs: list[Stub]) -> str:
    first = stubs[0]
    count = len({stub.task for stub in stubs})
    day = day_of(first.task)
    return (
        f"src/tiny_llm is not finished: {count} {'task is' if count == 1 else 'tasks are'} still to be written.\n"
        f"first: {first.task.words} ({day.chapter['en']})\n"
        f"file:  {os.path.relpath(first.file)}:{first.line}\n"
        f"test:  {first.task.test_command}"
    )


def _is_of_package(error: Exception) -> bool:
    """Whether an error came through a file of `tiny_llm`, which may also not parse or not exist."""
    unparsed = isinstance(error, SyntaxError) and Path(error.filename or "").is_relative_to(_directory())
    absent = isinstance(error, ImportError) and str(error.name).startswith("tiny_llm.")
    return unparsed or absent or bool(_frames(error))


def _frames(error: Exception) -> list[traceback.FrameSummary]:
    """The part of the traceback in files of `tiny_llm`."""
    frames = traceback.extract_tb(error.__traceback__)
    return [frame for frame in frames if Path(frame.filename).is_relative_to(_directory())]


def _directory() -> Path:
    spec = find_spec("tiny_llm")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0])
