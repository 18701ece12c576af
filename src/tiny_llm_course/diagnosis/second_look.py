"""Checks a failed C++ kernel again, in a second look: shows compiler warnings, and faults that a checked run finds."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from metal_host.places import lines_of
from metal_host.toolchain import toolchain
from tiny_llm_native.includes import with_included

from ..base.places import ROOT
from ..native.checked_build import REQUEST, SECONDS, Warned, warnings_in
from ..pytest_runs.test_run import TESTS, PytestRun, Result, files_of, pytest_command
from ..tasks.regions import region_lines
from ..tasks.syllabus import TaskId, day_of
from ..tasks.task_code import StubError
from ..ui import Messages, StatusLine, show

__all__ = ["Finding", "second_look", "show_second_look"]

PATIENCE = 60  # seconds that a second look may take; most take three
MOST_WARNINGS = 5
PRECEDENCE = re.compile(r"[\w\])]\s*&(?!&)\s*[\w.\[\]]+\s*>>")


@dataclass(frozen=True)
class Finding:
    """A fault that stopped a checked run, or that was noticed during the run.

    kind: the KIND in `look_KIND`, the key of the finding's text in messages.toml. line: the line of the fault, or 0 if
    the line is not known. values: the values of the text's placeholders.
    """

    kind: str
    line: int = 0
    values: dict[str, Any] = field(default_factory=dict)


def show_second_look(failure: Result, done: PytestRun, words: Messages) -> bool:
    """Show the findings of a second look at a failed kernel in C++, and return whether there are any.

    In each run of tests, only the first failure of a task is looked at again.
    """
    first = next((other for other in done.results if (other.task, other.outcome) == (failure.task, "failed")), None)
    source = _source_of(failure.task, done.package)
    if done.interrupted or failure is not first or failure.hidden or source is None or _does_not_compile(failure):
        return False
    status = StatusLine()
    status.show(words("look_running"))
    try:
        warned, findings = second_look(failure, done.package, source)
    except StubError:  # other messages report damaged markers
        return False
    finally:
        status.clear()
    _show_part("look_warnings", source, [(one.line, one.text) for one in warned[:MOST_WARNINGS]], words)
    _show_part("look_checked", source, [(one.line, _told(one, words)) for one in findings], words)
    return bool(warned or findings)


def second_look(failure: Result, package: str, source: Path) -> tuple[list[Warned], list[Finding]]:
    """Run a failed test once more, with a checked build of its kernel. Return the compiler's warnings about the tasks'
    regions, and the findings. If the compiler cannot make a checked build, the findings come from the source text
    alone.

    Raises:
        StubError: the file's markers are damaged.
    """
    text = source.read_text(encoding="utf-8", errors="replace")
    region = region_lines(text, source.name)
    compiled = _compiled(source, failure.task)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        events, stopped = _run(failure, package, compiled, folder)
        warned = warnings_in(events.get("said", ""), source, region)
        findings = [_stopped_at(stopped, folder / "checked.so", source, region)] if stopped else list(_seen(events))
    names = _argument_names(compiled, events.get("kernel", ""))
    findings = [replace(one, values=one.values | {"argument": _argument(names, one.values)}) for one in findings]
    lines = text.splitlines()
    code = {line: lines[line - 1].partition("//")[0] for line in region}
    findings += [Finding("precedence", line) for line in region if PRECEDENCE.search(code[line])]
    return warned, findings


def _source_of(task: TaskId, package: str) -> Path | None:
    """Return the C++ file in which a task is written. Return None if the task is not in C++."""
    folder = ROOT / "src" / package / "kernels"
    marker = re.compile(rf"^\s*// task {re.escape(str(task))} begin", re.MULTILINE)
    files = [*sorted(folder.glob("*.cpp")), *sorted(folder.glob("*.h"))]
    return next((file for file in files if marker.search(file.read_text(encoding="utf-8", errors="replace"))), None)


def _compiled(source: Path, task: TaskId) -> Path:
    """Return the file to compile: `source` or, if `source` is a header, the file of the task's day that includes
    `source`."""
    if source.suffix == ".cpp":
        return source
    stems = [Path(module).name for module in day_of(task).modules]
    files = [file for stem in stems if (file := source.with_name(f"{stem}.cpp")).exists()]
    return next(file for file in files if source in with_included(file))


def _argument_names(source: Path, kernel: str) -> dict[str, list[str]]:
    """Return the names of a kernel's inputs and outputs, from the kernel's struct of arguments."""
    own = (file.read_text(encoding="utf-8", errors="replace") for file in with_included(source))
    text = "\n".join(own)
    struct = re.search(rf"^KERNEL\({kernel}, (\w+)\)", text, re.MULTILINE)
    body = re.search(rf"^struct {struct[1]} \{{\n(.*?)^\}};", text, re.MULTILINE | re.DOTALL) if struct else None
    members = re.findall(r"^ *(In|Out)<.*?> ([\w, ]+);", body[1] if body else "", re.MULTILINE)
    found: dict[str, list[str]] = {"In": [], "Out": []}
    for kind, names in members:
        found[kind] += names.split(", ")
    return {"input": found["In"], "output": found["Out"]}


def _argument(names: dict[str, list[str]], values: dict[str, Any]) -> str:
    """Return the kernel's name for the array that a finding is about. Return "" if the finding is about no array."""
    memory = values.get("memory", "output")
    if memory not in names or "number" not in values:
        return ""
    number, of_kind = int(values["number"]), names[memory]
    name = of_kind[number] if number < len(of_kind) else f"{memory.removesuffix('put')}[{number}]"
    return f"`call.{name}`"


