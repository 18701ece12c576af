"""Writes and reads reports: a task's code, the results of its tests, and the versions of the programs involved, in
Markdown.

A report goes to people who do not know its author, so it is in English and names no folder outside the course.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..base.places import ROOT
from ..pytest_runs.test_run import PytestRun, Result
from ..tasks.regions import is_native
from ..tasks.syllabus import Task, TaskId

__all__ = ["SHOWN", "SOURCES", "Reported", "read", "written"]

EXPECTED = """
## What did you expect?

<!-- What should the code do? Why do you think that it does? Even one sentence helps your readers. -->"""
SHOWN = 3  # failures that are shown in full; of other failures, only the names
SOURCES = "src/tiny_llm/"
OUTCOMES = {
    "failed": "failed",
    "passed": "passed",
    "unsolved": "stopped at a stub",
    "skipped": "were skipped",
    "not run": "were not run",
}
HEADING = "\n## Code"
CODE = re.compile(
    rf"\n*### {SOURCES}(?P<path>\S+)\n\n(?P<fence>`{{3,}})\w+\n(?P<code>.*?)^(?P=fence)$", re.DOTALL | re.MULTILINE
)
FOLDERS = re.compile(r"(?<![\w.~/])(/[^\s/'\"`()<>]+)/(?:[^\s/'\"`()<>]+/)*")  # the folders of an absolute path


@dataclass(frozen=True)
class Reported:
    """The task and the code in a report."""

    task: TaskId
    code: dict[str, str]  # path in the package -> module with the task's functions, or regions with their markers


def written(task: Task, code: Mapping[str, str], run: PytestRun, versions: Sequence[str]) -> str:
    """Return the report on a run of the task's tests with this code."""
    return "\n".join(
        [
            f"# {task.id} {task.title['en']}: {len(run.failures)} of {len(run.results)} tests fail\n",
            f"- known mistake: {_named(task.id, run)}",
            f"- to reproduce the failures: `{task.id.test_command}`",
            *(f"- {version}" for version in versions),
            EXPECTED,
            HEADING,
            *_code(code),
            "\n## Failures",
            *(["\nThe run ended early:\n", _fenced(_public(run.problem))] if run.problem else []),
            *(_failure(failure) for failure in run.failures[:SHOWN]),
            "\n## Tests",
            *_tests(run.results),
        ]
    )


def read(text: str) -> Reported:
    """Read the task and the code from the text of a report.

    Raises:
        ValueError: the text is not a report.
    """
    match = re.search(r"^# (w\d+d\d+\.\d+) ", text, re.MULTILINE)
    if match is None:
        raise ValueError("expected a line such as `# w1d1.1 ...`, got none: this is not a report")
    code, rest = {}, text.partition(HEADING)[2]
    while section := CODE.match(rest):
        code[section["path"]], rest = section["code"], rest[section.end() :]
    if not code:
        raise ValueError(f"expected code after a line such as `### {SOURCES}attention.py`, got none")
    return Reported(TaskId.parse(match[1]), code)


def _named(task: TaskId, run: PytestRun) -> str:
    if task in run.left:
        few, many = run.left[task]
        return f"none was recognised so far; {many - few} of {many} were compared"
    return run.named.get(task, "none was recognised")


def _code(code: Mapping[str, str]) -> Iterator[str]:
    for path, text in code.items():
        yield f"\n### {SOURCES}{path}\n"
        yield _fenced(_at_home(text), "cpp" if is_native(path) else "python")


def _failure(failure: Result) -> str:
    frames = [f"{frame['file']}:{frame['line']} ({frame['function']})\n    {frame['code']}" for frame in failure.frames]
    said = _fenced(_public("\n".join([*frames[-3:], failure.message])))
    return "\n\n".join(part for part in (f"\n### {failure.test}", failure.doc, said) if part)


def _tests(results: Sequence[Result]) -> Iterator[str]:
    for outcome, name in OUTCOMES.items():
        if tests := [result.test for result in results if result.outcome == outcome]:
            yield f"\n{len(tests)} {name}:\n"
            yield _fenced("\n".join(tests))


def _fenced(text: str, language: str = "") -> str:
    """Return a fenced block of code. Its fences are longer than any fence in the code."""
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 0)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _public(text: str) -> str:
    """Return a message without this machine's folders: paths in the course become relative, and other paths keep only
    their last part."""
    return FOLDERS.sub(lambda path: "" if Path(path[1]).is_dir() else path[0], _at_home(text))


def _at_home(text: str) -> str:
    """Return the text without the names of the course's folder and of the home directory."""
    text = text.replace(f"{ROOT}/", "")
    home = Path.home()
    return text.replace(str(home), "~") if home != Path(home.anchor) else text
