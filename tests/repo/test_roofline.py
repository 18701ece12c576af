"""`tiny-llm roofline`: its messages while it measures, and on a machine that other programs keep busy."""

from __future__ import annotations

from itertools import repeat

import pytest
from busy import counters_of
from typer.testing import CliRunner

from tiny_llm_course.__main__ import app
from tiny_llm_course.bench import quiet, roofline
from tiny_llm_course.bench.quiet import AGAIN
from tiny_llm_native.matmul.arithmetic import Speeds as ArithmeticSpeeds
from tiny_llm_native.roofline import Speeds

ROOFLINE = ("roofline", "--impl", "ref")


device = pytest.fixture(lambda: None)  # the command chooses its own


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Return a function that runs the command. others: how many of two processors other programs use in each
    measurement."""

    def run_with(others, language="en"):
        speeds = iter([Speeds(1e9, 3e11, 0, 0, 2), Speeds(2e9, 1e11, 0, 4e11, 2), Speeds(1e9, 1e11, 0, 0, 2)])

        def measure_speeds(progress):
            progress("reading memory")
            progress("multiplying float32")
            return next(speeds)

        monkeypatch.setattr(quiet, "processors", lambda: 2)
        monkeypatch.setattr(quiet, "counters", counters_of(others).__next__)
        monkeypatch.setattr(roofline, "number_of_threads", lambda: 2)
        monkeypatch.setattr(roofline, "measure_speeds", measure_speeds)
        monkeypatch.setattr(roofline, "compile_for", lambda package, kernels, words: None)
        alike = {"float32": 9e10, "int8": 9e10}
        products = ArithmeticSpeeds(2, {"float32": 8e9, "int8": 16e9}, alike, alike)
        monkeypatch.setattr(roofline, "measure_arithmetic", lambda: products)
        done = CliRunner().invoke(app, [*ROOFLINE, "--out", str(tmp_path), "--lang", language])
        assert done.exit_code == 0, done.output
        return done

    return run_with


def test_progress_is_said_on_stderr(run):
    said = ["measuring: reading memory ...", "measuring: float32 arithmetic ..."]
    said += ["measuring which arithmetic mode is the fastest on this processor ..."]
    assert run([0]).stderr.splitlines() == said
    assert "計測中: メモリの読み出し ..." in run([0], "ja").stderr


def test_arithmetics_are_measured_and_compared(run):
    shown = run([0]).stdout
    assert "int8: 16.0 GB/s with 1 row, 90 GFLOP/s with 16 rows, 90 GFLOP/s with 64 rows" in shown
    assert "chosen: float32" in shown
    assert "chosen with --fast: int8 for up to 8 tokens at once, float32 for more" in shown


def test_a_moment_of_load_is_measured_again(run):
    """The better of both results counts."""
    done = run([1.5, 0.1])
    assert done.stderr.count("reading memory") == 2
    assert "busy: other programs use 1.5 of 2 processors; measuring again ..." in done.stderr
    assert "2.0 GB/s" in done.stdout
    assert "300 GFLOP/s" in done.stdout
    assert "400 GOP/s" in done.stdout
    assert "in doubt" not in done.stdout


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("en", "These figures are in doubt: other programs kept 1.5 of this machine's 2 processors busy"),
        ("ja", "この結果は信頼できません。測り直している間も、ほかのプログラムがこのマシンのプロセッサ 2 個のうち 1.5"),
    ],
)
def test_a_machine_that_stays_busy(run, language, said):
    done = run(repeat(1.5), language)
    assert done.stderr.count("...") == 2 * (1 + AGAIN) + AGAIN + 1
    assert said.replace(" ", "") in "".join(done.stdout.split())
