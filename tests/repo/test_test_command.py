"""`tiny-llm test` in a temporary tree, as a learner runs it: arguments, exit codes, a stub's screen, and the bars."""

import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from learner import Clone
from trees import build_tree

from tiny_llm_course.tasks.regions import code_files
from tiny_llm_course.tasks.syllabus import select_days, weeks

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """Return the course as an instructor hands it out, with nothing written, in a folder with a space."""
    root = tmp_path_factory.mktemp("a course")
    build_tree(root, ROOT, is_solved=lambda task: False)
    for package in ("tiny_llm_course", "tiny_llm_models"):
        shutil.copytree(ROOT / "src" / package, root / "src" / package, ignore=shutil.ignore_patterns("__pycache__"))
    for file in code_files(root / "src/tiny_llm"):
        stub = root / "src/tiny_llm_course/pristine" / file.relative_to(root / "src/tiny_llm")
        stub.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, stub)
    return root


def tiny_llm_test(tree, *arguments, cwd=None, **variables):
    return Clone(tree).run("test", *arguments, cwd=cwd, **variables)


@contextmanager
def edited(tree, name, source):
    """Replace the content of one of the learner's files within the block."""
    file = tree / "src" / "tiny_llm" / name
    before = file.read_text()
    file.write_text(source)
    try:
        yield
    finally:
        file.write_text(before)


STUB = """\
Week 1 day 1: Attention and multi-head attention
  ○ w1d1.1  Scaled dot-product attention: to be written

NotImplementedError: Week 1 Day 1 Task 1: scaled_dot_product_attention_simple is yours to write.
  file:  src/tiny_llm/attention.py:{line}
  test:  ./course test w1d1.1
  hint:  ./course hint w1d1.1
"""


EXISTING = "there are " + "; ".join(f"week {week.number} (days 1 to {week.days[-1].number})" for week in weeks())


@pytest.mark.parametrize("separator", [["--"], []], ids=["with --", "without --"])
def test_a_stub_is_one_screen(tree, separator):
    result = tiny_llm_test(tree, "--week", "1", "--day", "1", *separator, "-k", "task_1")
    source = (tree / "src/tiny_llm/attention.py").read_text().splitlines()
    line = 1 + next(i for i, text in enumerate(source) if "raise NotImplementedError" in text)
    assert result.returncode == 1
    assert result.stdout.startswith(STUB.format(line=line))
    assert re.fullmatch(r"tests run: \d\d, in [\d.]+ s", result.stdout.splitlines()[-1])
    assert result.stderr == ""


@pytest.mark.parametrize("name", ["w1d1", "1.1", "W1D1"])
def test_a_day_by_its_name(tree, name):
    shown = tiny_llm_test(tree, name).stdout
    assert re.findall(r"^  ○ (\S+)", shown, re.MULTILINE) == ["w1d1.1", "w1d1.2"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("w1d1.9", "there is no task 'w1d1.9'; "),
        ("w1d99", "week 1 has no day '99'; "),
        ("w9d1", "there is no week '9'; "),
        ("w1", "there is no task 'w1'; "),
    ],
)
def test_a_name_that_does_not_exist(tree, name, message):
    result = tiny_llm_test(tree, name)
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr


def test_in_japanese(tree):
    result = tiny_llm_test(tree, "--week", "1", "--day", "1", "--lang", "ja", "-k", "task_1")
    assert (
        "第 1 週 1 日目: アテンションとマルチヘッドアテンション\n  ○ w1d1.1  スケール付き内積アテンション: 未実装"
        in result.stdout
    )


def test_a_line_for_each_task(tree):
    result = tiny_llm_test(tree, "--week", "1", "-k", "task_1 or task_2")
    assert len(re.findall(r"^  ○ w1d\d\.[12]  .*: to be written$", result.stdout, re.MULTILINE)) == 14
    assert result.stdout.count("NotImplementedError") == 1


def test_from_another_folder(tree, tmp_path):
    result = tiny_llm_test(tree, "--week", "1", "--day", "4", "-k", "silu", cwd=tmp_path)
    assert result.returncode == 1
    assert f"{os.path.relpath(tree, tmp_path)}/src/tiny_llm/basics.py:" in result.stdout


def test_solved_and_unsolved_tasks(tree):
    """One file is solved: its tests pass, and the stubs of other files do not disturb them."""
    with edited(tree, "layer_norm.py", (ROOT / "src/tiny_llm_ref/layer_norm.py").read_text()):
        one = tiny_llm_test(tree, "--week", "1", "--day", "4", "-k", "task_1")
        both = tiny_llm_test(tree, "--week", "1", "--day", "4")
    assert one.returncode == 0
    assert re.search(r"✔ w1d4.1  RMSNorm: \d+ passed\n\nw1d4.1 is solved\.\n", one.stdout)
    assert both.returncode == 1
    assert re.search(r"✔ w1d4.1  RMSNorm: \d+ passed\n  ○ w1d4.2  SiLU and SwiGLU: to be written\n", both.stdout)


