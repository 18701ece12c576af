"""How long lines are broken: prose to the terminal's width, pseudo-code so that its indents stay."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from tiny_llm_course.catalogue import entry_of
from tiny_llm_course.language import LANGUAGES, Messages
from tiny_llm_course.syllabus import TaskId
from tiny_llm_course.terminal import wrapped


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")


CASES = {
    "short": "short",
    "one two three four five six seven eight nine": "one two three four five six seven eight\nnine",
    "for k below n:\n    sum = simd_sum(a[k] * b[k]) + last[k]\n\none two three four five six seven eight nine": ""
    "for k below n:\n    sum = simd_sum(a[k] * b[k]) +\n            last[k]\n\n"
    "one two three four five six seven eight\nnine",
    "    " + "x" * 50: "    " + "x" * 50,
    "x = 1        # one\n    y = 2": "x = 1        # one\n    y = 2",
    "各 i について: a[i] を b[i] に足して次へ進む\n x": "各 i について: a[i] を b[i]\n        に足して次へ進む\n x",
}


@pytest.mark.parametrize("text", CASES)
def test_lines_are_broken(text: str) -> None:
    assert wrapped(text) == CASES[text]


@pytest.mark.parametrize("task", ["w2d5.4", "w2d6.3"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_pseudo_code_keeps_its_indents(task: str, language: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    hint = Messages(language).of(entry_of(TaskId.parse(task)).hints[2])
    lines = wrapped(hint).splitlines()
    assert all(cell_len(line) <= 80 for line in lines)
    assert " ".join(wrapped(hint).split()) == " ".join(hint.split())
    rest = iter(lines)
    for line in hint.splitlines():  # each begins a line, as far in as it was
        indent = len(line) - len(line.lstrip())
        assert any(shown.startswith(line[: indent + 4]) for shown in rest), line
