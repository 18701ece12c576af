"""A digest of everything that can change what a day's tests decide, and of nothing else.

Prose does not count: comments, docstrings, hints, diagnoses, translations, titles. Neither does the machine.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from tiny_llm_course.tasks.regions import is_native
from tiny_llm_course.tasks.syllabus import Day, parse_task_ids
from tiny_llm_course.tasks.toml import read_toml

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

from imports import with_imports

__all__ = ["INERT", "digest", "digest_of_files", "is_input", "python_code"]

INERT = {  # what is loaded or read with the tests: why it cannot change a verdict
    "tiny_llm_course/diagnosis/advice": "explains errors",
    "tiny_llm_course/testing/pytest_plugin": "shows results, and measures time",
    "tiny_llm_course/pytest_runs/test_run": "starts pytest",
    "tiny_llm_course/pytest_runs/pytest_process": "starts pytest",
    "tiny_llm_course/grading/": "judges submissions",
    "tiny_llm_course/base/": "knows where the course is, and writes files",
    "tiny_llm_course/learner/": "knows where a learner stands",
    "tiny_llm_course/tasks/plan": "knows hours and paths",
    "tiny_llm_course/tasks/stubs": "makes stubs, and no test of the reference meets one",
    "tiny_llm_course/tasks/unsolved": "finds stubs",
    "tiny_llm_course/ui/messages.toml": "is prose",
    "tiny_llm_course/catalogue/week_": "counts by its mistakes, without its prose",
    "tiny_llm_course/syllabus.toml": "counts by its bars, without its prose",
    "repo/fingerprint": "makes digests: with other code, there are other digests",
}
WEIGHTS = ("model.safetensors", "tokenizer.json")  # are read by MLX and by Rust, which no audit hook sees
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
TEXT_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', re.DOTALL)


def is_input(path: str) -> bool:
    """Tell whether a file of the repository that a run has read can change what its tests decide."""
    parts = Path(path).parts
    if parts[0] not in ("src", "tests") or {"built", "__pycache__"} & {*parts}:
        return False
    return not "/".join(parts[1:]).startswith(tuple(INERT))


def digest(root: Path, day: Day, inputs: Iterable[str]) -> str:
    """Return the digest of the inputs of a day's tests, mistakes and variants. inputs: the paths that the last run
    noted."""
    name = f"week_{day.week}_day_{day.number}.toml"
    facts: dict[str, Any] = {path: _fact(root / path) for path in sorted(inputs)}
    facts["mistakes"] = _mistakes(root / "src/tiny_llm_course/catalogue" / name)
    facts["variants"] = _variants(root / "tests/repo/variants" / name)
    facts["syllabus"] = _day(root / "src/tiny_llm_course/syllabus.toml", day)
    facts["pytest"] = read_toml(root / "pyproject.toml")["tool"]["pytest"]["ini_options"]
    facts["versions"] = _versions(root / "pdm.lock")
    return _sha256(json.dumps(facts, sort_keys=True))


def digest_of_files(root: Path, patterns: Iterable[str]) -> str:
    """Digest all files that match, the modules that they import, and the locked versions, without prose in code."""
    files = with_imports(root, (file for pattern in patterns for file in root.glob(pattern) if file.is_file()))
    inputs = {str(file.relative_to(root)) for file in files if is_input(str(file.relative_to(root)))}
    facts: dict[str, Any] = {path: _fact(root / path) for path in inputs}
    facts["versions"] = _versions(root / "pdm.lock")
    return _sha256(json.dumps(facts, sort_keys=True))


def _fact(file: Path) -> str:
    """Return the part of a file that counts in a digest."""
    if not file.exists():
        return "absent"
    stat = file.stat()
    return _fact_at(file, stat.st_mtime_ns, stat.st_size)


@cache
def _fact_at(file: Path, changed: int, size: int) -> str:
    if file.suffix == ".py":
        return _sha256(python_code(file.read_text(encoding="utf-8")))
    if is_native(file):
        return _sha256(_native(file.read_text(encoding="utf-8")))
    found = [file, *(file.with_name(name) for name in WEIGHTS if file.with_name("config.json").exists())]
    return _sha256(*(part.read_bytes() for part in found if part.exists()))


def python_code(source: str) -> str:
    """Return parsed code, the same in every version of Python, without docstrings except their `Task:` lines."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)) is not None:
            tasks = ", ".join(map(str, parse_task_ids(text)))
            node.body[0] = ast.Expr(ast.Constant(f"Task: {tasks}" if tasks else ""))
    return _written(tree)


def _written(node: Any) -> str:
    """Write a node like `ast.dump`, but without empty fields, because `ast.dump` differs between versions of Python."""
    if isinstance(node, list):
        return f"[{','.join(map(_written, node))}]"
    if isinstance(node, ast.JoinedStr):
        node.values = _joined(node.values)
    if not isinstance(node, ast.AST):
        return f"{type(node).__name__} {node!r}"
    fields = [(name, getattr(node, name, None)) for name in node._fields if name not in ("ctx", "kind", "type_comment")]
    written = (f"{name}={_written(value)}" for name, value in fields if value is not None and value != [])
    return f"{type(node).__name__}({','.join(written)})"


def _joined(values: list[ast.expr]) -> list[ast.expr]:
    """Return an f-string's parts, with adjacent texts joined. Python 3.12.0 leaves them apart, and adds empty texts."""
    found: list[ast.expr] = []
    for part in values:
        last = found[-1] if found else None
        if isinstance(part, ast.Constant) and isinstance(last, ast.Constant):
            found[-1] = ast.Constant(last.value + part.value)
        elif not (isinstance(part, ast.Constant) and part.value == ""):
            found.append(part)
    return found


def _native(source: str) -> str:
    """Return C++ or Metal code without indents and comments, except the comments that begin and end a task."""

    def kept(match: re.Match[str]) -> str:
        text = match.group()
        return " " if text.startswith("/*") or (text.startswith("//") and not text.startswith("// task ")) else text

    lines = (" ".join(line.split()) for line in TEXT_OR_COMMENT.sub(kept, source).splitlines())
    return "\n".join(filter(None, lines))


def _mistakes(catalogue: Path) -> Any:
    return [
        [entry["id"], [[mistake["id"], mistake["edits"]] for mistake in entry.get("mistakes", [])]]
        for entry in read_toml(catalogue)["tasks"]
    ]


def _variants(file: Path) -> Any:
    return [[entry["task"], entry["id"], entry["edits"]] for entry in read_toml(file)["variants"]]


def _day(syllabus: Path, day: Day) -> Any:
    """Return the functions that may not be called while a task's tests run."""
    weeks = {
        week["number"]: {entry["number"]: entry for entry in week["days"]} for week in read_toml(syllabus)["weeks"]
    }
    entry = weeks[day.week][day.number]
    return [entry["modules"], [[task["number"], task["barred"]] for task in entry["tasks"]]]


def _versions(lock: Path) -> dict[str, str]:
    """Return the versions of the packages that every installation of a clone has, on every version of Python."""
    found: dict[str, list[str]] = {}
    for package in read_toml(lock)["package"]:
        if {"default", "kernels"} & {*package["groups"]}:
            found.setdefault(package["name"], []).append(package["version"])
    return {name: " ".join(sorted({*versions})) for name, versions in found.items()}


def _sha256(*parts: str | bytes) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(part.encode() if isinstance(part, str) else part)
    return found.hexdigest()
