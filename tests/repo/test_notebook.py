"""The notebook of week 1 day 1 runs from its first cell to its last, unchanged and with a learner's code."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from learner import ROOT, Clone, run_python

from tiny_llm_course.tasks.splice import code_of

ENGLISH, JAPANESE = NOTEBOOKS = [ROOT / "notebooks" / f"week_1_day_1{suffix}.ipynb" for suffix in ("", ".ja")]
SETUP, TASK_1, TASK_2, MODEL = range(4)
AS_A_KERNEL_DOES = """
import json, linecache, sys
names = {"__name__": "__main__"}
for number, cell in enumerate(json.load(sys.stdin)):
    file = f"<cell {number}>"
    linecache.cache[file] = (len(cell), None, cell.splitlines(keepends=True), file)
    exec(compile(cell, file, "exec"), names)
"""


device = pytest.fixture(lambda: None)  # the notebook's commands choose their own


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    clone = Clone.create(tmp_path_factory.mktemp("clones") / "course")
    clone.add_model()
    shutil.copy(ROOT / "course", clone.root)
    shutil.copytree(ROOT / "notebooks", clone.root / "notebooks")
    return clone


@pytest.fixture
def clone(unchanged: Clone) -> Iterator[Clone]:
    """Begin each test with stubs."""
    stubs = {name: unchanged.file(name).read_text() for name in ("attention.py", "basics.py")}
    yield unchanged
    for name, text in stubs.items():
        unchanged.file(name).write_text(text)
    (unchanged.root / "progress.txt").unlink(missing_ok=True)


def read(notebook: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return cells


def code(notebook: Path) -> list[str]:
    return ["".join(cell["source"]) for cell in read(notebook) if cell["cell_type"] == "code"]


def run(clone: Clone, cells: list[str]) -> str:
    """Return the output of cells."""
    folder = clone.root / "notebooks"
    done = run_python(["-c", AS_A_KERNEL_DOES], folder, clone.environment, json.dumps(cells), timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def solved(cell: str, *functions: tuple[str, str]) -> str:
    """Return a cell with the reference's code for its functions. functions: pairs of a file and a name in this file."""
    for file, name in functions:
        stub = code_of(cell, name.rpartition(".")[2])
        solution = code_of((ROOT / "src/tiny_llm_ref" / file).read_text(encoding="utf-8"), name)
        lines = solution.splitlines(keepends=True)
        indent = len(lines[0]) - len(lines[0].lstrip())
        cell = cell.replace(stub, "".join(line[indent:] if line.strip() else line for line in lines))
    return cell


def test_as_it_is(clone: Clone) -> None:
    """The notebook says what to write, and the model runs on the reference's code."""
    shown = run(clone, code(ENGLISH))
    assert "○ w1d1.1  Scaled dot-product attention: to be written" in shown
    assert "○ w1d1.2  Linear layer and multi-head attention: to be written" in shown
    assert "the reference's code: all " in shown
    assert re.search(r"^generated +\d+ tokens", shown, re.MULTILINE)


def test_with_a_learners_code(clone: Clone) -> None:
    cells = code(ENGLISH)
    cells[TASK_1] = solved(cells[TASK_1], ("attention.py", "scaled_dot_product_attention_simple"))
    split = code_of((ROOT / "src/tiny_llm_ref/attention.py").read_text(), "SimpleMultiHeadAttention._split")
    helper = "".join(line[4:] for line in split.splitlines(keepends=True))
    cells[TASK_2] = solved(
        cells[TASK_2], ("basics.py", "linear"), ("attention.py", "SimpleMultiHeadAttention.__call__")
    ).replace("linear, __call__)", "linear, __call__, _split)")
    cells[TASK_2] = f"{helper}\n\n{cells[TASK_2]}"
    shown = run(clone, cells)
    assert re.search(r"✔ w1d1.1  Scaled dot-product attention: \d+ passed", shown)
    assert re.search(r"✔ w1d1.2  Linear layer and multi-head attention: \d+ passed", shown)
    assert "your code: w1d1; the reference's: " in shown


def test_a_mistake_is_named_and_can_be_taken_back(clone: Clone) -> None:
    cells = code(ENGLISH)
    wrong = solved(cells[TASK_1], ("attention.py", "scaled_dot_product_attention_simple"))
    shown = run(clone, [cells[SETUP], wrong.replace("1 / math.sqrt(query.shape[-1])", "1 / query.shape[-1]")])
    assert "✘ w1d1.1" in shown
    assert "sqrt" in shown.partition("✘ w1d1.1")[2]
    stub = clone.file("attention.py").read_text()
    run(clone, [cells[SETUP], 'course("undo")'])
    assert "is yours to write" in clone.file("attention.py").read_text() != stub


def test_a_function_that_the_task_does_not_ask_for(clone: Clone) -> None:
    before = clone.file("attention.py").read_text()
    cell = 'def attention():\n    pass\n\nwrite("w1d1.1", attention)\nprint("goes on")'
    assert run(clone, [code(ENGLISH)[SETUP], cell]) == "goes on\n"
    assert clone.file("attention.py").read_text() == before


def test_a_file_that_does_not_parse_is_left_alone(clone: Clone) -> None:
    clone.file("attention.py").write_text("def (")
    run(clone, code(ENGLISH)[: TASK_1 + 1])
    assert clone.file("attention.py").read_text() == "def ("


def test_commands_speak_the_notebooks_language(clone: Clone) -> None:
    shown = run(clone, [code(JAPANESE)[SETUP], 'course("next")'])
    assert "次の課題" in shown


def test_it_clones_and_installs_where_there_is_no_course(tmp_path: Path) -> None:
    """The programs only print how they were called; .ci/run installs for real."""
    (setup, *_) = code(ENGLISH)
    called = [
        "import importlib.util, subprocess, sys",
        "importlib.util.find_spec = lambda name: None",
        "subprocess.run = lambda words, check: print(*words[1:])",
    ]
    setup = setup.replace('ADDRESS = ""', 'ADDRESS = "https://example.org/tiny-llm"').partition("import mlx")[0]
    shown = run_python(["-c", "\n".join([*called, setup])], tmp_path, {"PATH": "/nowhere"}, timeout=600)
    assert shown.stdout.splitlines() == [
        f"clone --depth 1 https://example.org/tiny-llm {tmp_path}/tiny-llm",
        f"-m pip install --quiet --editable {tmp_path}/tiny-llm",
    ]


def test_both_languages_have_the_same_code() -> None:
    english, japanese = ([re.sub('"(en_US|ja_JP).UTF-8"', "", cell) for cell in code(file)] for file in NOTEBOOKS)
    assert japanese == english
    assert len({tuple(cell["id"] for cell in read(file)) for file in NOTEBOOKS}) == 1


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda file: file.name)
def test_no_results_are_kept(notebook: Path) -> None:
    cells = [cell for cell in read(notebook) if cell["cell_type"] == "code"]
    assert [(cell["outputs"], cell["execution_count"]) for cell in cells] == [([], None)] * len(cells)


def test_links_lead_somewhere() -> None:
    for file in NOTEBOOKS:
        text = "".join("".join(cell["source"]) for cell in read(file))
        links = re.findall(r"\]\(([^)]+)\)", text)
        assert links
        assert all((file.parent / link).exists() for link in links)
