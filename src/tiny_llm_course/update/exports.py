"""Merges the `__all__` lists of three versions of a module."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection

from ..tasks.splice import parts_of_source
from ..tasks.task_code import lines_of

__all__ = ["with_exports", "with_same_exports"]


def with_same_exports(yours: str, old: str, new: str) -> tuple[str, str, str]:
    """Return all three versions of a module. If both sides changed `__all__`, put the learner's list, with the course's
    changes added, into all three versions."""
    mine, before, after = (_exports(source) for source in (yours, old, new))
    if mine is None or before is None or after is None:
        return yours, old, new
    if _statement(old) in (_statement(yours), _statement(new)):
        return yours, old, new
    text = _edited(yours, {*before} - {*after}, [name for name in after if name not in (*before, *mine)])
    return text, with_exports(old, text), with_exports(new, text)


def with_exports(target: str, source: str) -> str:
    """Return the target with the source's `__all__`."""
    lines, node = lines_of(target), _node(target)
    lines[node.lineno - 1 : node.end_lineno] = _statement(source)
    return "".join(lines)


def _node(source: str) -> ast.stmt:
    return parts_of_source(source)["__all__"].node


def _statement(source: str) -> list[str]:
    node = _node(source)
    return lines_of(source)[node.lineno - 1 : node.end_lineno]


def _list(source: str) -> ast.List | None:
    """Return the value of a module's `__all__` if the value is a list. Otherwise return None."""
    part = parts_of_source(source).get("__all__")
    value = getattr(part.node, "value", None) if part else None
    return value if isinstance(value, ast.List) else None


def _exports(source: str) -> list[str] | None:
    """Return the names in a module's `__all__` if the value is a list of strings. Otherwise return None."""
    if (listed := _list(source)) is None:
        return None
    names = [name.value for name in listed.elts if isinstance(name, ast.Constant) and isinstance(name.value, str)]
    return names if len(names) == len(listed.elts) else None


def _edited(source: str, removed: Collection[str], added: list[str]) -> str:
    """Return the source after removing the names in `removed` from `__all__`, and adding the names in `added` at the
    start of the list. Comments in the list stay."""
    listed = _list(source)
    assert listed is not None
    lines = [line.encode() for line in lines_of(source)]  # positions in an AST count bytes
    for element in reversed(listed.elts):
        if isinstance(element, ast.Constant) and element.value in removed:
            row = element.lineno - 1
            rest = re.sub(rb"^[ \t]*,[ \t]*", b"", lines[row][element.end_col_offset or 0 :])
            left = lines[row][: element.col_offset] + rest
            lines[row] = left if left.strip() else b""
    row, place = listed.lineno - 1, listed.col_offset + 1
    names, tail = [json.dumps(name, ensure_ascii=False).encode() for name in added], lines[row][place:]
    if tail.strip()[:1] in (b"", b"#"):  # the list has one name per line
        lines[row + 1 : row + 1] = [b"    %s,\n" % name for name in names]
    else:
        lines[row] = lines[row][:place] + b"".join(b"%s, " % name for name in names) + tail
    return b"".join(lines).decode()
