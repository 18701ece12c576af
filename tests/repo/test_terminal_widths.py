"""Every command at 60, 80 and 120 columns, in both languages: no line is wider than the terminal, no word is broken."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from learner import ROOT, Clone, Terminal
from recorded_screens import MARK
from rich.cells import cell_len
from rich.color import Color

from tiny_llm_course.ui.command_table import ALL, FOR_MAINTAINERS
from tiny_llm_course.ui.language import LANGUAGES
from tiny_llm_course.ui.terminal import COLOURS

WIDTHS = (60, 80, 120)
WIDE = 500  # columns: here nothing is broken
KERNEL = """
import mlx.core as mx
from metal_host import metal_kernel

kernel = metal_kernel("reversed_sum", ["x"], ["out"], '''
    threadgroup float kept[64];
    uint i = thread_position_in_threadgroup.x;
    kept[i] = x[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = kept[63 - i] + x[i];
''')
kernel(inputs=[mx.ones(64)], output_shapes=[(64,)], output_dtypes=[mx.float32], grid=(64, 1, 1), threadgroup=(64, 1, 1))
"""
REQUESTS = "".join(json.dumps({"id": f"r{i}", "prompt": "Once upon a time", "max_tokens": 4}) + "\n" for i in range(3))
MAIN = ("main --seed 3 --max-tokens 40", "main --seed 3 --max-tokens 40 --prompt むかし、あるところに")
COMMANDS = {  # of each command, calls that print what there is to see
    "next": ["next", "next --path core", "next --path all"],
    "test": ["test w0d1.1", "test w0d1.2", "test w1d1.1", "test w9d9.9"],
    "watch": ["watch w0d1.1"],
    "hint": ["hint w1d1.2", "hint w2d6.3 --more"],
    "progress": ["progress"],
    "solution": ["solution w1d6.2", "solution w0d2.2 --apply", "solution --path core"],
    "reset": ["reset w0d2.2", "reset w0d1.2"],
    "undo": ["undo"],
    "update": ["update .", "update . --to 9.9.9"],
    "doctor": ["doctor", "doctor --report {out}/machine.json", "doctor machine.json"],
    "report": ["report w1d1.1 --out {out}", "report w0d1.2"],
    "install": ["install"],
    "main": [*MAIN, "main --bits 3"],
    "chat": ["chat --seed 3 --max-tokens 30"],
    "batch": ["batch requests.jsonl --out {out} --record run.json"],
    "serve": ["serve --port 0 --host 0.0.0.0"],
    "build-ext": ["build-ext"],
    "bench": ["bench"],
    "roofline": ["roofline"],
    "trace": ["trace", "trace --batch 64 --seq 32768 --hidden 4096 --heads 32"],
    "viz": [
        "viz attention",
        "viz rope",
        "viz mask",
        "viz mask --keys 32 --lengths 20",
        "viz sampling",
        "viz kernel kernel.py",
        "viz schedule run.json",
    ],
    "test-ref": ["test-ref w0d1.1"],
    "bench-ref": ["bench-ref"],
    "build-ext-ref": ["build-ext-ref"],
    "grade": ["grade submissions --fresh", "grade submissions --fresh --format json --out grades.json"],
    "grade-report": ["grade-report grades.json"],
    "export": ["export --student {out}"],
    **{key: [] for key in FOR_MAINTAINERS},  # their output is for logs
}
GROUPS = ("viz attention", "viz rope", "viz mask", "viz sampling", "viz kernel", "viz schedule")
HELP = ["--help", *(f"{name} --help" for name in (*ALL, *GROUPS)), "main --no-such-option"]
SHORT = {"k", "M", "G", "T", "P"}  # thousands and more, where there is no room for all digits


def test_every_command_is_recorded() -> None:
    assert list(COMMANDS) == ALL


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """Return a clone with a known mistake, a mistake without a name, and the files that the commands need."""
    clone = Clone.create(tmp_path_factory.mktemp("clone"))
    softmax = clone.solved("foundations.py", "w0d1.1").replace("keepdims=True", "keepdims=False")
    clone.file("foundations.py").write_text(softmax)
    attention = clone.solved("attention.py", "w1d1.1").replace("* scale  # N.., L, S", "* scale * 1.01")
    clone.file("attention.py").write_text(attention)
    for weights in (ROOT / "src/tiny_llm_models").glob("*/*.safetensors"):
        (clone.root / weights.relative_to(ROOT)).symlink_to(weights)
    shutil.copytree(ROOT / "scripts", clone.root / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    (clone.root / "src/metal_host").symlink_to(ROOT / "src/metal_host")
    (clone.root / "kernel.py").write_text(KERNEL)
    (clone.root / "requests.jsonl").write_text(REQUESTS)
    for name in ("ann-marie.o-sullivan-2026", "b"):
        shutil.copytree(clone.root / "src/tiny_llm", clone.root / "submissions" / name)
    subprocess.run(
        "git init -q && git add src/tiny_llm && git -c user.name=a -c user.email=a@b commit -qm 1",
        shell=True,
        check=True,
        cwd=clone.root,
    )
    hints = [["hint", task, "--more"] for task in ("w0d1.1", "w2d6.3") for _ in range(3)]
    first = [["build-ext"], *hints, ["solution", "w0d2.2", "--apply"]]
    clone.run_in_a_row(first)  # so that screens do not depend on their order
    return clone


@pytest.fixture(scope="module")
def screens(clone: Clone) -> dict[tuple[str, str, int], str]:
    """Return the screens, keyed by call, language and width."""
    keys = [
        *(
            (call, language, width)
            for language in LANGUAGES
            for width in (WIDE, *WIDTHS)
            for name in ALL
            for call in COMMANDS[name]
        ),
        *((call, "en", width) for width in (WIDE, *WIDTHS) for call in HELP),
    ]
    items = [
        {"arguments": call.format(out=f"out{number}").split(), "language": language, "width": width}
        for number, (call, language, width) in enumerate(keys)
    ]
    (clone.root / "items.json").write_text(json.dumps(items))
    command = [sys.executable, str(Path(__file__).with_name("recorded_screens.py")), str(ROOT), "items.json"]
    environment = {name: value for name, value in clone.environment.items() if name != "COLUMNS"}
    terminal = Terminal(command, clone.root, environment)
    assert terminal.exit_code(1200) == 0, terminal.screen[-3000:]
    shown = re.split(rf"{MARK}(\d+)\r\n", terminal.raw)
    assert [int(number) for number in shown[1::2]] == list(range(len(keys)))
    return dict(zip(keys, shown[2::2], strict=True))


CALLS = [(call, language) for name in ALL for call in COMMANDS[name] for language in LANGUAGES]


@pytest.mark.parametrize(("call", "language"), [*CALLS, *((call, "en") for call in HELP)])
def test_no_line_is_too_wide_and_no_word_is_broken(
    screens: dict[tuple[str, str, int], str], call: str, language: str
) -> None:
    whole = words(screens[call, language, WIDE])
    assert lines(screens[call, language, WIDE])
    for width in WIDTHS:
        screen = screens[call, language, width]
        assert not too_wide(screen, width), f"at {width} columns"
        assert not words(screen) - whole - SHORT, f"at {width} columns of\n{screen}"


@pytest.mark.parametrize("call", MAIN)
def test_a_models_text_is_the_same_at_any_width(screens: dict[tuple[str, str, int], str], call: str) -> None:
    texts = {width: said(screens[call, "en", width]) for width in (WIDE, *WIDTHS)}
    assert len(texts[WIDE].split()) > 20 or len(texts[WIDE]) > 60
    for text in texts.values():
        assert "".join(text.split()) == "".join(texts[WIDE].split())


def test_a_terminal_may_change_its_width_while_a_model_speaks(clone: Clone) -> None:
    """The width may change at any place of the model's text."""
    command = ["main", "--seed", "3", "--max-tokens", "80", "--prompt", "Tell me a short story."]
    terminal = clone.terminal(*command, COLUMNS="")
    terminal.wait_for("loading story ...")
    for width in (70, 30, 50):
        terminal.resize(width)
        terminal.wait_for(" ")
    assert terminal.exit_code() == 0
    whole = clone.run(*command)
    assert said(terminal.screen).split() == whole.stdout.split()
    assert max(map(cell_len, said(terminal.screen).splitlines())) <= 80


