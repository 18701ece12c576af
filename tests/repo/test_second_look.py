"""The second look at a kernel that fails a test: the compiler's warnings, and the findings of a checked run."""

import re
import shutil
import subprocess
import sys

import pytest
from building import COMPILER, script
from learner import ROOT, new_clone

from tiny_llm_course.native.checked_build import build_checked

FAILED = """
import sys
from tiny_llm_course.ui.language import Messages
from tiny_llm_course.pytest_runs.test_run import Result, PytestRun
from tiny_llm_course.diagnosis.second_look import show_second_look
from tiny_llm_course.tasks.syllabus import TaskId

task, test, language = sys.argv[1:]
failures = [Result(name, TaskId.parse(task), "failed") for name in (test, "test_of_the_same_task")]
for failure in failures:
    show_second_look(failure, PytestRun("tiny_llm", failures), Messages(language))
"""
PASSED = """
import sys, tempfile
from pathlib import Path
from tiny_llm_course.pytest_runs.test_run import Result
from tiny_llm_course.diagnosis.second_look import _compiled, _run
from tiny_llm_course.tasks.syllabus import TaskId

task, test, source = sys.argv[1:]
with tempfile.TemporaryDirectory() as folder:
    failure = Result(test, TaskId.parse(task), "failed")
    events, stopped = _run(failure, "tiny_llm", _compiled(Path(source).resolve(), failure.task), Path(folder))
    events.pop("kernel")
    print((events, stopped))
"""


clone = pytest.fixture(new_clone, scope="module")


def looked(clone, task, test, edits, language="en", **environment):
    """Return the remarks, without the file's path, when the reference's code with these edits has failed a test."""
    write(clone, task, edits)
    shown = printed(clone, FAILED, task, test, language, **environment)
    return re.sub(r"src/tiny_llm/kernels/\w+\.cpp:\d+: ", "", shown).splitlines()


def write(clone, task, edits):
    """Write the reference's code with these edits into a task's file. Return the new text."""
    kernels, marker = ROOT / "src/tiny_llm_ref/kernels", f"// task {task} begin"
    files = (file for file in kernels.iterdir() if file.suffix in (".cpp", ".h"))
    file = next(file for file in files if marker in file.read_text())
    source = file.read_text()
    for old, new in edits.items():
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    clone.file(f"kernels/{file.name}").write_text(source)
    return clone.file(f"kernels/{file.name}")


def printed(clone, script, *arguments, **environment):
    run = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        cwd=clone.root,
        env=clone.environment | environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


