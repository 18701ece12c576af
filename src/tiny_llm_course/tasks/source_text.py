"""Keeps the form of a learner's file: byte-order mark, line ends, indentation."""

from __future__ import annotations

import ast
import io
import tokenize
from dataclasses import dataclass

from .task_code import Definition, indent_of, lines_of

__all__ = ["SPACES", "Indent", "decoded", "encoded", "reindented", "unit_of"]

BOM = b"\xef\xbb\xbf"
SPACES = "    "  # one level of indentation in the course's files
_STRINGS = (tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))
_LINE_ENDS = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


@dataclass(frozen=True)
class Indent:
    """The indentation of a piece of code. prefix: the indentation that all lines share. unit: the indentation that each
    level adds."""

    prefix: str = ""
    unit: str = SPACES


def decoded(content: bytes) -> str:
    """Return the text of a file, with its line ends. Drop a byte-order mark, as Python does.

    Raises:
        UnicodeDecodeError: the file is not UTF-8.
    """
    return content.decode("utf-8-sig")


def encoded(text: str, before: bytes = b"") -> bytes:
    """Return the content of a file with this text. The content begins with a byte-order mark if `before` does."""
    return (BOM if before.startswith(BOM) else b"") + text.encode()


def unit_of(node: ast.AST, source: str) -> str:
    """Return the text of one level of indentation in a module, class or function, taken from the first indented
    body."""
    lines = lines_of(source)
    for part in ast.walk(node):
        if isinstance(part, Definition):
            outer, inner = (indent_of(lines[line - 1]) for line in (part.lineno, part.body[0].lineno))
            if inner != outer and inner.startswith(outer):
                return inner[len(outer) :]
    return SPACES


def reindented(source: str, old: Indent, new: Indent) -> list[str]:
    """Return the lines of a module with another indentation. Lines inside strings keep their indentation, except in
    docstrings."""
    lines = lines_of(source)
    if old == new:
        return lines
    fixed = _inside_of_strings(source)
    return [line if index in fixed else _moved(line, old, new) for index, line in enumerate(lines)]


def _moved(line: str, old: Indent, new: Indent) -> str:
    if not line.strip() or not line.startswith(old.prefix):
        return line
    rest, levels = line[len(old.prefix) :], 0
    while rest.startswith(old.unit):
        rest, levels = rest[len(old.unit) :], levels + 1
    return new.prefix + new.unit * levels + rest


def _inside_of_strings(source: str) -> set[int]:
    """Return the indices of the lines that begin inside a string. Strings that are statements, such as docstrings, do
    not count."""
    inside: set[int] = set()
    begins = True  # whether a statement begins here
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in _STRINGS and not begins:
            inside |= set(range(token.start[0], token.end[0]))
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            begins = token.type in _LINE_ENDS
    return inside
