"""Messages while kernels are compiled, the time that compiling took, and the kernels compiled before a command runs."""

import os
import re
import signal
import subprocess
import sys

import pytest
from building import as_built, built, stopped_compiler
from learner import Terminal
from typer.testing import CliRunner
from waiting import until

from tiny_llm_course.__main__ import app
from tiny_llm_course.model import loaded_model
from tiny_llm_course.model.loaded_model import LoadedModel, Wanted
from tiny_llm_course.native import compiling
from tiny_llm_course.native.child import running
from tiny_llm_course.native.compiling import Compiled, compile_files, compile_for
from tiny_llm_course.serve.serving import Options, Serving
from tiny_llm_course.setup import build_command
from tiny_llm_course.ui.language import Messages
from tiny_llm_native import extension


@pytest.fixture
def clone(tmp_path_factory):
    """Return a clone in which softmax and SwiGLU are written, but not compiled."""
    with as_built(tmp_path_factory) as clone:
        for name, *tasks in (("softmax", "w2d2.2", "w2d2.3", "w2d2.4"), ("swiglu", "w2d5.3")):
            clone.file(f"kernels/{name}.cpp").write_text(clone.solved(f"kernels/{name}.cpp", *tasks))
        yield clone


device = pytest.fixture(lambda: None)  # engines choose their own


def test_each_kernel_is_said_and_what_is_compiled_is_not(clone, capfd):
    files = [clone.file("kernels/softmax.cpp"), clone.file("kernels/swiglu.cpp")]
    compiled = compile_files(files, Messages("en"))
    assert (sorted(compiled.names), compiled.problems) == (list(map(str, files)), {})
    first, *lines = capfd.readouterr().err.splitlines()
    assert first in ("kernels to compile (2): softmax, swiglu", "kernels to compile (2): swiglu, softmax")
    assert sorted(re.fullmatch(r"compiled (\w+) in [\d.]+ s \(\d of 2\)", line)[1] for line in lines) == [
        "softmax",
        "swiglu",
    ]
    assert compile_files(files, Messages("en")).names == []
    assert capfd.readouterr().err == ""


def test_in_a_terminal_one_line_says_how_far_it_is(clone):
    terminal = clone.terminal("build-ext")
    terminal.wait_for("compiling kernels, 0 of 2 done, 0 s so far: s")
    assert terminal.exit_code(120) == 0
    assert "kernels to compile" not in terminal.screen
    assert "compiled: softmax, swiglu\n" in terminal.screen
    assert re.search(r"^Compiling the kernels took \d+ s\.$", terminal.screen, re.MULTILINE)


def test_in_a_terminal_the_steps_of_the_mlx_extension_are_counted(tmp_path):
    steps = (
        "print('-- Detecting'); print('[2/14] Building mlx_extension.o'); print('[14/14] Linking'); raise SystemExit(3)"
    )
    code = f"""
import sys, time
from tiny_llm_course.native import mlx_extension
from tiny_llm_course.setup import build_command
from tiny_llm_course.ui.language import Messages
output = []
code = mlx_extension._run([sys.executable, "-c", {steps!r}], output, time.monotonic(), Messages("en"))
print(code, output)
"""
    terminal = Terminal([sys.executable, "-c", code], tmp_path, dict(os.environ))
    screen = terminal.wait_for("Linking']")
    shown = re.findall(r"MLX extension: [^(]+", screen)
    assert list(dict.fromkeys(shown)) == [
        "MLX extension: CMake checks the compiler ",
        "MLX extension: step 2 of 14 ",
        "MLX extension: step 14 of 14 ",
    ]
    assert "3 ['-- Detecting', '[2/14] Building mlx_extension.o', '[14/14] Linking']" in screen


def test_the_time_of_a_build_is_that_of_all_of_it(monkeypatch):
    """The MLX extension takes 54 seconds, and the whole build 128 seconds."""
    compiled = Compiled(Messages("en"))
    compiled.names, compiled.seconds = ["softmax.cpp"], 73.6
    clock = iter([1000.0, 1054.0, 1128.0])
    monkeypatch.setattr(build_command, "monotonic", clock.__next__)
    monkeypatch.setattr(build_command, "compile_files", lambda *arguments: compiled)
    monkeypatch.setattr(build_command.mlx_extension, "is_current", lambda native: False)
    monkeypatch.setattr(build_command.mlx_extension, "build", lambda native, say, tell: None)
    monkeypatch.setattr(build_command, "_versions", lambda native: {"mlx": "1", "nanobind": "2", "python": "3"})
    run = CliRunner().invoke(app, ["build-ext", "--impl", "ref", "--lang", "en"])
    assert run.exit_code == 0, run.output
    assert run.stdout.startswith("Built in 54 s with nanobind 2")
    assert run.stdout.endswith("Compiling the kernels took 74 s; extension and kernels together took 128 s.\n")


