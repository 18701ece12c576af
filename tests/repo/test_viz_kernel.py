"""`tiny-llm viz kernel`: scripts that run kernels, their pictures and printed text, and errors about other scripts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath
from typer.testing import CliRunner, Result

from tiny_llm_course.ui.language import LANGUAGES
from tiny_llm_course.viz.drawing import FONT
from tiny_llm_course.viz.kernel_call import Call, call_in
from tiny_llm_course.viz.kernel_steps import folded, index_text, racing, steps_of
from tiny_llm_course.viz.viz_commands import app

ROOT = Path(__file__).parents[2]
SUM = ROOT / "book" / "week_2" / "gpu_sum.py"
RED = "#d00000"
SCRIPT = """import mlx.core as mx
from metal_host import metal_kernel

def run(name, body, n, group, dtype=mx.float32, **options):
    kernel = metal_kernel(name, ["x"], ["out"], "const uint t = thread_index_in_threadgroup;\\n" + body)
    sizes = {"grid": (n, 1, 1), "threadgroup": (group, 1, 1), "output_shapes": [(n,)], "output_dtypes": [dtype]}
    return kernel(inputs=[mx.arange(n).astype(dtype)], **sizes, **options)[0]

"""
MIRROR = 'body = "threadgroup half tile[128];\\ntile[t] = x[t];\\nout[t] = tile[127 - t];"\n'
SOFTMAX = (
    "import mlx.core as mx\nfrom tiny_llm_ref.kernels.softmax import softmax_metal\nsoftmax_metal(mx.ones((1, 40)))"
)


device = pytest.fixture(lambda: None)  # kernels run on the CPU here: nothing to repeat on a GPU


def written(folder: Path, *lines: str) -> Path:
    script = folder / "script.py"
    script.write_text(SCRIPT + "\n".join(lines) + "\n", encoding="utf-8")
    return script


def called(folder: Path, *lines: str, number: int = 1, at: tuple[int, int, int] = (0, 0, 0)) -> Call:
    return call_in(written(folder, *lines), number, at)[0]


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["kernel", *map(str, arguments)])


def drawn(script: Path, folder: Path, *options: object) -> tuple[str, str]:
    """Return the printed text and the picture of a call that must succeed."""
    result = invoke(script, "--out", folder, *options)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout, (folder / "kernel.svg").read_text(encoding="utf-8")


def texts_in(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def boxes_in(svg: str) -> Iterator[tuple[float, float, float, float, str]]:
    """Yield left, top, right and bottom of each text, at the width of its font, and the text."""
    for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        text, size = element.text or "", float(element.get("font-size", 0))
        is_mono = "DejaVu" in element.get("font-family", "").partition(",")[0]
        font = FontProperties(family="DejaVu Sans Mono") if is_mono else FontProperties(fname=str(FONT))
        width = TextPath((0, 0), text.replace("$", "S"), size=size, prop=font).get_extents().width
        x, y = float(element.get("x", 0)), float(element.get("y", 0))
        left = x - width * {"start": 0, "middle": 0.5, "end": 1}[element.get("text-anchor", "start")]
        yield left, y - 0.8 * size, left + width, y + 0.15 * size, text


def assert_readable(svg: str) -> None:
    """Check that no text covers another text, or is outside of the picture."""
    _, _, width, height = map(float, ElementTree.fromstring(svg).get("viewBox", "").split())
    boxes = list(boxes_in(svg))
    assert len(boxes) > 8
    for left, top, right, bottom, text in boxes:
        assert left >= 0 <= top, text
        assert right <= width, text
        assert bottom <= height, text
    for a, b in itertools.combinations(boxes, 2):
        is_apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
        assert is_apart, (a, b)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_books_script(language: str, tmp_path: Path) -> None:
    text, svg = drawn(SUM, tmp_path, "--lang", language)
    own, _, rest = text.partition("\n\n")
    assert own.startswith(f"$ python {SUM}\n2016.0\nkernel 'total': data race")
    steps = [line.split(maxsplit=1)[1] for line in rest.splitlines() if re.match(r" +\d+  ", line)]
    assert len(steps) == 8
    assert [re.findall(r": (\d+)", step) for step in steps[:3]] == [["64"] * 3, ["32", "32", "64"], ["16", "16", "64"]]
    part = next(line.split() for line in rest.splitlines() if line.startswith("part (threadgroup)"))
    assert part[2:] == [str(4 * n) for n in (2 * 63 + 1, 64, 64 + 63, 64)] + ["0"]
    assert_readable(svg)
    shown = texts_in(svg)
    assert shown.count("threadgroup_barrier(mem_flags::mem_threadgroup);") == 7
    assert {"0", "6", "31", "32", "38", "63", "0, 32", "0–1"} <= set(shown)
    assert "30" not in shown
    assert RED not in svg


def test_a_race_is_red(tmp_path: Path) -> None:
    text, svg = drawn(SUM, tmp_path, "--call", 2, "--lang", "en")
    assert "kernel call 2 of 2" in text
    assert "The run ended here, at an error." in text
    shapes = re.findall(rf'<rect [^>]*stroke="{RED}"', svg)
    links = re.findall(rf'<path d="M[^"]*V[^"]*H[^"]*"[^>]*stroke="{RED}"', svg)
    assert (len(shapes), len(links)) == (3, 1)  # the read has a second line; the write's is white
    assert next(line for line in text.splitlines() if "data race on part[1]" in line) in texts_in(svg)
    assert_readable(svg)


def test_both_of_a_race_are_drawn_however_far_apart_they_are(tmp_path: Path) -> None:
    script = written(tmp_path, MIRROR, 'run("mirror", body, 128, 128)')
    call, problem = call_in(script, 1, (0, 0, 0))
    assert problem is None
    write, read = racing(call)
    assert (write.thread, write.kind, read.thread, read.kind) == (64, "write", 63, "read")
    assert list(call.elements(write)) == list(call.elements(read)) == [64]
    _, svg = drawn(script, tmp_path)
    assert {"63", "64", "127"} <= set(texts_in(svg))
    assert_readable(svg)


def test_a_race_with_another_threadgroup(tmp_path: Path) -> None:
    script = written(
        tmp_path, 'run("far", "if (t == 0) out[0] = x[0]; else out[thread_position_in_grid.x] = 1;", 64, 32)'
    )
    call = call_in(script, 1, (0, 0, 0))[0]
    assert [event.kind for event in racing(call)] == ["write"]
    text, svg = drawn(script, tmp_path, "--lang", "en")
    assert svg.count(RED) > 2
    assert "--threadgroup" not in text


def test_an_error_elsewhere_says_how_to_see_it(tmp_path: Path) -> None:
    body = "uint i = thread_position_in_grid.x; out[i] = x[i + (i == 40 ? 100 : 0)];"
    text, svg = drawn(written(tmp_path, f'run("far", "{body}", 64, 32)'), tmp_path, "--lang", "en")
    assert "The error is in another threadgroup. To show that threadgroup: --threadgroup 1,0,0" in text
    assert "×" not in texts_in(svg)
    _, svg = drawn(tmp_path / "script.py", tmp_path, "--threadgroup", "1,0,0")
    assert texts_in(svg).count("×") == 1
    assert "8" in texts_in(svg)


@pytest.mark.parametrize("language", LANGUAGES)
def test_softmax_of_the_reference(language: str, tmp_path: Path) -> None:
    script = tmp_path / "softmax.py"
    script.write_text(SOFTMAX, encoding="utf-8")
    text, svg = drawn(script, tmp_path, "--lang", language)
    assert re.search(r"\nx \(device\) +480 +160 ", text)
    assert re.search(r"\nx_shape \(constant\) +\d", text)
    shown = texts_in(svg)
    assert [text for text in shown if text.startswith(("simd_", "threadgroup_barrier"))] == [
        "simd_max",
        "threadgroup_barrier(mem_flags::mem_threadgroup);",
        "threadgroup_barrier",
        "simd_max",
        "simd_sum",
        "threadgroup_barrier(mem_flags::mem_threadgroup);",
        "threadgroup_barrier",
        "simd_sum",
    ]
    assert shown.count("36–39") == 4
    assert_readable(svg)


def test_indices_are_those_of_the_declared_type(tmp_path: Path) -> None:
    """An access of 8 bytes covers several 2-byte elements; a vector is one element; T is the template's type."""
    body = "threadgroup half a[32]; threadgroup float4 v[8]; threadgroup T c[32]; threadgroup_barrier(mem_flags(0));"
    body += "if (t < 8) { ((threadgroup half4*)a)[t] = half4(x[t]); v[t] = x[t]; ((threadgroup uint*)c)[t] = 0; }"
    body += "out[t] = x[t];"
    call = called(tmp_path, f'run("kinds", "{body}", 32, 32, template=[("T", mx.bfloat16)])')
    of_three = {e.name: index_text(call, [e]) for e in call.events if e.thread == 3 and e.kind == "write"}
    assert of_three == {"a": "12–15", "v": "3", "c": "6–7", "out": "3"}
    assert call.spaces == {"x": "device", "out": "device"}