def test_a_written_task_waits_for_an_earlier_one(tree):
    with edited(tree, "attention.py", Clone(tree).solved("attention.py", "w1d3.1", "w1d3.2")):
        result = tiny_llm_test(tree, "--week", "1", "--day", "3")
    assert "✔ w1d3.1" in result.stdout
    assert "○ w1d3.2  Grouped-query attention: waits for w1d1.1\n" in result.stdout
    assert "Week 1 Day 1 Task 1: scaled_dot_product_attention_simple is yours to write" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--week", "9"], f"there is no week '9'; {EXISTING}"),
        (["--week", "one"], f"there is no week 'one'; {EXISTING}"),
        (["--week", ""], f"there is no week ''; {EXISTING}"),
        (["--week", "1", "--day", "8"], f"week 1 has no day '8'; {EXISTING}"),
        (["--week", "1", "--day", "x"], f"week 1 has no day 'x'; {EXISTING}"),
        (["--impl", "yours"], "--impl: expected one of ref, mine, got 'yours'"),
        (["--day", "1"], f"--day 1: expected a --week too, got none; {EXISTING}"),
    ],
)
def test_what_does_not_exist(tree, arguments, message):
    result = tiny_llm_test(tree, *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"error: {message}\n"


def test_options_go_to_pytest(tree):
    result = tiny_llm_test(tree, "--week", "1", "--day", "3", "--collect-only", "-k", "test_task_1")
    assert result.returncode == 0
    assert "test_week_1_day_3.py::test_task_1_adds_to_scores" in result.stdout
    assert "test_task_2" not in result.stdout


@pytest.mark.parametrize("arguments", [["-v"], ["-x"], ["--tb=line", "-k", "task_1"]], ids=" ".join)
def test_with_other_options_the_output_is_pytests_own(tree, arguments):
    result = tiny_llm_test(tree, "--week", "1", "--day", "4", *arguments)
    assert result.returncode == 1
    assert re.search(r"\d+ failed.* in [\d.]+s", result.stdout)


def test_a_name_that_no_test_has(tree):
    result = tiny_llm_test(tree, "--week", "1", "--day", "4", "-k", "task_9")
    assert result.returncode == 5
    assert result.stderr == (
        "error: -k task_9: expected the name of a test or task, but none matches; week 1 day 4 has task_1, task_2\n"
    )


def test_without_week_everything_is_tested(tree):
    result = tiny_llm_test(tree, "--collect-only", "-qq")
    files = re.findall(r"test_week_\d_day_\d\.py", result.stdout)
    assert sorted(set(files)) == [day.test_file for day in select_days(None, None)]


def test_outside_of_a_clone(tmp_path):
    """An installed wheel has no tests."""
    shutil.copytree(ROOT / "src" / "tiny_llm_course", tmp_path / "src" / "tiny_llm_course")
    result = tiny_llm_test(tmp_path)
    assert result.returncode == 2
    assert result.stderr.startswith("error: `test` needs a clone of the course")


def with_body(tree, file, name, *body):
    """Return the stub of one function, with these lines instead of its error."""
    source = (tree / "src/tiny_llm" / file).read_text()
    error = re.compile(rf"(def {name}\(.*?)    raise NotImplementedError\(.*?\n    \)\n", re.DOTALL)
    assert error.search(source)
    return error.sub(lambda match: match[1] + "".join(f"    {line}\n" for line in body), source, count=1)


@pytest.mark.parametrize(
    "body",
    [
        ["return mx.fast.scaled_dot_product_attention(query, key, value, scale=scale, mask=mask)"],
        ["from mlx.core.fast import scaled_dot_product_attention as f", "return f(query, key, value, scale=scale)"],
        ["import mlx.core.fast", "return mlx.core.fast.scaled_dot_product_attention(query, key, value, scale=1.0)"],
    ],
    ids=["attribute", "from", "import"],
)
def test_ready_made_ops_are_barred(tree, body):
    with edited(tree, "attention.py", with_body(tree, "attention.py", "scaled_dot_product_attention_simple", *body)):
        result = tiny_llm_test(tree, "--week", "1", "--day", "1", "-k", "test_task_1_equals_mlx")
    assert result.returncode == 1
    message = "mlx.core.fast.scaled_dot_product_attention may not be called here: Week 1 Day 1 Task 1 asks you to write"
    assert message in result.stdout


@pytest.mark.parametrize(
    "line",
    [
        "from tiny_llm_ref.basics import silu as answer",
        "import importlib; answer = importlib.import_module('tiny_llm_ref.basics').silu",
        "from mlx_lm.models.activations import swiglu as answer",
    ],
)
def test_the_reference_and_other_libraries_are_barred(tree, line):
    with edited(tree, "basics.py", with_body(tree, "basics.py", "silu", line, "return answer(x)")):
        result = tiny_llm_test(tree, "--week", "1", "--day", "4", "-k", "test_task_2_silu_equals_mlx")
    assert result.returncode == 1
    assert re.search(r"(tiny_llm_ref|mlx_lm) may not be imported here: Week 1 Day 4 Task 2", result.stdout)


GIVEN = """
import barred, mlx.core as mx
barred.install("tiny_llm_ref")
from tiny_llm_course.tasks.syllabus import TaskId
from tiny_llm_given import weights
parts = dict(zip(("a.weight", "a.scales", "a.biases"), mx.quantize(mx.ones((2, 64)))))
body = "def read(): return weights.dequantize_weights(parts, {})['a.weight'].shape"
body += "\\ndef call(): return mx.dequantize(*parts.values()).shape"
written = {"__name__": "tiny_llm_ref.quantize", "weights": weights, "mx": mx, "parts": parts}
own = written | {"__name__": "tiny_llm_ref.my_notes"}
exec(body, written), exec(body, own)
own["through"] = lambda: written["call"]()
written["through"] = eval("lambda: read()", {"__name__": "tiny_llm_ref.quantize", "read": own["call"]})
with barred.during(TaskId.parse("w2d3.3")):
    print(weights.dequantize_weights(parts, {})["a.weight"].shape)
    for function in (written["read"], written["call"], written["through"], own["through"]):
        try:
            print(function())
        except barred.BarredError:
            print("barred")
"""


def test_given_modules_may_call_what_is_barred():
    """The module that loads checkpoints calls such functions. But a module that learners write may not."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}"}
    run = subprocess.run([sys.executable, "-c", GIVEN], env=environment, capture_output=True, text=True)
    assert run.stdout.splitlines() == ["(2, 64)", *["barred"] * 4], run.stderr


def test_a_mistake_is_told_with_shape_place_and_size(tree):
    with edited(tree, "basics.py", with_body(tree, "basics.py", "silu", "return mx.sigmoid(x)")):
        result = tiny_llm_test(tree, "--week", "1", "--day", "4", "-k", "test_task_2_silu_equals_mlx")
    assert result.returncode == 1
    assert "20 of 20 values differ (shape (2, 10), mlx.core.float32)" in result.stdout
    assert re.search(r"first at \[0, 0\]: expected -?[\d.]+, got [\d.]+", result.stdout)
    assert re.search(r"largest error: [\d.]+ \(allowed: 2e-05", result.stdout)
    assert len(result.stdout.splitlines()) < 15


def test_of_many_failures_the_first_is_told(tree):
    source = (ROOT / "src/tiny_llm_ref/layer_norm.py").read_text()
    with edited(tree, "layer_norm.py", source.replace("self.eps) * self.weight", "self.eps)")):
        result = tiny_llm_test(tree, "--week", "1", "--day", "4", "-k", "task_1")
        everything = tiny_llm_test(tree, "--week", "1", "--day", "4", "-k", "task_1", "--all")
    assert result.stdout.count("values differ (shape") == 1
    assert re.search(r"✘ w1d4.1  RMSNorm: (\d\d) of \d+ failed", result.stdout)
    assert re.search(r"\d+ more failed: --all shows every failure, -v pytest's own output\.", result.stdout)
    assert everything.stdout.count("values differ (shape") > 10


def test_a_failure_says_what_its_test_is_about(tree):
    source = (ROOT / "src/tiny_llm_ref/layer_norm.py").read_text()
    with edited(tree, "layer_norm.py", source.replace("mean_square + self.eps", "mean_square")):
        result = tiny_llm_test(tree, "--week", "1", "--day", "4", "-k", "test_task_1_eps")
    assert "The values are small, so the result shows whether eps is added to the mean square" in result.stdout


def test_an_error_names_the_learners_line(tree):
    source = (ROOT / "src/tiny_llm_ref/layer_norm.py").read_text()
    with edited(tree, "layer_norm.py", source.replace("keepdims=True)", "keepdims=True).swap")):
        result = tiny_llm_test(tree, "--week", "1", "--day", "4", "-k", "test_task_1_zeros")
    assert re.search(r"src/tiny_llm/layer_norm\.py:\d+ \(__call__\)\n      mean_square = ", result.stdout)
    assert "object has no attribute 'swap'" in result.stdout


def test_what_the_code_prints_is_shown(tree):
    body = ["print('shape', x.shape)", "return x"]
    with edited(tree, "basics.py", with_body(tree, "basics.py", "silu", *body)):
        result = tiny_llm_test(tree, "--week", "1", "--day", "4", "-k", "test_task_2_silu_equals_mlx")
    assert "your code printed:\n  shape (2, 10)\n" in result.stdout


def test_a_syntax_error_fails_only_the_tests_of_its_file(tree):
    tests = "test_task_1_zeros or test_task_2_silu_equals_mlx"
    with edited(tree, "basics.py", "def broken(:\n"):
        result = tiny_llm_test(tree, "--week", "1", "--day", "4", "-k", tests)
    assert result.returncode == 1
    assert "SyntaxError" in result.stdout
    assert "○ w1d4.1  RMSNorm: to be written\n  ✘ w1d4.2  SiLU and SwiGLU: 1 of 1 failed" in result.stdout


def test_a_loop_that_does_not_end_is_cut_off(tree):
    with edited(tree, "basics.py", with_body(tree, "basics.py", "silu", "while True: pass")):
        result = tiny_llm_test(tree, "--week", "1", "--day", "4", "-k", "silu_equals_mlx", "--time-limit=1")
        summary = tiny_llm_test(tree, "--week", "1", "--day", "4", "-k", "silu_equals_mlx", TINY_LLM_TIME_LIMIT="1")
    message = r"the test was ended after (1 seconds|0.33 seconds of computing): does the loop in `silu` end\?"
    assert re.search(message, result.stdout)
    assert re.search(rf"src/tiny_llm/basics\.py:\d+ \(silu\)\n      while True: pass\n  {message}", summary.stdout)
    assert summary.returncode == 1


def test_a_tasks_line_does_not_wait_for_the_next_task(tree):
    """Task 1 is done, and task 2 never ends: until Ctrl-C, the screen has task 1's line and, after it, the progress."""
    with edited(tree, "basics.py", with_body(tree, "basics.py", "silu", "while True: pass")):
        terminal = Clone(tree).terminal("test", "--week", "1", "--day", "4", TINY_LLM_TIME_LIMIT="100")
        terminal.wait_for("○ w1d4.1  RMSNorm: to be written\n")
        done = re.search(r"tests: (\d+) of \d+  w1d4.2", terminal.wait_for("  w1d4.2"))
        terminal.send("\x03")
        code = terminal.exit_code()
    assert code == 130
    assert "The run ended early, in tests/test_week_1_day_4.py::test_task_2_silu" in terminal.screen
    assert "w1d4.2  SiLU" not in terminal.screen, "it has no result"
    assert terminal.screen.rstrip().rpartition("\n")[2].startswith(f"tests run: {done[1]}, in ")


def test_piped_output_is_only_lines(tree):
    """With several processes as well, there are no bars and no colours, and the days come in order."""
    result = tiny_llm_test(tree, "--week", "1", "-k", "task_1")
    assert not re.search(r"[\x1b\r]", result.stdout + result.stderr)
    days = re.findall(r"^Week 1 day (\d): .*\n  ○ w1d(\d).1  .*: to be written$", result.stdout, re.MULTILINE)
    assert days == [(str(day), str(day)) for day in range(1, 8)]


def test_a_breakpoint_that_nobody_would_see(tree):
    """With -s, the breakpoint stops the test for longer than the time limit."""
    with edited(tree, "basics.py", with_body(tree, "basics.py", "silu", "breakpoint()", "return x")):
        arguments = ["--week", "1", "--day", "4", "-k", "silu_equals_mlx"]
        result = tiny_llm_test(tree, *arguments)
        left = "import signal\np signal.getitimer(signal.ITIMER_REAL)\n"  # of the time limit
        debugged = tiny_llm_test(tree, *arguments, "-s", "--time-limit=100", input=f"{left}p 6 * 7\nq\n")
    assert "breakpoint() stops here only with -s" in result.stdout
    assert "(0.0, 0.0)" in debugged.stdout
    assert "42" in debugged.stdout
    assert "was ended" not in debugged.stdout


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("os.abort()", "the code under test ended Python with SIGABRT"),
        ("os.kill(os.getpid(), 11)", "with SIGSEGV: is there an index beyond an array, or a pointer to nothing?"),
        ("os.kill(os.getpid(), 8)", "with SIGFPE: an integer was divided by zero"),
        ("os.kill(os.getpid(), 4)", "with SIGILL: it reached a line that the compiler took to be unreachable: does a "),
    ],
)
def test_code_that_ends_python(tree, code, said):
    """It counts as a failed test, with its task's line, its message, and where to find help."""
    with edited(tree, "basics.py", with_body(tree, "basics.py", "silu", "import os", code)):
        result = tiny_llm_test(tree, "--week", "1", "--day", "4", "-k", "silu_equals_mlx")
    assert result.returncode == 1
    assert "✘ w1d4.2  " in result.stdout
    assert "w1d4.2: test_task_2_silu_equals_mlx\n" in result.stdout
    assert said in result.stdout
    assert "hint:  ./course hint w1d4.2" in result.stdout
    assert "ended early" not in result.stdout
