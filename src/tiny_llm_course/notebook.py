"""The course in a notebook: `write` copies a cell's functions into a task's file, and `course` runs commands."""

from __future__ import annotations

import inspect
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from textwrap import dedent, indent

import typer

from .base.arguments import asked_task
from .base.places import ROOT, SRC
from .base.reporting import reporting
from .learner.workspace import Workspace, changing
from .tasks.source_text import decoded, encoded
from .tasks.splice import SpliceError, splice
from .tasks.syllabus import Task, day_of
from .ui import CommandError

__all__ = ["course", "write"]


def course(command: str) -> None:
    """Run a command of the course, such as `test w1d1.1`, and show the command's output."""
    words = [sys.executable, "-m", "tiny_llm_course", *shlex.split(command)]
    settings = {"PYTHONPATH": str(SRC), "PYTHONUTF8": "1", "PYTHONUNBUFFERED": "1", "TINY_LLM_CALLED": "./course"}
    with subprocess.Popen(
        words,
        cwd=ROOT,
        env=os.environ | settings,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)


def write(task: str, *functions: Callable[..., object]) -> None:
    """Write functions into the learner's files, in place of the functions of this task with the same names.

    To replace a method, pass a function whose first parameter is `self`. `./course undo` takes the change back.
    """
    with suppress(typer.Exit), reporting() as words, changing("python") as workspace:
        chosen = asked_task(task)
        texts: dict[Path, str] = {}
        for function in functions:
            file, name = _place(workspace, chosen, function)
            before = texts[file] if file in texts else decoded(file.read_bytes())
            texts[file] = _spliced(before, function, name, file.relative_to(workspace.root).as_posix())
        reason = words.in_all("what_notebook", task=chosen.id)
        workspace.backups.write({file: encoded(text, file.read_bytes()) for file, text in texts.items()}, reason)
        print(words("wrote", files=", ".join(file.name for file in texts), what=words.of(reason)))


def _place(workspace: Workspace, task: Task, function: Callable[..., object]) -> tuple[Path, str]:
    """Return the file of a task's function or method, and its qualified name there."""
    parts = workspace.parts(day_of(task.id), task.id)
    for file, names in parts.items():
        for name in names:
            if name.rpartition(".")[2] == function.__name__:
                return file, name
    expected = ", ".join(name for names in parts.values() for name in names)
    raise CommandError("notebook_no_function", task=task.id, name=function.__name__, expected=expected)


def _spliced(before: str, function: Callable[..., object], name: str, filename: str) -> str:
    source, scope = dedent(inspect.getsource(function)), name.rpartition(".")[0]
    if scope:
        source = f"class {scope}:\n{indent(source, '    ')}"
    try:
        return splice(before, source, [name], filename)
    except SpliceError as error:
        raise CommandError("splice_unreadable", reason=error.__cause__ or error, exit_code=1) from None