def test_many_elements_have_one_short_text(tmp_path: Path) -> None:
    body = "if (t > 31) return; float s = 0; for (int k = 0; k < 4; k++) s += x[t + 32 * k];"
    body += "for (int k = 0; k < 4; k++) out[124 - 4 * t + k] = s;"
    call = called(tmp_path, f'run("many", "{body}", 128, 128)')
    rows = steps_of(call)[0].rows
    assert [(row.kind, row.name, index_text(call, row.cells[0])) for row in rows] == [
        ("read", "x", "0…96"),
        ("write", "out", "124–127"),
    ]


def test_simdgroups_that_do_different_things(tmp_path: Path) -> None:
    body = "float v = x[t]; if (t < 32) { v = simd_sum(v); v = simd_max(v); }"
    body += "threadgroup_barrier(mem_flags::mem_threadgroup); out[t] = simd_min(v);"
    call = called(tmp_path, f'run("two", "{body}", 64, 64)')
    waits = [[(wait.name, len(wait.threads)) for wait in step.waits] for step in steps_of(call)]
    assert waits == [[("simd_sum", 32)], [("simd_max", 32)], [("threadgroup_barrier", 64)], [("simd_min", 64)], []]
    assert call.counts is not None
    assert call.counts.barriers == 1


def test_a_barrier_that_not_all_reach(tmp_path: Path) -> None:
    body = "if (t < 20) threadgroup_barrier(mem_flags::mem_threadgroup); out[t] = x[t];"
    script = written(tmp_path, f'run("some", "{body}", 32, 32)')
    text, svg = drawn(script, tmp_path, "--lang", "en")
    assert "threadgroup_barrier: 20" in text
    assert texts_in(svg).count("×") == 2
    assert_readable(svg)


