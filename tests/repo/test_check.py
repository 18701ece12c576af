"""`./course check` on a small repository: each test has a gate, changes select gates, and the messages of a run."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))

import gate_table  # noqa: E402
import passed_gates  # noqa: E402
from imports import with_imports  # noqa: E402

GATES = """
[[gates]]
name = "quick"
tests = ["tests/test_quick.py"]
inputs = ["book/*"]
budget = 50

[[gates]]
name = "slow"
tests = ["tests/test_slow*.py"]
inputs = ["src/*.py"]
budget = 0.1
"""
FILES = {
    "scripts/gates.toml": GATES,
    "pyproject.toml": "[tool.pytest.ini_options]\nmarkers = []\n",
    "tests/conftest.py": "def pytest_addoption(parser):\n    parser.addoption('--impl')\n",
    "tests/test_quick.py": "import pytest\n\n@pytest.mark.parametrize('n', range(3))\ndef test_quick(n): pass\n",
    "tests/test_slow_one.py": "import threading\n\ndef test_slow(): threading.Event().wait(0.2)\n",
    "tests/test_slow_two.py": "def test_other(): pass\n",
    "src/x.py": "",
    "book/x.md": "",
    ".gitignore": "build/\n__pycache__/\n",
}


device = pytest.fixture(lambda: None)  # nothing here computes on one


@pytest.fixture
def small(tmp_path):
    """Return a repository with two gates."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for name in ("check", "gate_table.py", "gate_report.py", "imports.py", "passed_gates.py"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts")
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "Begin"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *command], cwd=tmp_path, check=True)
    return tmp_path


def check(root, *arguments):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TINY_LLM_"))}
    environment |= {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "120"}
    command = [sys.executable, "scripts/check", "--workers", "1", *arguments]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)


def order_of(run):
    """Return the gates in the order in which they ended."""
    return re.findall(r"^\[.*%\] (\w+)", run.stdout, re.MULTILINE)


def test_every_test_belongs_to_one_gate():
    files = [*(ROOT / "tests").glob("test_*.py"), *(ROOT / "tests/repo").glob("test_*.py")]
    files += (ROOT / "tests/metal_host").glob("test_*.py")
    tests = [str(file.relative_to(ROOT)) for file in files if file.name != "test_tools.py"]
    tools = (ROOT / "tests/repo/test_tools.py").read_text()
    tests += [f"tests/repo/test_tools.py::{name}" for name in re.findall(r"^def (test_\w+)", tools, re.MULTILINE)]
    owners = {
        test: [gate.name for gate in gate_table.all_gates() if gate.has(f"{test}::x" if "::" not in test else test)]
        for test in tests
    }
    assert {test: names for test, names in owners.items() if len(names) != 1} == {}


def test_every_gate_has_tests_and_inputs():
    files = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    for gate in gate_table.all_gates():
        assert gate.paths()
        for pattern in gate.inputs:
            alone = gate_table.Gate("one", (), (pattern,), 1)
            assert alone.depends_on(files), f"{gate.name}: nothing is called {pattern}"


@pytest.mark.parametrize("gate", [gate for gate in gate_table.all_gates() if gate.remember], ids=lambda gate: gate.name)
def test_a_remembered_gate_lists_all_that_its_tests_import(gate):
    """It lists the locked versions as well; otherwise a gate would be trusted after a change that can break it."""
    files = {ROOT / file for file in gate.files()} | {ROOT / "tests/repo/conftest.py"}
    needed = {str(file.relative_to(ROOT)) for file in with_imports(ROOT, files)} | {"pdm.lock", "pyproject.toml"}
    assert len(needed) > 10
    assert sorted(path for path in needed if not gate.depends_on([path])) == []


