"""`tiny-llm bench`, run as a learner runs it, with the smallest possible work."""

import json
import re
import shlex
from itertools import count, repeat
from math import prod

import mlx.core as mx
import pytest
from busy import counters_of
from learner import Clone
from typer.testing import CliRunner

from tiny_llm_course.__main__ import app
from tiny_llm_course.base.machine import about
from tiny_llm_course.bench import measuring, quiet, run
from tiny_llm_course.bench.gpu import measure_gpu, table
from tiny_llm_course.bench.kernel_cases import CASES, Case, Rung
from tiny_llm_course.bench.limits import OVER, SLOWER, MachineLimits
from tiny_llm_course.bench.quiet import BUSY, Quiet
from tiny_llm_course.bench.run import NAMES
from tiny_llm_course.bench.tables import Tables, show_doubts
from tiny_llm_course.bench.timing import LEAST, shortest
from tiny_llm_course.ui.language import Messages
from tiny_llm_given.config import ModelConfig
from tiny_llm_given.weights import expected_shapes
from tiny_llm_models.untrained import QWEN3_0_6B
from tiny_llm_ref.costs import model_cost

SECONDS_OF = measuring.seconds_of


device = pytest.fixture(lambda: None)  # kernels choose their own


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """Return a clone with the MLX extension, in which softmax is written."""
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
    assert "You are on rung 7 of 7." in run.stdout
    assert all(row["seconds"] > 0 for row in found["kernels"])
    assert all(row["prefill"] > 0 and row["decode"] > 0 for row in found["model"])
    assert found["command"] == "tiny-llm bench --impl ref --smoke"
    assert found["is_complete"]
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
    assert "You are on rung 0 of 7. Next: week 1" in run.stdout


def test_progress_is_shown_on_stderr(clone):
    """The run leaves out the model, which takes longer than all kernels together."""
    terminal = clone.terminal("bench", "--smoke", "--no-model", "--lang", "ja", TINY_LLM_KERNELS="")
    assert terminal.wait_for(Messages("ja")("bench_status", what="softmax w2d2.2", number=1, count=8))
    assert terminal.exit_code() == 0
    assert "ランダムな重み" not in terminal.screen
    assert "未実装" in terminal.screen


@pytest.fixture
def given_limits(monkeypatch):
    """Use known limits, so that no test waits for their measurement."""
    rates = {"bandwidth": 1e18, "float32": 1e18, "bfloat16": 0.0, "threads": 2}
    speeds = type("Speeds", (), {"threads": 2, "_asdict": lambda self: rates})
    monkeypatch.setattr(measuring, "measure_speeds", lambda progress: speeds())


@pytest.fixture
def stopped(monkeypatch, tmp_path, given_limits):
    """Return the output and the saved results of a run that Ctrl-C stops before its fifth figure."""
    figures = count()

    def seconds_of(work, is_small):
        if next(figures) == 4:
            raise KeyboardInterrupt
        return 1e-3

    monkeypatch.setenv("TINY_LLM_KERNELS", "")
    monkeypatch.setattr(measuring, "seconds_of", seconds_of)
    save = tmp_path / "found.json"
    names = ["--only", "rope", "--only", "swiglu", "--only", "softmax"]
    run = CliRunner().invoke(app, ["bench", "--impl", "ref", "--smoke", *names, "--save", str(save), "--lang", "en"])
    assert run.exit_code == 130
    return run, json.loads(save.read_text())


def test_ctrl_c_keeps_what_was_measured(stopped):
    run, found = stopped
    measured = [("softmax", "fallback"), *(("softmax", f"w2d2.{task}") for task in (2, 3, 4))]
    assert [(row["kernel"], row["rung"]) for row in found["kernels"]] == measured
    assert found["is_complete"] is False
    assert found["limits"]["bandwidth"] > 0
    assert run.stdout.count(" 1,000.0 µs ") == 4
    assert "with only a part of the results (is_complete: false)" in run.stderr


def test_ctrl_c_says_how_to_go_on(stopped, monkeypatch, tmp_path):
    run, _ = stopped
    kept = r"Stopped. The figures measured so far \(4\) are kept. To measure the rest: .*?(bench .*)"
    said = re.search(kept, run.stderr)
    assert said, run.stderr
    command = said[1]
    assert command == "bench --impl ref --smoke --only rope --only swiglu"
    rest = tmp_path / "rest.json"
    monkeypatch.setattr(measuring, "seconds_of", SECONDS_OF)
    assert CliRunner().invoke(app, [*shlex.split(command), "--save", str(rest)]).exit_code == 0
    found = json.loads(rest.read_text())
    assert {row["kernel"] for row in found["kernels"]} == {"rope", "swiglu"}
    assert (found["is_complete"], found["model"]) == (True, [])