def test_the_last_threadgroup_is_smaller(tmp_path: Path) -> None:
    script = written(tmp_path, 'run("edge", "out[thread_position_in_grid.x] = 1;", 72, 64)')
    call = call_in(script, 1, (1, 0, 0))[0]
    assert (call.threads, call.threadgroups, len(call.events)) == (8, (2, 1, 1), 8)
    result = invoke(script, "--threadgroup", "2,0,0")
    assert result.exit_code == 2
    assert (
        result.stderr == "error: --threadgroup: expected 0,0,0 to 1,0,0, the threadgroups of kernel edge, got 2,0,0\n"
    )


def test_more_than_a_page_holds(tmp_path: Path) -> None:
    body = "threadgroup float a[1024]; for (int k = 0; k < 30; k++) { a[t] = x[t]; "
    body += "threadgroup_barrier(mem_flags::mem_threadgroup); } out[t] = a[t];"
    script = written(tmp_path, f'run("long", "{body}", 1024, 1024)')
    text, svg = drawn(script, tmp_path, "--lang", "en")
    assert "   …  8 more steps\n  31  " in text
    shown = texts_in(svg)
    assert "⋮  18 more steps" in shown
    assert "1008 of 1024 threads are left out (…)." in shown
    assert {"simdgroup 0", "simdgroup 31", "1023"} <= set(shown)
    assert_readable(svg)


def test_more_than_is_noted(tmp_path: Path) -> None:
    body = "float s = 0; for (int k = 0; k < 4000; k++) s += x[k & 31]; out[t] = s;"
    text, svg = drawn(written(tmp_path, f'run("long", "{body}", 32, 32)'), tmp_path, "--lang", "en")
    limit = "Only the first 100,000 accesses and waits were recorded."
    assert limit in text
    assert limit in texts_in(svg)
    assert "read x: 25, write out: 24" in text


def test_what_is_left_out() -> None:
    def is_seven(n: int) -> bool:
        return n == 7

    assert folded(range(5), 5, is_seven) == [0, 1, 2, 3, 4]
    assert folded(range(12), 5, is_seven) == [0, 1, 2, [3, 4, 5, 6], 7, [8, 9, 10], 11]
    assert folded(range(9), 8, is_seven) == [0, 1, 2, 3, 4, 5, 6, 7, 8]