def said(screen: str) -> str:
    """Return the model's text on a screen."""
    return "\n".join(lines(screen)).partition("loading story ...\n")[2].partition("\nprompt ")[0]


def test_colours_are_those_that_can_be_read(screens: dict[tuple[str, str, int], str]) -> None:
    shown = {number for screen in screens.values() for number in re.findall(r"\x1b\[[\d;]*38;5;(\d+)m", screen)}
    assert shown == {str(number) for number in COLOURS.values()}
    for key, screen in screens.items():
        left = re.sub(r"38;5;\d+", "", screen)
        assert not re.search(r"\x1b\[(?:\d*;)*(?:2|3[0-7]|9[0-7])m", left), f"a colour that terminals choose, in {key}"


@pytest.mark.parametrize("name", COLOURS)
def test_colours_can_be_read_on_black_and_on_white(name: str) -> None:
    luminance = relative_luminance(*get_truecolor(COLOURS[name]))
    assert (luminance + 0.05) / 0.05 > 3.8
    assert 1.05 / (luminance + 0.05) > 3.8


def get_truecolor(number: int) -> tuple[int, int, int]:
    """Return the components of a colour. Of the 256 colours, use only those that look the same on all terminals."""
    assert number >= 16
    return tuple(Color.from_ansi(number).get_truecolor())


def relative_luminance(*rgb: int) -> float:
    """Return the luminance as the Web Content Accessibility Guidelines define it."""
    parts = [value / 255 for value in rgb]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def too_wide(screen: str, width: int) -> list[str]:
    """Return the lines that a terminal would break, except for paths that are longer than a line."""
    paths = re.compile(r" *\S*/\S*")
    return [line for line in lines(screen) if cell_len(line) > width and not paths.fullmatch(line)]


def words(screen: str) -> set[str]:
    """Return all words, with 0 for numbers, because numbers differ between runs."""
    found = re.findall(r"[A-Za-z0-9_]+(?:[-./'’,][A-Za-z0-9_]+)*", "\n".join(lines(screen)))
    return {re.sub(r"\d[\d.,]*", "0", word) for word in found}


def lines(screen: str) -> list[str]:
    """Return the lines without colours. A line that is written again counts as several."""
    text = re.sub(r"\x1b\[[\d;]*m", "", screen)
    return [line.rstrip() for line in re.split(r"[\r\n]+|\x1b\[[\d;?]*[A-Za-z]", text)]


@pytest.mark.parametrize(
    ("screen", "is_wide", "broken"),
    [
        ("one two three four\r\n", False, set()),
        ("one two three four five\r\n", True, {"five"}),
        ("one two th\r\nree four\r\n", False, {"th", "ree"}),
        ("\x1b[1mone two three\x1b[0m\r\n", False, set()),
        ("日本語の文章です one\r\n", False, set()),
        ("日本語の文章ですよ one two\r\n", True, set()),
    ],
)
def test_faults_are_found(screen: str, is_wide: bool, broken: set[str]) -> None:
    assert bool(too_wide(screen, 20)) == is_wide
    assert words(screen) - words("one two three four") == broken
