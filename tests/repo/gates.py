"""Rules for every module of the reference. Each check returns a line for each place that breaks its rule.

Sources are given as a mapping from path, relative to the package, to text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from tiny_llm_course.tasks.regions import code_files, is_native, regions
from tiny_llm_course.tasks.syllabus import Day, TaskId, parse_task_ids

__all__ = [
    "Sources",
    "check_definitions_only",
    "check_exports",
    "check_imports",
    "check_sizes",
    "check_task_ids",
    "long_files",
    "read_native",
    "read_sources",
]

Sources: TypeAlias = dict[str, str]
Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

# For each package: a module imports only from rows before its own.
LAYERS = {
    "tiny_llm_native": """
    __init__
    includes
    arguments compiler fallback
    extension
    argmax matmul metal
    roofline
""",
    "tiny_llm_given": """
    __init__
    serving
    chat_template checkpoint_files fill_in finite linears
    formats
    config_check
    config
    generation_config tokenizer weights
""",
    "tiny_llm_ref": """
    __init__
    basics costs foundations kernels
    attention positional_encoding layer_norm embedding mlp
    kv_cache
    qwen2
    qwen3
    quantize
    optimise tuned
    models
    generate
    sampler thinking
    serving
""",
}
COURSE = {"tiny_llm", "tiny_llm_ref", "tiny_llm_course"}
PARTS_OF_TYPES = {
    "TypeVar",
    "AfterValidator",
    "BeforeValidator",
    "Field",
    "WithJsonSchema",
}  # calls that define, and do nothing
FILE_LINES, FUNCTION_LINES = 400, 40


def read_sources(package: Path) -> Sources:
    return {file.relative_to(package).as_posix(): file.read_text(encoding="utf-8") for file in package.rglob("*.py")}


def read_native(package: Path) -> Sources:
    """Read the code in C++ and Metal."""
    return {
        file.relative_to(package).as_posix(): file.read_text(encoding="utf-8")
        for file in code_files(package)
        if is_native(file)
    }


def check_imports(sources: Sources, package: str = "tiny_llm_ref") -> list[str]:
    """Check that modules import each other relatively, only public names, and in the order of LAYERS."""
    levels = {name: level for level, row in enumerate(LAYERS[package].split("\n")) for name in row.split()}
    problems = [f"{path}: {_unit(path)} has no place in LAYERS" for path in sources if _unit(path) not in levels]
    for path, node in _nodes(sources):
        if isinstance(node, ast.Import | ast.ImportFrom):
            problems += [f"{path}:{node.lineno}: {problem}" for problem in _import_problems(node, path, levels)]
    return problems


def check_exports(sources: Sources) -> list[str]:
    """Check that `__all__` exists, is sorted, and lists the names that a module defines without an underscore."""
    problems = []
    for path, source in sources.items():
        values = dict(_definitions(source))
        public = sorted((name for name in values if not name.startswith("_")), key=_rank)
        exported = values.get("__all__")
        if not isinstance(exported, ast.List):
            problems.append(f"{path}: has no list __all__")
        elif (names := ast.literal_eval(exported)) != public:
            problems.append(f"{path}: expected __all__ = {public}, got {names}")
    return problems


def check_definitions_only(sources: Sources) -> list[str]:
    """Check that a module contains only a docstring, imports, constants, functions, classes, and code that does not
    run."""
    problems = []
    for path, source in sources.items():
        body = ast.parse(source).body
        docstring, rest = body[:1], body[1:]
        if not docstring or not _is_string(docstring[0]):
            problems.append(f"{path}: has no docstring")
        problems += [f"{path}:{node.lineno}: does more than define when it is imported" for node in rest if _acts(node)]
    return problems


def check_sizes(sources: Sources) -> list[str]:
    """Find functions above their limit; docstrings do not count."""
    problems = []
    for path, node in _nodes(sources):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = _height(node) - (_height(node.body[0]) if _is_string(node.body[0]) else 0)
            if lines > FUNCTION_LINES:
                problems.append(
                    f"{path}:{node.lineno}: expected at most {FUNCTION_LINES} lines in {node.name}, got {lines}"
                )
    return problems


def long_files(sources: Sources) -> list[str]:
    """Name the files that are so long that they may contain two ideas."""
    lengths = {path: len(source.splitlines()) for path, source in sources.items()}
    return [f"{path} has {lines} lines: is it one idea?" for path, lines in lengths.items() if lines > FILE_LINES]


def check_task_ids(sources: Sources, days: list[Day], native: Sources | None = None) -> list[str]:
    """Check that docstrings, regions and the syllabus have the same tasks, and that a day's `modules` are the files of
    its tasks, without suffix."""
    problems = []
    places: dict[TaskId, set[str]] = {task.id: set() for day in days for task in day.tasks}
    for path, node in _nodes(sources):
        docstring = ast.get_docstring(node) if isinstance(node, Definition | ast.Module) else None
        ids = parse_task_ids(docstring)
        if [str(task) for task in ids] != re.findall(r"\bw\d+d\d+\.\d+", docstring or ""):
            problems.append(f"{path}: a task id stands outside of a last line `Task: ...`: {docstring!r}")
        for task in ids:
            if task not in places:
                problems.append(f"{path}: the syllabus has no task {task}")
            places.setdefault(task, set()).add(path.removesuffix(".py"))
    for path, source in (native or {}).items():
        for task in regions(source, path):
            places[task].add(path.rpartition(".")[0])
    problems += [f"{task}: no docstring has this task" for task, found in places.items() if not found]
    for day in days:
        modules = sorted(set().union(*(places[task.id] for task in day.tasks)))
        if modules != sorted(day.modules):
            problems.append(
                f"week {day.week} day {day.number}: expected modules {modules}, in which its tasks stand, "
                f"got {sorted(day.modules)}"
            )
    return problems


def _nodes(sources: Sources) -> Iterator[tuple[str, ast.AST]]:
    return ((path, node) for path, source in sources.items() for node in ast.walk(ast.parse(source)))


def _unit(path: str) -> str:
    """Return the name of a file's module or subpackage in LAYERS."""
    return PurePosixPath(path).parts[0].removesuffix(".py")


