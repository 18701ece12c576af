#!/usr/bin/env python3
"""Run the code in a learner's report, and print a skeleton for a new entry in the catalogue of mistakes.

    ./course python scripts/from_report.py report-w1d1.1.md

A learner wrote the report with `./course report`. The report's code runs in a temporary tree that has the reference's
code for all other tasks. The output shows which tests reject the code, whether the catalogue has the mistake, and the
skeleton. Shorten the skeleton's edits to the mistake itself. This script runs a stranger's code, so read the report
first.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, NamedTuple

import typer

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "src" / "tiny_llm_ref"
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "repo")]

from learner import Clone  # noqa: E402

from tiny_llm_course.catalogue import Mistake, entry_of  # noqa: E402
from tiny_llm_course.diagnosis.mutants import CatalogueError, compile_mistakes, mutant_sources  # noqa: E402
from tiny_llm_course.native.kernel_files import ensure_extension  # noqa: E402
from tiny_llm_course.pytest_runs.test_run import PytestRun, run_tests  # noqa: E402
from tiny_llm_course.report.reported import read  # noqa: E402
from tiny_llm_course.tasks.regions import is_native, regions, with_regions  # noqa: E402
from tiny_llm_course.tasks.splice import SpliceError, code_of, definitions, regions_of, splice  # noqa: E402
from tiny_llm_course.tasks.syllabus import TaskId, day_of  # noqa: E402
from tiny_llm_course.tasks.task_code import StubError, task_parts  # noqa: E402
from tiny_llm_course.tasks.unsolved import open_task  # noqa: E402
from tiny_llm_course.ui.language import Messages  # noqa: E402
from tiny_llm_course.update.carrying import with_all  # noqa: E402


class Part(NamedTuple):
    """A part of a task's code: a function, a helper or a region."""

    path: str
    name: str
    before: str  # the reference's code
    after: str  # the reported code


