"""Tasks in C++ and Metal: the code between the lines `// task w2d4.1 begin` and `// task w2d4.1 end`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePath

from .syllabus import TaskId
from .task_code import StubError, check_known, lines_of, newline_of, task_parts

__all__ = [
    "BUILT",
    "SUFFIXES",
    "any_regions",
    "code_files",
    "is_native",
    "parts_of",
    "region_lines",
    "regions",
    "with_regions",
]

NATIVE = (".cpp", ".h", ".metal")
SUFFIXES = (".py", *NATIVE)
BUILT = "built"


def is_native(filename: str | PurePath) -> bool:
    """Tell whether the tasks in a file are regions instead of functions."""
    return PurePath(filename).suffix in NATIVE


def code_files(package: Path) -> list[Path]:
    """Return the files that may have tasks. Leave out folders named `built`, which contain compiled files."""
    files = (file for file in package.rglob("*") if file.suffix in SUFFIXES)
    return sorted(file for file in files if BUILT not in file.relative_to(package).parts)


def parts_of(source: str, filename: str) -> dict[TaskId, list[str]]:
    """Return the names of each task's functions and helpers, or the name of its region, keyed by task."""
    if is_native(filename):
        return {task: [str(task)] for task in regions(source, filename)}
    return task_parts(source)


def regions(source: str, filename: str) -> dict[TaskId, str]:
    """Return the text of each region, keyed by task, in order.

    Raises:
        StubError: a marker has no partner, or the syllabus does not have the task. The error names the file and the
        line.
    """
    for task, (_, end) in _places(lines_of(source), filename).items():
        check_known(task, f"{filename}:{end + 1}")
    return any_regions(source, filename)


def any_regions(source: str, filename: str) -> dict[TaskId, str]:
    """Return the text of each region, like `regions`, but accept tasks that only a newer syllabus has."""
    lines = lines_of(source)
    return {task: "".join(lines[start:end]) for task, (start, end) in _places(lines, filename).items()}


def region_lines(source: str, filename: str) -> list[int]:
    """Return the numbers of all lines in tasks' regions, counted from 1.

    Raises:
        StubError: the markers are faulty. The error names the file and the line.
    """
    places = _places(lines_of(source), filename).values()
    return [line for start, end in places for line in range(start + 1, end + 1)]


def with_regions(source: str, texts: Mapping[TaskId, str], filename: str) -> str:
    """Return the source with these texts in its regions. Everything else stays the same, byte for byte."""
    lines = lines_of(source)
    newline = newline_of(lines)
    for task, (start, end) in reversed(_places(lines, filename).items()):
        if task in texts:
            lines[start:end] = [line.rstrip("\r\n") + newline for line in lines_of(texts[task])]
    return "".join(lines)


def _places(lines: list[str], filename: str) -> dict[TaskId, tuple[int, int]]:
    """Return the index of each region's first line, and the index of the line after the region, keyed by task."""
    places: dict[TaskId, tuple[int, int]] = {}
    opened: tuple[str, int] | None = None  # a task, and the index of the line after its first marker

    def alone(name: str, marker: str, line: int) -> StubError:
        return StubError(f"{filename}:{line}: `// task {name} {marker}` without its partner")

    for number, line in enumerate(lines, start=1):
        match = re.fullmatch(r"\s*// task (\S+) (begin|end)\s*", line)
        if match is None:
            continue
        name, marker = match.groups()
        if opened is None and marker == "begin":
            opened = name, number
        elif opened is None:
            raise alone(name, marker, number)
        elif (name, marker) != (opened[0], "end"):
            raise alone(opened[0], "begin", opened[1])
        else:
            task = _task(name, f"{filename}:{number}")
            if task in places:
                raise StubError(f"{filename}:{number}: a second region of {task}")
            places[task], opened = (opened[1], number - 1), None
    if opened is not None:
        raise alone(opened[0], "begin", opened[1])
    return places


def _task(name: str, place: str) -> TaskId:
    try:
        return TaskId.parse(name)
    except ValueError as error:
        raise StubError(f"{place}: {error}") from error
