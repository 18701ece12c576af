"""The code that runs kernels: simultaneous compilers, threads, forks, exits, and messages when something is missing."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tiny_llm_native.compiler import CompileError, compile_kernels

ROOT = Path(__file__).resolve().parents[2]

START = """
import os, sys, threading, time
import numpy as np, mlx.core as mx
from tiny_llm_native import extension
from tiny_llm_ref.kernels import softmax
x = mx.array(np.random.RandomState(0).standard_normal((512, 333)).astype(np.float32))
expected = np.array(mx.softmax(x, axis=-1))
def works(*streams):
    with mx.stream(*streams or [mx.default_stream(mx.cpu)]):
        return np.allclose(np.array(softmax.softmax(x + 0)), expected, atol=1e-6)
assert works()
"""
FILE = (
    '#include "vector.h"\n\nKERNEL(double_it) {\n    for (int64_t i = 0; i < call.in[0].size(); i++)\n        BODY\n}\n'
)
TWICE = """
import mlx.core as mx
from pathlib import Path
from tiny_llm_native import extension
x = mx.arange(5.0)
run = extension.kernel(Path(extension.__file__).parent / "twice.cpp", "double_it")
BEFORE
print(run and run([x], [(x.shape, x.dtype)])[0].tolist())
"""
RIGHT = "call.out[0].as<float>()[i] = 2 * call.in[0].as<float>()[i];"


def python(code, **environment):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TINY_LLM")}
    path = {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=kept | path | environment, capture_output=True, text=True, timeout=600)


def prints(code, **environment):
    run = python(code, **environment)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


@pytest.fixture
def kernels(tmp_path):
    """Return a copy of the code that runs kernels, with an MLX extension, and without compiled kernels."""
    ignored = shutil.ignore_patterns("__pycache__", "[a-z]*-*.so", "*.txt")
    return shutil.copytree(ROOT / "src/tiny_llm_native", tmp_path / "tiny_llm_native", ignore=ignored)


def double(kernels, body, before="", after="", **environment):
    """Run a kernel with this body in a process of its own. before, after: further code of this process."""
    (kernels / "twice.cpp").write_text(FILE.replace("BODY", body))
    return python(TWICE.replace("BEFORE", before) + after, PYTHONPATH=str(kernels.parent), **environment)


def test_a_fork_after_use():
    code = "pid = os.fork()\nif pid == 0:\n    os._exit(0 if works(mx.new_stream(mx.cpu)) else 3)\n"
    assert prints(START + code + "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), works())") == "0 True"


def test_eight_threads_with_streams_of_their_own():
    code = "results = []\ndef work():\n    stream = mx.new_stream(mx.cpu)\n"
    code += "    results.extend(works(stream) for _ in range(50))\n"
    code += "all_ = [threading.Thread(target=work) for _ in range(8)]\n"
    code += "for thread in all_: thread.start()\nfor thread in all_: thread.join()\n"
    assert prints(START + code + "print(len(results), all(results))") == "400 True"


def test_exit_while_a_kernel_runs():
    code = "y = mx.random.normal((20000, 2000))\nfor _ in range(10):\n    y = softmax.softmax(y)\nmx.async_eval(y)\n"
    assert prints(START + code + "print('leaving')") == "leaving"


def test_numbers_of_threads():
    code = "for count in (1, 2, 3, 7, 1):\n    extension.set_threads(count)\n    print(works(), extension.threads())"
    assert prints(START + code) == "True 1\nTrue 2\nTrue 3\nTrue 7\nTrue 1"
    assert prints(START + "print(extension.threads())", TINY_LLM_THREADS="3") == "3"


@pytest.mark.parametrize("text", ["", "0", "-1", "257", "two", "1.5"])
def test_a_number_of_threads_that_is_none(text):
    run = python(START, TINY_LLM_THREADS=text)
    assert run.stderr.splitlines()[-1] == f"ValueError: TINY_LLM_THREADS: expected a number from 1 to 256, got {text!r}"


def test_other_processes_want_the_processors_too():
    """Two other processes run on each processor: a kernel gets a third of the time, and not a hundredth."""
    code = START + "extension.set_threads(os.cpu_count())\ncount, end = 0, time.monotonic() + 2\n"
    code += "while time.monotonic() < end:\n    mx.eval(softmax.softmax(x)); count += 1\nprint(count)"
    alone = int(prints(code))
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        assert int(prints(code)) > alone / 20
    finally:
        for process in busy:
            process.kill()
            process.wait()


def test_a_header_that_hides_one_of_the_course(tmp_path):
    """The compiler looks for headers next to the kernel first."""
    for name in ("own.h", "kernel.h"):
        (tmp_path / name).write_bytes((ROOT / "src/tiny_llm_native/kernel.h").read_bytes())
    source = tmp_path / "twice.cpp"
    source.write_text(FILE.replace("BODY", RIGHT).replace("vector.h", "own.h"))
    compile_kernels(source)
    (tmp_path / "own.h").write_text('#include "kernel.h"\n')
    with pytest.raises(
        CompileError, match=f"^{tmp_path.name}/kernel.h hides the course.s kernel.h in src/tiny_llm_native"
    ):
        compile_kernels(source)


def test_eight_processes_compile_the_same_file(kernels):
    (kernels / "twice.cpp").write_text(FILE.replace("BODY", RIGHT))
    environment = os.environ | {"PYTHONPATH": str(kernels.parent)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    runs = [
        subprocess.Popen([sys.executable, "-c", TWICE.replace("BEFORE", "")], env=environment, **pipes)
        for _ in range(8)
    ]
    assert [run.communicate()[0] for run in runs] == ["[0.0, 2.0, 4.0, 6.0, 8.0]\n"] * 8
    assert len(list((kernels / "built").glob("twice*"))) == 1
    assert [file.name for file in (kernels / "built").glob(".*")] == []


def test_an_edited_file_is_compiled_again_and_old_libraries_go(kernels):
    assert double(kernels, RIGHT).stdout == "[0.0, 2.0, 4.0, 6.0, 8.0]\n"
    (first,) = (kernels / "built").glob("twice-*.so")
    os.utime(first, (time.time() - 4000,) * 2)
    assert double(kernels, RIGHT.replace("2 *", "3 *")).stdout == "[0.0, 3.0, 6.0, 9.0, 12.0]\n"
    assert not first.exists()


def test_what_does_not_compile_is_said_in_a_line_each(kernels):
    run = double(kernels, RIGHT.replace("2 *", "two *").replace(";", ""))
    said = run.stderr[run.stderr.index("CompileError: ") :]
    assert "twice.cpp:5: 'two' was not declared in this scope" in said
    assert f"\n    {RIGHT[:20]}" in said
    assert len(said.splitlines()) <= 7


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("call.out[0].as<float>()[i + 1] = 0;", "double_it wrote outside of output 0: bytes 0 to 3 after its end"),
        ("call.out[0].as<float>()[i - 2] = 0;", "double_it wrote outside of output 0: bytes"),
        ("call.in[0].as<float>()[i] = 1;", "double_it wrote to input 0"),
    ],
)
def test_a_watched_kernel_writes_where_it_may_not(kernels, body, said):
    run = double(kernels, body, TINY_LLM_KERNELS="watched")
    assert f"KernelError: {said}" in run.stderr
    assert "nan" in double(kernels, RIGHT.replace("[i];", "[i + 5];"), TINY_LLM_KERNELS="watched").stdout


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (RIGHT, "[0.0, 2.0, 4.0, 6.0, 8.0]"),
        (
            f"if (call.in[0].as<volatile float>()[i + 1] != -1) {RIGHT}",
            "KernelError: double_it read past the end of input 0",
        ),
        ("*(volatile int*)8 = 0;", "Segmentation"),
    ],
)
def test_guarded_inputs_end_before_memory_that_is_barred(kernels, body, said):
    """The result may not depend on the memory read there. Any other fault ends the program as usual."""
    watched = {"TINY_LLM_KERNELS": "watched", "PYTHONFAULTHANDLER": "1"}
    run = double(kernels, body, before="extension.guard_inputs(True)", **watched)
    assert said in run.stdout + run.stderr


def test_only_tests_load_the_build_that_watches():
    """The build that programs load can neither inject races nor guard memory."""
    code = """
