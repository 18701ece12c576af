#!/usr/bin/env python3
"""Test the course with the newest packages instead of the locked packages, and write a summary of what broke.

python scripts/newest.py                       the newest packages that pyproject.toml allows, in a virtual environment
python scripts/newest.py --beyond              also the newest MLX, even if pyproject.toml excludes it
python scripts/newest.py --with mlx==0.32.0    this version of a package, and the newest of all others
python scripts/newest.py --gates kernels       only this gate; default: gates that depend on the locks

The summary, build/newest/summary.md, also lists the locked and the tested versions. Exit code 1: something broke.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import venv
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "scripts")]

from gate_table import all_gates, gate_of  # noqa: E402

from tiny_llm_course.tasks.toml import read_toml  # noqa: E402

__all__ = ["Broken", "changes", "failures", "summary"]

HOME = ROOT / "build" / "newest"
PARTS = (".[kernels,serve,viz]", "--group", "dev", "--group", "book")
MLX = "mlx[cpu]" if sys.platform == "linux" else "mlx"
FIRST = ("mlx", "mlx-lm", "nanobind", "numpy")  # packages that the table of versions lists first
LEFT_OUT = {"train", "places"}  # gates that install packages into environments of their own
SHOWN = 400  # a message in the summary has at most this many characters


@dataclass(frozen=True)
class Broken:
    """A step or test that failed. said: the end of the step's output, or the test's message."""

    name: str
    said: str
    gate: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beyond", action="store_true", help="the newest MLX, beyond the range of pyproject.toml")
    parser.add_argument("--with", action="append", default=[], dest="extra", metavar="REQUIREMENT")
    parser.add_argument("--gates", nargs="+", metavar="GATE", default=_gates())
    options = parser.parse_args()
    extra = [*options.extra, *["--upgrade", MLX] * options.beyond]
    broken, count = _tried(extra, options.gates)
    now = _installed() if (HOME / "venv").exists() else {}
    text = summary(broken, count, changes(_locked(), now), options.beyond)
    (HOME / "summary.md").write_text(text, encoding="utf-8")
    print(text)
    return 1 if broken else 0


def _tried(extra: list[str], gates: list[str]) -> tuple[list[Broken], int]:
    """Install the packages and run the gates. Return what broke, and how many tests ran."""
    HOME.mkdir(parents=True, exist_ok=True)
    venv.create(HOME / "venv", with_pip=True, clear=True)
    python, report = str(HOME / "venv/bin/python"), HOME / "tests.xml"
    report.unlink(missing_ok=True)
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    steps = {
        "install pip": [*pip, "--upgrade", "pip"],
        "install the course": [*pip, "--editable", *PARTS],
        **({"install " + " ".join(extra): [*pip, *extra]} if extra else {}),
        "build the MLX extension": [python, "-m", "tiny_llm_course", "build-ext", "--impl", "ref", "--lang", "en"],
    }
    for name, command in steps.items():
        if failed := _step(name, command):
            return [failed], 0
    check = [python, "-m", "tiny_llm_course", "check", *gates, "--", f"--junitxml={report}"]
    failed = _step("run the gates", check)
    if not report.exists():
        return [failed or Broken("run the gates", "no test was run")], 0
    return failures(report.read_text(encoding="utf-8"))


def _step(name: str, command: Sequence[str]) -> Broken | None:
    print(f"{name} ...", flush=True)
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        assert run.stdout is not None
        said = []
        for line in run.stdout:
            print(line, end="", flush=True)
            said.append(line)
    return Broken(name, "".join(said).strip()[-SHOWN:]) if run.returncode else None


def _gates() -> list[str]:
    return [gate.name for gate in all_gates() if gate.depends_on(["pdm.lock"]) and gate.name not in LEFT_OUT] + ["book"]


def failures(report: str) -> tuple[list[Broken], int]:
    """Return the failed tests in a JUnit report, and the number of all tests in the report."""
    found, count = [], 0
    for case in ET.fromstring(report).iter("testcase"):
        count += 1
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        for part in (*case.iter("failure"), *case.iter("error")):
            gate = gate_of(name)
            found.append(Broken(name, (part.get("message") or "")[:SHOWN], gate.name if gate else ""))
    return found, count


def _locked() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for package in read_toml(ROOT / "pdm.lock")["package"]:
        found.setdefault(package["name"], set()).add(package["version"])
    return found


def _installed() -> dict[str, str]:
    command = [str(HOME / "venv/bin/python"), "-m", "pip", "list", "--format=json"]
    listed = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {package["name"].lower().replace("_", "-"): package["version"] for package in listed}


def changes(locked: Mapping[str, set[str]], now: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return the packages whose installed version is not a locked one, each with its name, its locked versions and its
    installed version. The packages in FIRST come first."""
    rows = [
        (name, " or ".join(sorted(old)), now[name])
        for name, old in locked.items()
        if name in now and now[name] not in old
    ]
    return sorted(rows, key=lambda row: (row[0] not in FIRST, row[0]))


def summary(broken: Sequence[Broken], count: int, changed: Sequence[tuple[str, str, str]], is_beyond: bool) -> str:
    """Return the summary in Markdown."""
    return "\n".join(_lines(broken, count, changed, is_beyond)) + "\n"


def _lines(
    broken: Sequence[Broken], count: int, changed: Sequence[tuple[str, str, str]], is_beyond: bool
) -> Iterator[str]:
    what = "The newest MLX, beyond the range" if is_beyond else "The newest packages in range"
    yield f"# {what}: {_outcome(broken, count)}\n"
    yield f"Python {platform.python_version()}, {platform.system()} {platform.machine()}.\n"
    if is_beyond and not any(name == "mlx" for name, _, _ in changed):
        yield "There is no MLX that is newer than the locked one, so this run did not test a newer version.\n"
    if broken:
        yield "## What broke\n"
        for each in broken:
            yield f"- `{each.name}`" + f" (gate `{each.gate}`)" * bool(each.gate)
            yield from (f"      {line}" for line in ["", *each.said.splitlines()])
        yield ""
    yield "## Versions\n"
    if not changed:
        yield "All packages have their locked versions."
        return
    yield from ["| package | locked | tested |", "|---|---|---|"]
    yield from (f"| {name} | {old} | {new} |" for name, old, new in changed)


def _outcome(broken: Sequence[Broken], count: int) -> str:
    if not broken:
        return f"all {count:,} tests pass"
    return f"{len(broken):,} of {count:,} tests fail" if count else f"“{broken[0].name}” failed"


if __name__ == "__main__":
    sys.exit(main())
