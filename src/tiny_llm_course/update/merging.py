"""Merges a newer stub into a learner's file: the learner's code stays, and the course's changes are added.

The base of this three-way merge is the stub from which the learner started. The learner's code for tasks is first put
into both stubs, so only the rest of the file can be in conflict: given code, and the learner's additions.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ..tasks.regions import any_regions, is_native, with_regions
from ..tasks.source_text import Indent, reindented, unit_of
from ..tasks.splice import (
    Part,
    SpliceError,
    UnfitError,
    all_parts,
    code_of,
    parts_of_source,
    put,
    regions_of,
    scope_of,
    without,
)
from ..tasks.task_code import Function, StubError, first_line, lines_of, newline_of
from ..tasks.unsolved import open_task
from .carrying import with_all, with_arrived, with_own
from .exports import with_exports, with_same_exports
from .lost_lines import LostLines, lost_lines
from .signatures import changed_on_the_way, changed_signatures, own_signatures
from .three_way import Conflict, three_way
from .written import tasks_by_name, written

__all__ = ["Merged", "Moves", "merge", "unix_ends"]


@dataclass(frozen=True)
class Moves:
    """The tasks that move into and out of a file, keyed by the names that `tasks_by_name` returns.

    arrived: tasks that the newer course has in this file, but the learner wrote in another file -> the source of that
    other file. left: tasks that the newer course has in another file -> the module to import them from, such as
    `.basics`.
    """

    arrived: Mapping[str, str] = field(default_factory=dict)
    left: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Merged:
    """A merged file. signatures: for each function whose signature the course changed, the learner's signature, which
    stays in the file, and the course's signature. replaced: the learner's lines that the merged file lacks."""

    text: str
    signatures: list[tuple[str, str]] = field(default_factory=list)
    replaced: list[LostLines] = field(default_factory=list)


def merge(yours: str, old: str, new: str, filename: str, moves: Moves = Moves()) -> Merged:
    """Return the learner's file with the changes from the old stub to the new one.

    Raises:
        SpliceError: the learner's file has a syntax error, or lacks markers of regions.
        UnfitError: the learner's and the course's changes do not fit together.
    """
    mine, before, after = (_with_end(unix_ends(text)) for text in (yours, old, new))
    moves = replace(moves, arrived={name: unix_ends(source) for name, source in moves.arrived.items()})
    if mine == before and not moves.arrived:
        merged = Merged(after)
    elif before == after and not moves.arrived:
        merged = Merged(mine)
    else:
        merged = (_native if is_native(filename) else _python)(mine, before, after, filename, moves)
    if newline_of(lines_of(yours)) == "\r\n":
        merged = replace(merged, text=merged.text.replace("\n", "\r\n"))
    return merged


def unix_ends(text: str) -> str:
    return text.replace("\r\n", "\n")


def _with_end(text: str) -> str:
    return text if text.endswith("\n") or not text else f"{text}\n"


def _native(yours: str, old: str, new: str, filename: str, moves: Moves) -> Merged:
    regions = {task: code for task, code in regions_of(yours, filename).items() if not open_task(code)}
    for name, source in moves.arrived.items():
        regions |= {task: code for task, code in any_regions(source, filename).items() if str(task) == name}
    yours = with_regions(yours, regions, filename)
    theirs = with_regions(new, regions, filename)
    expected = any_regions(theirs, filename)

    def checked(text: str) -> str:
        got = any_regions(text, filename)
        if got.keys() != expected.keys() or any(got[task] != regions[task] for task in regions.keys() & got):
            raise UnfitError(filename)
        return text

    merged = _joined(three_way(yours, with_regions(old, regions, filename), theirs), checked, filename)
    kept = {task: code for task, code in regions.items() if task in expected or str(task) in moves.left}
    return Merged(merged, [], lost_lines(yours, with_regions(old, kept, filename), new, merged))


def _python(yours: str, old: str, new: str, filename: str, moves: Moves) -> Merged:
    parts_of_source(yours, filename)  # raises a SpliceError that names the file
    unit = unit_of(ast.parse(yours), yours)
    old, new = (_with_unit(stub, unit) for stub in (old, new))
    tasks = {*tasks_by_name(old, filename), *tasks_by_name(new, filename)}
    mine = [name for name in written(yours, tasks, filename) if name not in moves.arrived]
    changed = changed_signatures(yours, old, new, mine) | changed_on_the_way(new, moves.arrived)
    whole = {*changed, *own_signatures(yours, old, mine)}
    text = _without_namesakes(yours, old, new, tasks)
    base = _with_written(with_all(old, text, mine), text, mine, whole)
    theirs = _with_written(new, text, mine, whole)
    for name, source in moves.arrived.items():
        theirs = _with_written(theirs, source, [name], whole)
    listed, base, theirs = with_same_exports(text, base, theirs)

    def checked(merged: str) -> str:
        merged = _once(merged, listed, theirs)
        compile(merged, filename, "exec", dont_inherit=True)
        if any(_code(merged, name) != _code(theirs, name) for name in mine if name in parts_of_source(theirs)):
            raise UnfitError(filename)
        return merged

    merged = _joined(three_way(listed, base, theirs), checked, filename)
    merged = with_own(merged, yours, (old, new), mine, moves.left)
    merged = with_arrived(merged, moves.arrived)
    shown = merged if listed == text else with_exports(merged, yours)  # keeps the learner's `__all__`
    kept = _kept(yours, merged, mine, moves.left)
    return Merged(merged, list(changed.values()), lost_lines(yours, old, new, shown, kept))


def _joined(parts: list[str | Conflict], checked: Callable[[str], str], filename: str) -> str:
    """Return the merged text. Where both sides changed the same lines, take both sides' lines if the result passes
    `checked`. Otherwise take the course's lines."""
    for resolve in (Conflict.both, lambda conflict: None):
        with suppress(SpliceError, StubError, SyntaxError):
            return checked("".join(_resolved(part, resolve) for part in parts))
    raise UnfitError(f"{filename}: the course's changes do not fit together with the code in this file")


