"""The parts of `tiny-llm doctor --report`: small Metal kernels, the tests of Metal tasks, and `bench` on a GPU.

Each part runs in processes of its own, so a kernel that crashes Python stops only the rest of its part.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from ..base.places import ROOT, SRC
from ..native.kernel_files import ensure_extension
from ..pytest_runs.test_run import PytestRun, asked_time_limit, run_tests
from ..tasks.regions import regions
from ..tasks.syllabus import TaskId, day_of
from ..ui import Messages, StatusLine, show, signs
from .machine_report import Found, MachineReport, count_idioms, count_tests, speed_of

__all__ = ["RECORD", "Trial", "expression_of", "gpu_with_metal", "metal_tasks"]

RECORD = ROOT / "tests" / "metal_host" / "metal_record.py"
LAST = 2000  # characters from the end of a failed program's output
GPU = """
import json, mlx.core as mx
has_metal = mx.is_available(mx.gpu) and mx.metal.is_available()
print(json.dumps(mx.device_info() if has_metal else None))
"""
EMULATOR, METAL = "CPU, in the emulator metal_host", "GPU, with Metal"


def gpu_with_metal() -> Found | None:
    """Return MLX's description of the GPU. Return None if MLX has no GPU with Metal."""
    run = subprocess.run([sys.executable, "-c", GPU], capture_output=True, text=True)
    found: Found | None = json.loads(run.stdout) if run.returncode == 0 else None
    return found


def metal_tasks(package: str) -> list[TaskId]:
    """Return the tasks of week 2 that are written in Metal."""
    files = sorted((SRC / package / "kernels").glob("*.metal"))
    found = {task for file in files for task in regions(file.read_text(encoding="utf-8"), file.name)}
    return sorted(task for task in found if task.week == 2)


def expression_of(tasks: Sequence[TaskId], is_on_gpu: bool) -> str:
    """Return the expression for pytest's -k that chooses these tasks' tests. On a Mac, each test exists for the GPU and
    for the emulator. is_on_gpu: whether to choose only the tests for the GPU."""
    chosen = " or ".join(f"(test_week_{task.week}_day_{task.day} and test_task_{task.task}_)" for task in tasks)
    return f"({chosen}) and gpu" if is_on_gpu else chosen


class Trial:
    """A trial of a machine, which runs the parts of a report one after the other. If a part fails or is interrupted,
    its results so far stay in the report.

    package: the package whose kernels are tested.
    """

    def __init__(self, report: MachineReport, package: str, words: Messages):
        self._report, self._package, self._words = report, package, words
        self._has_metal = report.found["gpu"] is not None
        self._status = StatusLine()

    def run(self) -> None:
        for run_part in (self._try_kernels, self._try_tests, self._measure):
            try:
                run_part()
            finally:
                self._status.clear()
                self._report.write()
        self._report.finish()

    def _try_kernels(self) -> None:
        """Compile small kernels, run those that are not faulty on purpose, and record the results."""
        part = self._begin("kernels")
        environment = os.environ | {"METAL_HOST": "off" if self._has_metal else "check"}
        count = 0

        def take(line: str) -> None:
            nonlocal count
            found = json.loads(line)
            if isinstance(found, int):
                count = found
                return
            name = found.pop("name")
            part["results"].setdefault(found.pop("part"), {})[name] = found
            self._progress("machine_kernels", name, sum(map(len, part["results"].values())), count)

        problem = _take_lines([sys.executable, str(RECORD)], environment, take)
        self._end(part, problem)
        self._show("machine_kernels", *count_idioms(part), problem)

    def _try_tests(self) -> None:
        """Run the tests of week 2's tasks in Metal."""
        part, tasks = self._begin("tests"), metal_tasks(self._package)
        days = [day_of(task) for task in {task.day: task for task in tasks}.values()]
        ensure_extension(self._package, days, self._words)

        def note(run: PytestRun) -> None:
            for result in run.results:
                part["results"].setdefault(str(result.task), {})[result.test] = result.outcome
                if result.outcome == "failed":
                    part["failures"][result.test] = result.message[:LAST]
            name = str(run.results[-1].task) if run.results else ""
            self._progress("machine_tests", name, run.finished.total(), run.chosen.total())

        part["failures"] = {}
        arguments = ["-k", expression_of(tasks, self._has_metal)]
        run = run_tests(days, self._package, arguments, note, time_limit=asked_time_limit())
        note(run)
        if run.interrupted:
            raise KeyboardInterrupt
        counts = count_tests(part)
        self._end(part, run.problem or ("" if counts else "no test was run"))
        self._show("machine_tests", counts["passed"], counts.total(), run.problem)

    def _measure(self) -> None:
        """Measure kernels and a model on the GPU."""
        part = self._report.part("bench")
        if not self._has_metal:
            part |= {"left_out": "there is no GPU with Metal", "is_complete": True}
            show(f"  {signs().skipped} {self._words('machine_no_gpu')}", dim=True)
            return
        show(self._words("machine_bench"))
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "bench.json"
            words = ["bench", "--impl", "ref", "--device", "gpu", "--save", str(file), "--lang", self._words.language]
            try:
                code = subprocess.run([sys.executable, "-m", "tiny_llm_course", *words], cwd=ROOT).returncode
            finally:
                part |= json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        self._end(part, f"bench ended with exit code {code}" if code else "")
        speed = speed_of(part)
        text = self._words("machine_speed", speed=f"{speed:,.0f}" if speed else "?")
        show(f"  {signs().solved if speed else signs().failed} {text}")

    def _begin(self, name: str) -> Found:
        return self._report.part(name, ran_on=METAL if self._has_metal else EMULATOR, results={})

    def _progress(self, key: str, name: str, done: int, count: int) -> None:
        self._report.write()
        self._status.show(f"{self._words(key, where=self._where)}: {done} / {count}  {name}")

    def _end(self, part: Found, problem: str) -> None:
        part |= {"is_complete": not problem} | ({"problem": problem} if problem else {})

    def _show(self, key: str, passed: int, count: int, problem: str) -> None:
        self._status.clear()
        is_good = passed == count > 0 and not problem
        what = self._words(key, where=self._where)
        text = f"{what}: {self._words('machine_passed', passed=passed, count=count)}"
        show(f"  {signs().solved if is_good else signs().failed} {text}", fg="green" if is_good else "red")

    @property
    def _where(self) -> str:
        return self._words("machine_on_gpu" if self._has_metal else "machine_in_emulator")


def _take_lines(command: list[str], environment: dict[str, str], take: Callable[[str], None]) -> str:
    """Run a program, and call `take` with each line that it prints. Return the reason why the program failed, or "" if
    it succeeded."""
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT, env=environment
        ) as program,
    ):
        assert program.stdout is not None
        try:
            for line in program.stdout:
                take(line)
        except BaseException:
            program.kill()
            raise
        if program.wait() == 0:
            return ""
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip()[-LAST:]
        return said or f"the program ended with exit code {program.returncode}"
