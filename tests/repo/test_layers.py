"""The sub-packages of the command, and which other sub-packages each may import, lazy imports included."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

COURSE = Path(__file__).resolve().parents[2] / "src" / "tiny_llm_course"
# A sub-package imports only from rows before its own. The entry points import from all sub-packages.
LAYERS = """
    tasks
    catalogue ui
    base
    learner pytest_runs
    update native
    diagnosis model
    testing setup generation serve grading
    report viz
    bench
"""
LEVELS = {name: level for level, row in enumerate(LAYERS.split("\n")) for name in row.split()}
ENTRY_POINTS = {"__init__", "__main__", "commands", "notebook"}


def modules() -> dict[str, Path]:
    """Return the modules, keyed by their dotted names within the package; a package's key ends in `__init__`."""
    files = (file for file in sorted(COURSE.rglob("*.py")) if "pristine" not in file.parts)
    return {".".join(file.relative_to(COURSE).with_suffix("").parts): file for file in files}


def imports_of(name: str, file: Path, known: set[str]) -> Iterator[tuple[int, str]]:
    """Yield line and name of each module of the package that a module imports."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom):
            continue
        if node.level:
            package = name.split(".")[: -node.level]
            parts = [*package, *(node.module or "").split(".")]
        elif (node.module or "").split(".")[0] == COURSE.name:
            parts = (node.module or "").split(".")[1:]
        else:
            continue
        base = ".".join(filter(None, parts))
        for alias in node.names:
            places = (f"{base}.{alias.name}", base, f"{base}.__init__")
            yield node.lineno, next(place.lstrip(".") for place in places if place.lstrip(".") in known)


def test_a_sub_package_imports_from_lower_layers_only() -> None:
    known = modules()
    wrong = []
    for name, file in known.items():
        own = name.split(".")[0]
        for line, target in imports_of(name, file, set(known)):
            other = target.split(".")[0]
            if own != other and own not in ENTRY_POINTS and LEVELS[own] <= LEVELS.get(other, len(LEVELS)):
                wrong.append(f"{file.relative_to(COURSE)}:{line}: {own} imports {other}")
    assert wrong == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    known = modules()
    graph = {name: {target for _, target in imports_of(name, file, set(known))} for name, file in known.items()}
    tuple(TopologicalSorter(graph).static_order())  # raises a CycleError that names the circle


def test_only_entry_points_are_outside_of_sub_packages() -> None:
    top = {name for name in modules() if "." not in name}
    assert top == ENTRY_POINTS
    assert {name.split(".")[0] for name in modules()} - top == LEVELS.keys()


def test_no_two_files_have_the_same_name() -> None:
    names = [name.rpartition(".")[2] for name in modules() if not name.endswith("__init__")]
    assert sorted(names) == sorted(set(names))