from tiny_llm_native import extension
names = set(vars(extension.mlx_extension()))
print(*sorted(names & {"set_race_injection", "guard_inputs", "take_violation"}), flush=True)
extension.set_race_injection(True)
"""
    assert prints(code, TINY_LLM_KERNELS="watched") == "guard_inputs set_race_injection take_violation"
    run = python(code)
    assert run.stdout == "\n"
    assert run.stderr.endswith("KernelError: this is for tests, which watch kernels: TINY_LLM_KERNELS=watched\n")
    [file] = (ROOT / "src/tiny_llm_native/built").glob("_mlx_extension.*")
    assert not [name for name in (b"mprotect", b"sigaction") if name in file.read_bytes()]


NAMED = """
#include "kernel.h"

using namespace tiny_llm;

struct Arguments {
    In<float, 1> x;
    In<int32_t> places;
    Out<float> out;
    double factor;
    bool negative;
    Threads threads;
};

KERNEL(scale, Arguments) {
    const double factor = call.negative ? -call.factor : call.factor;
    for (int64_t i = 0; i < call.places.size(); i++)
        call.out.as<float>()[i] = call.x.as<float>()[call.places.as<int32_t>()[i]] * factor;
}
"""
NAMED_CODE = """
import mlx.core as mx
from pathlib import Path
from tiny_llm_native import extension
run = extension.kernel(Path(extension.__file__).with_name("named.cpp"), "scale")
x, places = mx.arange(5.0), mx.array([3, 1], mx.int32)
try:
    print(run(INPUTS, [((2,), mx.float32)], NUMBERS)[0].tolist())
