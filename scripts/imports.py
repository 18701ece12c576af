"""Finds the modules of the repository that Python files import, directly or through other modules."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

__all__ = ["imported", "reachable", "with_imports"]


def with_imports(root: Path, files: Iterable[Path]) -> set[Path]:
    """Return these files and all modules of the repository that they import, directly or through other modules.
    Imports within functions count, too."""
    return reachable(files, lambda file: imported(root, file))


def reachable(files: Iterable[Path], uses: Callable[[Path], Iterable[Path]]) -> set[Path]:
    """Return these files and all files that they use, directly or through other files.

    uses: returns the files that a Python file uses directly.
    """
    found, new = set[Path](), set(files)
    while new := new - found:
        found |= new
        new = {used for file in new if file.suffix == ".py" for used in uses(file)}
    return found


def imported(root: Path, file: Path, folders: Sequence[str] = ("src",)) -> Iterator[Path]:
    """Yield the modules that a file imports, anywhere in its code, and the packages that contain the file.

    folders: the folders in which to look up absolute imports, in addition to the file's own folder.
    """
    packages = (folder / "__init__.py" for folder in file.parents if folder.is_relative_to(root))
    yield from (package for package in packages if package.exists())
    stat = file.stat()
    for level, name in _imports_at(file, stat.st_mtime_ns, stat.st_size):
        places = [file.parents[level - 1]] if level else [*(root / folder for folder in folders), file.parent]
        for place in places:
            yield from _modules(place, name.split("."))


@cache
def _imports_at(file: Path, changed: int, size: int) -> list[tuple[int, str]]:
    """Read a file's imports. Return the number of leading dots and the dotted name of each import."""
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(0, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [(node.level, f"{node.module or ''}.{alias.name}".strip(".")) for alias in node.names]
    return found


def _modules(place: Path, names: Sequence[str]) -> Iterator[Path]:
    """Yield the packages and the module that a dotted name refers to. The last part of the name may be a
    definition in the module."""
    for name in names:
        place /= name
        yield from (file for file in (place.with_suffix(".py"), place / "__init__.py") if file.exists())
