"""Text on a terminal, or in a pipe: colours, signs and line breaks that it can show."""

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

# Of the 256 colours of terminals, those that can be read on black as well as on white. The 16 colours that have names
# differ from terminal to terminal: yellow can hardly be seen on white.
COLOURS = {"red": 160, "green": 28, "yellow": 130, "cyan": 30, "dim": 243}
BAR = 18  # characters
NAME = 44  # columns that a row's name has
LEAST_NAME = 20  # of them, where there is little room
LEAST_COLUMN = (12, 10, 8)  # that a heading has where there is little room, or less
SECOND_COLUMN = re.compile(r" *\S+(?: \S+)*  +(?=\S)")


def show(text: str = "", *, err: bool = False, **style: Any) -> None:
    """Print on stdout, or stderr, in colours where there are some, and in lines that the terminal has room for.

    `style`: as `styled` takes it.
    """
    out = sys.stderr if err else sys.stdout
    print(styled(fitted(as_called(text), out), out=out, **style), file=out, flush=True)


def styled(text: str, *, fg: str | None = None, dim: bool = False, out: TextIO | None = None, **style: Any) -> str:
    """Return the text in colours, for a terminal, unless NO_COLOR is set; in any case if FORCE_COLOR is.

    fg: a key of COLOURS. out: where it will be printed; None: stdout. `style`: what else `typer.style` takes.
    """
    colour = COLOURS["dim"] if dim else COLOURS[fg] if fg else None
    is_coloured = os.environ.get("FORCE_COLOR") or (
        (out or sys.stdout).isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )
    return typer.style(text, fg=colour, **style) if is_coloured and text and (colour or style) else text


def fitted(text: str, out: TextIO) -> str:
    """Return lines that are too long for a terminal, broken between words: what is left stands below the second column,
    if there is one, or further in."""
    width = terminal_width(out)
    return "\n".join(hanging(line, width, _hang(line, width)) for line in text.split("\n")) if out.isatty() else text


def rich_style(style: str) -> str:
    """Return a style of Rich, in which COLOURS' keys stand for them."""
    return " ".join(f"color({COLOURS[word]})" if word in COLOURS else word for word in style.split())


def rich_colours(out: TextIO) -> Any:
    """Rich's color_system: a terminal that calls itself xterm has 256 colours as well."""
    return "256" if out.isatty() and os.environ.get("TERM") != "dumb" else "auto"


def progress_console() -> Any:
    """Rich's, on stderr, for bars and counters in colours that can be read."""
    from rich.console import Console  # here, so that commands without a bar start sooner
    from rich.theme import Theme

    styles = {f"progress.{name}": "dim" for name in ("percentage", "remaining", "elapsed", "download")}
    styles |= {"bar.complete": "cyan", "bar.finished": "green", "bar.pulse": "cyan", "bar.back": "dim"}
    theme = Theme({name: rich_style(style) for name, style in styles.items()})
    return Console(stderr=True, theme=theme, color_system=rich_colours(sys.stderr))


def terminal_width(out: TextIO) -> int:
    """Return the width in columns: what the environment's COLUMNS says, or the terminal itself. 80 where there is
    none."""
    named = os.environ.get("COLUMNS", "")
    width = int(named) if named.isdecimal() else 0
    with suppress(OSError, ValueError):
        width = width or os.get_terminal_size(out.fileno()).columns
    return width or 80


def _hang(line: str, width: int) -> int:
    """Return the indentation with which a line that is too long goes on."""
    indent = len(line) - len(line.lstrip(" "))
    if (first := SECOND_COLUMN.match(line)) and columns(first[0]) <= width / 2:
        return columns(first[0])
    return indent + 4 if indent else 0


class StatusLine:
    """The last line of a terminal, which the next text replaces. It is on stderr, so piped output never contains it.

    can_show: whether there is such a terminal.
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
        """Leave an empty line, for other text."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._shown = ""


