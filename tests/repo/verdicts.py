"""Verdicts of a day's tests on its mistakes and variants: computed here, kept in verdicts/week_W_day_D.toml.

A file is trusted while its digest equals the repository's digest (`fingerprint.py`).
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from fingerprint import digest, digest_of_files

from tiny_llm_course.base.whole_files import write_whole
from tiny_llm_course.catalogue import entry_of
from tiny_llm_course.tasks.syllabus import Day, TaskId, day_of, tasks
from tiny_llm_course.tasks.toml import read_toml

__all__ = [
    "ALL",
    "CHECKS",
    "Computed",
    "Verdicts",
    "compute",
    "draw",
    "ids_of",
    "is_known",
    "kept",
    "known",
    "machine",
    "problems_of_first_tests",
    "problems_of_mistakes",
    "problems_of_variants",
    "unless_known",
    "write",
]

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).with_name("verdicts")
ALL = os.environ.get("TINY_LLM_CHECK_ALL") == "1"  # trust nothing
CHECKS = {  # by name, the files that a check depends on, together with all modules that these import
    "models": [
        "tests/repo/bundled_answers.py",
        "src/tiny_llm_models/storyteller/**/*.toml",
        "src/tiny_llm_models/*/*.json",
        "src/tiny_llm_models/*/*.safetensors",
    ],
    "train": [
        "tests/train/*.py",
        "src/tiny_llm_models/training/__main__.py",  # the checks run it as a program
        "src/tiny_llm_models/**/*.toml",
        "src/tiny_llm_models/**/*.txt",
        "src/tiny_llm_models/*/*.json",
        "src/tiny_llm_models/*/*.safetensors",
    ],
}
HEAD = """\
# What the tests of week {week} day {day} decide about the catalogue's mistakes and the correct variants. CI trusts this
# file while the digest matches. `./course check catalogue` writes it: commit what it writes, do not edit it by hand.

digest = "{digest}"
machine = "{machine}"
"""
HEAD_OF_CHECK = """\
# Of all that the tests of `./course check {name}` depend on, as it was when they passed. They run again once something
# has changed, and write this file: commit what they write, do not edit it by hand.

digest = "{digest}"
machine = "{machine}"
"""


@dataclass(frozen=True)
class Verdicts:
    """The verdicts of a day, or of one of its tasks."""

    rejected: dict[str, str]  # mistake -> the first test that rejects it; also told apart, and named by its own id
    accepted: tuple[str, ...]  # variants


@dataclass(frozen=True)
class Computed:
    """The results of a new computation."""

    verdicts: Verdicts
    problems: tuple[str, ...]  # a mistake that survives, a variant that is rejected, ...
    inputs: tuple[str, ...]  # the files that the tests depended on


def known(day: Day) -> dict[str, Any]:
    """Return the content of the day's file. Return an empty dictionary if there is no file."""
    file = _file(day)
    return read_toml(file) if file.exists() else {}


def is_known(day: Day, root: Path = ROOT) -> bool:
    """Tell whether nothing that can change a verdict has changed since the day's file was written."""
    found = known(day)
    return bool(found) and found["digest"] == digest(root, day, found["inputs"])


def kept(day: Day, task: TaskId | None = None) -> Verdicts:
    """Return the verdicts in the day's file, for all tasks or for one."""
    found = known(day)
    of = f"{task or ''} ".lstrip()
    rejected = {name: test for name, test in found.get("rejected", {}).items() if name.startswith(of)}
    return Verdicts(rejected, tuple(name for name in found.get("accepted", ()) if name.startswith(of)))


def ids_of(day: Day, task: TaskId | None = None) -> tuple[set[str], set[str]]:
    """Return the ids of the mistakes and of the variants in the catalogue."""
    chosen = [each.id for each in day.tasks if task in (None, each.id)]
    mistakes = {f"{id} {mistake.id}" for id in chosen for mistake in entry_of(id).mistakes}
    entries = read_toml(variants_file(day))["variants"]
    return mistakes, {f"{e['task']} right-{e['id']}" for e in entries if TaskId.parse(e["task"]) in chosen}


def variants_file(day: Day) -> Path:
    return Path(__file__).parent / "variants" / f"week_{day.week}_day_{day.number}.toml"


def draw(seed: int, share: float = 0.05) -> list[TaskId]:
    """Draw tasks at random, until they have this share of all verdicts.

    Draw whole tasks, because the name that a mistake gets depends on the task's other mistakes.
    """
    sizes = {task.id: sum(map(len, ids_of(day_of(task.id), task.id))) for task in tasks()}
    shuffled = Random(seed).sample(list(sizes), len(sizes))
    found: list[TaskId] = []
    while sum(sizes[task] for task in found) < share * sum(sizes.values()):
        found.append(shuffled.pop())
    return found


