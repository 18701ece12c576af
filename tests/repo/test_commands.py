"""The names of the commands have the same meaning under `tiny-llm`, `./course` and `pdm run`."""

import shutil
import sys
from pathlib import Path

import pytest
from learner import Clone
from typer.testing import CliRunner

from tiny_llm_course.commands import app
from tiny_llm_course.tasks.toml import read_toml
from tiny_llm_course.ui.command_table import ALL, FOR_MAINTAINERS, NEED_SOLUTIONS

ROOT = Path(__file__).resolve().parents[2]


def tiny_llm(*arguments, cwd=ROOT, **variables):
    return Clone(ROOT).run(*arguments, cwd=cwd, **variables)


def test_pdm_runs_every_name():
    """PDM needs a list of its own, which must not give a name a second meaning."""
    scripts = read_toml(ROOT / "pyproject.toml")["tool"]["pdm"]["scripts"]
    assert scripts == {name: f"tiny-llm {name}" for name in ALL}


def test_help_lists_every_name():
    shown = tiny_llm("--help").stdout
    rows = {line.split()[1]: line for line in shown.splitlines() if line.startswith("│ ") and line[2] != " "}
    assert set(ALL) <= set(rows)
    for name in ALL:
        assert len(rows[name].split()) > 4, f"{name} needs a help text"
    assert "The same as test --impl ref." in rows["test-ref"]
    assert "Usage: ./course [OPTIONS]" in tiny_llm("--help", TINY_LLM_CALLED="./course").stdout


@pytest.mark.parametrize("name", [name for name in ALL if name not in FOR_MAINTAINERS])
def test_every_name_has_its_own_help(name):
    run = CliRunner().invoke(app, [name, "--help"], prog_name="./course")
    assert run.exit_code == 0
    assert f"Usage: ./course {name} " in run.stdout


def test_a_short_form_takes_more_arguments():
    run = tiny_llm("test-ref", "--week", "0", "--day", "1", "--", "-k", "task_9")
    assert (run.returncode, run.stdout) == (5, "")
    assert "-k task_9: expected the name of a test or task" in run.stderr


@pytest.mark.parametrize(
    ("arguments", "end"),
    [(["stubs", "--check"], "problems: 0\n"), (["check", "native stubs --help"], ""), (["book", "--help"], "")],
    ids=lambda value: value[0] if value else None,
)
def test_maintainers_scripts_run_from_any_folder(arguments, end, tmp_path):
    run = tiny_llm(*arguments, cwd=tmp_path)
    assert run.stdout.endswith(end)
    assert run.returncode == (2 if arguments[0] == "check" else 0), run.stderr
    assert arguments[0] != "check" or "there is no gate 'native stubs --help'; the gates are stubs, " in run.stderr


def test_options_of_pytest_come_after_two_dashes():
    run = tiny_llm("check", "stubs", "lint", "--", "-k", "no_such_test")
    assert run.returncode == 5, run.stderr  # of pytest: no test was chosen
    assert "-- -k no_such_test" in run.stdout


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nxt", "error: there is no command 'nxt'; did you mean next? `./course --help` lists all commands\n"),
        ("w1d1.1", "error: there is no command 'w1d1.1'; `./course --help` lists all commands\n"),
        ("../bin/python", "error: there is no command '../bin/python'; `./course --help` lists all commands\n"),
        ("", "error: there is no command ''; `./course --help` lists all commands\n"),
    ],
)
def test_an_unknown_name(name, message):
    run = tiny_llm(name)
    assert (run.returncode, run.stdout, run.stderr) == (2, "", message)


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="programs of a virtual environment")
def test_programs_of_the_virtual_environment(tmp_path):
    assert tiny_llm("pytest", "--version", cwd=tmp_path).stdout.startswith("pytest ")
    shown = tiny_llm("python", "-c", "import sys; print(sys.argv[1:], sys.prefix)", "a b", "--", cwd=tmp_path).stdout
    assert shown == f"['a b', '--'] {sys.prefix}\n"


def test_a_copy_without_solutions_has_fewer(tmp_path):
    shutil.copytree(ROOT / "src/tiny_llm_course", tmp_path / "src/tiny_llm_course")
    shutil.copytree(ROOT / "src/tiny_llm", tmp_path / "src/tiny_llm")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    clone = Clone(tmp_path)
    shown = clone.run("--help").stdout
    assert all(f"│ {name} " not in shown for name in NEED_SOLUTIONS)
    assert all(f"│ {name} " in shown for name in ALL if name not in NEED_SOLUTIONS)
    assert "there is no command 'grade'" in clone.run("grade").stderr
    assert "instructors" not in shown