def _resolved(part: str | Conflict, resolve: Callable[[Conflict], list[str] | None]) -> str:
    if isinstance(part, str):
        return part
    both = resolve(part)
    return "".join(part.theirs if both is None else both)


def _once(merged: str, yours: str, theirs: str) -> str:
    """Return the merged text with one definition of each name. If the learner moved a definition that the course
    changed, the merged text contains both versions of the definition. In this case, keep the course's version."""
    allowed = {*_repeated(yours), *_repeated(theirs)}
    after, mine = parts_of_source(theirs), parts_of_source(yours)
    while names := [name for name in _repeated(merged) if name not in allowed]:
        lines = lines_of(merged)
        copies = {part: "".join(lines[part.start : part.end]) for name, part in all_parts(merged) if name == names[0]}
        newer = code_of(theirs, names[0]) if names[0] in after else ""
        older = code_of(yours, names[0]) if names[0] in mine else ""
        stays = max(copies, key=lambda part: (copies[part] == newer, copies[part] != older))
        merged = without(merged, next(part for part in copies if part is not stays))
    return merged


def _repeated(source: str) -> list[str]:
    """Return the names that a module or class defines more than once, classes before their members."""
    counts = Counter(name for name, _ in all_parts(source))
    return [name for name, count in counts.items() if count > 1]


def _kept(yours: str, merged: str, tasks: Collection[str], left: Collection[str]) -> set[int]:
    """Return the indices of the learner's lines that are kept: definitions that are unchanged in the merged file, and
    code of tasks that is in the merged file or in another file."""
    lines, there = lines_of(yours), parts_of_source(merged)
    kept: set[int] = set()
    for name, part in parts_of_source(yours).items():
        if name in there and code_of(yours, name) == code_of(merged, name):
            kept |= {*range(part.start, part.end)}
        elif name in tasks and (name in left or (name in there and _code(yours, name) == _code(merged, name))):
            place = _body(part, lines) or slice(part.start, part.end)
            kept |= {*range(place.start, place.stop)}
    return kept


def _with_unit(stub: str, unit: str) -> str:
    return "".join(reindented(stub, Indent(), Indent(unit=unit)))


def _without_namesakes(yours: str, old: str, new: str, tasks: Collection[str]) -> str:
    """Return the learner's file without the learner's definitions whose names the newer course also defines."""
    before, after = parts_of_source(old), parts_of_source(new)
    names = [name for name in parts_of_source(yours) if name in after and name not in before and name not in tasks]
    text = yours
    for name in names:
        if scope_of(name) not in names:
            text = without(text, parts_of_source(text)[name])
    return text


def _with_written(stub: str, source: str, names: list[str], whole: Collection[str]) -> str:
    """Return a stub with the learner's code: the body of each function, or the whole function if it is in `whole`."""
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
    """Return the lines of a function after its signature and docstring. Return None if this code shares a line with the
    signature or the docstring."""
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
    """Return the lines of a function's body, or of the whole function if its body has no lines of its own."""
    lines, part = lines_of(source), parts_of_source(source).get(name)
    return lines[_body(part, lines) or slice(part.start, part.end)] if part else []
