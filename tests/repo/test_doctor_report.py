"""`tiny-llm doctor --report`: the file grows with each result, and stays whole whatever a kernel or a test does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from learner import ROOT
from typer.testing import CliRunner

from tiny_llm_course.commands import app
from tiny_llm_course.pytest_runs.test_run import PytestRun, Result, pytest_command
from tiny_llm_course.setup import doctor, doctor_report, machine_trial
from tiny_llm_course.setup.machine_report import FORMAT, MachineReport, has_failed, speed_of
from tiny_llm_course.setup.machine_trial import Trial, expression_of, metal_tasks
from tiny_llm_course.tasks.syllabus import TaskId, day_of
from tiny_llm_course.ui import Messages

GPU = {"device_name": "Apple M9"}
ABOUT = {"machine": "Apple M9, 8 processors", "system": "macOS 15.5, arm64", "course": "0.1.0", "gpu": None}
SAXPY, GELU = ({"part": "idioms", "name": name, "accepted": True, "right": True} for name in ("saxpy", "gelu"))
DOUBLE = {"part": "refused", "name": "double", "accepted": False, "said": "no double"}
SOFTMAX = TaskId(2, 2, 5)
PASSED = [Result(f"test_task_5_{name}", SOFTMAX, "passed") for name in ("a", "b", "c")]


device = pytest.fixture(lambda: None)  # what computes here is replaced


@pytest.fixture(autouse=True)
def replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace doctor's own checks and the tests with quick ones that pass."""
    names = ("python", "system", "packages", "mlx", "compiler", "build_tools", "mlx_extension")
    checks = [doctor.Check(name, "ok", str(Path.home())) for name in names]
    checks[1] = doctor.Check("system", "ok", "Linux")
    checks[2:] = [doctor.Check(check.name, "ok", "1.0") for check in checks[2:]]
    monkeypatch.setattr(doctor, "_checks", lambda words: iter(checks))
    monkeypatch.setattr(doctor, "_days", lambda works, kernels: {})
    monkeypatch.setattr(machine_trial, "ensure_extension", lambda *arguments: None)
    replace_tests(monkeypatch, PytestRun(results=PASSED))


def program(folder: Path, *found: dict[str, Any], ending: str = "") -> list[str]:
    """Return a program that prints the same output as the kernels' own program, and ends in a given way."""
    lines = "\n".join([str(len(found)), *map(json.dumps, found)])
    (folder / "record.py").write_text(f"import os, sys\nprint({lines!r}, flush=True)\n{ending}\n")
    return [sys.executable, str(folder / "record.py")]


def replace_tests(monkeypatch: pytest.MonkeyPatch, run: PytestRun) -> None:
    monkeypatch.setattr(machine_trial, "run_tests", lambda *arguments, **options: run)


def report(folder: Path, **about: Any) -> MachineReport:
    return MachineReport(folder / "machine.json", {**ABOUT, "versions": {"mlx": "0.32.4"}, **about})


def written(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "machine.json").read_text(encoding="utf-8"))
    return found


def try_out(folder: Path, monkeypatch: pytest.MonkeyPatch, *found: dict[str, Any], ending: str = "") -> dict[str, Any]:
    program(folder, *found, ending=ending)
    monkeypatch.setattr(machine_trial, "RECORD", folder / "record.py")
    made = report(folder)
    Trial(made, "tiny_llm_ref", Messages("en")).run()
    assert written(folder) == made.found
    return made.found