def test_a_gate_depends_on_the_files_that_its_tests_use():
    """Its tests import some of them, directly or not, and name others, which they read or run."""
    [grading] = [gate for gate in gate_table.all_gates() if gate.name == "grading"]
    for used in ("test_grade.py", "handed_in.py", "waiting.py", "attacks.toml", "conftest.py"):
        assert grading.depends_on([f"tests/repo/{used}"]), used
    assert grading.depends_on(["scripts/forks.py"])
    for other in ("tests/repo/test_storyteller.py", "tests/repo/planted.py", "scripts/machines.py"):
        assert not grading.depends_on([other]), other


def test_all_gates_and_what_they_took(small):
    run = check(small)
    assert run.returncode == 0, run.stdout + run.stderr
    assert order_of(run) == ["quick", "slow"]
    assert "5 passed" in run.stdout
    assert re.search(r"quick +ok +\d\.\d s   budget +50 s\n", run.stdout)
    assert re.search(r"slow +ok +0\.\d s   budget +0.1 s   over its budget\n", run.stdout)
    assert re.search(r"the 3 slowest tests =+\n +0\.\d s  tests/test_slow_one.py::test_slow\n", run.stdout)
    assert json.loads((small / "build/check/times.json").read_text()).keys() >= {"tests/test_quick.py::test_quick[0]"}
    assert re.search(r"slow .* last time +0\.\d s", check(small, "slow").stdout)


def test_a_failure_is_named_at_once_and_at_the_end(small):
    (small / "tests/test_slow_two.py").write_text("def test_other(): assert 1 == 2\n")
    run = check(small, "--seed", "7")
    assert run.returncode == 1
    assert "\nFAILED tests/test_slow_two.py::test_other\n" in run.stdout
    assert re.search(r"slow +FAILED", run.stdout)
    assert "failed: slow" in run.stdout
    assert "assert 1 == 2" in run.stdout
    assert "to repeat this run: ./course check --seed 7\n" in run.stdout


def test_a_file_that_cannot_be_imported_fails_its_gate(small):
    (small / "tests/test_slow_two.py").write_text("import nothing_has_this_name\n")
    run = check(small)
    assert run.returncode != 0
    assert "\nFAILED tests/test_slow_two.py\n" in run.stdout
    assert re.search(r"slow +FAILED", run.stdout)
    assert re.search(r"quick +ok", run.stdout)


def test_a_gate_without_chosen_tests_is_not_ok(small):
    run = check(small, "--", "-k", "test_quick")
    assert re.search(r"quick +ok", run.stdout)
    assert re.search(r"slow +no tests", run.stdout)


def test_a_part_is_repeated_as_that_part(small):
    line = "to repeat this run: ./course check quick --seed 7 -- -k 'one or two'\n"
    assert line in check(small, "--without", "slow", "--seed", "7", "--", "-k", "one or two").stdout


def test_what_a_change_can_have_broken_comes_first(small):
    (small / "src/x.py").write_text("x = 1\n")
    assert order_of(check(small)) == ["slow", "quick"]


def test_since_runs_only_what_a_change_can_have_broken(small):
    assert (
        check(small, "--since", "HEAD").stdout
        == "nothing to check: no gate depends on a file that has changed since HEAD\n"
    )
    (small / "book/new.md").write_text("x")
    assert order_of(check(small, "--since", "HEAD")) == ["quick"]
    (small / "tests/test_slow_two.py").write_text("def test_other(): 1\n")
    assert order_of(check(small, "--since", "HEAD")) == ["quick", "slow"]


def test_some_gates(small):
    assert order_of(check(small, "slow")) == ["slow"]
    assert order_of(check(small, "--without", "slow")) == ["quick"]
    assert "1 passed" in check(small, "quick", "--", "-k", "2").stdout
    assert check(small, "--list").stdout.startswith(
        "gate          budget   tests\nquick           50 s   tests/test_quick.py\n"
    )


