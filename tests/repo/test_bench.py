"""`tiny-llm bench`, run as a learner runs it, and as small as it can be."""

import json
import re

import mlx.core as mx
import pytest
from learner import Clone
from typer.testing import CliRunner

from tiny_llm_course.__main__ import app
from tiny_llm_course.bench.gpu import measure_gpu, table
from tiny_llm_course.bench.kernels import CASES
from tiny_llm_course.bench.machine import about
from tiny_llm_course.bench.timing import LEAST, shortest


@pytest.fixture
def device() -> None:
    """Kernels choose their own."""


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """With the bridge, and softmax written."""
    clone = Clone.create(tmp_path_factory.mktemp("clone"))
    clone.file("kernels/softmax.cpp").write_text(clone.solved("kernels/softmax.cpp", "w2d2.2", "w2d2.3"))
    return clone


def test_reference(monkeypatch, tmp_path):
    monkeypatch.setenv("TINY_LLM_KERNELS", "")
    save = tmp_path / "found.json"
    run = CliRunner().invoke(app, ["bench", "--impl", "ref", "--smoke", "--save", str(save), "--lang", "en"])
    assert run.exit_code == 0, run.output
    found = json.loads(save.read_text())
    assert "not written yet" not in run.stdout
    assert "You stand on rung 7 of 7." in run.stdout
    assert all(row["seconds"] > 0 for row in found["kernels"])
    assert all(row["prefill"] > 0 and row["decode"] > 0 for row in found["model"])
    assert found["command"] == "tiny-llm bench --impl ref --smoke"
    assert {"mlx", "numpy", "python"} == set(found["versions"])
    assert {row["kernel"] for row in found["kernels"]} == {
        *("softmax", "rms_norm", "rope", "swiglu", "attention", "paged_attention"),
        *("quantized_matvec", "quantized_matmul"),
    }


def test_learner(clone):
    run = clone.run("bench", "--smoke", TINY_LLM_KERNELS="")
    assert run.returncode == 0, run.stderr
    softmax = run.stdout.partition("quantized_matvec")[0]
    assert re.search(r"w2d2.2 .* µs", softmax)
    assert re.search(r"w2d2.3 .* µs", softmax)
    assert re.search(r"w2d2.4 .* not written yet", softmax)
    assert re.search(r"w2d4.1 .* not written yet", run.stdout)
    assert re.search(r"tuned, given by the course .* µs", run.stdout)
    assert re.search(r"week 1: .* not written yet +not written yet", run.stdout)
    assert "You stand on rung 0 of 7. Next: week 1" in run.stdout


def test_parts(clone):
    run = clone.run("bench", "--smoke", "--no-model", "--lang", "ja")
    assert "ランダムな重み" not in run.stdout
    assert "未実装" in run.stdout


def test_progress_is_shown_on_stderr(clone):
    terminal = clone.terminal("bench", "--smoke", "--no-model", TINY_LLM_KERNELS="")
    assert terminal.wait_for("%")  # of a progress bar
    assert terminal.exit_code() == 0


def test_without_a_bridge(clone):
    built = clone.file("kernels/built")
    built.rename(built.with_name("gone"))
    try:
        run = clone.run("bench", "--smoke")
        assert run.returncode == 1
        assert run.stderr.splitlines() == [
            "error: the kernels' bridge to MLX is not built; to build it: ./course build-ext"
        ]
    finally:
        built.with_name("gone").rename(built)


def test_bad_options(clone):
    run = clone.run("bench", "--impl", "theirs")
    assert (run.returncode, run.stderr.splitlines()[0]) == (2, "error: --impl: expected one of ref, mine, got 'theirs'")


def test_shortest():
    """It is asked several times, once if that is all that there is time for, and the shortest run counts."""
    runs = []
    assert 0 < shortest(lambda: runs.append(1), 1e-9) < 1
    assert len(runs) == 1
    shortest(lambda: runs.append(1), 1e-3)
    assert len(runs) > LEAST


def test_kernels_in_metal_without_a_gpu(monkeypatch, tmp_path):
    """They run, nothing is measured, and both are said."""
    monkeypatch.setenv("TINY_LLM_KERNELS", "")
    save = tmp_path / "found.json"
    run = CliRunner().invoke(app, ["bench", "--impl", "ref", "--device", "gpu", "--save", str(save)])
    assert run.exit_code == 0, run.output
    found = json.loads(save.read_text())
    if found["device"]:
        pytest.skip("there is a GPU")
    assert run.stdout.startswith("`tiny-llm bench --impl ref --device gpu` on no GPU; ")
    assert sum("| runs |" in line for line in run.stdout.splitlines()) == len(CASES)
    assert "Not measured: there is no GPU that MLX can use." in run.stdout
    assert all(row["runs"] and row["seconds"] is None for row in found["kernels"])
    assert found["model"] == []


def test_kernels_in_metal_that_are_not_written(clone):
    run = clone.run("bench", "--device", "gpu", TINY_LLM_KERNELS="")
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("to be written") == len(CASES)


def test_what_a_gpu_would_show(monkeypatch):
    """On the processor, which is told to be a GPU: twins, MLX's own and metal_host are measured, models and mlx-lm."""
    monkeypatch.setenv("TINY_LLM_KERNELS", "")
    monkeypatch.setattr(mx, "is_available", lambda device: True)
    monkeypatch.setattr(mx, "set_default_device", lambda device: None)
    monkeypatch.setattr(mx, "device_info", lambda: {"device_name": "A processor"})
    steps = []
    found = measure_gpu("tiny_llm_ref", True, True, True, lambda *step: steps.append(step))
    assert all(row["seconds"] > 0 for row in found["kernels"])
    assert [row["stage"] for row in found["model"]] == ["w2d1", "w2d3", "w2d7", "mlx-lm"]
    assert all(row["prefill"] > 0 and row["decode"] > 0 for row in found["model"])
    assert len(steps) == len(found["kernels"]) + len(found["model"])
    shown = table(found, about("a command", "mlx"))
    assert "MLX reads memory at" in shown
    assert re.search(r"\| quantized_matvec, .* \| [\d,.]+ \| [\d,.]+ \| [\d,.]+ \| \d\.\d\d \| \d+% \|", shown)
    assert re.search(r"\| mlx-lm \| [\d,.]+ \| [\d,.]+ \|", shown)
    assert "Not measured" not in shown
    found["model"][-1] |= {"prefill": None, "decode": None}
    assert "Not measured: mlx-lm, which is not installed" in table(found, about("a command", "mlx"))


def test_a_device_that_is_none():
    run = CliRunner().invoke(app, ["bench", "--device", "tpu"])
    assert run.exit_code == 2
    assert "--device: expected one of cpu, gpu, got 'tpu'" in run.stderr
