"""The gates of gates.toml: the tests of each gate, and the files that these tests depend on."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from imports import imported, reachable

from tiny_llm_course.tasks.toml import read_toml

__all__ = ["ROOT", "Gate", "GateError", "all_gates", "changed_since", "gate_of", "listed", "select", "unit_of"]

ROOT = Path(__file__).resolve().parent.parent
_TOOLS = ("scripts", "tests/repo")  # folders whose files are inputs of each gate whose tests use them
_FILE_NAME = re.compile(r"[\w-]+\.\w+")


class GateError(ValueError):
    """The error for a gate or a revision that does not exist. The message is one line."""


@dataclass(frozen=True)
class Gate:
    """Tests that check one aspect of the repository."""

    name: str
    tests: tuple[str, ...]  # files, folders or single tests; wildcards are allowed
    inputs: tuple[str, ...]
    budget: float  # in seconds, with one worker
    unit: str = "file"  # the tests that one worker runs in a row: "test", "file" or "gate"
    remember: bool = False  # whether passed_gates.py remembers that the gate has passed

    def paths(self) -> list[str]:
        """Return pytest's arguments for the gate's tests."""
        found = []
        for pattern in self.tests:
            file, separator, test = pattern.partition("::")
            found += [f"{path.relative_to(ROOT)}{separator}{test}" for path in sorted(ROOT.glob(file))]
        return found

    def files(self) -> set[str]:
        """Return the files and folders with the gate's tests, as paths in the repository."""
        return {path.partition("::")[0] for path in self.paths()}

    def has(self, test: str) -> bool:
        """Tell whether a test belongs to this gate. test: the test's node id in pytest."""
        return any(test == path or test.startswith((f"{path}/", f"{path}::", f"{path}[")) for path in _paths_of(self))

    def depends_on(self, changed: Iterable[str]) -> bool:
        """Tell whether one of these files is an input or a test of this gate, or a file that its tests use."""
        patterns = (*self.inputs, *(test.partition("::")[0] for test in self.tests))
        return any(
            any(fnmatchcase(path, pattern) for pattern in patterns) or path in _used_by(self) for path in changed
        )


@cache
def _paths_of(gate: Gate) -> list[str]:
    return gate.paths()


@cache
def _used_by(gate: Gate) -> set[str]:
    """Return the files outside src/ that a gate's tests use, directly or through other files."""
    tests = gate.files() | {"tests/conftest.py", "tests/repo/conftest.py"}
    files = (file for test in tests if (file := ROOT / test).is_file())
    return {str(file.relative_to(ROOT)) for file in reachable(files, _uses)}


@cache
def _uses(file: Path) -> set[Path]:
    """Return the modules that a test or script imports, and the files in the folders _TOOLS whose names it contains, as
    in "scripts/stubs.py"."""
    named = _tools().keys() & set(_FILE_NAME.findall(file.read_text(encoding="utf-8")))
    return {*imported(ROOT, file, ("tests", *_TOOLS)), *(_tools()[name] for name in named)}


@cache
def _tools() -> dict[str, Path]:
    return {file.name: file for folder in _TOOLS for file in (ROOT / folder).glob("*.*")}


@cache
def all_gates() -> tuple[Gate, ...]:
    return tuple(
        Gate(**{key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()})
        for entry in read_toml(ROOT / "scripts/gates.toml")["gates"]
    )


@cache
def gate_of(test: str) -> Gate | None:
    """Return the gate to which a test belongs. test: the test's node id in pytest."""
    return next((gate for gate in all_gates() if gate.has(test)), None)


def unit_of(test: str) -> str:
    """Return the unit of a test, given its node id. One worker runs all tests of a unit in a row."""
    gate, file = gate_of(test), test.partition("::")[0]
    return {"test": test, "file": file, "gate": gate.name}[gate.unit] if gate else file


def select(names: list[str], without: list[str]) -> list[Gate]:
    """Return the gates with these names (or all gates, if there are no names), except those in `without`.

    Raises:
        GateError: a gate with one of these names does not exist.
    """
    known = {gate.name: gate for gate in all_gates()}
    for name in (*names, *without):
        if name not in known:
            raise GateError(f"there is no gate {name!r}; the gates are {', '.join(known)}")
    return [gate for name, gate in known.items() if (not names or name in names) and name not in without]


def changed_since(revision: str, must_exist: bool) -> list[str]:
    """Return the files that differ from a revision, new files included. If git does not know the revision, return none.

    Raises:
        GateError: git does not know the revision, and `must_exist` is True.
    """
    diff = subprocess.run(
        ["git", "diff", "--name-only", "-z", revision, "--"], cwd=ROOT, capture_output=True, text=True
    )
    if diff.returncode and must_exist:
        raise GateError(f"--since {revision}: git knows no such revision")
    new = subprocess.run(
        ["git", "ls-files", "-z", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    return [] if diff.returncode else sorted(filter(None, f"{diff.stdout}{new.stdout}".split("\0")))


def listed(chosen: list[Gate]) -> str:
    """Return a table of gates."""
    rows = [f"{gate.name:<12}{gate.budget:>6g} s   {' '.join(gate.tests)}" for gate in chosen]
    return "\n".join([f"{'gate':<12}{'budget':>8}   tests", *rows])