def test_what_does_not_exist(small):
    run = check(small, "quik")
    assert (run.returncode, run.stderr) == (2, "error: there is no gate 'quik'; the gates are quick, slow\n")
    run = check(small, "--since", "v9")
    assert (run.returncode, run.stderr) == (2, "error: --since v9: git knows no such revision\n")


# ------------------------------------------------------------------------------------------- gates that are remembered

PASSED = "tests/repo/verdicts/gates.toml"
COMMIT = f"commit {PASSED}, which records the gates that have passed"


@pytest.fixture
def remembered(small):
    """Return the same repository, where the gate "quick" has passed. Each of its three tests is a unit."""
    file = small / "scripts/gates.toml"
    file.write_text(file.read_text().replace("budget = 50", 'budget = 50\nunit = "test"\nremember = true'))
    return small


def ran(run):
    """Return how many tests ran."""
    return int(re.search(r"(\d+) passed", run.stdout)[1])


def test_a_gate_that_has_passed_runs_a_twentieth_of_its_units(remembered):
    """As long as its inputs stay the same: "quick" has three units, and "slow", which is not remembered, two tests."""
    first = check(remembered)
    (remembered / "src/x.py").write_text("x = 2\n")
    second = check(remembered)
    assert (ran(first), ran(second), ran(check(remembered, "--all"))) == (5, 3, 5)
    assert COMMIT in first.stdout
    assert COMMIT not in second.stdout
    assert re.search(r"^quick +known ", second.stdout, re.MULTILINE)
    assert re.search(r"^slow +ok ", second.stdout, re.MULTILINE)
    (remembered / "book/x.md").write_text("more")
    third = check(remembered)
    assert ran(third) == 5
    assert COMMIT in third.stdout


def test_each_unit_is_drawn_at_some_time():
    quick = gate_table.Gate("quick", (), (), 1)
    drawn = [passed_gates.sample(quick, map(str, range(60)), str(seed)) for seed in range(200)]
    assert {len(units) for units in drawn} == {3}
    assert set().union(*drawn) == {*map(str, range(60))}
    assert drawn[7] == passed_gates.sample(quick, map(str, reversed(range(60))), "7")
    assert len(passed_gates.sample(quick, "ab", "7")) == 1


def test_every_byte_of_the_inputs_counts(small, monkeypatch):
    monkeypatch.setattr(passed_gates, "ROOT", small)
    monkeypatch.setattr(passed_gates, "FILE", small / PASSED)
    quick = gate_table.Gate("quick", ("tests/test_quick.py",), ("book/*", "tests/repo/*"), 1)

    def digest():
        passed_gates._files.cache_clear(), passed_gates._digest_of.cache_clear()
        return passed_gates.digest(quick)

    found = [digest()]
    for change in (
        lambda: (small / "book/x.md").write_text("a space \n"),
        lambda: (small / "book/new.md").write_text(""),
        lambda: (small / "book/new.md").rename(small / "book/other.md"),
        lambda: (small / "book/x.md").unlink(),
        lambda: (small / "tests/test_quick.py").write_text("# a comment\n"),
    ):
        change()
        found.append(digest())
    assert len({*found}) == len(found)
    (small / "src/x.py").write_text("x = 2\n")
    (small / PASSED).parent.mkdir(parents=True)
    (small / PASSED).write_text("")
    assert digest() == found[-1]


@pytest.mark.parametrize(
    ("body", "options"),
    [
        ("assert n != 1", []),
        ("if n == 1: pytest.skip('no tool for this')", []),
        ("pass", ["--", "-k", "0 or 1"]),
        ("pass", ["--", "-x"]),
    ],
)
def test_a_run_in_which_a_test_is_missing_is_not_remembered(remembered, body, options):
    head = "import pytest\n\n@pytest.mark.parametrize('n', range(3))\n"
    (remembered / "tests/test_quick.py").write_text(f"{head}def test_quick(n):\n    {body}\n")
    assert COMMIT not in check(remembered, *options).stdout
    assert not (remembered / PASSED).exists()