def test_each_figure_is_given_before_the_next_is_measured(monkeypatch, given_limits):
    measured = []
    monkeypatch.setattr(measuring, "seconds_of", lambda work, is_small: measured.append(work) or 1.0)
    monkeypatch.setenv("TINY_LLM_KERNELS", "")
    events = measuring.measure("tiny_llm_ref", True, ["softmax"], lambda *step: None, Quiet(2, lambda *said: None))
    counts = [len(measured) for name, _ in events if name == "kernels"]
    assert counts == [1, 2, 3, 4]


def test_only_what_there_is():
    run = CliRunner().invoke(app, ["bench", "--only", "softmaxx"])
    assert run.exit_code == 2
    assert f"--only: expected one of {', '.join(NAMES)}, got 'softmaxx'" in " ".join(run.stderr.split())


# ---------------------------------------------------------------------------------------------------- a busy machine

DENSE = Rung("w2d6.2", lambda: None, "float32")
PRODUCT = Case("quantized_matmul", "1 x 1", [DENSE], operations=100)


def limits_of(*rates):
    """Return limits whose measurement gives these rates of arithmetic, one after the other. No other program runs."""
    found = iter(rates)
    silent = Quiet(2, lambda *said: None, read=counters_of(repeat(0)).__next__)
    return MachineLimits(lambda: {"bandwidth": 1.0, "float32": next(found), "bfloat16": 0.0}, silent)


def test_a_share_is_of_the_best_limit_of_the_run():
    limits = limits_of(100.0, 90.0)
    limits.measure()
    limits.measure()
    assert limits.share(PRODUCT, DENSE, 2.0) == 0.5
    assert limits.doubt is None


def test_a_share_is_of_the_limit_of_the_number_type():
    limits = limits_of(100.0)
    limits.measure()
    limits.best["bfloat16"] = 400.0
    assert limits.share(PRODUCT, DENSE, 2.0) == 0.5
    assert limits.share(PRODUCT, Rung("tuned", min, "fastest"), 2.0) == 0.125


def test_a_gpu_has_only_the_limit_of_bfloat16():
    limits = limits_of(100.0)
    limits.best = {"bandwidth": 1.0, "bfloat16": 400.0}
    assert limits.share(PRODUCT, DENSE, 2.0) == 0.125
    row = {"prompt": 128, "prefill": 100.0, "decode": 20.0}
    assert measuring.ModelShares("tiny_llm_ref", limits).of("w2d7", row)["prefill_limit"] > 0


def test_a_limit_that_a_kernel_passes_is_measured_again():
    limits = limits_of(100.0, 250.0)
    limits.measure()
    assert limits.passed(PRODUCT, DENSE, 1.004) is None, "that is shown as 100 %"
    assert limits.passed(PRODUCT, DENSE, 0.5) is None
    assert limits.share(PRODUCT, DENSE, 0.5) == 0.8
    limits = limits_of(100.0, 150.0)
    limits.measure()
    assert limits.passed(PRODUCT, DENSE, 0.5) == OVER


def test_limits_that_fall_are_in_doubt():
    limits = limits_of(100.0, 70.0, 75.0, 79.0, 60.0, 81.0)
    limits.measure()
    limits.measure()
    assert limits.doubt == SLOWER
    limits.measure()
    assert limits.doubt is None
    assert limits.best["float32"] == 100.0


def test_shares_are_measured_near_their_limit(monkeypatch, given_limits):
    """`bench` measures the limits again before each kernel that it compares with a limit."""
    order = []
    speeds = measuring.measure_speeds
    monkeypatch.setattr(measuring, "measure_speeds", lambda *arguments: order.append("limits") or speeds(*arguments))
    monkeypatch.setattr(measuring, "seconds_of", lambda work, is_small: order.append("rung") or 1.0)
    monkeypatch.setattr(
        measuring, "cases", lambda *arguments: iter([PRODUCT, Case("rope", "1", [Rung("fallback", min)])])
    )
    silent = Quiet(2, lambda *said: None, read=counters_of(repeat(0)).__next__)
    events = measuring.measure("tiny_llm_ref", False, ["rope"], lambda *step: None, silent)
    rows = [row for name, row in events if name == "kernels"]
    assert order == ["limits", "limits", "rung", "rung"]
    assert [row["limit"] for row in rows] == [pytest.approx(1e-16), None]


