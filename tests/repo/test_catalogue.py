"""The catalogue: complete in both languages, every mistake rejected by its task's tests, and named by its own id."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tiny_llm_course.catalogue import entry_of
from tiny_llm_course.syllabus import select_days, tasks

ROOT = Path(__file__).resolve().parents[2]
DAYS = {f"w{day.week}d{day.number}": day for day in select_days(None, None)}
TASKS = [pytest.param(task, id=str(task.id)) for task in tasks()]
of_each_day = pytest.mark.parametrize("day", DAYS.values(), ids=DAYS)
with_its_matrix = pytest.mark.parametrize(  # which one process makes
    "day", [pytest.param(day, id=name, marks=pytest.mark.xdist_group(name)) for name, day in DAYS.items()]
)


@cache
def matrix(test_file):
    """How the day's tests went with each mistake: {task: {"tests": ..., "mistakes": {mistake: {...}}}}."""
    out = ROOT / "build" / "catalogue" / f"{test_file}.json"
    return run_with("catalogue_matrix", test_file, out, f"--matrix={out}")


def run_with(plugin, test_file, out, *options):
    """What a plugin writes that runs a day's tests in several ways."""
    out.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "--impl=tiny_llm_ref", "-p", plugin]
    command += ["-p", "no:cacheprovider", "--time-limit=1000", *options, f"tests/{test_file}"]  # of all runs of a test
    path = os.pathsep.join([str(ROOT / "src"), str(Path(__file__).parent)])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    run = subprocess.run(
        command, cwd=ROOT, env=environment | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=3600
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[:4000]  # a crash says first what it was
    return json.loads(out.read_text(encoding="utf-8"))


def mistakes_of(day):
    """Each mistake of a day: its task and id, and what became of it."""
    for task, table in matrix(day.test_file).items():
        yield from ((task, mistake, row) for mistake, row in table["mistakes"].items())


@pytest.mark.parametrize("task", TASKS)
def test_texts_are_there_in_both_languages(task):
    entry = entry_of(task.id)
    texts = [*entry.hints, entry.learned, *(mistake.diagnosis for mistake in entry.mistakes)]
    for text in texts:
        assert set(text) == {"en", "ja"}
        assert all(part.strip() for part in text.values())
        assert text["en"] != text["ja"]
        assert any("\u3040" <= letter <= "\u30ff" for letter in text["ja"]), f"not Japanese: {text['ja']}"


@pytest.mark.parametrize("task", TASKS)
def test_there_are_enough_mistakes(task):
    """At least six of a function, ten of a class."""
    mistakes = entry_of(task.id).mistakes
    assert len({mistake.id for mistake in mistakes}) == len(mistakes)
    assert len(mistakes) >= 6


@with_its_matrix
def test_every_mistake_is_rejected(day):
    assert [f"{task} {mistake}" for task, mistake, row in mistakes_of(day) if not row["rejected by"]] == []


@with_its_matrix
def test_no_two_mistakes_are_the_same(day):
    assert [f"{task} {mistake} = {row['same as']}" for task, mistake, row in mistakes_of(day) if row["same as"]] == []


@with_its_matrix
def test_every_mistake_is_named(day):
    wrong = [f"{task} {mistake}: {row['named']}" for task, mistake, row in mistakes_of(day) if row["named"] != mistake]
    assert wrong == []


@with_its_matrix
def test_half_of_the_mistakes_survive_a_naive_test(day):
    """The first test of each task: one shape in float32, without optional arguments."""
    tables = matrix(day.test_file).values()
    rows = [(table["tests"][0], row) for table in tables for row in table["mistakes"].values()]
    survivors = [row for first, row in rows if first not in row["rejected by"]]
    assert len(survivors) * 2 >= len(rows)


@of_each_day
def test_no_right_solution_fails(day):
    """A dozen right solutions a day that are written differently. Where no test fails, no mistake is named."""
    file = Path(__file__).parent / "variants" / f"week_{day.week}_day_{day.number}.toml"
    out = ROOT / "build" / "catalogue" / f"{day.test_file}.variants.json"
    failures = run_with("variant_matrix", day.test_file, out, f"--variants={file}", f"--failures={out}")
    assert len(failures) >= 12
    assert {variant: tests for variant, tests in failures.items() if tests} == {}
