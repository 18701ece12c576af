"""Finds submissions in folders and ZIP files. Of each only source files of the package are taken."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath

__all__ = ["Submission", "find_submissions"]

MAX_FILES, MAX_BYTES = 500, 20 * 2**20
SOURCE = re.compile(r"([A-Za-z_]\w*/)*[A-Za-z_]\w*\.(py|cpp|h|metal)")
IGNORED = frozenset({"__pycache__", "__MACOSX", "node_modules"})
NO_PACKAGE = "expected a package tiny_llm, found none"
PLACES = ("src/tiny_llm/", "tiny_llm/", "")  # of the package in a submission
KNOWN = (
    "attention.py",
    "basics.py",
    "layer_norm.py",
    "generate.py",
)  # files by which a package is known without its name


@dataclass(frozen=True)
class Submission:
    """A student's work."""

    name: str
    files: dict[str, bytes] = field(default_factory=dict)  # path in the package tiny_llm -> content
    problem: str = ""  # why there are none


class _RefusedError(Exception):
    """Why a folder or archive is not taken."""


def find_submissions(paths: list[Path]) -> list[Submission]:
    """A submission for each ZIP, and for each folder that holds a package at its top; of any other folder, for each
    folder and ZIP in it, wherever in that the package is."""
    found = [submission for path in paths for submission in _in(path)]
    names = [submission.name for submission in found]
    return [
        Submission(f"{s.name} ({names[:i].count(s.name) + 1})", s.files, s.problem) if names.count(s.name) > 1 else s
        for i, s in enumerate(found)
    ]


def _in(path: Path) -> Iterator[Submission]:
    path = path.resolve()
    here = any((path / f"{place}{known}").is_file() for place in PLACES for known in KNOWN)
    children = [] if here or not path.is_dir() else sorted(filter(_may_be_submission, path.iterdir()))
    for child in children or [path]:
        yield _submission(child)


def _may_be_submission(path: Path) -> bool:
    if path.name.startswith(".") or path.name in IGNORED:
        return False
    return path.is_dir() or path.suffix.lower() == ".zip"


def _submission(path: Path) -> Submission:
    name, where = (path.name, "") if path.is_dir() else (path.stem, f"{path.name} cannot be read: ")
    try:
        files = _of_folder(path) if path.is_dir() else _of_zip(path)
    except (_RefusedError, OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError) as problem:
        return Submission(name, problem=f"{where}{problem}")
    return Submission(name, files, "" if files else NO_PACKAGE)


def _of_folder(folder: Path) -> dict[str, bytes]:
    """The package's files below a folder; links, which may lead elsewhere, are left out."""
    names: dict[str, Path] = {}
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in IGNORED]
        found = (Path(place, name) for name in files)
        names |= {file.relative_to(folder).as_posix(): file for file in found if not file.is_symlink()}
        if len(names) > 100 * MAX_FILES:
            raise _RefusedError(f"more than {100 * MAX_FILES} files")
    package = _package(set(names))
    return _limited({inner: (names[name].stat().st_size, names[name].read_bytes) for name, inner in package.items()})


def _of_zip(path: Path) -> dict[str, bytes]:
    """The package's files in an archive. Nothing is unpacked: names such as ../../x lead nowhere."""
    with zipfile.ZipFile(path) as archive:
        names = {info.filename: info for info in archive.infolist() if not info.is_dir()}
        names = {name: info for name, info in names.items() if not IGNORED.intersection(PurePosixPath(name).parts)}
        package = _package(set(names))
        if not package:
            raise _RefusedError(NO_PACKAGE)
        return _limited(
            {inner: (names[name].file_size, partial(archive.read, names[name])) for name, inner in package.items()}
        )


def _package(names: set[str]) -> dict[str, str]:
    """Of the files that belong to the package: name -> path in the package. Folders around it are passed through as
    long as there is only one, as in GitHub's archives."""
    around = ""
    while True:
        for root in (f"{around}{place}" for place in PLACES):
            if any(f"{root}{known}" in names for known in KNOWN):
                inner = {name: name.removeprefix(root) for name in names if name.startswith(root)}
                return {name: path for name, path in inner.items() if SOURCE.fullmatch(path)}
        below = {
            name.removeprefix(around).split("/")[0] for name in names if name.startswith(around) and ".." not in name
        }
        folders = {part for part in below if part and f"{around}{part}" not in names}
        if len(folders) != 1:
            return {}
        around += folders.pop() + "/"


def _limited(files: dict[str, tuple[int, Callable[[], bytes]]]) -> dict[str, bytes]:
    """Read files whose sizes are given, if they are not too many or too large."""
    total = sum(size for size, _ in files.values())
    if len(files) > MAX_FILES or total > MAX_BYTES:
        raise _RefusedError(
            f"expected up to {MAX_FILES} files and {MAX_BYTES} bytes, got {len(files)} files, {total} bytes"
        )
    contents = {}
    for path, (size, read) in files.items():
        contents[path] = read()
        if len(contents[path]) > size:
            raise _RefusedError(f"{path} is larger than it says")
    return contents