def test_shares_of_a_model(monkeypatch):
    """Shares of 4-bit weights, which are read for one token, and of a prompt, for which bytes do not count."""
    limits = limits_of(1e12)
    limits.measure()
    limits.best["bandwidth"] = 20e9
    row = {"prompt": 128, "prefill": 100.0, "decode": 20.0}
    shares = measuring.ModelShares("tiny_llm_ref", limits)
    token, prompt = (model_cost(ModelConfig.from_hf(QWEN3_0_6B), L, S, 4.5 / 8) for L, S in ((1, 129), (128, 128)))
    assert shares.of("w2d7", row)["decode_limit"] == pytest.approx(20 * token.bytes / 20e9)
    assert shares.of("w2d1", row)["decode_limit"] == pytest.approx(20 * (token.bytes + weights() * 1.4375) / 20e9)
    assert shares.of("w2d7", row)["prefill_limit"] == pytest.approx(100 * prompt.operations / 1e12 / 128)
    limits.best["bfloat16"] = 4e12
    assert shares.of("w2d7", row)["prefill_limit"] == pytest.approx(100 * prompt.operations / 1e12 / 128)
    assert shares.of("tuned", row)["prefill_limit"] == pytest.approx(100 * prompt.operations / 4e12 / 128)
    monkeypatch.setattr("tiny_llm_ref.costs.model_cost", unwritten)
    assert shares.of("w2d7", row) == {"prefill_limit": None, "decode_limit": None}


def weights() -> int:
    """Return how many weights one token reads."""
    config = ModelConfig.from_hf(QWEN3_0_6B)
    return sum(prod(shape) for shape in expected_shapes(config).values() if len(shape) == 2)


def unwritten(*arguments, **named):
    raise NotImplementedError


@pytest.fixture
def busy(monkeypatch, given_limits):
    """Simulate another program that uses one and a half of two processors all the time."""
    monkeypatch.setattr(quiet, "processors", lambda: 2)
    monkeypatch.setattr(run, "number_of_threads", lambda: 2)
    monkeypatch.setattr(quiet, "counters", counters_of(repeat(1.5)).__next__)
    monkeypatch.setenv("TINY_LLM_KERNELS", "")


@pytest.mark.parametrize(
    ("language", "said"),
    [
        (
            "en",
            "? The machine was busy, so these figures are in doubt: other programs used up to 1.5 of its 2 processors",
        ),
        (
            "ja",
            "? マシンが混んでいたため、この数値は信頼できません。測り直しても、ほかのプログラムがプロセッサ 2 個",
        ),
    ],
)
def test_a_busy_machine_is_said(busy, language, said):
    run = CliRunner().invoke(app, ["bench", "--impl", "ref", "--smoke", "--only", "softmax", "--lang", language])
    assert run.exit_code == 0, run.output
    rows = [line for line in run.stdout.splitlines() if line.startswith("  ")]
    assert len(rows) >= 6
    assert [line for line in rows if not line.endswith(" ?")] == []
    assert said.replace(" ", "") in "".join(run.stdout.split())


def test_a_busy_machine_is_measured_again(busy, monkeypatch):
    measured = []
    monkeypatch.setattr(measuring, "seconds_of", lambda work, is_small: measured.append(work) or 1.0)
    told = []
    events = measuring.measure(
        "tiny_llm_ref", True, ["softmax"], lambda *step: None, Quiet(2, lambda *said: told.append(said), again=1)
    )
    rows = [row for name, row in events if name == "kernels"]
    assert [row["doubt"] for row in rows] == [BUSY] * 4
    assert len(measured) == 8
    assert told == [(BUSY, pytest.approx(1.5))] * 5, "once for the limits, and for each rung"


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("en", "More than 100 % of the limit. Either the limit was measured too low"),
        ("ja", "上限の 100 % を超えています。"),
    ],
)
def test_more_than_the_limit_has_a_mark_and_a_reason(capsys, language, said):
    words = Messages(language)
    row = {
        "kernel": "quantized_matmul",
        "sizes": "1 x 1",
        "rung": "fallback",
        "seconds": 1.0,
        "limit": 1.3,
        "doubt": OVER,
    }
    Tables(words).show("kernels", row)
    show_doubts([OVER], 0, words)
    shown = capsys.readouterr().out
    assert re.search(r"130 %.* \?\n", shown)
    assert said in shown