FAULTS = {  # task, test, edits; the message, and its line of code
    "an array's index": (
        "w2d4.3",
        "test_task_3_product",
        {"float results[AT_ONCE];": "float results[4];"},
        "  index 4 is outside the array, which has the type 'float [4]'",
        "      for (int64_t i = 0; i < count; i++) results[i] = rows.dot(i, m);",
    ),
    "integers past the end": (
        "w2d4.1",
        "test_task_1_product",
        {"packed[i / per_word]": "packed[i / per_word + 1]"},
        "  reads byte 256 of `call.packed`, which has only 256 bytes",
        "      const uint32_t level = packed[i / per_word + 1] >> (i % per_word * bits) & mask;",
    ),
    "integers before the start": (
        "w2d4.1",
        "test_task_1_product",
        {"packed[i / per_word]": "packed[i / per_word - 1]"},
        "  reads 4 bytes before the start of `call.packed`",
        "      const uint32_t level = packed[i / per_word - 1] >> (i % per_word * bits) & mask;",
    ),
    "memory of its own": (
        "w2d4.2",
        "test_task_2_product",
        {"i < groups; i += WIDTH": "i < 64 * groups; i += WIDTH"},
        r"  reads byte \d+ of memory that the kernel allocated, which has only \d+ bytes",
        "      for (int64_t i = 0; i < 64 * groups; i += WIDTH) total += load(biases + i) * load(sums + i);",
    ),
    "a shift": (
        "w2d4.1",
        "test_task_1_product",
        {"(i % per_word * bits)": "(i * bits)"},
        "  a shift by 32 bits: the number must be 0 or more, and less than the number of bits in 'unsigned int'",
        "      const uint32_t level = packed[i / per_word] >> (i * bits) & mask;",
    ),
    "precedence": (
        "w2d4.1",
        "test_task_1_product",
        {">> (i % per_word * bits) & mask": "& mask >> (i % per_word * bits)"},
        "  `a & b >> c` means `a & (b >> c)`, because `>>` binds tighter than `&`",
        "      const uint32_t level = packed[i / per_word] & mask >> (i % per_word * bits);",
    ),
    "a division by zero": (
        "w2d4.1",
        "test_task_1_product",
        {"packed[i / per_word]": "packed[i / (bits - 4)]"},
        "  an integer is divided by zero",
        "      const uint32_t level = packed[i / (bits - 4)] >> (i % per_word * bits) & mask;",
    ),
    "no return": (
        "w2d4.1",
        "test_task_1_product",
        {
            "float total = 0;\n": "float total = 0;\n",
            "total += x[i]": "auto f = [&]() -> float { n; };\ntotal += f() + x[i]",
        },
        "  this function must return a value, but ends without `return`",
        "      auto f = [&]() -> float { n; };",
    ),
    "an endless loop": (
        "w2d4.1",
        "test_task_1_product",
        {"for (int64_t i = 0; i < n; i++) {\n        const": "for (int64_t i = 0; i < n;) {\n        const"},
        "  after 5 seconds of computing, the kernel is still in this loop: does the loop end?",
        None,
    ),
    "an endless loop that the optimiser removes": (
        "w2d2.2",
        "test_task_2_softmax",
        {"i < n; i++) out[i] = std::exp(x[i] - largest) / total;": "i < n;) total += x[i];"},
        "  after 5 seconds of computing, the kernel is still in this loop: does the loop end?",
        "      for (int64_t i = 0; i < n;) total += x[i];",
    ),
    "results that are not written": (
        "w2d2.2",
        "test_task_2_softmax",
        {"i < n; i++) out[i] = std::exp(x[i] - largest) / total": "i < n - 1; i++) out[i] = 0"},
        r"  \d+ values of `call.out` were never written; the first is value \d+, counted from 0 in memory order",
        None,
    ),
    "an array that is not set": (
        "w2d6.1",
        "test_task_1_tile",
        {"floats sums[M_TILE][N_VECTORS] = {};": "floats sums[M_TILE][N_VECTORS];"},
        "  the test passes if every local variable starts as 0: a variable is read before anything is written to it",
        None,
    ),
    "a pointer to nothing": (
        "w2d5.1",
        "test_task_1_without_residual[float32]",
        {"if (residual) total[i] = y += residual[i];": "total[i] = y += residual[i];"},
        r"  the address \S+ belongs to no array: is there a wild index, or a null pointer\?",
        "      total[i] = y += residual[i];",
    ),
    "a vector's index": (
        "w2d4.1",
        "test_task_1_product",
        {"total += x[i]": "std::vector<float> one(4);\ntotal += one[4 + i] + x[i]"},
        "  a check in the C++ library stopped the kernel: is there an index beyond the end of a `std::vector`?",
        "      total += one[4 + i] + x[i] * (scale * level + bias);",
    ),
    "what the compiler takes to be impossible": (
        "w2d4.1",
        "test_task_1_product",
        {"total += x[i]": "__builtin_trap();\ntotal += x[i]"},
        "  the kernel stops here: the compiler considered this line unreachable, or an index is out of bounds",
        "      __builtin_trap();",
    ),
    "the stack": (
        "w2d4.3",
        "test_task_3_product",
        {"results[i] = rows.dot(i, m);": "results[i] = 0;\nfor (int j = 0; j < 8; j++) store(results + j, floats{});"},
        "  this function writes beyond the end of a local array",
        None,
    ),
}


@pytest.mark.parametrize("case", FAULTS)
def test_what_a_checked_run_stops_at(clone, case):
    task, test, edits, said, code = FAULTS[case]
    shown = looked(clone, task, test, edits)
    assert "The same test, run again with checks" in shown
    [place] = [i for i, line in enumerate(shown) if re.fullmatch(said if "\\" in said else re.escape(said), line)]
    if code is not None:
        assert shown[place + 1] == code


