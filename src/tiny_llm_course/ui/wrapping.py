"""Breaks lines between words, and between two Japanese characters if a line may end and begin there."""

from __future__ import annotations

import re

__all__ = ["columns", "hanging", "units"]

_WIDE = "[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]"
_MARKS = "[\u3099\u309a\ufe00-\ufe0f]*"  # combining marks, which change the character before them
_NOT_FIRST = "、。，．・：；？！…‥ー〜’”）〕］｝〉》」』】〟％々ゝゞヽヾぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮヵヶ"
_NOT_LAST = "（〔［｛〈《「『【〝‘“"
_BLANKS = " \t\u3000"
_UNIT = re.compile(
    rf"\n|[{_BLANKS}]*(?:"
    rf"(?:[{_NOT_LAST}]|[(\[{{]+(?={_WIDE}))*"
    rf"(?:{_WIDE}{_MARKS}|(?:(?!{_WIDE})[^\n{_BLANKS}])+)"
    rf"(?:[{_NOT_FIRST}]|[:;,.!?)\]}}%]+(?=[\n{_BLANKS}]|{_WIDE}|$))*"
    rf"|[{_NOT_LAST}]*$)"
    rf"|[{_BLANKS}]+"
)
_GAP = re.compile(r"(?<=\S) {3,}(?=\S)")
_COLOURS = re.compile(r"\x1b\[[\d;]*m")


def units(text: str) -> list[str]:
    """Split a text into the parts that must not be broken: words with the blanks before them, Japanese characters with
    their punctuation, and ends of lines. Joining the parts gives the text again."""
    return [match[0] for match in _UNIT.finditer(text) if match[0]]


def hanging(line: str, width: int, hang: int) -> str:
    """Break a line into lines of at most `width` columns, and indent all lines but the first by `hang` columns. A word
    that is too long stays whole.

    A wide gap in the right half of the line, such as the gap before a comment, is narrowed first.
    """
    if columns(line) > width:
        line = _GAP.sub(lambda blanks: "  " if blanks.end() > width / 2 else blanks[0], line)
    if columns(line) <= width:
        return line
    lines = [""]
    for unit in units(line):
        if not lines[-1].strip() or columns(lines[-1] + unit) <= width:
            lines[-1] += unit
        elif word := unit.lstrip(_BLANKS):
            lines.append(" " * hang + word)
    return "\n".join(lines)


def columns(text: str) -> int:
    """Return the width of a text on a terminal, in columns. A Japanese character takes two columns, and a colour code
    takes none."""
    text = _COLOURS.sub("", text) if "\x1b" in text else text
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # imported here, so that commands without tables start sooner

    return cell_len(text)