def main(file: Annotated[Path, typer.Argument(metavar="REPORT", help="A file that `./course report` wrote.")]) -> None:
    try:
        reported = read(file.read_text(encoding="utf-8"))
        sources = {path: merged(path, code) for path, code in reported.code.items()}
    except (OSError, ValueError, SpliceError, StubError) as error:
        print(f"error: {file}: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    tell(reported.task, tested(reported.task, sources))
    parts = [part for path, text in sources.items() for part in parts_of(reported.task, path, text)]
    print("\n".join(skeleton(edits(reported.task, parts))))
    for path, text in sources.items():
        for code in left_out(path, text, [part for part in parts if part.path == path]):
            print(f"\n# This code is not in the edits, because it is outside the task's code in {path}:\n{code}")


def merged(path: str, code: str) -> str:
    """Return a file of the reference in which the reported code replaces the reference's code."""
    reference = (REFERENCE / path).read_text(encoding="utf-8")
    if is_native(path):
        written = {task: text for task, text in regions_of(code, path).items() if not open_task(text)}
        return with_regions(reference, written, path)
    own = [name for name in definitions(code) if name not in definitions(reference)]
    return splice(with_all(reference, code, own), code, both(reference, code), path)


def both(reference: str, code: str) -> list[str]:
    """Return the names of the functions and constants that both files have, given code included, without classes."""
    names = definitions(reference)
    classes = {name.rpartition(".")[0] for name in names}
    return [name for name in definitions(code) if name in names and name not in classes]


def tested(task: TaskId, sources: dict[str, str]) -> PytestRun:
    """Run the task's tests in a learner's clone that has the reported code, and the reference's code for all other
    tasks."""
    day = day_of(task)
    ensure_extension(REFERENCE.name, [day], Messages())
    with TemporaryDirectory() as folder:
        clone = Clone.create(Path(folder).resolve())
        reference = clone.root / "src" / REFERENCE.name
        for file in reference.rglob("*.*"):
            path = file.relative_to(reference).as_posix()
            if clone.file(path).is_file() and "built" not in file.parts:
                clone.file(path).write_text(sources.get(path) or file.read_text(encoding="utf-8"), encoding="utf-8")
        compile_mistakes(reference, task, entry_of(task).mistakes)  # so that the diagnosis does not wait for compilers
        os.environ["PYTHONPATH"] = str(clone.root / "src")
        return run_tests([day], "tiny_llm", ["-k", f"test_task_{task.task}_"], tests=clone.root / "tests")


def tell(task: TaskId, run: PytestRun) -> None:
    """Print which tests reject the code, and whether the catalogue has the mistake."""
    failed = [result.test for result in run.failures]
    if failed:
        print(f"{task}: {len(failed)} of {len(run.results)} tests reject the code:", *failed, sep="\n  ")
    else:
        print(f"{task}: no test rejects the code ({len(run.results)} ran): if the code is wrong, add a test")
    if run.problem:
        print(f"the run ended early: {run.problem}")
    few, many = run.left.get(task, (0, 0))
    compared = f" ({many - few} of {many} mistakes were compared in time)" if few else ""
    known = run.named.get(task)
    print(f"The catalogue has this mistake: {known}.\n" if known else f"No known mistake explains it{compared}.\n")


def parts_of(task: TaskId, path: str, text: str) -> Iterator[Part]:
    """Yield the parts of a task's code in a file. New definitions begin the first part of their class or module."""
    reference = (REFERENCE / path).read_text(encoding="utf-8")
    if is_native(path):
        yield Part(path, str(task), regions(reference, path)[task], regions(text, path)[task])
        return
    new = added(reference, text)
    for name in task_parts(reference).get(task, []):
        before = code_of(reference, name)
        after = code_of(text, name) if name in definitions(text) else before
        yield Part(path, name, before, "".join(new.pop(name.rpartition(".")[0], [])) + after)


def added(reference: str, text: str) -> dict[str, list[str]]:
    """Return the code that the reference does not have, keyed by class. Imports and the module's own definitions have
    the key ""."""
    known = reference.splitlines()
    imports = [line for line in text.splitlines() if line.startswith(("import ", "from ")) and line not in known]
    found = {"": ["\n".join([*imports, "", ""]) + "\n"]} if imports else {}
    names = [name for name in definitions(text) if name not in definitions(reference)]
    for name in names:
        scope = name.rpartition(".")[0]
        if scope not in names:
            found.setdefault(scope, []).append(code_of(text, name) + ("\n" if scope else "\n\n"))
    return found


def edits(task: TaskId, parts: list[Part]) -> list[tuple[str, str]]:
    """Return the edits, each an old and a new text, that turn the reference's code of a task into the reported code.
    Each old text occurs only once in the reference's code."""
    for context in range(max(part.before.count("\n") for part in parts) + 1):  # the largest context covers whole parts
        found = [hunk for part in parts for hunk in hunks(part, context)]
        try:
            changed = mutant_sources(REFERENCE, task, Mistake("reported", tuple(found), {}))
        except CatalogueError:
            continue
        if all(part.after in changed.get(part.path, part.after) for part in parts):
            return found
    raise AssertionError(f"{task}: two parts of the reference's code are alike")


def hunks(part: Part, context: int) -> Iterator[tuple[str, str]]:
    """Yield the old and the new text of each place that differs, with `context` more lines on either side."""
    before, after = part.before.splitlines(keepends=True), part.after.splitlines(keepends=True)
    for group in SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(context):
        old, new = "".join(before[group[0][1] : group[-1][2]]), "".join(after[group[0][3] : group[-1][4]])
        yield (old, new) if not new else (old.removesuffix("\n"), new.removesuffix("\n"))


def skeleton(edits: list[tuple[str, str]]) -> Iterator[str]:
    yield from ("[[tasks.mistakes]]", 'id = ""', "edits = [")
    for old, new in edits:
        yield f"    [{quoted(old)}, {quoted(new)}],"
    yield from ("]", 'en = ""', 'ja = ""')


def quoted(text: str) -> str:
    """Return a text as a TOML string, with unescaped line breaks if possible."""
    if "\n" in text and "'''" not in text and not text.endswith("'"):
        return f"'''\n{text}'''"
    return json.dumps(text, ensure_ascii=False)


def left_out(path: str, text: str, parts: list[Part]) -> Iterator[str]:
    """Yield the reported code that belongs to no part: changed given code, and new code of classes without parts."""
    if is_native(path):
        return
    reference = (REFERENCE / path).read_text(encoding="utf-8")
    here = "".join(part.after for part in parts)
    for name in both(reference, text):
        if (code := code_of(text, name)) != code_of(reference, name) and code not in here:
            yield code
    for texts in added(reference, text).values():
        yield from (new for new in texts if new not in here)


if __name__ == "__main__":
    main.__doc__ = __doc__
    typer.run(main)
