"""Text for a terminal or a pipe, with the colours, symbols and line breaks that the output can show."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby, product
from typing import Any, NamedTuple, TextIO

import typer

from .wrapping import columns, hanging, units

__all__ = [
    "COLOURS",
    "StatusLine",
    "as_called",
    "bar",
    "called",
    "fits",
    "fitted",
    "left",
    "progress_console",
    "rich_colours",
    "rich_style",
    "right",
    "show",
    "signs",
    "styled",
    "table",
    "table_row",
    "terminal_width",
    "wrapped",
]

# Of a terminal's 256 colours, these are readable on both black and white. The 16 named colours differ from terminal to
# terminal, and yellow can hardly be seen on white.
COLOURS = {"red": 160, "green": 28, "yellow": 130, "cyan": 30, "dim": 243}
BAR = 18  # characters
NAME = 44  # width of the name in a table's row, in columns
LEAST_NAME = 20  # minimum width of the name on a narrow terminal, in columns
LEAST_COLUMN = (12, 10, 8)  # minimum widths of a heading, tried in turn on a narrow terminal
SECOND_COLUMN = re.compile(r" *\S+(?: \S+)*  +(?=\S)")


def show(text: str = "", *, err: bool = False, **style: Any) -> None:
    """Print to stdout or stderr, in colour if the terminal supports colour, with lines broken to the terminal's width.

    style: the arguments of `styled`.
    """
    out = sys.stderr if err else sys.stdout
    print(styled(fitted(as_called(text), out), out=out, **style), file=out, flush=True)


def styled(text: str, *, fg: str | None = None, dim: bool = False, out: TextIO | None = None, **style: Any) -> str:
    """Return the text in colour if `out` is a terminal and NO_COLOR is not set, or if FORCE_COLOR is set.

    fg: a key of COLOURS. out: the stream that the text will go to; None: stdout. style: further arguments of
    `typer.style`.
    """
    colour = COLOURS["dim"] if dim else COLOURS[fg] if fg else None
    is_coloured = os.environ.get("FORCE_COLOR") or (
        (out or sys.stdout).isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )
    return typer.style(text, fg=colour, **style) if is_coloured and text and (colour or style) else text


def fitted(text: str, out: TextIO) -> str:
    """Return a text in which lines that are too long for the terminal are broken between words. If a broken line has a
    second column, the rest of the line is aligned with that column. Otherwise, the rest is indented further."""
    width = terminal_width(out)
    return "\n".join(hanging(line, width, _hang(line, width)) for line in text.split("\n")) if out.isatty() else text


def rich_style(style: str) -> str:
    """Return a style for Rich, with Rich's names of colours in place of the keys of COLOURS."""
    return " ".join(f"color({COLOURS[word]})" if word in COLOURS else word for word in style.split())


def rich_colours(out: TextIO) -> Any:
    """Return Rich's color_system: 256 colours on a terminal, even if its type is xterm, for which Rich would use 16."""
    return "256" if out.isatty() and os.environ.get("TERM") != "dumb" else "auto"


def progress_console() -> Any:
    """Return Rich's console on stderr, for bars and counters in readable colours."""
    from rich.console import Console  # imported here, so that commands without a bar start sooner
    from rich.theme import Theme

    styles = {f"progress.{name}": "dim" for name in ("percentage", "remaining", "elapsed", "download")}
    styles |= {"bar.complete": "cyan", "bar.finished": "green", "bar.pulse": "cyan", "bar.back": "dim"}
    theme = Theme({name: rich_style(style) for name, style in styles.items()})
    return Console(stderr=True, theme=theme, color_system=rich_colours(sys.stderr))


def terminal_width(out: TextIO) -> int:
    """Return the width in columns: COLUMNS from the environment, otherwise the terminal's width, otherwise 80."""
    named = os.environ.get("COLUMNS", "")
    width = int(named) if named.isdecimal() else 0
    with suppress(OSError, ValueError):
        width = width or os.get_terminal_size(out.fileno()).columns
    return width or 80


def _hang(line: str, width: int) -> int:
    """Return the indentation for the rest of a line that is too long."""
    indent = len(line) - len(line.lstrip(" "))
    if (first := SECOND_COLUMN.match(line)) and columns(first[0]) <= width / 2:
        return columns(first[0])
    return indent + 4 if indent else 0


