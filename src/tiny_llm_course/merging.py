"""Merges a newer stub into a learner's file: what the learner wrote stays, and what the course changed comes in.

The third text of the merge is the stub that the learner began from. What the learner wrote for a task is first put into
both stubs. So only the rest of the file can be in conflict: given code, and what the learner added to the file.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from itertools import accumulate, chain

from .exports import with_same_exports
from .imports import bound_names, imported_names, with_imports
from .regions import any_regions, is_native, with_regions
from .source_text import Indent, reindented, unit_of
from .splice import Part, SpliceError, UnfitError, names_used, parts_of_source, put, regions_of, scope_of, without
from .task_code import Function, StubError, first_line, lines_of, names_in, newline_of
from .three_way import Conflict, three_way
from .unsolved import open_task
from .written import tasks_by_name, written

__all__ = ["Lines", "Merged", "Moves", "merge"]


@dataclass(frozen=True)
class Moves:
    """Tasks that changed their file.

    arrived: those that the newer stub has here and the learner wrote in another file, which is the value. left: those
    that the learner wrote here and the newer stub has in another file. Tasks are named as `tasks_by_name` names them.
    """

    arrived: Mapping[str, str] = field(default_factory=dict)
    left: Collection[str] = ()


@dataclass(frozen=True)
class Lines:
    """Lines of the learner's file, counted from 1, in whose place the merged file has the course's."""

    first: int
    last: int


@dataclass(frozen=True)
class Merged:
    """signatures: old and new, where a signature changed; the learner's function is kept with its own."""

    text: str
    signatures: list[tuple[str, str]] = field(default_factory=list)
    replaced: list[Lines] = field(default_factory=list)


def merge(yours: str, old: str, new: str, filename: str, moves: Moves = Moves()) -> Merged:
    """The learner's file, with what changed between two stubs.

    Raises:
        SpliceError: the learner's file has a syntax error, or lacks markers of regions.
        UnfitError: the changes do not fit together.
    """
    mine, before, after = (_with_end(text.replace("\r\n", "\n")) for text in (yours, old, new))
    if mine == before and not moves.arrived:
        merged = Merged(after)
    elif before == after and not moves.arrived:
        merged = Merged(mine)
    else:
        merged = (_native if is_native(filename) else _python)(mine, before, after, filename, moves)
    if newline_of(lines_of(yours)) == "\r\n":
        merged = replace(merged, text=merged.text.replace("\n", "\r\n"))
    return merged


def _with_end(text: str) -> str:
    return text if text.endswith("\n") or not text else f"{text}\n"


def _native(yours: str, old: str, new: str, filename: str, moves: Moves) -> Merged:
    regions = {task: code for task, code in regions_of(yours, filename).items() if not open_task(code)}
    for name, source in moves.arrived.items():
        regions |= {task: code for task, code in any_regions(source, filename).items() if str(task) == name}
    theirs = with_regions(new, regions, filename)
    expected = any_regions(theirs, filename)

    def is_whole(text: str) -> bool:
        found = any_regions(text, filename)
        return found.keys() == expected.keys() and all(found[task] == regions[task] for task in regions.keys() & found)

    merged, replaced = _joined(
        three_way(yours, with_regions(old, regions, filename), theirs), yours, is_whole, filename
    )
    return Merged(merged, [], _gone(replaced, yours, merged))


