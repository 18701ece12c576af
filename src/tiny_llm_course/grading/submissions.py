"""Finds submissions, however students and platforms pack the files, and takes only the package's source from each."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count
from pathlib import Path

from ..base.machine import processors
from ..base.places import SRC
from .archives import RefusedError, archive_stem, kind_of
from .locate import known, listed
from .plain import plain, plain_name
from .take import MAX_BYTES

__all__ = ["Submission", "find_submissions"]

TAKE = "tiny_llm_course.grading.take"
SECONDS = 120  # the time limit of a process that takes the package out of a submission
PLACES = ("src/tiny_llm", "tiny_llm")  # where the package may be in a folder that is one submission
LEFT_BY_SYSTEMS = {  # files and folders that systems and editors leave in an instructor's folder
    *(".DS_Store", "Thumbs.db", "desktop.ini", "__MACOSX", "__pycache__", "node_modules"),
    *(".git", ".gitignore", ".gitkeep", ".venv", ".vscode", ".idea", ".ipynb_checkpoints", ".pytest_cache"),
}
TOO_LONG = "reading the archive takes too long: pack it again, with only src/tiny_llm in it"
DAMAGED = "the archive cannot be read, and may be damaged: pack it again"
EXPECTED = "expected a folder, a ZIP or tar archive, or a file of the package such as attention.py"


@dataclass(frozen=True)
class Submission:
    """The files that a student submitted."""

    name: str  # one line, with escapes for unsafe characters
    files: dict[str, bytes] = field(default_factory=dict)  # path in the package tiny_llm -> content
    problem: str = ""  # why there are no files
    note: str = ""  # a message about files that were left out

    @property
    def digest(self) -> str:
        """Return a digest of the files and the note, which decide the grade. The name is not part of the digest."""
        parts = [part for path in sorted(self.files) for part in (path.encode(), self.files[path])]
        parts.append(self.note.encode())
        return hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).hexdigest()


def find_submissions(paths: list[Path], apart_from: Path | None = None) -> list[Submission]:
    """Return the submissions at these paths.

    An archive, a single file, or a folder with the package at its top is one submission. In any other folder, each
    folder and each archive is a submission. Single files whose names differ only in the module form one
    submission.

    apart_from: a file or folder that is not a submission.
    """
    with ThreadPoolExecutor(processors()) as pool:
        submissions = [submission for path in paths for submission in _in(path.resolve(), apart_from, pool)]
    names = _unique([submission.name for submission in submissions])
    return [replace(submission, name=name) for submission, name in zip(submissions, names, strict=True)]


def _unique(names: list[str]) -> Iterator[str]:
    """Yield the names, with a number after each name that occurs more than once."""
    taken = {name for name in names if names.count(name) == 1}
    for name in names:
        if names.count(name) > 1:
            name = next(one for one in (f"{name} ({number})" for number in count(1)) if one not in taken)
            taken.add(name)
        yield name


def _in(path: Path, apart_from: Path | None, pool: ThreadPoolExecutor) -> Iterator[Submission]:
    children = [] if not path.is_dir() or _is_one(path) else list(path.iterdir())
    left_out = apart_from and apart_from.resolve()
    handed_in = [child for child in children if child.name not in LEFT_BY_SYSTEMS and child != left_out]
    by_student: dict[str, list[Path]] = {}
    for entry in sorted(handed_in) or [path]:
        match = _single(entry)
        by_student.setdefault(match["student"] if match else f"/{entry.name}", []).append(entry)
    yield from pool.map(_submission, by_student.values())


def _is_one(folder: Path) -> bool:
    """Tell whether a folder is one submission, with the package at its top. If the package's files themselves are at
    the top, the folder is one submission only if there are no folders or archives of other students next to these
    files."""
    if any((folder / place / file).is_file() for place in PLACES for file in known()):
        return True
    if not any((folder / file).is_file() for file in known()):
        return False
    others = (child for child in folder.iterdir() if child.is_dir() or archive_stem(child.name) is not None)
    return {child.name for child in others} <= {"kernels", "serving", *LEFT_BY_SYSTEMS}


def _single(entry: Path) -> re.Match[str] | None:
    """Match the name of a single file of the package; return None for any other entry."""
    return None if entry.is_dir() else _single_name().fullmatch(entry.name)


@cache
def _single_name() -> re.Pattern[str]:
    """Return a pattern for the names of single files, including names that platforms have changed:
    `lee_123_attention.py`, `attention-2.py`."""
    modules = "|".join(sorted({Path(path).stem for path in known()}))
    return re.compile(rf"(?P<student>(.*?[ _-])??)(?P<module>{modules})([ -]?\(?\d+\)?)?(?P<suffix>\.(py|cpp|h|metal))")


def _submission(entries: list[Path]) -> Submission:
    """Return the submission of one student: a folder, an archive, or one or several files of the package."""
    first = entries[0]
    match = _single(first)
    name = (match["student"].strip(" _-") or first.stem) if match else archive_stem(first.name) or first.name
    try:
        files, note = (_of_files(entries), "") if match else _of_hand_in(first)
    except (RefusedError, OSError) as problem:
        return Submission(plain_name(name), problem=plain(str(problem)))
    return Submission(plain_name(name), files, note=note)


def _of_files(entries: list[Path]) -> dict[str, bytes]:
    """Return the contents of single files, keyed by their paths in the package."""
    paths = {Path(path).name: path for path in sorted(known(), reverse=True, key=lambda path: path.count("/"))}
    files: dict[str, bytes] = {}
    for entry in entries:
        _check_plain(entry)
        match = _single(entry)
        assert match
        path = paths[match["module"] + match["suffix"]]
        if path in files:
            raise RefusedError(f"expected {path} once, found it in {listed([entry.name for entry in entries])}")
        if entry.stat().st_size > MAX_BYTES:
            raise RefusedError(f"expected up to {MAX_BYTES:,} bytes, got {entry.stat().st_size:,}")
        files[path] = entry.read_bytes()
    return files


def _of_hand_in(path: Path) -> tuple[dict[str, bytes], str]:
    """Return the package's files in a folder or an archive, and a note about files that were left out."""
    _check_plain(path)
    if not path.is_dir() and archive_stem(path.name) is None:
        raise RefusedError(EXPECTED)
    command = [sys.executable, "-m", TAKE, str(path)]
    try:
        run = subprocess.run(command, cwd=SRC, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise RefusedError(TOO_LONG) from None
    try:
        answer = json.loads(run.stdout)
    except ValueError:
        raise RefusedError(TOO_LONG if run.returncode == -signal.SIGXCPU else DAMAGED) from None
    if "problem" in answer:
        raise RefusedError(answer["problem"])
    return {path: base64.b64decode(content) for path, content in answer["files"].items()}, answer["note"]


def _check_plain(path: Path) -> None:
    if kind := kind_of(path.lstat().st_mode):
        raise RefusedError(f"{EXPECTED}; got {kind}")
