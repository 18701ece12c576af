"""A task whose functions change gets a new contract number, so that `update` does not take old code for solved."""

import ast
import json
import sys
from pathlib import Path

import pytest

from tiny_llm_course.tasks.syllabus import select_task, tasks
from tiny_llm_course.tasks.toml import read_toml
from tiny_llm_course.update.contracts import SYLLABUS as SYLLABUS_FILE

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))

from contracts import FILE, REFERENCE, contracts, problems, signature  # noqa: E402

SYLLABUS = ROOT / SYLLABUS_FILE
OLD = {"w1d1.1": {"contract": 1, "functions": {"f": "(x)", "g": "(y)"}}}


device = pytest.fixture(lambda: None)  # nothing here computes on one


def changed(contract=1, **functions):
    """Return the task with other functions; None removes a function."""
    found = {**OLD["w1d1.1"]["functions"], **functions}
    return {"w1d1.1": {"contract": contract, "functions": {name: text for name, text in found.items() if text}}}


@pytest.mark.parametrize(
    ("functions", "said"),
    [
        ({"f": "(x, z)"}, "f(x) became f(x, z)"),
        ({"h": "()"}, "h (new) became h()"),
        ({"g": None}, "g(y) became g (gone)"),
    ],
)
def test_functions_that_change_need_a_new_contract(functions, said):
    (line,) = problems(OLD, changed(**functions))
    assert line.startswith(f"w1d1.1: {said}. Raise the task's `contract` in syllabus.toml")
    assert problems(OLD, changed(2, **functions)) == []
    assert problems(OLD, changed(**functions), ["w1d1.1"]) == []


def test_a_contract_only_grows():
    (line,) = problems(changed(2), OLD)
    assert line == "w1d1.1: `contract` fell from 2 to 1, but may only grow"


def test_nothing_is_said_of_tasks_that_are_new_or_the_same():
    assert problems(OLD, OLD | {"w1d1.2": {"contract": 1, "functions": {"f": "()"}}}) == []
    assert problems(OLD, changed(2)) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(x: int, y: float = 2, *z: str, k: int = 1, **more: int) -> int: ...", "(x, y=2, *z, k=1, **more)"),
        ("def f(self, x: int, /) -> None: ...", "(self, x, /)"),
        ("async def f(x): ...", "async (x)"),
    ],
)
def test_signatures_have_names_and_defaults(source, expected):
    assert signature(ast.parse(source).body[0]) == expected


def test_every_task_is_written_down():
    found = json.loads(FILE.read_text(encoding="utf-8"))
    assert [*found] == [str(task.id) for task in tasks()]
    assert found["w3d1.3"]["contract"] == select_task("w3d1.3").contract == 2
    assert "Scheduler.begin" in found["w3d1.3"]["functions"]
    assert found == contracts(REFERENCE, tasks())


def test_functions_that_are_kept_exist():
    functions = {task: found["functions"].keys() for task, found in contracts(REFERENCE, tasks()).items()}
    entries = [
        (f"w{week['number']}d{day['number']}.{task['number']}", task)
        for week in read_toml(SYLLABUS)["weeks"]
        for day in week["days"]
        for task in day["tasks"]
    ]
    kept = {name: task["kept"] for name, task in entries if "kept" in task}
    assert kept
    assert all({*names} <= functions[name] for name, names in kept.items())
    assert all(task.get("contract", 1) > 1 for name, task in entries if name in kept)