def _python(yours: str, old: str, new: str, filename: str, moves: Moves) -> Merged:
    parts_of_source(yours, filename)  # which raises a SpliceError that names the file
    unit = unit_of(ast.parse(yours), yours)
    old, new = (_with_unit(stub, unit) for stub in (old, new))
    tasks = {*tasks_by_name(old, filename), *tasks_by_name(new, filename)}
    mine = [name for name in written(yours, tasks, filename) if name not in moves.arrived]
    changed = _changed_signatures(yours, old, new, mine) | _changed_on_the_way(new, moves.arrived)
    text, covered = _without_namesakes(yours, old, new, tasks)
    base = _with_written(_with_all(old, text, mine), text, mine, changed)
    theirs = _with_written(new, text, mine, changed)
    for name, source in moves.arrived.items():
        theirs = _with_written(theirs, source, [name], changed)
    text, base, theirs = with_same_exports(text, base, theirs)

    def is_whole(merged: str) -> bool:
        compile(merged, filename, "exec", dont_inherit=True)
        return all(_code(merged, name) == _code(theirs, name) for name in mine if name in parts_of_source(theirs))

    merged, replaced = _joined(three_way(text, base, theirs), yours, is_whole, filename)
    merged = _completed(merged, yours, old, mine, moves)
    return Merged(merged, list(changed.values()), _gone(covered + replaced, yours, merged))


def _joined(
    parts: list[str | Conflict], yours: str, is_whole: Callable[[str], bool], filename: str
) -> tuple[str, list[Lines]]:
    """The merged text, and the learner's lines that it lacks. Where both sides changed lines, it has both if the result
    is whole, and otherwise the course's."""
    for resolve in (Conflict.both, lambda conflict: None):
        both = [part if isinstance(part, str) else resolve(part) for part in parts]
        text = "".join(_theirs(part) if made is None else "".join(made) for part, made in zip(parts, both, strict=True))
        with suppress(SpliceError, StubError, SyntaxError):
            if is_whole(text):
                places = zip(both, _places(parts, yours), strict=True)
                return text, [place for made, place in places if made is None]
    raise UnfitError(f"{filename}: what the course changed does not fit together with what this file has")


def _theirs(part: str | Conflict) -> str:
    return part if isinstance(part, str) else "".join(part.theirs)


def _places(parts: list[str | Conflict], yours: str) -> list[Lines]:
    """The place of each part in the learner's file."""
    sides = [[part] if isinstance(part, str) else part.yours for part in parts]
    ends = list(accumulate(map(len, sides), initial=0))
    steps = SequenceMatcher(None, list(chain(*sides)), lines_of(yours), autojunk=False).get_opcodes()

    def place(index: int) -> int:
        return next((b + min(index - a, last_b - b) for _, a, last_a, b, last_b in steps if index < last_a), 0)

    return [Lines(place(start) + 1, place(start) + max(1, len(side))) for start, side in zip(ends, sides, strict=False)]


def _gone(replaced: list[Lines], yours: str, merged: str) -> list[Lines]:
    """Those places of which the merged file lacks a line."""
    own, there = lines_of(yours), {line.strip() for line in lines_of(merged)}
    return [lines for lines in replaced if any(line.strip() not in there for line in own[lines.first - 1 : lines.last])]


def _with_unit(stub: str, unit: str) -> str:
    return "".join(reindented(stub, Indent(), Indent(unit=unit)))


def _changed_signatures(yours: str, old: str, new: str, names: list[str]) -> dict[str, tuple[str, str]]:
    """The learner's signature and the new one, where the course changed it."""
    mine, before, after = (parts_of_source(source) for source in (yours, old, new))
    found = {}
    for name in names:
        if name in after:
            pair = _signature(mine[name]), _signature(after[name])
            if len(set(pair)) == 2 and (name not in before or _signature(before[name]) != pair[1]):
                found[name] = pair
    return found


