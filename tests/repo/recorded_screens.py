"""Runs every command in the terminal in which this program runs, at several widths and in both languages.

    python recorded_screens.py ROOT ITEMS     in a clone. ROOT: the repository. ITEMS: JSON, a list of Screens' fields

Each screen begins with a line of MARK and the screen's number. Slow results are computed once, or taken from earlier
measurements, but the command always prints them itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib
import itertools
import json
import os
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MARK = "\x1e"
LOCALES = {"en": "en_US.UTF-8", "ja": "ja_JP.UTF-8"}
SAID = ["/help", "/system Answer in short.", "Hello! Who are you?", "/reset", "/exit"]


def main(root: Path, items: list[dict[str, Any]]) -> None:
    from tiny_llm_course.commands import app

    prepare(root)
    for number, item in enumerate(items):
        os.environ["LANG"] = LOCALES[item["language"]]
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 40, item["width"], 0, 0))
        print(f"{MARK}{number}", flush=True)
        with contextlib.suppress(SystemExit):
            app(item["arguments"], prog_name="./course")
        sys.stdout.flush()


def prepare(root: Path) -> None:
    """Replace slow computations with known results."""
    module = functools.partial(importlib.import_module, package="tiny_llm_course")
    os.execv = execute  # type: ignore[assignment]
    models, loops = map(importlib.import_module, ("tiny_llm_ref.models", "tiny_llm_ref.generate"))
    models.load = functools.cache(models.load)
    module(".model.loaded_model").are_compiled = lambda *arguments: False  # tuning would change the one model
    loops.generate = Tokens(loops.generate)
    runs = module(".pytest_runs.test_run")
    tests = Tests(runs.run_tests)
    for name in (".testing.test_command", ".testing.watch_command", ".report.report_command"):
        module(name).run_tests = tests
    module(".testing.watch_command")._Watch._happenings = lambda watch: iter("lhrq")
    module(".generation.chat")._read_line = itertools.cycle(SAID).__next__
    ladder = json.loads((root / "benches/results/ladder.json").read_text(encoding="utf-8"))
    module(".bench.run").measure = lambda *arguments: measured(ladder)
    module(".bench.run").compile_for = lambda *arguments: None
    module(".bench.roofline").measure_speeds = speeds(ladder)
    arithmetic = importlib.import_module("tiny_llm_native.matmul.arithmetic")
    few, more = {"float32": 3e10, "int8": 4e10}, {"float32": 3e11, "int8": 7e11}
    found = arithmetic.Speeds(2, few, more, more, {"bfloat16": "no"})
    module(".bench.roofline").measure_arithmetic = lambda: found
    arithmetic.remembered = lambda: found  # what another process measures would change doctor's screens
    module(".serve.serving_end").Ending.serve = ends_at_once
    module(".grading.grade_commands").grade_all = graded
    tried_machine(module(".setup.doctor_report"), module(".setup.machine_trial"))
    for name in (".setup.doctor", ".setup.machine_trial", ".native.mlx_extension"):
        module(name).subprocess = Programs()
    module(".setup.doctor").build_checked = Once(module(".setup.doctor").build_checked)
    module(".grading.export")._commit = lambda folder: None
    module(".viz.output").Output.picture = lambda output, name, draw: output.file(name, b"")


def measured(ladder: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what bench finds on a busy machine, so that marks and notes are shown, too."""
    yield "threads", ladder["threads"]
    yield "limits_doubt", "busy"
    yield "limits", ladder["limits"]
    for name in ("kernels", "model"):
        for row in ladder[name]:
            yield name, row | {"doubt": "busy"}


def tried_machine(command: Any, trial: Any) -> None:
    """Report what doctor --report finds on a machine where a kernel is wrong and the tests pass."""
    from tiny_llm_course.pytest_runs.test_run import PytestRun, Result
    from tiny_llm_course.tasks.syllabus import TaskId

    def take_lines(words: list[str], environment: Any, take: Any) -> str:
        for found in (2, *({"part": "idioms", "name": name, "right": name == "a"} for name in "ab")):
            take(json.dumps(found))
        return ""

    command.RECORD = Path(__file__)
    trial._take_lines = take_lines
    trial.ensure_extension = lambda *arguments: None
    trial.run_tests = lambda *arguments, **options: PytestRun(
        results=[Result(f"test_{number}", TaskId(2, 2, 5), "passed") for number in range(3)]
    )


class Once:
    """A function that has an effect, which runs only at the first call."""

    def __init__(self, function: Any):
        self._function: Any = function

    def __call__(self, *arguments: Any) -> None:
        if self._function:
            self._function(*arguments)
        self._function = None


class Tokens:
    """A source of tokens that are computed once per prompt: all calls have the same settings."""

    def __init__(self, generate: Any):
        self._generate, self._known = generate, {}

    def __call__(self, model: Any, prompt: Any, sampler: Any, max_tokens: int, *others: Any) -> Iterator[int]:
        key = (*prompt, max_tokens)
        if key not in self._known:
            self._known[key] = list(self._generate(model, prompt, sampler, max_tokens, *others))
        yield from self._known[key]


class Tests:
    """A run of tests that happens once. Later runs with the same arguments end as the first run did."""

    def __init__(self, run: Any):
        self._run, self._known = run, {}

    def __call__(self, days: Any, package: str, arguments: Any = (), update: Any = None, **options: Any) -> Any:
        key = (*(day.test_file for day in days), package, *arguments)
        if key not in self._known:
            self._known[key] = self._run(days, package, arguments, **options)
        if update:
            update(self._known[key])
        return self._known[key]


def execute(program: str, words: list[str]) -> None:
    """Stand in for os.execv. Readline has put the terminal's width into the environment that programs inherit, but
    Python does not see this, and the width has changed since."""
    subprocess.run([program, *words[1:]], env=dict(os.environ))


class Programs:
    """A stand-in for the module subprocess. Programs that only answer questions run once."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)

    def run(self, words: list[str], **options: Any) -> Any:
        key = f"{words} {options}"
        if key not in self._known:
            self._known[key] = subprocess.run(words, **options)
        return self._known[key]


def speeds(ladder: dict[str, Any]) -> Any:
    def measure(progress: Any = lambda what: None) -> Any:
        progress("multiplying float32")
        return importlib.import_module("tiny_llm_native.roofline").Speeds(
            **ladder["limits"], int8=9e11, threads=ladder["threads"]
        )

    return measure


async def ends_at_once(ending: Any, listener: Any) -> None:
    """Stop a server at the point where it would wait for requests."""
    listener.close()


def graded(submissions: Any, days: Any, hidden: Any, limits: Any, jobs: int, on_grade: Any) -> Any:
    """Return grades for all tasks of a course, as a submission might get them."""
    from tiny_llm_course.grading.grades import FAILED, SOLVED, UNSOLVED, Grade, TaskGrade

    outcomes = [SOLVED, SOLVED, FAILED, UNSOLVED]
    tasks = [task.id for day in days for task in day.tasks]
    grades = [
        Grade(submission.name, tuple(TaskGrade(task, 1, 2, outcomes[i % 4]) for i, task in enumerate(tasks)), problem)
        for submission, problem in zip(submissions, ("", "the tests did not end within 300 seconds"), strict=False)
    ]
    for grade in grades:
        on_grade(grade)
    return grades


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text(encoding="utf-8")))
