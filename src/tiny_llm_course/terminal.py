"""Text on a terminal, or in a pipe: colours, signs and line breaks that it can show."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from itertools import groupby
from typing import Any

import typer

__all__ = ["StatusLine", "as_called", "bar", "called", "left", "right", "show", "signs", "wrapped"]

BAR = 18  # characters


def show(text: str = "", *, nl: bool = True, **style: Any) -> None:
    """Print on stdout, in colours where there are some, unless NO_COLOR is set, or in any case if FORCE_COLOR is.

    `style`: as `typer.style` takes it.
    """
    forced = bool(os.environ.get("FORCE_COLOR"))
    plain = not forced and (bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb")
    text = as_called(text)
    typer.echo(text if plain or not style else typer.style(text, **style), nl=nl, color=True if forced else None)


class StatusLine:
    """The last line of a terminal, which the next text replaces. It is on stderr, so piped output never contains it.

    can_show: whether there is such a terminal.
    """

    def __init__(self) -> None:
        self._shown = ""
        self.can_show = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"

    def show(self, text: str) -> None:
        if self.can_show and text != self._shown:
            width = shutil.get_terminal_size().columns - 1
            print("\r" + _cut(text, width) + "\x1b[K", end="", file=sys.stderr, flush=True)
            self._shown = text

    def clear(self) -> None:
        """Leave an empty line, for other text."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._shown = ""


def called() -> str:
    """What you typed to run this command: the path of `./course`, `pdm run`, `tiny-llm`, or the last through uv."""
    if path := os.environ.get("TINY_LLM_CALLED"):  # which ./course sets
        return path
    if "PDM_RUN_CWD" in os.environ:
        return "pdm run"
    return "uv run --no-dev tiny-llm" if "UV_RUN_RECURSION_DEPTH" in os.environ else "tiny-llm"


def as_called(text: str) -> str:
    """The text, in which commands are written as `./course NAME`, with what you typed in place of `./course`."""
    return text.replace("./course ", f"{called()} ")


def wrapped(text: str) -> str:
    """Long lines broken to the terminal's width. Code, which is a part with an indented line, keeps its indents: what a
    line has too much stands further in. Japanese prose has no spaces: a terminal breaks it well itself."""
    width = min(shutil.get_terminal_size().columns, 100)
    lines = text.removesuffix("\n").splitlines(keepends=True)
    parts = ("".join(group) for _, group in groupby(lines, key=lambda line: not line.strip()))
    return "".join(_wrapped(part, width) for part in parts)


def _wrapped(part: str, width: int) -> str:
    lines = part.split("\n")
    if any(line[:1] == " " for line in lines if line.strip()):
        return "\n".join(_hanging(line, width) for line in lines)
    return "\n".join(
        textwrap.fill(line, width) if len(line) > width and line.count(" ") > len(line) / 12 else line for line in lines
    )


def _hanging(line: str, width: int) -> str:
    """Broken where there are spaces; a word that is too long stays whole."""
    if _columns(line) <= width:
        return line
    words = line.split(" ")  # of which those at its front are empty
    indent = len(line) - len(line.lstrip(" "))
    lines = [line[:indent] + words[indent]]
    for word in words[indent + 1 :]:
        if _columns(lines[-1]) + 1 + _columns(word) <= width:
            lines[-1] += f" {word}"
        elif word:
            lines.append(" " * (indent + 8) + word)  # further than a body of the line's own
    return "\n".join(lines)


def left(text: str, width: int) -> str:
    """The text, filled up to so many columns of a terminal, of which a Japanese character takes two."""
    return text + _blanks(text, width)


def right(text: str, width: int) -> str:
    """The same with the text at the right end."""
    return _blanks(text, width) + text


def _cut(text: str, width: int) -> str:
    """Cut the text to this many columns."""
    while _columns(text) > width:
        text = text[:-1]
    return text


def _blanks(text: str, width: int) -> str:
    return " " * (width - _columns(text))


def _columns(text: str) -> int:
    """Of a terminal, of which a Japanese character takes two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # here, so that commands without tables start sooner

    return cell_len(text)


def bar(solved: int, skipped: int, count: int) -> str:
    """How much of a whole is done."""
    full, half, empty = tuple(signs()[3:])
    a, b = round(BAR * solved / count), round(BAR * (solved + skipped) / count)
    return full * a + half * (b - a) + empty * (BAR - b)


def signs() -> str:
    """Marks of solved, skipped and open tasks, and pieces of a bar, in what the terminal can show."""
    signs = "✔–○█▒░"
    try:
        signs.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return "x-.#=."
    return signs