except ValueError as error:
    print(error)
"""
EXPECTED = "scale: expected (1-D float, int32) -> (float) with 2 numbers, got "


@pytest.mark.parametrize(
    ("inputs", "numbers", "mode", "said"),
    [
        ("[x, places]", "[2.5, True]", "", "[-7.5, -2.5]"),
        ("[x]", "[2.5, True]", "", EXPECTED + "(1-D float32) -> (1-D float32) with 2 numbers"),
        ("[x, places]", "[2.5]", "", EXPECTED + "(1-D float32, 1-D int32) -> (1-D float32) with 1 numbers"),
        (
            "[x[None], places]",
            "[2.5, 0]",
            "watched",
            EXPECTED + "(2-D float32, 1-D int32) -> (1-D float32) with 2 numbers",
        ),
        ("[x, x]", "[2.5, 0]", "watched", EXPECTED + "(1-D float32, 1-D float32) -> (1-D float32) with 2 numbers"),
    ],
)
def test_arguments_are_compared_with_the_struct(kernels, inputs, numbers, mode, said):
    kernels.joinpath("named.cpp").write_text(NAMED)
    code = NAMED_CODE.replace("INPUTS", inputs).replace("NUMBERS", numbers)
    assert prints(code, TINY_LLM_KERNELS=mode, PYTHONPATH=str(kernels.parent)) == said


def test_a_struct_with_a_member_that_no_op_passes(tmp_path):
    source = tmp_path / "named.cpp"
    source.write_text(NAMED.replace("double factor", "double* factor"))
    with pytest.raises(CompileError, match="a member is no In, Out, number or Threads"):
        compile_kernels(source)


CHANGED = """
#include "kernel.h"

KERNEL(add_to_both) {  // changed: two arrays; in: what is added; out: their sum
    for (int64_t i = 0; i < call.in[0].size(); i++) {
        const float x = call.in[0].as<float>()[i];
        float &a = call.out[0].as<float>()[i], &b = call.out[1].as<float>()[i];
        a += x, b -= x;
        call.out[2].as<float>()[i] = a + b;
        MORE
    }
}
"""
CHANGED_CODE = """
import mlx.core as mx, numpy as np
from pathlib import Path
from tiny_llm_native import extension
run = extension.kernel(Path(extension.__file__).with_name("changed.cpp"), "add_to_both")
place = lambda x: np.array(x, copy=False).__array_interface__["data"][0]
def step(a, b, x):
    return run([x], [(x.shape, x.dtype)], changed=[a, b])
x = mx.arange(5.0)
a, b = mx.ones(5) * 1, mx.ones(5) * 2
mx.eval(a, b, x)
places = place(a), place(b)
for _ in range(3):
    a, b, sums = step(a, b, x)
    mx.eval(b)