def _import_problems(node: ast.Import | ast.ImportFrom, path: str, levels: dict[str, int]) -> Iterator[str]:
    names = [alias.name for alias in node.names]
    if isinstance(node, ast.Import) or not node.level:
        modules = names if isinstance(node, ast.Import) else [node.module or ""]
        yield from (f"imports {name} by its full name" for name in modules if name.partition(".")[0] in COURSE)
        return
    yield from (f"imports {name}, which is not public" for name in names if name.startswith(("_", "*")))
    packages = PurePosixPath(path).parts[:-1]
    parts = [*packages[: len(packages) - node.level + 1], *(node.module or "").split(".")]
    own = _unit(path)
    for target in filter(None, names if parts == [""] else parts[:1]):
        if target != own and levels.get(target, len(levels)) >= levels.get(own, 0):
            yield f"{own} imports {target}, which LAYERS does not put above it"


def _definitions(source: str) -> Iterator[tuple[str, ast.AST | None]]:
    """Yield the names that a module's top level defines, each with its value if it is a constant."""
    for node in ast.parse(source).body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, None
            case ast.AnnAssign(target=ast.Name(id=name), value=value):
                yield name, value
            case ast.Assign(targets=targets, value=value):
                names = [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
                yield from ((name, value) for name in names)


def _rank(name: str) -> tuple[bool, bool, str]:
    """Return a sort key that orders names as ruff orders `__all__`: constants, classes, other names."""
    return not name.isupper(), not name[0].isupper(), name


def _acts(node: ast.stmt) -> bool:
    match node:
        case ast.Assign() | ast.AnnAssign():
            return any(isinstance(part, ast.Call) and not _defines(part) for part in ast.walk(node))
        case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=[]):
            return any(map(_acts, node.body))
        case ast.If(test=test, orelse=[]) if ast.unparse(test) == "__name__ == '__main__'":
            return False  # not when it is imported
    return not isinstance(node, ast.Import | ast.ImportFrom | Definition)


def _defines(call: ast.Call) -> bool:
    """Tell whether a call only defines something: `Path(__file__)`, or a part of a type."""
    return ast.unparse(call) == "Path(__file__)" or ast.unparse(call.func) in PARTS_OF_TYPES


def _is_string(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _height(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1