UNSET = {"floats even = {}, odd = {};": "floats even, odd;"}
COMPILERS = [COMPILER, *filter(None, map(shutil.which, ("clang++", "clang++-16")))]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_warnings_are_shown_once_with_their_line(clone, compiler):
    """They are shown once for all types and sizes for which the function is compiled."""
    shown = looked(clone, "w2d4.2", "test_task_2_product", UNSET, CXX=compiler)
    start = shown.index("The compiler warns")
    warned = [line for line in shown[start:] if "-W" in line]
    assert len(warned) == 2
    for name, line in zip(("even", "odd"), warned, strict=True):
        assert re.search(rf"'{name}' (may be used|is) uninitialized", line)
        code = shown[shown.index(line) + 1]
        assert name in code
        assert code in (
            "      floats even, odd;",
            *(f"      {text.strip()}" for text in code_of("quantized_matvec.cpp")),
        )


def code_of(name):
    return (ROOT / "src/tiny_llm_ref/kernels" / name).read_text().splitlines()


def test_in_japanese(clone):
    task, test, edits, *_ = FAULTS["integers past the end"]
    shown = looked(clone, task, test, edits, language="ja")
    assert "同じテストを検査付きで実行した結果" in shown
    assert "  `call.packed` の 256 バイト目を読んでいます。大きさは 256 バイトしかありません" in shown


@pytest.mark.parametrize(
    "lines",
    [["case $* in *fsanitize*) echo 'unknown argument' >&2; exit 1;; esac", f'exec {COMPILER} "$@"'], ["exit 1"]],
    ids=["no checks", "no compiler"],
)
def test_where_no_checked_build_is_possible_nothing_is_shown(clone, tmp_path, lines):
    task, test, edits, *_ = FAULTS["integers past the end"]
    assert looked(clone, task, test, edits, CXX=script(tmp_path, "c++", *lines)) == []


def test_a_file_with_damaged_markers(clone):
    assert looked(clone, "w2d5.3", "test_task_3_swiglu", {"    // task w2d5.3 end\n": ""}) == []


def test_a_failure_is_shown_with_it(clone):
    """The command shows it if the mistake is not a known one."""
    wrong = {"load(up + i));": "load(up + i) * load(up + n));"}
    write(clone, "w2d5.3", wrong)
    shown = clone.run("test", "w2d5.3").stdout
    assert "values differ" in shown
    part = shown.partition("The same test, run again with checks\n")[2].splitlines()
    assert re.fullmatch(r"  src/tiny_llm/kernels/swiglu.cpp:\d+: reads byte \d+ of `call.up`, which has .*", part[0])
    assert part[1] == "      store(out + i, g / (1 + exp(-g)) * load(up + i) * load(up + n));"


SOURCES = [file for file in (ROOT / "src/tiny_llm_ref/kernels").glob("*.cpp") if "// task w" in file.read_text()]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_the_reference_has_no_warnings(source, tmp_path):
    _, said = build_checked(source, ROOT / "src/tiny_llm_native", tmp_path)
    assert said == ""


FIRST = {  # a test of each file
    "w2d2.3": "test_task_3_rows_of_every_size[float16]",
    "w2d4.3": "test_task_3_dtypes[bfloat16]",
    "w2d5.1": "test_task_1_rows_of_every_size[bfloat16]",
    "w2d5.2": "test_task_2_views[halves]",
    "w2d5.3": "test_task_3_views",
    "w2d6.2": "test_task_2_edges[17]",
    "w2d7.2": "test_task_2_views",
    "w3d4.1": "test_task_1_page_sizes[7]",
    "w3d4.2": "test_task_2_page_sizes[7]",
}


@pytest.mark.nightly("a checked build of each file, which takes half a minute")
@pytest.mark.parametrize("task", FIRST)
def test_nothing_is_found_in_the_reference(clone, task):
    said = printed(clone, PASSED, task, FIRST[task], write(clone, task, {}))
    assert said == "({'said': '', 'unwritten': None}, [])\n"