def test_what_does_not_compile_is_counted_too(clone, capfd):
    clone.file("kernels/softmax.cpp").write_text("no kernel\n")
    files = [clone.file("kernels/softmax.cpp"), clone.file("kernels/swiglu.cpp")]
    compiled = compile_files(files, Messages("ja"))
    assert list(compiled.problems) == [str(files[0])]
    assert "softmax はコンパイルできませんでした（2 個中 " in capfd.readouterr().err


@pytest.mark.parametrize(
    "lines",
    [
        ["exec sleep 60"],
        # between fork and exec, a process loses a signal
        ["trap 'lost=x$lost; [ $lost = xxx ] && exit 1' INT", "while :; do sleep 0.1; done"],
    ],
    ids=["ends at once", "loses two signals"],
)
def test_ctrl_c_leaves_no_compiler_behind(clone, tmp_path, lines):
    """An editor sends the signal to the command alone."""
    slow = stopped_compiler(tmp_path, f": > {tmp_path}/$$.begun", *lines)
    process = subprocess.Popen(
        [sys.executable, "-m", "tiny_llm_course", "build-ext"],
        cwd=clone.root,
        env=clone.environment | {"CXX": slow},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: any(tmp_path.glob("*.begun")) or process.poll() is not None)
    assert process.poll() is None, process.stderr.read()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=600) == 130
    assert process.stderr.read().endswith("\ninterrupted\n")
    until(lambda: not any(is_running(int(file.stem)) for file in tmp_path.glob("*.begun")))
    assert [name for name in os.listdir(built(clone, "tiny_llm")) if name.startswith(".")] == []


def is_running(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_process_that_does_not_mind_is_ended(monkeypatch):
    monkeypatch.setattr("tiny_llm_course.native.child.GRACE", 0.1)
    code = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('begun', flush=True)\nsignal.pause()"
    with running([sys.executable, "-c", code]) as child:
        assert next(line for line in child.lines() if line) == "begun"
    assert child.returncode == -signal.SIGKILL


def test_a_second_without_a_line_is_told(monkeypatch):
    monkeypatch.setattr("tiny_llm_course.native.child.TICK", 0.01)
    with running([sys.executable, "-c", "import signal; signal.pause()"]) as child:
        assert next(child.lines()) is None


# -------------------------------------------------------------------------------------------- before a command runs


@pytest.fixture
def asked(monkeypatch):
    """Return the kernels that are to be compiled for a package."""
    names = []
    monkeypatch.setattr(loaded_model, "compile_for", lambda package, kernels, words: names.extend(kernels))
    return names


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, []),
        ({"layers": "tuned", "bits": 4}, ["packed", "block", "attention"]),
        ({"layers": "tuned"}, ["unquantised", "attention"]),
        (
            {"layers": "kernels", "bits": 4},
            ["quantized_matvec", "rms_norm", "rope", "swiglu", "quantized_matmul", "attention"],
        ),
    ],
    ids=["plain", "tuned", "unquantised", "kernels"],
)
def test_kernels_of_layers(asked, options, names):
    LoadedModel(Wanted("tiny_llm_ref", "story", **options))
    assert asked == names


@pytest.mark.parametrize(("cache", "names"), [("slots", ["argmax"]), ("kernel-pages", ["argmax", "paged_attention"])])
def test_kernels_of_requests(asked, cache, names):
    Serving(Options(Wanted("tiny_llm_ref", "story"), cache=cache), Messages("en"))
    assert asked == names


@pytest.mark.parametrize("missing", ["mode", "mlx_extension"])
def test_kernels_that_would_not_run_are_not_compiled(monkeypatch, missing):
    monkeypatch.setattr(extension, missing, {"mode": lambda: "off", "mlx_extension": lambda: None}[missing])
    monkeypatch.setattr(compiling, "compile_files", lambda *arguments: pytest.fail("it was compiled"))
    compile_for("tiny_llm_ref", ["swiglu"], Messages("en"))


def test_how_long_it_took_is_said_once(clone):
    """`bench` is the first command that needs the learner's softmax."""
    bench = ("bench", "--smoke", "--only", "softmax", "--lang", "en")
    first, second = clone.run(*bench, TINY_LLM_KERNELS=""), clone.run(*bench, TINY_LLM_KERNELS="")
    assert re.search(r"^compiled the kernels in \d+ s; the next run reuses them$", first.stderr, re.MULTILINE)
    assert "compile" not in second.stderr