def _changed_on_the_way(new: str, arrived: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    pairs = {
        name: (_signature(parts_of_source(source)[name]), _signature(parts_of_source(new)[name]))
        for name, source in arrived.items()
    }
    return {name: pair for name, pair in pairs.items() if len(set(pair)) == 2}


def _signature(part: Part) -> str:
    assert isinstance(part.node, Function)
    returns = f" -> {ast.unparse(part.node.returns)}" if part.node.returns else ""
    return f"def {part.node.name}({ast.unparse(part.node.args)}){returns}"


def _without_namesakes(yours: str, old: str, new: str, tasks: Collection[str]) -> tuple[str, list[Lines]]:
    """The learner's file without its own definitions of names that the course defines now, and their lines."""
    mine, before, after = (parts_of_source(source) for source in (yours, old, new))
    names = [name for name in mine if name in after and name not in before and name not in tasks]
    text = yours
    for name in names:
        if scope_of(name) not in names:
            text = without(text, parts_of_source(text)[name])
    return text, [Lines(mine[name].start + 1, mine[name].end) for name in names if scope_of(name) not in names]


def _with_all(target: str, source: str, names: Collection[str]) -> str:
    """The target with those of these definitions that it lacks, in a class that it lacks with the whole class."""
    for name in names:
        while (scope := scope_of(name)) and scope not in parts_of_source(target):
            name = scope
        if name not in parts_of_source(target):
            target = put(target, source, name, any_name=True)
    return target


def _with_written(stub: str, source: str, names: list[str], whole: Collection[str]) -> str:
    """A stub with what the learner wrote: the body of each function, or all of it."""
    for name in names:
        if name not in (parts := parts_of_source(stub)):
            continue
        lines, own_lines = lines_of(stub), lines_of(source)
        place, own = _body(parts[name], lines), _body(parts_of_source(source)[name], own_lines)
        if name in whole or place is None or own is None:
            stub = put(stub, source, name)
        else:
            lines[place] = own_lines[own]
            stub = "".join(lines)
    return stub


def _body(part: Part, lines: list[str]) -> slice | None:
    """The lines of a function after signature and docstring. None: they share a line with one of these."""
    assert isinstance(part.node, Function)
    first, *rest = part.node.body
    if lines[first.lineno - 1][: first.col_offset].strip():
        return None
    if ast.get_docstring(part.node) is None:
        start = first_line(first)
        while lines[start - 1].lstrip()[:1] in ("", "#"):
            start -= 1
        return slice(start, part.end)
    start = first.end_lineno or 0
    return slice(start, part.end) if not rest or first_line(rest[0]) >= start else None


def _code(source: str, name: str) -> list[str]:
    """The lines of a function that the learner wrote."""
    lines, part = lines_of(source), parts_of_source(source)[name]
    return lines[_body(part, lines) or slice(part.start, part.end)]


def _completed(merged: str, yours: str, old: str, written: list[str], moves: Moves) -> str:
    """The merged text with everything that the learner defined and imported, and with given code that the course took
    away and the learner uses."""
    for name in moves.left:
        if name in (parts := parts_of_source(merged)):
            merged = without(merged, parts[name])
    given = parts_of_source(old)
    own = [name for name in parts_of_source(yours) if name not in given or name in written]
    merged = _with_all(merged, yours, [name for name in own if name not in moves.left])
    while needed := _needed(merged, yours, moves.left):
        merged = _with_all(merged, yours, needed)
    imported = imported_names(yours) - imported_names(old)
    merged = with_imports(merged, yours, names_in(ast.parse(merged)) | imported)
    for source in dict.fromkeys(moves.arrived.values()):
        reached = _reached(source, [name for name, text in moves.arrived.items() if text == source])
        while needed := [name for name in _needed(merged, source) if name in reached]:
            merged = _with_all(merged, source, needed)
        merged = with_imports(merged, source, names_used(source, reached))
    return merged


def _needed(target: str, source: str, excluded: Collection[str] = ()) -> list[str]:
    """The definitions of the source that the target uses and lacks."""
    parts, used, bound = parts_of_source(target), names_in(ast.parse(target)), bound_names(target)
    return [
        name
        for name in parts_of_source(source)
        if name not in {*parts, *excluded}
        and name.rpartition(".")[2] in used
        and (scope_of(name) in parts if scope_of(name) else name not in bound)
    ]


def _reached(source: str, names: list[str]) -> set[str]:
    """These functions, and everything that they use of their module, directly or through others, except for tasks."""
    stop = {*tasks_by_name(source, "<string>")}
    found: set[str] = set()
    new = set(names)
    while new:
        found |= new
        used = names_used(source, new)
        new = {name for name in parts_of_source(source) if name.rpartition(".")[2] in used} - found - stop
    return found