def _does_not_compile(failure: Result) -> bool:
    return bool(re.match(r"\S+\.(cpp|h)(:\d+)?: |.* does not compile", failure.message))


def _run(failure: Result, package: str, source: Path, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Run the test in a process of its own. Return the values that the process reports, keyed by name, and the lines
    that describe a fault that stopped a kernel."""
    report = folder / "report"
    test = f"{files_of([day_of(failure.task)])[0]}::{failure.test}"
    command = pytest_command(
        [Path(test)], package, ["-p", "tiny_llm_course.diagnosis.checked_run", "-p", "no:cacheprovider"], TESTS
    )
    request = {"source": str(source), "package": package, "folder": str(folder), "report": str(report)}
    environment = os.environ | {REQUEST: json.dumps(request)}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    lines = report.read_text(encoding="utf-8", errors="replace").splitlines() if report.exists() else []
    events: dict[str, Any] = {}
    for line in lines:
        events |= json.loads(line) if line.startswith("{") else {}
    stopped = [line for line in lines if not line.startswith("{")]
    return events, stopped if stopped[-1:] == ["end"] else []


def _stopped_at(stopped: list[str], library: Path, source: Path, region: list[int]) -> Finding:
    """Turn the report of checked.cpp into a finding, with the innermost line of the learner's code on the stack."""
    codes = [line.removeprefix("code ") for line in stopped if line.startswith("code ")]
    values: dict[str, Any] = dict(line.partition(" ")[::2] for line in stopped if not line.startswith(("code ", "end")))
    places = lines_of(library, codes, {source.name: ""}, toolchain()) or []
    lines = [place[1] for place in places if place]
    line = next((line for line in lines if line in region), next(iter(lines), 0))
    kind = values.pop("kind")
    if kind == "outside":
        kind = f"{values['access']}_{values['side']}"
        values["at"] = int(values["size"]) + int(values["bytes"])
    return Finding(kind, line, values)


def _seen(events: dict[str, Any]) -> Iterator[Finding]:
    """Yield the findings of a run that was not stopped by a fault."""
    if events.get("unset"):
        yield Finding("unset")
    if unwritten := events.get("unwritten"):
        number, count, first = unwritten
        yield Finding("unwritten", 0, {"number": number, "count": count, "first": first})


def _told(finding: Finding, words: Messages) -> str:
    values = finding.values | {"seconds": SECONDS}
    if "memory" in values:
        values["memory"] = values["argument"] or words("look_memory")
    return words(f"look_{finding.kind}", **values)


def _show_part(title: str, source: Path, lines: list[tuple[int, str]], words: Messages) -> None:
    if not lines:
        return
    code = source.read_text(encoding="utf-8", errors="replace").splitlines()
    show(f"\n{words(title)}", fg="yellow", bold=True)
    for line, text in lines:
        show(f"  {os.path.relpath(source)}:{line}: {text}" if line else f"  {text}")
        if line:
            show(f"      {code[line - 1].strip()}")
