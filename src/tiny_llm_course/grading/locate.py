"""Finds the package tiny_llm among the files of a submission."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import cache

from ..tasks.syllabus import select_days
from .archives import RefusedError
from .plain import plain_name

__all__ = ["SOURCE", "known", "listed", "package_roots", "roots_of"]

PACKAGE = "tiny_llm"
NATIVE = (".cpp", ".h", ".metal")
SOURCE = re.compile(r"([A-Za-z_]\w*/)*[A-Za-z_]\w*\.(py|cpp|h|metal)")
SHOWN = 3  # the largest number of names in a message


@cache
def known() -> frozenset[str]:
    """Return the files that the course asks learners to write, as paths in the package."""
    modules = {module for day in select_days(None, None) for module in day.modules}
    native = (f"{module}{suffix}" for module in modules if module.startswith("kernels/") for suffix in NATIVE)
    return frozenset([*(f"{module}.py" for module in modules), *native])


def package_roots(paths: Iterable[str]) -> list[str]:
    """Return the folders called tiny_llm that contain files of the package. If there is no such folder, return all
    folders that contain files of the package.

    The best folder, which is the folder nearest to the top, comes first. A folder called src does not count as a level.

    Raises:
        RefusedError: two folders are equally good.
    """
    roots = sorted({root for path in paths for root in roots_of(path)}, key=lambda root: (_rank(root), root))
    best = [root for root in roots if _rank(root) == _rank(roots[0])]
    if len(best) > 1:
        raise RefusedError(f"expected one package tiny_llm, found {len(best)}, in {listed(best)}")
    return [root for root in roots if _is_named(root) == _is_named(roots[0])]


def listed(names: Collection[str]) -> str:
    """Return a text with the first SHOWN names, and with the number of further names."""
    shown = [plain_name(name) or "the top folder" for name in sorted(names)[:SHOWN]]
    return ", ".join(shown) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def roots_of(path: str) -> list[str]:
    """Return the folders that could be the package, judging by this file: x and x/kernels for
    `x/kernels/attention.py`."""
    parts = path.split("/")
    return ["/".join(parts[:-depth]) for depth in (1, 2) if "/".join(parts[-depth:]) in known()]


def _rank(root: str) -> tuple[bool, int, bool]:
    parts = root.split("/") if root else []
    is_in_src = parts[-2:-1] == ["src"]
    return not _is_named(root), len(parts) - is_in_src, not is_in_src


def _is_named(root: str) -> bool:
    return root.split("/")[-1] == PACKAGE
