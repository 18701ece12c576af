"""The core path and the hours in the syllabus, and how `next`, `solution` and `progress` use them."""

import subprocess

import pytest
from learner import Clone

from tiny_llm_course.tasks.plan import ALL, CORE, about, days_of, hours
from tiny_llm_course.tasks.syllabus import select_days

LEFT_OUT = "first:    ./course solution --path core fills in the earlier tasks that your path leaves out"


device = pytest.fixture(lambda: None)  # nothing here computes on one


@pytest.fixture
def clone(tmp_path):
    return Clone.create(tmp_path / "course")


def solve(clone, *names):
    """Solve these days like a learner whose tests passed."""
    days = [select_days(*name.split("."))[0] for name in names]
    progress = clone.root / "progress.txt"
    solved = "".join(f"{task.id} solved\n" for day in days for task in day.tasks)
    progress.write_text(progress.read_text() + solved)
    for name in (f"{module}.py" for day in days for module in day.modules):
        clone.file(name).write_text(clone.solved(name, *kept(clone)))


def kept(clone):
    """Return the tasks that progress.txt lists as solved or skipped."""
    lines = (clone.root / "progress.txt").read_text().splitlines()
    return [line.split()[0] for line in lines if line.endswith((" solved", " skipped"))]


def test_the_hours_of_the_course_and_of_its_core():
    assert all(hours([day]) > 0 for day in days_of(ALL))
    assert hours(days_of(ALL)) == sum(hours([day]) for day in days_of(ALL))
    assert about(hours(days_of(CORE))) == 12
    assert (about(11.4), about(11.5)) == (11, 12)
    names = [(day.week, day.number) for day in days_of(CORE)]
    assert names == sorted(names)
    assert names[0] == (1, 1), "the course begins there"


def test_next_follows_the_path_until_it_is_told_otherwise(clone):
    said = clone.run("next", "--path", "core").stdout
    assert said.startswith("You are on the core path now: 6 days, about 12 hours.")
    assert "(w1d1.1)" in said
    assert "first: " not in said
    assert "warm-up" not in said
    solve(clone, "1.1")
    for command in (["next"], ["hint"]):
        assert "w1d5.1" in clone.run(*command).stdout
    assert clone.run("next").stdout.splitlines()[-1] == f"{LEFT_OUT} (6)"
    assert clone.run("progress").stdout.splitlines()[-1] == "Core path: 2 of 21 tasks done"
    said = clone.run("next", "--path", "all").stdout
    assert said.startswith("You are following the whole course now: 23 days, about 51 hours.")
    assert "(w1d2.1)" in said
    assert "first: " not in clone.run("next").stdout
    assert "path" not in (clone.root / "progress.txt").read_text()


def test_solution_fills_in_what_the_path_leaves_out(clone):
    clone.run("next", "--path", "core")
    solve(clone, "1.1")
    mine = clone.file("attention.py").read_text().replace("import math\n", "import math  # mine\n")
    clone.file("attention.py").write_text(mine)
    said = clone.run("solution", "--path", "core").stdout
    assert "the solutions of days 1.2, 1.3, 1.4, which the core path leaves out; 6 tasks marked as skipped" in said
    assert "(w1d5.1)" in said
    assert "first: " not in said
    assert kept(clone) == [f"w1d{day}.{task}" for day in (1, 2, 3, 4) for task in (1, 2)]
    assert "import math  # mine\n" in clone.file("attention.py").read_text()
    assert clone.run("test", "w1d2").returncode == 0
    assert clone.run("solution", "--path", "core").stdout.startswith("There is nothing to fill in:")
    assert clone.run("undo").returncode == 0
    assert clone.file("attention.py").read_text() == mine
    assert LEFT_OUT in clone.run("next").stdout, "still on the path"


def test_a_passing_test_names_the_next_day_of_the_path(clone):
    clone.run("next", "--path", "core")
    solve(clone, "1.1")
    assert clone.run("test", "w1d1.1").stdout.splitlines()[-2:] == [
        f"{LEFT_OUT} (6)",
        "next: w1d5.1 Token embedding, and its use as the output layer: ./course test w1d5.1",
    ]


def test_the_whole_path(clone):
    """On each day of the path, the tests pass with the code that the learner wrote and the code that was filled in."""
    clone.run("next", "--path", "core")
    for day in days_of(CORE):
        clone.run("solution", "--path", "core")
        assert f"(w{day.week}d{day.number}.1)" in clone.run("next").stdout
        solve(clone, f"{day.week}.{day.number}")
    assert clone.run("test", "w3d1").returncode == 0
    said = clone.run("next").stdout
    assert said.startswith("The core path is done.")
    assert "./course next --path all" in said
    assert clone.run("solution", "--path", "core").stdout.startswith("There is nothing to fill in:")
    assert "(w3d2.1)" in clone.run("next", "--path", "all").stdout


def test_what_is_not_a_path(clone):
    assert "--path: expected one of core, all, got 'x'" in clone.run("next", "--path", "x").stderr
    assert "--path: expected one of core, got 'all'" in clone.run("solution", "--path", "all").stderr
    for arguments in (["w1d1.1", "--path", "core"], ["--day", "1.1", "--path", "core"]):
        assert "leave one of them out" in clone.run("solution", *arguments).stderr
    (clone.root / "progress.txt").write_text("path of a newer course\n")
    assert "warm-up" in clone.run("next").stdout, "the whole course"


def test_without_solutions_there_is_no_path(clone):
    subprocess.run(["rm", "-rf", clone.root / "src/tiny_llm_ref"], check=True)
    for command in ("next", "solution"):
        refused = clone.run(command, "--path", "core")
        assert refused.returncode == 1
        assert "your instructor withheld these solutions from this copy" in refused.stderr