class StatusLine:
    """The last line of a terminal, which the next text replaces. The line goes to stderr, so piped output never
    contains the line.

    can_show: whether stderr is a terminal that can replace a line.
    """

    def __init__(self) -> None:
        self._shown = ""
        self.can_show = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"

    def show(self, text: str) -> None:
        if self.can_show and text != self._shown:
            width = terminal_width(sys.stderr) - 1
            print("\r" + _cut(text, width) + "\x1b[K", end="", file=sys.stderr, flush=True)
            self._shown = text

    def clear(self) -> None:
        """Erase the line, to make room for other text."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._shown = ""


def called() -> str:
    """Return the words with which the user ran this command: the path of `./course`, `pdm run`, `tiny-llm`, or `uv run
    … tiny-llm`."""
    if path := os.environ.get("TINY_LLM_CALLED"):  # set by ./course
        return path
    if "PDM_RUN_CWD" in os.environ:
        return "pdm run"
    return "uv run tiny-llm" if "UV_RUN_RECURSION_DEPTH" in os.environ else "tiny-llm"


def as_called(text: str) -> str:
    """Replace each `./course` in a text with the words with which the user ran this command."""
    return text.replace("./course ", f"{called()} ")


def wrapped(text: str) -> str:
    """Return the text with its lines broken to the terminal's width, at most 100 columns. Code (a part with an indented
    line) keeps its indentation; the continuation of a long line is indented further."""
    width = min(terminal_width(sys.stdout), 100)
    lines = text.removesuffix("\n").splitlines(keepends=True)
    parts = ("".join(group) for _, group in groupby(lines, key=lambda line: not line.strip()))
    return "".join(_wrapped(part, width) for part in parts)


def _wrapped(part: str, width: int) -> str:
    lines = part.split("\n")
    further = 8 if any(line.startswith(" ") for line in lines) else 0  # columns, for the continuation of a line of code
    return "\n".join(hanging(line, width, len(line) - len(line.lstrip(" ")) + further) for line in lines)


def table_row(name: str, *cells: str) -> str:
    """Return a line of a table. On a narrow terminal, the name has fewer columns, or a line of its own."""
    beside = " ".join(cells)
    room = min(NAME, terminal_width(sys.stdout) - columns(beside) - 3) if sys.stdout.isatty() else NAME
    if room < min(LEAST_NAME, columns(name)):
        return "\n".join([f"  {name}"] * bool(name) + [f"  {beside}"])
    first, *rest = hanging(name, room, 2).split("\n")
    return "\n".join([f"  {left(first, room)} {beside}", *(f"  {line}" for line in rest)])


def table(head: Sequence[str], *rows: Sequence[str]) -> list[str]:
    """Return the lines of a table, with the first column aligned left and the others right. On a narrow terminal,
    headings take several lines. If the table is still too wide, each row takes two lines: one for its first cell, and
    one for the other cells."""
    widths = [max(map(columns, column)) for column in zip(head, *rows, strict=True)]
    if fits(widths):
        return [_line(cells, widths, "  ") for cells in (head, *rows)]
    room = terminal_width(sys.stdout)
    for first, least in product((widths[0], 1), LEAST_COLUMN):
        widths = [first, *(_narrow(name, cells, least) for name, *cells in list(zip(head, *rows, strict=True))[1:])]
        if sum(widths) + len(widths) - 1 <= room:
            break
    heads = _heads(head if first > 1 else ["", *head[1:]], widths)
    if first > 1:
        return [_line(cells, widths, " ") for cells in (*heads, *rows)]
    below = (f"{name}\n{_line(['', *cells], widths, ' ')}".rstrip() for name, *cells in rows)
    return [*(_line(cells, widths, " ") for cells in heads), *below]


def _narrow(name: str, cells: Sequence[str], least: int) -> int:
    """Return the minimum width of a column whose heading may be broken, but only between words."""
    words = max(least, *(columns(unit.strip()) for unit in units(name)), 0)
    return max(min(columns(name), words), *map(columns, cells))


def _heads(head: Sequence[str], widths: Sequence[int]) -> list[tuple[str, ...]]:
    """Return the lines of the headings. Every heading ends in the last line, so a long heading starts in an earlier
    line."""
    names = [hanging(name, width, 0).split("\n") for name, width in zip(head, widths, strict=True)]
    height = max(map(len, names))
    return list(zip(*([""] * (height - len(parts)) + parts for parts in names), strict=True))


def fits(widths: Sequence[int]) -> bool:
    """Tell whether columns of these widths fit next to each other. In a pipe, columns always fit."""
    return not sys.stdout.isatty() or sum(widths) + 2 * (len(widths) - 1) <= terminal_width(sys.stdout)


def _line(cells: Sequence[str], widths: Sequence[int], gap: str) -> str:
    return gap.join([left(cells[0], widths[0]), *map(right, cells[1:], widths[1:])]).rstrip()


def left(text: str, width: int) -> str:
    """Pad a text with spaces on the right, up to a width in columns. A Japanese character takes two columns."""
    return text + _blanks(text, width)


def right(text: str, width: int) -> str:
    """Pad a text with spaces on the left, up to a width in columns."""
    return _blanks(text, width) + text


def _cut(text: str, width: int) -> str:
    """Cut the text to this many columns."""
    while columns(text) > width:
        text = text[:-1]
    return text


def _blanks(text: str, width: int) -> str:
    return " " * (width - columns(text))


def bar(solved: int, skipped: int, count: int) -> str:
    """Return a bar that shows how many of `count` tasks are solved, and how many are skipped."""
    a, b = round(BAR * solved / count), round(BAR * (solved + skipped) / count)
    return signs().full * a + signs().half * (b - a) + signs().empty * (BAR - b)


class Signs(NamedTuple):
    """Marks of tasks, and pieces of a bar."""

    solved: str
    failed: str
    skipped: str
    open: str
    full: str
    half: str
    empty: str


def signs() -> Signs:
    """Return the symbols ✔✘–○█▒░, or ASCII characters if the terminal cannot show these symbols."""
    pretty = Signs(*"✔✘–○█▒░")
    try:
        "".join(pretty).encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return Signs(*"+x-.#=.")
    return pretty