def test_without_an_mlx_extension(clone):
    built = clone.root / "src/tiny_llm_native/built"
    built.rename(built.with_name("gone"))
    try:
        run = clone.run("bench", "--smoke")
        assert run.returncode == 1
        assert run.stderr.splitlines() == ["error: the MLX extension is not built; to build it: ./course build-ext"]
    finally:
        built.with_name("gone").rename(built)


def test_bad_options(clone):
    run = clone.run("bench", "--impl", "theirs")
    assert (run.returncode, run.stderr.splitlines()[0]) == (2, "error: --impl: expected one of ref, mine, got 'theirs'")


def test_shortest():
    """A run is repeated, except if there is time for only one, and the shortest run counts."""
    runs = []
    assert 0 < shortest(lambda: runs.append(1), 1e-9) < 1
    assert len(runs) == 1
    shortest(lambda: runs.append(1), 1e-3)
    assert len(runs) > LEAST


def test_kernels_in_metal_without_a_gpu(monkeypatch, tmp_path):
    """The kernels run, but nothing is measured, and `bench` says both."""
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
    """The processor pretends to be a GPU: fallbacks, MLX's own operations, metal_host, models and mlx-lm are
    measured."""
    monkeypatch.setenv("TINY_LLM_KERNELS", "")
    monkeypatch.setattr(mx, "is_available", lambda device: True)
    monkeypatch.setattr(mx, "set_default_device", lambda device: None)
    monkeypatch.setattr(mx, "device_info", lambda: {"device_name": "A processor"})
    steps = []
    silent = Quiet(1, lambda *said: None, read=counters_of(repeat(0)).__next__)
    events = list(measure_gpu("tiny_llm_ref", True, NAMES, lambda *step: steps.append(step), silent))
    kernels, model = ([row for name, row in events if name == part] for part in ("kernels", "model"))
    assert all(row["seconds"] > 0 for row in kernels)
    assert [row["stage"] for row in model] == ["w2d1", "w2d3", "w2d7", "mlx-lm"]
    assert all(row["prefill"] > 0 and row["decode"] > 0 for row in model)
    assert len([what for _, what in steps if what]) == len(kernels) + len(model)
    shown = "\n".join(table(iter(events), about("a command", "mlx")))
    assert "MLX reads memory at" in shown
    assert re.search(r"\| quantized_matvec, .* \|  \| [\d,.]+ \| [\d,.]+ \| [\d,.]+ \| \d\.\d\d \|", shown)
    assert re.search(r"\| mlx-lm \|  \| [\d,.]+ \|  \| [\d,.]+ \|", shown)
    assert "Not measured" not in shown
    model[-1] |= {"prefill": None, "decode": None}
    model[0]["doubt"] = BUSY
    shown = "\n".join(table(iter(events), about("a command", "mlx")))
    assert "Not measured: mlx-lm, which is not installed" in shown
    assert "?: other programs kept the processor busy" in shown


def test_shares_of_a_gpus_limit():
    row = {"kernel": "rope", "sizes": "1 x 1", "seconds": 1e-6, "limit": None, "doubt": None}
    rungs = [{"rung": "fallback"}, {"rung": "mlx"}, {"rung": "w2d5.5", "limit": 0.42}]
    other = [{"rung": "fallback"}, {"rung": "w2d2.5", "limit": 1.3, "doubt": OVER}]
    events = [("device", "A processor"), ("limits", {"bandwidth": 1e9, "bfloat16": 1e12})]
    events += [("kernels", row | rung) for rung in rungs]
    events += [("kernels", row | rung | {"kernel": "softmax"}) for rung in other]
    shown = list(table(iter(events), about("a command", "mlx")))
    assert "| rope, 1 x 1 | 42% | 1.0 | 1.0 | 1.0 | 1.00 |" in shown
    assert "| softmax, 1 x 1 | over 100% ? | 1.0 ? |  | 1.0 |  |" in shown
    assert shown[-1].startswith("?: faster than the limit")


def test_a_device_that_is_none():
    run = CliRunner().invoke(app, ["bench", "--device", "tpu"])
    assert run.exit_code == 2
    assert "--device: expected one of cpu, gpu, got 'tpu'" in run.stderr