def test_a_script_finds_what_it_would_find_alone(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("ONE = 1\n")
    script = written(tmp_path, "import sys, beside", "print(__name__, sys.argv)", 'run("a", "out[t] = x[t];", 4, 4)')
    text, _ = drawn(script, tmp_path)
    assert text.startswith(f"$ python {script}\n__main__ {[str(script)]}\n")


def test_a_script_may_count_what_is_drawn(tmp_path: Path) -> None:
    script = ROOT / "book" / "week_2" / "gpu_lines.py"
    for number in (1, 3):
        text, _ = drawn(script, tmp_path, "--call", number)
        assert re.search(r"\nside by side +128 +2 +100%\nrow by row +128 +32 +6%\n", text)


def test_the_kernels_error_may_be_raised_as_another(tmp_path: Path) -> None:
    lines = [
        "try:",
        '    run("mirror", body, 128, 128)',
        "except RuntimeError:",
        "    raise ValueError('ours') from None",
    ]
    call, problem = call_in(written(tmp_path, MIRROR, *lines), 1, (0, 0, 0))
    assert call.error
    assert (call.error.kind, problem) == ("race", None)


def test_an_error_behind_the_kernel_is_shown_as_well(tmp_path: Path) -> None:
    script = written(tmp_path, 'run("a", "out[t] = x[t];", 4, 4)', "print(one)")
    result = invoke(script, "--out", tmp_path, "--lang", "en")
    assert (tmp_path / "kernel.svg").exists()
    assert "read x: 4, write out: 4" in result.stdout
    assert result.stderr == f"error: {script}:10: NameError: name 'one' is not defined\n"
    assert result.exit_code == 1


WRONG = {
    "1 / 0": (1, "error: {script}:9: ZeroDivisionError: division by zero\n"),
    "1 /": (1, "error: {script}:9: SyntaxError: invalid syntax\n"),
    "raise SystemExit('no')": (1, "error: {script}: ended with no\n"),
    'run("a", "out[t] = y[t];", 4, 4)': (
        1,
        "error: {script}:7: MetalCompileError: kernel 'a' does not compile:\na.metal:2: 'y' ",
    ),
    "run('a', 'out[t] = x[t];', 4, 2048)": (1, "error: {script}:7: ValueError: Thread group size (2048) is greater"),
    "print(1)": (
        2,
        "error: {script} called no kernel made by metal_host.metal_kernel; give a script that calls one",
    ),
}


@pytest.mark.parametrize("line", WRONG)
def test_what_keeps_a_script_from_running(line: str, tmp_path: Path) -> None:
    script = written(tmp_path, line)
    result = invoke(script, "--out", tmp_path / "none")
    code, message = WRONG[line]
    assert result.exit_code == code
    assert result.stderr.startswith(message.format(script=script))
    assert not (tmp_path / "none").exists()


def test_a_kernel_that_does_not_compile_is_told_though_the_script_goes_on(tmp_path: Path) -> None:
    script = written(tmp_path, "try:", '    run("a", "out[t] = y[t];", 4, 4)', "except RuntimeError:", "    pass")
    result = invoke(script)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {script}:7: MetalCompileError: kernel 'a' does not compile:\n")


def test_a_call_beyond_the_last(tmp_path: Path) -> None:
    result = invoke(SUM, "--call", 3, "--out", tmp_path)
    message = f"error: --call: expected 1 to 2, the kernel calls of {SUM}, got 3\n"
    assert (result.exit_code, result.stderr) == (2, message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.py"], "nowhere.py: expected a Python script, and found none; check the path"),
        ([SUM, "--call", 0], "--call: expected 1 or more, got 0"),
        ([SUM, "--threadgroup", "a"], "--threadgroup: expected three numbers such as 0,0,0, got 'a'"),
        ([SUM, "--threadgroup=0,-1,0"], "--threadgroup: expected three numbers such as 0,0,0, got '0,-1,0'"),
        ([SUM, "--lang", "de"], "--lang: expected one of en, ja, got 'de'"),
    ],
)
def test_bad_input(arguments: list[object], message: str) -> None:
    result = invoke(*arguments)
    assert (result.exit_code, result.stderr) == (2, f"error: {message}\n")