print(a.tolist(), b.tolist(), sums.tolist(), (place(a), place(b)) == places)
kept = a
a, b, sums = step(a, b, x)
a, b, sums = step(a, b, x)
print(kept.tolist(), a.tolist(), b.tolist(), sums.tolist())
c, d, sums = step(b, b, x)
print(b.tolist(), c.tolist(), d.tolist())
wide = mx.arange(10.0).reshape(5, 2)
c, d, sums = step(wide[:, 1], wide[:, 0], x)
print(wide.tolist(), c.tolist(), d.tolist())
"""
CHANGED_LINES = [
    "[1.0, 4.0, 7.0, 10.0, 13.0] [2.0, -1.0, -4.0, -7.0, -10.0] [3.0, 3.0, 3.0, 3.0, 3.0]",
    "[1.0, 4.0, 7.0, 10.0, 13.0] [1.0, 6.0, 11.0, 16.0, 21.0] [2.0, -3.0, -8.0, -13.0, -18.0] "
    "[3.0, 3.0, 3.0, 3.0, 3.0]",
    "[2.0, -3.0, -8.0, -13.0, -18.0] [2.0, -2.0, -6.0, -10.0, -14.0] [2.0, -4.0, -10.0, -16.0, -22.0]",
    "[[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0], [8.0, 9.0]] [1.0, 4.0, 7.0, 10.0, 13.0] "
    "[0.0, 1.0, 2.0, 3.0, 4.0]",
]


@pytest.mark.parametrize("mode", ["", "watched"])
def test_a_kernel_that_changes_arrays(kernels, mode):
    """It changes them in place unless something else refers to them. A watched kernel always works on copies."""
    (kernels / "changed.cpp").write_text(CHANGED.replace("MORE", ""))
    lines = prints(CHANGED_CODE, TINY_LLM_KERNELS=mode, PYTHONPATH=str(kernels.parent)).splitlines()
    assert lines == [f"{CHANGED_LINES[0]} {not mode}", *CHANGED_LINES[1:]]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("(&b)[1] = 0;", "add_to_both wrote outside of output 1: bytes 0 to 3 after its end"),
        ("call.in[0].as<float>()[i] = 1;", "add_to_both wrote to input 0"),
    ],
)
def test_a_watched_kernel_that_changes_arrays(kernels, more, said):
    (kernels / "changed.cpp").write_text(CHANGED.replace("MORE", more))
    run = python(CHANGED_CODE, TINY_LLM_KERNELS="watched", PYTHONPATH=str(kernels.parent))
    assert f"KernelError: {said}" in run.stderr


PARTS = """
#include <vector>
#include "vector.h"

KERNEL(double_it) {
    const float* x = call.in[0].as<float>();
    float* out = call.out[0].as<float>();
    std::vector<float> of_all(call.in[0].size());
    call.threads(call.in[0].size(), 1, [&](int64_t begin, int64_t end) {
        std::vector<float> own(end - begin);
        BODY
    });
}
"""
PARTS_CODE = """
import mlx.core as mx
from pathlib import Path
from tiny_llm_native import extension
run, x = extension.kernel(Path(extension.__file__).with_name("twice.cpp"), "double_it"), mx.arange(30000.0)
extension.set_race_injection(True)
print(*(mx.array_equal(run([x], [(x.shape, x.dtype)])[0], 2 * x).item() for _ in range(20)))
"""


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("for (int64_t i = begin; i < end; i++) out[i] = 2 * x[i];", "True"),
        (
            "for (int64_t i = begin; i < end; i++) own[i - begin] = 2 * x[i];\n"
            "        for (int64_t i = begin; i < end; i++) out[i] = own[i - begin];",
            "True",
        ),
        (
            "for (int64_t i = begin; i < end; i++) of_all[i - begin] = 2 * x[i];\n"
            "        for (int64_t i = begin; i < end; i++) out[i] = of_all[i - begin];",
            "False",
        ),
        ("for (int64_t i = 0; i < call.in[0].size(); i++) out[i] = 2 * x[i];", "in two parts"),
        ("for (int64_t i = begin; i <= end && i < 30000; i++) out[i] = 2 * x[i];", "in two parts"),
        ("*(volatile int*)8 = 0;", "Segmentation"),
    ],
)
def test_a_part_that_is_stopped_while_the_others_run(kernels, body, said):
    (kernels / "twice.cpp").write_text(PARTS.replace("BODY", body))
    path = {"PYTHONPATH": str(kernels.parent), "PYTHONFAULTHANDLER": "1"}
    run = python(PARTS_CODE, TINY_LLM_KERNELS="watched", **path)
    assert said in run.stdout + run.stderr
    assert said != "True" or set(run.stdout.split()) == {"True"}


def test_without_an_mlx_extension_one_line_says_so(kernels):
    shutil.rmtree(kernels / "built")
    again = (
        "x = mx.zeros((2, 3))\nfrom tiny_llm_ref.kernels import softmax\nfor _ in range(2):\n    softmax.softmax(x)\n"
    )
    run = double(kernels, RIGHT, after=again)
    assert run.stdout == "None\n"
    assert run.stderr.count("is not built; to build it: ./course build-ext (until then") == 1
    assert double(kernels, RIGHT, TINY_LLM_KERNELS="off").stderr == ""
    assert "KernelError: the MLX extension is not built" in double(kernels, RIGHT, TINY_LLM_KERNELS="watched").stderr


def test_an_mlx_extension_for_another_mlx(kernels):
    (kernels / "built/mlx_extension.json").write_text('{"mlx": "0.1.0"}')
    run = double(kernels, RIGHT)
    assert run.stdout == "None\n"
    assert "was built for MLX 0.1.0, and this is" in run.stderr