def compute(day: Day, task: TaskId | None = None) -> Computed:
    """Run the day's tests, or those of one task, with every mistake and every variant."""
    out = ROOT / "build" / "verdicts" / f"{task or f'w{day.week}d{day.number}'}"
    out.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "--impl=tiny_llm_ref", "-p", "no:cacheprovider"]
    command += ["--time-limit=3000"]  # for all runs of a test together
    command += ["-p", "input_log", f"--inputs={out / 'inputs.json'}"]
    command += ["-p", "catalogue_matrix", f"--matrix={out / 'mistakes.json'}"]
    command += ["-p", "variant_matrix", f"--variants={variants_file(day)}", f"--failures={out / 'variants.json'}"]
    command += ["-k", f"test_task_{task.task}_"] if task else []
    path = os.pathsep.join([str(ROOT / "src"), str(Path(__file__).parent)])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    run = subprocess.run(
        [*command, f"tests/{day.test_file}"],
        cwd=ROOT,
        env=environment | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=3600,
    )
    if run.returncode:
        raise AssertionError(run.stdout[-4000:] + _ends(run.stderr))
    tables, failures, inputs = (
        json.loads((out / f"{name}.json").read_text(encoding="utf-8")) for name in ("mistakes", "variants", "inputs")
    )
    _, right = ids_of(day, task)
    rows = {f"{id} {mistake}": row for id, table in tables.items() for mistake, row in table["mistakes"].items()}
    rejected = {name: row["rejected by"][0] for name, row in rows.items() if row["rejected by"]}
    accepted = tuple(sorted(name for name in right if not failures.get(name)))
    problems = [*problems_of_mistakes(rows), *problems_of_variants(right, failures)]
    problems += [] if task else problems_of_first_tests(tables)
    return Computed(Verdicts(rejected, accepted), tuple(problems), tuple(inputs))


def _ends(text: str) -> str:
    """Return the beginning and the end of a long text: a crash says first what happened, and a traceback last."""
    return text if len(text) <= 8000 else f"{text[:4000]}\n[...]\n{text[-4000:]}"


def problems_of_mistakes(rows: dict[str, Any]) -> Iterator[str]:
    for name, row in rows.items():
        if not row["rejected by"]:
            yield f"{name}: no test rejects it"
        elif row["same as"]:
            yield f"{name}: no test tells it from {', '.join(row['same as'])}"
        elif row["named"] != name.partition(" ")[2]:
            yield f"{name}: a learner is told {row['named']}"


def problems_of_variants(right: set[str], failures: dict[str, dict[str, str]]) -> Iterator[str]:
    for name in sorted(right):
        if name not in failures:
            yield f"{name}: was not tested"
        for test, error in failures.get(name, {}).items():
            yield f"{name}: is correct, and {test} rejects it: {error}"


def problems_of_first_tests(tables: dict[str, Any]) -> Iterator[str]:
    """Yield a problem if fewer than half of a day's mistakes survive their task's first test, which has one shape,
    float32 and no options."""
    rows = [(table["tests"][0], row) for table in tables.values() for row in table["mistakes"].values()]
    survivors = sum(first not in row["rejected by"] for first, row in rows)
    if survivors * 2 < len(rows):
        yield f"expected half of the mistakes to survive the first test of their task, got {survivors} of {len(rows)}"


def write(day: Day, computed: Computed) -> Path:
    """Keep the results in the day's file."""
    head = HEAD.format(week=day.week, day=day.number, digest=digest(ROOT, day, computed.inputs), machine=machine())
    lines = ["inputs = [", *(f"    {json.dumps(path)}," for path in computed.inputs), "]"]
    lines += ["accepted = [", *(f"    {json.dumps(name)}," for name in computed.verdicts.accepted), "]"]
    found = computed.verdicts.rejected.items()
    lines += [
        "",
        "[rejected]  # by which test first",
        *(f"{json.dumps(name)} = {json.dumps(test)}" for name, test in found),
    ]
    write_whole(_file(day), (head + "\n".join(lines) + "\n").encode())
    return _file(day)


def unless_known(name: str, check: Callable[[], None]) -> None:
    """Run one of CHECKS only if something on which it depends has changed since it passed. Record that it passed."""
    file, now = FOLDER / f"{name}.toml", digest_of_files(ROOT, CHECKS[name])
    is_known = file.exists() and read_toml(file)["digest"] == now
    if is_known and not ALL:
        return
    check()
    if not is_known:
        write_whole(file, HEAD_OF_CHECK.format(name=name, digest=now, machine=machine()).encode())
        pytest.fail(
            f"This was checked again, because something changed on which it depends. All is well: commit "
            f"{file.relative_to(ROOT)}, which was written. If CI says this, run `./course check {name}` and commit.",
            pytrace=False,
        )


@cache
def machine() -> str:
    """Return the processor, compiler and Python, on which a verdict should not depend."""
    info = Path("/proc/cpuinfo")  # Linux
    models = re.findall(r"model name\s*: (.*)", info.read_text(encoding="utf-8")) if info.exists() else []
    compiler = subprocess.run(["c++", "--version"], capture_output=True, text=True).stdout.partition("\n")[0]
    processor = models[0] if models else platform.processor() or platform.machine()
    return f"{processor}; {compiler or 'no compiler'}; Python {platform.python_version()}".replace('"', "'")


def _file(day: Day) -> Path:
    return FOLDER / f"week_{day.week}_day_{day.number}.toml"
