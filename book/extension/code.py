"""Splits code boxes into lines, so that a long line continues indented on the next row, as in an editor.

The text does not change: a copied line is in one piece.
"""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from sphinx.application import Sphinx

__all__ = ["setup"]

BOX = re.compile(r"(<pre\b[^>]*>(?:<span></span>)?)(.*?)\n?(</pre>)", re.DOTALL)
LINE_NUMBER = re.compile(r'<span class="linenos">.*?</span>')
TABLE = re.compile(r"\S {2,}(?![ #/])\S")  # words in columns, except a comment at the end of a line


def by_lines(box: re.Match[str]) -> str:
    lines = box[2].split("\n")
    is_table = sum(bool(TABLE.search(_text(line))) for line in lines) > 1
    code = "".join(_line(line, is_table) for line in lines)
    return f'<div class="copyable">{box[1]}{code}{box[3]}</div>'


def _line(line: str, of_table: bool) -> str:
    text = _text(line)
    classes = ["line"]
    classes += ["of-table"] * (of_table and not text.startswith("$ "))
    classes += ["numbered"] * bool(LINE_NUMBER.search(line))
    indent = len(text) - len(text.lstrip(" "))
    style = f' style="--indent:{indent}"' if indent else ""
    return f'<span class="{" ".join(classes)}"{style}>{line}\n</span>'


def _text(line: str) -> str:
    return unescape(re.sub("<[^>]*>", "", LINE_NUMBER.sub("", line)))


def split_boxes(app: Sphinx, page: str, template: str, context: dict[str, Any], document: object) -> None:
    if "body" in context:
        context["body"] = BOX.sub(by_lines, context["body"])


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", split_boxes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
