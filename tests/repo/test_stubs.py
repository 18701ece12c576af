"""`make_stub` on small modules: the code that it replaces, keeps and leaves out."""

import ast
import re
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

from tiny_llm_course.tasks.stubs import make_stub
from tiny_llm_course.tasks.task_code import StubError


def module(text: str) -> str:
    """Return a module in which `DOC` stands for a docstring with the tag of task 1, `DOC w1d1.2` for one with the tag
    of task 2, and `ERROR f` for the error of f as task 1, `ERROR f 2` as task 2."""
    return re.sub(
        r"^( *)((?:DOC|ERROR)\b.*\n)", lambda found: indent(expand(found[2].split()), found[1]), text, flags=re.M
    )


def expand(words: list[str]) -> str:
    match words:
        case ["DOC", *ids]:
            return f'"""Contract.\n\nTask: {", ".join(ids or ["w1d1.1"])}\n"""\n'
        case ["ERROR", name, *tasks]:
            task = tasks[0] if tasks else 1
            return (
                "raise NotImplementedError(\n"
                f'    "Week 1 Day 1 Task {task}: {name} is yours to write. "\n'
                '    "Chapter: Attention and multi-head attention. "\n'
                f'    "Test: ./course test w1d1.{task}"\n'
                ")\n"
            )
    raise ValueError(words)


def cases() -> dict[str, list[str]]:
    """Return each module and its stub, keyed by name. Lines with - are only in the module, lines with + only in the
    stub."""
    found = {}
    for case in Path(__file__).with_name("stub_cases.txt").read_text(encoding="utf-8").split("=== ")[1:]:
        name, *lines = case.splitlines()
        found[name] = ["".join(f"{line[2:]}\n" for line in lines if line[:1] != other) for other in "+-"]
    return found


CASES = cases()


@pytest.mark.parametrize("case", CASES)
def test_stub(case):
    source, expected = map(module, CASES[case])
    assert make_stub(source) == expected
    ast.parse(expected)


@pytest.mark.parametrize("case", CASES)
def test_windows_line_ends(case):
    source, expected = (module(text).replace("\n", "\r\n") for text in CASES[case])
    assert make_stub(source) == expected


@pytest.mark.parametrize("case", CASES)
def test_nothing_changes_once_all_is_solved(case):
    source = module(CASES[case][0])
    assert make_stub(source, is_solved=lambda task_id: True) == source


def test_a_formatted_module_gives_a_formatted_stub(tmp_path):
    for number, (source, _) in enumerate(CASES.values()):
        (tmp_path / f"{number}.py").write_text(module(source), encoding="utf-8")
    ruff = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length=120", "--target-version=py310"]
    subprocess.run([*ruff, tmp_path], check=True)
    for file in tmp_path.glob("*.py"):
        file.write_text(make_stub(file.read_text(encoding="utf-8")), encoding="utf-8")
    formatted = subprocess.run([*ruff, "--diff", tmp_path], capture_output=True, text=True, check=False)
    assert formatted.returncode == 0, formatted.stdout


@pytest.mark.parametrize(("name", "lines"), [("f" * 24, 1), ("f" * 25, 3)], ids=["fits", "too long"])
def test_an_error_that_fits_stands_on_one_line(name, lines):
    stub = make_stub(f"def {name}():\n    'Task: w1d7.1'\n")
    assert len(stub.splitlines()) == 4 + lines


def test_the_error_names_the_first_task_that_is_not_solved():
    rest = "\n\ndef g():\n    DOC\n    return _helper()\n\n\ndef _helper(): ...\n"
    source = module(f"def f():\n    DOC w1d1.1 w1d1.2\n    return _helper()\n{rest}")
    expected = module(f"def f():\n    DOC w1d1.1 w1d1.2\n    ERROR f 2\n{rest}")
    assert make_stub(source, is_solved=lambda task_id: task_id.task == 1) == expected


def test_the_error_is_what_a_caller_gets():
    namespace: dict[str, object] = {}
    exec(make_stub(module("def f():\n    DOC\n")), namespace)
    with pytest.raises(NotImplementedError) as raised:
        namespace["f"]()
    assert str(raised.value) == (
        "Week 1 Day 1 Task 1: f is yours to write. Chapter: Attention and multi-head attention. "
        "Test: ./course test w1d1.1"
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1\n\n\ndef f():\n    '''Task: w9d1.1'''\n", "basics.py:4: the syllabus has no task w9d1.1"),
        ("class C:\n    '''Task: w1d1.1, w1d1'''\n", "basics.py:1: a task id looks like w1d2.3, got 'w1d1'"),
        ("def f(:\n    pass\n", "basics.py:1: "),
        ("x = '\0'\n", "basics.py"),
    ],
)
def test_a_faulty_reference_is_named(source, message):
    with pytest.raises(StubError) as raised:
        make_stub(source, filename="basics.py")
    assert str(raised.value).startswith(message)
