"""Reads the package out of a submission: `python -m tiny_llm_course.grading.take PATH`.

This module runs in a process of its own, because reading a crafted archive can take hours or exhaust the memory. The
output is JSON: either `files` (path in the package -> content in base64) and a `note`, or a `problem`.
"""

from __future__ import annotations

import base64
import json
import resource
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from .archives import HandedInFile, RefusedError, Tree, archive_stem, opened, tree_of
from .locate import SOURCE, listed, package_roots, roots_of
from .plain import plain, plain_name

__all__ = ["take"]

MAX_FILES, MAX_BYTES = 500, 20 * 2**20  # limits on a package
MAX_ARCHIVES, DEPTH = 20, 2  # archives in a submission; levels of archives within archives
SECONDS, MEMORY = 20, 2**31  # limits on this process: seconds of processor time; bytes of memory


@dataclass(frozen=True)
class Taken:
    """The package's files, and a note about files that were left out."""

    files: dict[str, bytes]
    note: str = ""


def take(tree: Tree, depth: int = DEPTH) -> Taken:
    """Return the package found among these files. If the files contain no package, return the package in the only
    archive that contains one.

    Raises:
        RefusedError: there is no package, or more than one package.
    """
    if roots := package_roots(tree):
        return _of_root(tree, roots)
    archives = [path for path, entry in tree.items() if archive_stem(path) is not None and not entry.odd]
    if archives and depth:
        return _of_archives(tree, sorted(archives), depth)
    raise RefusedError(f"expected a package tiny_llm, found none{_among(tree)}")


def _of_root(tree: Tree, roots: list[str]) -> Taken:
    root, *others = roots
    start = f"{root}/" if root else ""
    below = {path.removeprefix(start): entry for path, entry in tree.items() if path.startswith(start)}
    source = {path: entry for path, entry in below.items() if SOURCE.fullmatch(path)}
    left_out = [_shown(path, entry) for path, entry in source.items() if entry.odd]
    left_out += [path for path in below if path.endswith((".py", ".cpp", ".h", ".metal")) and path not in source]
    left_out += [f"the package in {other}" for other in others if not f"{other}/".startswith(start)]
    packages = (start, *(f"{other}/" for other in others))
    left_out += [path for path in tree if roots_of(path) and not path.startswith(packages)]
    left_out += [path for path in tree if "/" not in path and archive_stem(path) is not None]
    files = {path: entry for path, entry in source.items() if not entry.odd}
    if not files:
        raise RefusedError(f"expected files such as attention.py, found {listed(left_out)}")
    folded = Counter(path.casefold() for path in files)
    if alike := [path for path in files if folded[path.casefold()] > 1]:  # one file on a Mac, two files on Linux
        raise RefusedError(f"expected names that differ in more than capital letters, found {listed(alike)}")
    return Taken(_contents(files), f"left out: {listed(left_out)}" if left_out else "")


def _of_archives(tree: Tree, archives: list[str], depth: int) -> Taken:
    taken, problems = {}, {}
    for path in archives[:MAX_ARCHIVES]:
        try:
            taken[path] = take(opened(tree[path].open()), depth - 1)
        except Exception as error:
            problems[path] = _reason(error)
    if len(taken) > 1:
        raise RefusedError(f"expected one package tiny_llm, found one in each of {listed(taken)}")
    if not taken:
        told = (f"{plain_name(path)}: {problem}" for path, problem in list(problems.items())[:3])
        raise RefusedError("; ".join(told))
    [(path, one)] = taken.items()
    others = [other for other in archives if other != path]
    notes = [one.note, f"left out: {listed(others)}" if others else ""]
    return Taken(one.files, "; ".join(filter(None, notes)))


def _among(tree: Tree) -> str:
    return f" among {listed([_shown(path, entry) for path, entry in tree.items()])}" if tree else ": no files"


def _shown(path: str, entry: HandedInFile) -> str:
    return f"{path} ({entry.odd})" if entry.odd else path


def _contents(files: dict[str, HandedInFile]) -> dict[str, bytes]:
    """Read the files. Refuse the submission if it has too many files or too many bytes."""
    total = sum(entry.size for entry in files.values())
    if len(files) > MAX_FILES or total > MAX_BYTES:
        raise RefusedError(
            f"expected up to {MAX_FILES} files and {MAX_BYTES:,} bytes, got {len(files)} files, {total:,} bytes"
        )
    return {path: _content(path, entry) for path, entry in files.items()}


def _content(path: str, entry: HandedInFile) -> bytes:
    with entry.open() as stream:
        content = stream.read(entry.size + 1)
    if len(content) > entry.size:
        raise RefusedError(f"{path} is larger than the archive says: the archive is damaged")
    return content


def _reason(error: Exception) -> str:
    """Return the reason why a submission cannot be read. A damaged archive can cause an error of almost any type."""
    if isinstance(error, RefusedError):
        return str(error)
    return f"cannot be read: {plain(str(error)) or type(error).__name__}"


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))  # SIGXCPU at the limit, SIGKILL a second later
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    try:
        taken = take(tree_of(Path(sys.argv[1])))
        files = {path: base64.b64encode(content).decode() for path, content in taken.files.items()}
        answer = {"files": files, "note": taken.note}
    except Exception as error:
        answer = {"problem": _reason(error)}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
