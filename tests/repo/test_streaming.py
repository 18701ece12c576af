"""A model's text on a terminal comes in pieces of any size, and its lines break between words."""

from __future__ import annotations

import io
import os
import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from tiny_llm_course.generation.streaming import Plain, TerminalText, output
from tiny_llm_course.ui.wrapping import units

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # on a busy machine, too
WORDS = st.text("abcdefgh.,!'-é", min_size=1, max_size=14)
PROSE = st.lists(st.lists(WORDS, max_size=12).map(" ".join), max_size=4).map("\n".join)
JAPANESE = st.text("あいうカキク漢字。、っー「」（） abc1.:\n", max_size=80)
ANY = st.text(max_size=60) | JAPANESE
WIDTHS = st.integers(15, 90)


class Terminal(io.StringIO):
    """A terminal of a given width, with the text written to it."""

    def isatty(self) -> bool:
        return True


def shown(pieces: Sequence[str], widths: int | Sequence[int]) -> str:
    """Return the text that a terminal gets. widths: the terminal's width when each piece comes."""
    terminal = Terminal()
    lines = TerminalText(terminal)
    for i, piece in enumerate(pieces):
        os.environ["COLUMNS"] = str(widths if isinstance(widths, int) else widths[i % len(widths)])
        lines.add(piece)
    lines.end()
    return terminal.getvalue()


@pytest.fixture(autouse=True, scope="module")
def columns() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        yield


def cut(text: str, places: Sequence[int]) -> list[str]:
    ends = sorted({place % (len(text) + 1) for place in places})
    return [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]


@given(PROSE, WIDTHS, st.lists(st.integers(0, 500), max_size=30))
@PATIENT
def test_prose_is_wrapped_as_textwrap_does(text: str, width: int, places: Sequence[int]) -> None:
    wrapped = (
        textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""] for line in text.split("\n")
    )
    assert shown(cut(text, places), width) == "\n".join("\n".join(lines) for lines in wrapped)


@given(ANY, WIDTHS, st.lists(st.integers(0, 500), max_size=30))
@PATIENT
def test_pieces_make_no_difference(text: str, width: int, places: Sequence[int]) -> None:
    assert shown(cut(text, places), width) == shown([text], width)


@given(ANY, st.lists(WIDTHS, min_size=1, max_size=9), st.lists(st.integers(0, 500), max_size=30))
@PATIENT
def test_nothing_is_lost_whatever_the_width_does(text: str, widths: Sequence[int], places: Sequence[int]) -> None:
    blanks = re.compile(r"\s+")
    visible = "".join(letter if letter in "\n\t" or not is_control(letter) else "\ufffd" for letter in text)
    assert blanks.sub("", shown(cut(text, places), widths)) == blanks.sub("", visible)


def is_control(letter: str) -> bool:
    return ord(letter) < 32 or 127 <= ord(letter) < 160


@given(JAPANESE.map(lambda text: " ".join(text.split())), st.integers(15, 40))
@settings(PATIENT, max_examples=300)
def test_japanese_fills_its_lines(text: str, width: int) -> None:
    lines = shown([text], width).split("\n")
    for line, after in pairwise(lines):
        assert cell_len(line) <= width or len(units(line)) == 1
        assert cell_len(line + units(after)[0]) >= width  # or a blank would have had no room between them


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("The boy put it in the small box.", ["The boy put it", "in the small", "box."]),
        ("a " + "x" * 31 + " b", ["a", "x" * 31 + " b"]),
        (
            "むかしむかし、あるところに、女の子がいました。",
            ["むかしむかし、", "あるところに、", "女の子がいまし", "た。"],
        ),
        ("それは「はい」と「いいえ」の間です。", ["それは「はい」", "と「いいえ」の", "間です。"]),
        ("長い名前の変数 query_length を使う。", ["長い名前の変数", "query_length を", "使う。"]),
        ("x = 1\n    y = 2", ["x = 1", "    y = 2"]),
        ("a\tb", ["a       b"]),
        ("two\n\nlines  ", ["two", "", "lines  "]),
        ("end of it now     \nnext", ["end of it now", "next"]),
    ],
)
def test_lines(text: str, lines: list[str]) -> None:
    assert shown([text], 15).split("\n") == lines


def test_a_word_is_shown_as_soon_as_it_is_over() -> None:
    terminal, seen = Terminal(), []
    lines = TerminalText(terminal)
    for piece in ("The bo", "y ", "ran", "\n", "終わ", "り"):
        lines.add(piece)
        seen.append(terminal.getvalue())
    assert seen == ["The", "The boy", "The boy", "The boy ran\n", "The boy ran\n終", "The boy ran\n終わ"]


@given(ANY, st.lists(st.integers(0, 500), max_size=30))
@PATIENT
def test_a_pipe_gets_what_the_model_said(text: str, places: Sequence[int]) -> None:
    pipe = io.StringIO(newline="")
    plain = output(pipe)
    assert isinstance(plain, Plain)
    for piece in cut(text, places):
        plain.add(piece)
    plain.end()
    assert pipe.getvalue() == text