def test_everything_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = try_out(tmp_path, monkeypatch, SAXPY, GELU, DOUBLE)
    assert found["format"] == FORMAT
    assert found["head"] == [
        "Apple M9, 8 processors; macOS 15.5, arm64; mlx 0.32.4; course 0.1.0",
        "GPU with Metal: none. Metal kernels ran in an emulator.",
        "Metal idioms: 2 of 2 compute what NumPy computes",
        "Metal kernels that do not follow the language: 1 of 1 refused by the compiler",
        "Tests of Metal kernels: 3 of 3 passed",
        "Speeds were not measured: there is no GPU with Metal",
    ]
    assert found["kernels"]["ran_on"] == found["tests"]["ran_on"] == "CPU, in the emulator metal_host"
    assert found["kernels"]["results"]["refused"] == {"double": {"accepted": False, "said": "no double"}}
    assert found["tests"]["results"] == {"w2d2.5": {f"test_task_5_{name}": "passed" for name in "abc"}}
    assert not has_failed(found)
    shown = capsys.readouterr().out
    assert "✔ Small Metal kernels compared with NumPy, on the CPU, in an emulator: 2 of 2 pass\n" in shown
    assert "✔ Week 2's tests of Metal kernels, on the CPU, in an emulator: 3 of 3 pass\n" in shown
    assert "– Speeds on the GPU: not measured" in shown


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ("raise MemoryError('no more')", "MemoryError: no more"),
        ("os.kill(os.getpid(), 11)", "the program ended with exit code -11"),
    ],
)
def test_a_kernel_that_ends_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, reason: str) -> None:
    """The results so far are kept, and the other parts still run."""
    found = try_out(tmp_path, monkeypatch, SAXPY, ending=ending)
    assert found["kernels"]["results"]["idioms"].keys() == {"saxpy"}
    assert reason in found["kernels"]["problem"]
    assert "Metal idioms: 1 of 1 compute what NumPy computes; ended early: " in found["head"][2]
    assert found["tests"]["is_complete"]
    assert has_failed(found)


@pytest.mark.parametrize(
    "change",
    [
        {"results": [*PASSED, Result("test_d", SOFTMAX, "failed", message="expected 1, got 2")]},
        {"results": PASSED, "problem": "pytest ended with exit code 3"},
        {"results": []},
    ],
    ids=["fails", "ends early", "none"],
)
def test_tests_that_do_not_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]) -> None:
    replace_tests(monkeypatch, PytestRun(**change))
    found = try_out(tmp_path, monkeypatch, SAXPY)
    assert has_failed(found)
    failed = [result for result in change["results"] if result.outcome == "failed"]
    assert found["tests"]["failures"] == {result.test: result.message for result in failed}
    assert found["tests"].get("problem", "") == change.get("problem", "" if change["results"] else "no test was run")


def test_a_wrong_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = try_out(tmp_path, monkeypatch, SAXPY, GELU | {"right": False, "error": 0.5})
    assert found["head"][2] == "Metal idioms: 1 of 2 compute what NumPy computes"
    assert has_failed(found)


def interrupt(*arguments: Any, **options: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("name", "place", "kept"),
    [("_progress", Trial, {"saxpy"}), ("run_tests", machine_trial, {"saxpy", "gelu"})],
    ids=["kernels", "tests"],
)
def test_an_interruption_keeps_what_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, place: Any, kept: set[str]
) -> None:
    program(tmp_path, SAXPY, GELU)
    monkeypatch.setattr(doctor_report, "RECORD", tmp_path / "record.py")
    monkeypatch.setattr(machine_trial, "RECORD", tmp_path / "record.py")
    monkeypatch.setattr(place, name, interrupt)
    run = CliRunner().invoke(app, ["doctor", "--report", str(tmp_path / "machine.json"), "--lang", "en"])
    assert run.exit_code == 130
    assert f"Stopped. The results so far are in {tmp_path}/machine.json.\n" in run.stderr
    found = written(tmp_path)
    assert found["kernels"]["results"]["idioms"].keys() == kept
    assert found["head"][-1] == "The report is not complete."
    assert has_failed(found)


