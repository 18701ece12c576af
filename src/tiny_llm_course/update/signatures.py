"""Compares the signatures of functions in a learner's file, in the stub from which the file began, and in a newer
stub."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from ..tasks.splice import Part, parts_of_source
from ..tasks.task_code import Function

__all__ = ["changed_on_the_way", "changed_signatures", "own_signatures"]


def changed_signatures(yours: str, old: str, new: str, names: list[str]) -> dict[str, tuple[str, str]]:
    """Return two signatures of each function whose signature the course changed: the learner's and the new one. The
    pairs are keyed by function."""
    mine, before, after = (parts_of_source(source) for source in (yours, old, new))
    changed = {}
    for name in names:
        if name in after:
            pair = _signature(mine[name]), _signature(after[name])
            if len(set(pair)) == 2 and (name not in before or _signature(before[name]) != pair[1]):
                changed[name] = pair
    return changed


def own_signatures(yours: str, old: str, names: list[str]) -> list[str]:
    """Return the functions whose signature the learner changed."""
    mine, before = parts_of_source(yours), parts_of_source(old)
    return [name for name in names if name in before and _signature(mine[name]) != _signature(before[name])]


def changed_on_the_way(new: str, arrived: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the result of `changed_signatures` for functions that the learner wrote in another file. arrived: function
    -> the source of that file."""
    pairs = {
        name: (_signature(parts_of_source(source)[name]), _signature(parts_of_source(new)[name]))
        for name, source in arrived.items()
    }
    return {name: pair for name, pair in pairs.items() if len(set(pair)) == 2}


def _signature(part: Part) -> str:
    assert isinstance(part.node, Function)
    returns = f" -> {ast.unparse(part.node.returns)}" if part.node.returns else ""
    return f"def {part.node.name}({ast.unparse(part.node.args)}){returns}"
