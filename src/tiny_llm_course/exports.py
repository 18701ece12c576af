"""Merges the lists `__all__` of three versions of a module."""

from __future__ import annotations

import ast
import json

from .splice import parts_of_source
from .task_code import lines_of

__all__ = ["with_same_exports"]

LINE_LENGTH = 120


def with_same_exports(yours: str, old: str, new: str) -> tuple[str, str, str]:
    """The three versions. If both sides changed `__all__`, all of them get the list with the changes of both."""
    mine, before, after = (_exports(source) for source in (yours, old, new))
    if mine is None or before is None or after is None or before in (mine, after):
        return yours, old, new
    kept = [name for name in after if name in mine or name not in before]
    names = kept + [name for name in mine if name not in before and name not in kept]
    return _with(names, yours), _with(names, old), _with(names, new)


def _exports(source: str) -> list[str] | None:
    """The names in a module's `__all__`, if that is a list of texts."""
    part = parts_of_source(source, "<string>").get("__all__")
    value = getattr(part.node, "value", None) if part else None
    if not isinstance(value, ast.List):
        return None
    names = [name.value for name in value.elts if isinstance(name, ast.Constant) and isinstance(name.value, str)]
    return names if len(names) == len(value.elts) else None


def _with(names: list[str], source: str) -> str:
    node = parts_of_source(source, "<string>")["__all__"].node
    listed = [json.dumps(name, ensure_ascii=False) for name in names]
    text = f"__all__ = [{', '.join(listed)}]\n"
    if len(text) > LINE_LENGTH:
        text = "__all__ = [\n" + "".join(f"    {name},\n" for name in listed) + "]\n"
    lines = lines_of(source)
    lines[node.lineno - 1 : node.end_lineno] = [text]
    return "".join(lines)