def test_speeds_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a Mac, MLX itself runs kernels, the tests run on the GPU only, and `bench` gives figures."""
    chosen, environments = [], []

    def run_tests(days: Any, package: str, arguments: list[str], *others: Any, **options: Any) -> PytestRun:
        chosen.extend(arguments)
        return PytestRun(results=PASSED)

    def bench(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        file = Path(command[command.index("--save") + 1])
        file.write_text(json.dumps({"is_complete": True, "model": [{"stage": "w2d7", "decode": 81.6}]}))
        return subprocess.CompletedProcess(command, 0)

    def take_lines(command: list[str], environment: dict[str, str], take: Callable[[str], None]) -> str:
        environments.append(environment["METAL_HOST"])
        take(json.dumps(SAXPY))
        return ""

    monkeypatch.setattr(machine_trial, "run_tests", run_tests)
    monkeypatch.setattr(machine_trial.subprocess, "run", bench)
    monkeypatch.setattr(machine_trial, "_take_lines", take_lines)
    made = report(tmp_path, gpu=GPU)
    Trial(made, "tiny_llm_ref", Messages("en")).run()
    assert environments == ["off"]
    assert chosen[1].endswith(" and gpu")
    assert speed_of(made.found["bench"]) == 81.6
    assert made.found["head"][1] == "GPU with Metal: Apple M9"
    assert made.found["head"][-1] == "Decoding on the GPU: 82 tokens/s"
    assert not has_failed(made.found)


def test_bench_that_stops_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bench(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        file = Path(command[command.index("--save") + 1])
        file.write_text(json.dumps({"is_complete": False, "kernels": [{"kernel": "rope", "seconds": 1e-5}]}))
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(machine_trial.subprocess, "run", bench)
    monkeypatch.setattr(machine_trial, "_take_lines", lambda command, environment, take: take(json.dumps(SAXPY)) or "")
    made = report(tmp_path, gpu=GPU)
    Trial(made, "tiny_llm_ref", Messages("en")).run()
    assert made.found["bench"]["kernels"] == [{"kernel": "rope", "seconds": 1e-5}]
    assert made.found["head"][-1] == "Decoding on the GPU: not measured; ended early: bench ended with exit code 1"
    assert has_failed(made.found)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, SAXPY, DOUBLE)
    for module in (doctor_report, machine_trial):
        monkeypatch.setattr(module, "RECORD", tmp_path / "record.py")
    file = tmp_path / "machine.json"
    run = CliRunner().invoke(app, ["doctor", "--report", str(file), "--lang", "ja"])
    assert run.exit_code == 0, run.output
    assert run.stdout.endswith(f"\n{file} に書き出しました。このファイルを教材の issue に添付してください。\n")
    found = written(tmp_path)
    assert found["doctor"][0] == {"name": "system", "state": "ok", "found": "Linux", "fix": ""}
    assert found["versions"].keys() >= {"python", "mlx", "numpy"}
    assert str(Path.home()) not in file.read_text(encoding="utf-8")
    replace_tests(monkeypatch, PytestRun(results=[Result("test_d", SOFTMAX, "failed")]))
    assert CliRunner().invoke(app, ["doctor", "--report", str(file)]).exit_code == 1


def test_where_there_is_no_reference(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor_report, "RECORD", tmp_path / "record.py")
    run = CliRunner().invoke(app, ["doctor", "--report"])
    assert run.exit_code == 2
    assert "tests the reference, which this copy of the course does not have" in run.stderr


def test_a_file_is_named_after_the_machine() -> None:
    assert doctor_report._slug("Apple M4 Pro, 12 processors, Darwin arm64") == "apple-m4-pro"
    assert doctor_report._slug("") == "unknown"


def test_each_metal_task_of_week_2_has_tests_and_nothing_else_runs() -> None:
    tasks = metal_tasks("tiny_llm_ref")
    assert " ".join(map(str, tasks)) == "w2d2.5 w2d4.4 w2d5.4 w2d5.5 w2d5.6 w2d6.3 w2d7.4 w2d7.5"
    files = [ROOT / "tests" / file for file in dict.fromkeys(day_of(task).test_file for task in tasks)]
    command = pytest_command(files, "tiny_llm_ref", ["-k", expression_of(tasks, is_on_gpu=False), "--collect-only"])
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    names = [line for line in run.stdout.splitlines() if "::" in line]
    prefixes = {f"tests/test_week_2_day_{task.day}.py::test_task_{task.task}_" for task in tasks}
    assert len(names) > 100
    assert {prefix for prefix in prefixes if any(name.startswith(prefix) for name in names)} == prefixes
    assert [name for name in names if not name.startswith(tuple(prefixes))] == []
