"""How long lines break: prose at the terminal's width, and pseudo-code so that its indents stay."""

from __future__ import annotations

import io
import sys

import pytest
from rich.cells import cell_len

from tiny_llm_course.catalogue import entry_of
from tiny_llm_course.tasks.syllabus import TaskId
from tiny_llm_course.ui.language import LANGUAGES, Messages
from tiny_llm_course.ui.terminal import right, show, signs, table, table_row, wrapped


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
    "各 i について: a[i] を b[i] に足して次へ進む\n x": "各 i について: a[i] を b[i] に足して次へ\n        進む\n x",
    "線形層は 1 回の行列積です。重みは、出力ごとに 1 行ずつあります。": ""
    "線形層は 1 回の行列積です。重みは、出力\nごとに 1 行ずつあります。",
    "最後まで一度に読んでいきます（「入力」、「出力」）": "最後まで一度に読んでいきます（「入力」、\n「出力」）",
    "e = exp of (x minus largest)" + " " * 20 + "# 0 to 1": "e = exp of (x minus largest)  # 0 to 1",
}


@pytest.mark.parametrize("text", CASES)
def test_lines_are_broken(text: str) -> None:
    assert wrapped(text) == CASES[text]


SHOWN = {
    "file:     src/tiny_llm/attention.py:35, and what it reads": [
        "file:     src/tiny_llm/attention.py:35,",
        "          and what it reads",
    ],
    "    ○ w1d2.1  RoPE on neighbouring pairs (traditional)": [
        "    ○ w1d2.1  RoPE on neighbouring pairs",
        "              (traditional)",
    ],
    "      src/tiny_llm/foundations.py:35 (softmax, scale)": [
        "      src/tiny_llm/foundations.py:35",
        "          (softmax, scale)",
    ],
    "took back: the stub of w0d2.2, in progress.txt": ["took back: the stub of w0d2.2, in", "progress.txt"],
}


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("text", SHOWN)
def test_a_terminal_shows_whole_words(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Screen())
    show(text)
    assert sys.stdout.getvalue().splitlines() == SHOWN[text]
    show(text, fg="yellow", bold=True)
    assert "\x1b[38;5;130m" in sys.stdout.getvalue()


@pytest.mark.parametrize("text", SHOWN)
def test_a_pipe_gets_long_lines_without_colours(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    show(text, fg="yellow")
    assert capsys.readouterr().out == f"{text}\n"


ROWS = (["step", "parameters", "bank conflicts"], ["divide by sqrt(D)", "1,000,000", "12"], ["join", "", "3,000"])
TABLES = {
    80: [
        "step               parameters  bank conflicts",
        "divide by sqrt(D)   1,000,000              12",
        "join                                    3,000",
    ],
    40: [
        "                                   bank",
        "step              parameters  conflicts",
        "divide by sqrt(D)  1,000,000         12",
        "join                              3,000",
    ],
    30: [
        "                     bank",
        "  parameters    conflicts",
        "divide by sqrt(D)",
        "   1,000,000           12",
        "join",
        "                    3,000",
    ],
}


@pytest.mark.parametrize("width", TABLES)
def test_tables_fit(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Screen())
    monkeypatch.setenv("COLUMNS", str(width))
    assert "\n".join(table(*ROWS)).splitlines() == TABLES[width]


TABLE_ROWS = {
    80: ["  w2d4.1 One row, one number at a time                 1.5 µs    57.4 x"],
    48: ["  w2d4.1 One row, one           1.5 µs    57.4 x", "    number at a time"],
    40: ["  w2d4.1 One row, one number at a time", "          1.5 µs    57.4 x"],
}


@pytest.mark.parametrize("width", TABLE_ROWS)
def test_rows_fit(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Screen())
    monkeypatch.setenv("COLUMNS", str(width))
    shown = table_row("w2d4.1 One row, one number at a time", right("1.5 µs", 14), right("57.4 x", 9))
    assert shown.splitlines() == TABLE_ROWS[width]
    assert all(cell_len(line) <= width for line in shown.splitlines())


@pytest.mark.parametrize(("encoding", "failed"), [("utf-8", "✘"), ("ascii", "x"), ("latin-1", "x")])
def test_failure_has_its_own_sign(encoding: str, failed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding))
    assert signs().failed == failed
    assert len(set(signs()[:4])) == 4


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