def called() -> str:
    """Return what you typed to run this command: the path of `./course`, `pdm run`, `tiny-llm`, or the last through
    uv."""
    if path := os.environ.get("TINY_LLM_CALLED"):  # which ./course sets
        return path
    if "PDM_RUN_CWD" in os.environ:
        return "pdm run"
    return "uv run tiny-llm" if "UV_RUN_RECURSION_DEPTH" in os.environ else "tiny-llm"


def as_called(text: str) -> str:
    """Return the text, in which commands are written as `./course NAME`, with what you typed in place of `./course`."""
    return text.replace("./course ", f"{called()} ")


def wrapped(text: str) -> str:
    """Long lines broken to the terminal's width, or to what can be read with ease. Code, which is a part with an
    indented line, keeps its indents: what a line has too much stands further in."""
    width = min(terminal_width(sys.stdout), 100)
    lines = text.removesuffix("\n").splitlines(keepends=True)
    parts = ("".join(group) for _, group in groupby(lines, key=lambda line: not line.strip()))
    return "".join(_wrapped(part, width) for part in parts)


def _wrapped(part: str, width: int) -> str:
    lines = part.split("\n")
    further = 8 if any(line.startswith(" ") for line in lines) else 0  # than a body of the line's own
    return "\n".join(hanging(line, width, len(line) - len(line.lstrip(" ")) + further) for line in lines)


def table_row(name: str, *cells: str) -> str:
    """Return a line of a table. Where the terminal is narrow, the name has less room, or a line of its own."""
    beside = " ".join(cells)
    room = min(NAME, terminal_width(sys.stdout) - columns(beside) - 3) if sys.stdout.isatty() else NAME
    if room < min(LEAST_NAME, columns(name)):
        return "\n".join([f"  {name}"] * bool(name) + [f"  {beside}"])
    first, *rest = hanging(name, room, 2).split("\n")
    return "\n".join([f"  {left(first, room)} {beside}", *(f"  {line}" for line in rest)])


def table(head: Sequence[str], *rows: Sequence[str]) -> list[str]:
    """Return lines: the first column stands left, the others right. On a narrow terminal headings have several lines;
    if that is not enough, so has a row: its first cell, and below it the others."""
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
    """Return the least width of a column: its heading may be broken, but only between words."""
    words = max(least, *(columns(unit.strip()) for unit in units(name)), 0)
    return max(min(columns(name), words), *map(columns, cells))


def _heads(head: Sequence[str], widths: Sequence[int]) -> list[tuple[str, ...]]:
    """Headings in as many lines as they need, of which the last is full."""
    names = [hanging(name, width, 0).split("\n") for name, width in zip(head, widths, strict=True)]
    height = max(map(len, names))
    return list(zip(*([""] * (height - len(parts)) + parts for parts in names), strict=True))


def fits(widths: Sequence[int]) -> bool:
    """Tell whether columns of these widths fit next to each other. In a pipe there is room for all."""
    return not sys.stdout.isatty() or sum(widths) + 2 * (len(widths) - 1) <= terminal_width(sys.stdout)


def _line(cells: Sequence[str], widths: Sequence[int], gap: str) -> str:
    return gap.join([left(cells[0], widths[0]), *map(right, cells[1:], widths[1:])]).rstrip()


def left(text: str, width: int) -> str:
    """Return the text, filled up to so many columns of a terminal, of which a Japanese character takes two."""
    return text + _blanks(text, width)


def right(text: str, width: int) -> str:
    """Fill a text up to a width, with the text at the right end."""
    return _blanks(text, width) + text


def _cut(text: str, width: int) -> str:
    """Cut the text to this many columns."""
    while columns(text) > width:
        text = text[:-1]
    return text


def _blanks(text: str, width: int) -> str:
    return " " * (width - columns(text))


def bar(solved: int, skipped: int, count: int) -> str:
    """Draw how much of a whole is done."""
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
    """Return the signs that the terminal can show."""
    pretty = Signs(*"✔✘–○█▒░")
    try:
        "".join(pretty).encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return Signs(*"+x-.#=.")
    return pretty
