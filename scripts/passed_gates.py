"""The gates that have passed with exactly their current inputs: tests/repo/verdicts/gates.toml.

Such a gate runs only a random twentieth of its units, unless `--all` is given. Only gates with `remember = true` in
gates.toml take part: gates whose tests take minutes, and whose results depend only on their inputs.
"""

from __future__ import annotations

import hashlib
import math
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from random import Random

from gate_table import ROOT, Gate, all_gates

from tiny_llm_course.base.whole_files import write_whole
from tiny_llm_course.tasks.toml import read_toml

__all__ = ["FILE", "digest", "has_passed", "keep", "sample"]

FILE = ROOT / "tests" / "repo" / "verdicts" / "gates.toml"
SHARE = 1 / 20
HEAD = """\
# Gates that passed as a whole, each with the digest of the inputs that it had. While this digest matches, the gate runs
# a random twentieth of its units. `./course check` writes this file: commit what it writes, do not edit it by hand.
"""


def digest(gate: Gate) -> str:
    """Return a digest of the paths and contents of all files that a gate depends on."""
    found = hashlib.sha256()
    for path in _files():
        if gate.depends_on([path]) and ROOT / path != FILE:
            found.update(f"{path}\0{_digest_of(ROOT / path)}\n".encode())
    return found.hexdigest()


def has_passed(gate: Gate) -> bool:
    """Tell whether the gate is remembered, and passed with the inputs that it has now."""
    return gate.remember and _kept().get(gate.name) == digest(gate)


def sample(gate: Gate, units: Iterable[str], seed: str) -> set[str]:
    """Draw a twentieth of a gate's units, but at least one. The same seed draws the same units in every process."""
    ordered = sorted(set(units))
    return set(Random(f"{gate.name} {seed}").sample(ordered, math.ceil(len(ordered) * SHARE)))


def keep(passed: dict[Gate, str]) -> bool:
    """Write the digests of gates that passed as a whole, and tell whether any digest is new."""
    before = _kept()
    new = before | {gate.name: found for gate, found in passed.items()}
    if new == before:
        return False
    rows = [f'{gate.name} = "{new[gate.name]}"\n' for gate in all_gates() if gate.remember and gate.name in new]
    write_whole(FILE, "".join([HEAD, "\n", *rows]).encode())
    return True


def _kept() -> dict[str, str]:
    return read_toml(FILE) if FILE.exists() else {}


@cache
def _files() -> list[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return sorted(path for path in set(listed) if (ROOT / path).is_file())


@cache
def _digest_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
