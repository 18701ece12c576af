"""`--fill`: a learner's first tasks in a model that runs, because the reference's code replaces each stub."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import mlx.core as mx
import pytest
from learner import ROOT, Clone

import tiny_llm_ref.positional_encoding
import tiny_llm_ref.quantize
from tiny_llm_course.generation.compare import Compared, compared
from tiny_llm_course.generation.fill import merged
from tiny_llm_course.model.loaded_model import Wanted
from tiny_llm_course.model.needs import needs_of_text
from tiny_llm_course.tasks.regions import code_files, regions
from tiny_llm_course.tasks.stubs import make_stub
from tiny_llm_course.tasks.syllabus import tasks
from tiny_llm_course.ui.language import Messages
from tiny_llm_ref import models
from tiny_llm_ref.generate import generate
from tiny_llm_ref.sampler import greedy

REFERENCE = ROOT / "src/tiny_llm_ref"
METAL = {task for file in REFERENCE.rglob("*.metal") for task in regions(file.read_text(), file.name)}
WEEK_1 = [task.id for task in tasks() if task.id.week == 1]
GREEDY = [task for task in WEEK_1 if task.day != 7]  # what a text at temperature 0 needs
FILLED = len(GREEDY) - 1 + 3  # with a cache: without week 1's loop
TEXT = ["--temp", "0", "--max-tokens", "12", "--prompt", "Once upon a time"]


device = pytest.fixture(lambda: None)  # the commands choose their own: nothing to repeat on each


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    clone = Clone.create(tmp_path_factory.mktemp("clones") / "course")
    clone.add_model()
    return clone


@pytest.fixture
def clone(unchanged: Clone) -> Iterator[Clone]:
    """Begin each test with stubs, and without progress."""
    yield unchanged
    write(unchanged)
    (unchanged.root / "progress.txt").unlink(missing_ok=True)


def write(clone: Clone, *solved: object) -> None:
    """Write the learner's files, with these tasks solved."""
    for file in code_files(clone.file(".")):
        name = file.relative_to(clone.file(".")).as_posix()
        file.write_text(clone.solved(name, *map(str, solved)))


def sources(clone: Clone) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in code_files(clone.file("."))}


def edit(clone: Clone, name: str, old: str, new: str) -> int:
    """Edit a file. Return the number of the edited line."""
    text = clone.file(name).read_text()
    assert text.count(old) == 1
    clone.file(name).write_text(text.replace(old, new))
    return text[: text.index(old)].count("\n") + 1


def assert_differs(run: subprocess.CompletedProcess[str], expected: str) -> int:
    """Return the token from which on the text differs from the reference's. Check that the message quotes both
    texts."""
    told = re.search(
        r"the reference from token (\d+) on: your text continues with '(.+)', the r.*'s with '(.+)'\.",
        run.stderr,
    )
    assert told, run.stderr
    assert run.returncode == 0
    same, yours, _ = run.stdout.partition(told[2])
    assert yours
    assert expected.startswith(same + told[3][:4])
    return int(told[1])


@pytest.fixture(scope="module")
def expected(unchanged: Clone) -> str:
    """Return the text that the reference prints."""
    return unchanged.run("main", *TEXT).stdout


def test_a_first_task_runs_in_the_model(clone: Clone, expected: str) -> None:
    write(clone, "w1d1.1")
    before = sources(clone)
    assert clone.run("test", "w1d1.1").returncode == 0
    run = clone.run("main", "--impl", "mine", "--fill", *TEXT)
    assert (run.returncode, run.stdout) == (0, expected)
    assert f"your code: w1d1.1; the reference's: the {FILLED - 1} other tasks that this command needs\n" in run.stderr
    assert "the same 12 tokens as the reference" in run.stderr
    assert sources(clone) == before
    edit(clone, "attention.py", " * scale  # N.., L, S", "")
    run = clone.run("main", "--impl", "mine", "--fill", *TEXT)
    assert_differs(run, expected)


def test_whose_code_ran(clone: Clone, expected: str) -> None:
    """A whole day has one name; untested code is listed separately; code from `solution` counts as the reference's."""
    write(clone, "w1d1.1", "w1d1.2", "w1d3.1", "w1d3.2", "w1d4.1")
    (clone.root / "progress.txt").write_text("w1d1.1 solved\nw1d1.2 solved\nw1d3.1 solved\nw1d4.1 skipped\n")
    told = clone.run("main", "--impl", "mine", "--fill", *TEXT).stderr
    assert (
        "your code: w1d1, w1d3.1, w1d3.2 (not passed yet); "
        f"the reference's: the {FILLED - 4} other tasks that this command needs\n" in told
    )
    told = clone.run("main", "--impl", "mine", "--fill", *TEXT, LANG="ja_JP.UTF-8").stderr
    assert "自分のコード: w1d1, w1d3.1, w1d3.2（テスト未合格）、" in told
    assert f"模範解答: このコマンドに必要なほかの課題 {FILLED - 4} 個\n" in told
    (clone.root / "progress.txt").unlink()
    write(clone, *(task.id for task in tasks()))
    run = clone.run("main", "--impl", "mine", "--fill", *TEXT)
    assert f"your code: all {FILLED} tasks that this command needs." in run.stderr
    assert run.stdout == expected


@pytest.mark.parametrize("options", [[], ["--bits", "4", "--layers", "kernels"]], ids=["plain", "kernels"])
def test_on_stubs_everything_is_the_references(options: list[str], clone: Clone) -> None:
    run = clone.run("main", "--impl", "mine", "--fill", *TEXT, *options)
    assert run.stdout == clone.run("main", *TEXT, *options).stdout
    assert "None of them is yours yet: ./course next" in run.stderr
    assert "not written" not in run.stderr


def test_a_kernel_is_the_learners_once_it_is_written(clone: Clone) -> None:
    options = ["--impl", "mine", "--fill", *TEXT, "--bits", "4", "--layers", "kernels"]
    write(clone, "w2d5.3")
    assert "your code: w2d5.3 (not passed yet); the" in clone.run("main", *options).stderr
    line = edit(clone, "kernels/swiglu.py", "    run = kernel(", "    raise ValueError('mine')\n    run = kernel(")
    stderr = clone.run("main", *options).stderr
    assert f'kernels/swiglu.py", line {line}, in ' in stderr
    assert "ValueError: mine" in stderr


def test_an_error_of_the_learners_is_explained(clone: Clone) -> None:
    """The message names the learner's own file and line, even if the reference's functions come before it in the file,
    or says how the learner's result broke the reference's code."""
    write(clone, "w1d1.1", "w1d3.2")
    line = edit(clone, "attention.py", "    grouped = query.reshape(", "    grouped = query.reshappe(")
    run = clone.run("main", "--impl", "mine", "--fill", *TEXT)
    assert run.returncode == 1
    assert "error in src/tiny_llm:\n" in run.stderr
    assert (
        f'attention.py", line {line}, in scaled_dot_product_attention_grouped\n    grouped = query.resh' in run.stderr
    )
    write(clone, "w1d1.1")
    edit(clone, "attention.py", "axis=-1) @ value\n", "axis=-1) @ value[..., :3]\n")
    run = clone.run("main", "--impl", "mine", "--fill", *TEXT)
    assert run.returncode == 1
    assert run.stderr.startswith("error: the reference's code failed at src/tiny_llm_ref/attention.py:")
    assert "on the results of your code: ValueError: [reshape]" in run.stderr
    assert "Traceback" not in run.stderr
    edit(clone, "basics.py", "def linear(", "def linear((")
    run = clone.run("main", "--impl", "mine", "--fill", *TEXT)
    assert 'basics.py", line ' in run.stderr
    assert "SyntaxError: " in run.stderr


def test_a_conversation(clone: Clone) -> None:
    write(clone, "w1d1.1")
    run = clone.run("chat", "--impl", "mine", "--fill", "--temp", "0", "--max-tokens", "5", input="Hello\n")
    assert run.stdout == clone.run("chat", "--temp", "0", "--max-tokens", "5", input="Hello\n").stdout
    assert "your code: w1d1.1 (not passed yet); the reference's: " in run.stderr


def test_what_cannot_be_filled_in(clone: Clone, tmp_path: Path) -> None:
    run = clone.run("main", "--fill", *TEXT)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("error: --fill: expected --impl mine")
    away = clone.root / "src/tiny_llm_ref"
    away.rename(tmp_path / "kept")
    run = clone.run("main", "--impl", "mine", "--fill", *TEXT)
    (tmp_path / "kept").rename(away)
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr.startswith("error: --fill runs the reference where your code is missing")


def module_of(text: str, name: str, folder: Path) -> Any:
    """Return a module of the reference, whose code is replaced with this text of a learner."""
    file = folder / f"{name}.py"
    file.write_text(text)
    module = ModuleType(f"tiny_llm_ref.{name}")
    module.__package__ = "tiny_llm_ref"
    exec(merged(file, REFERENCE / f"{name}.py"), vars(module))
    return module


def test_helpers_of_both_have_the_same_name(tmp_path: Path) -> None:
    """The helpers differ in meaning: each function calls its own helper."""
    source = (REFERENCE / "quantize.py").read_text()
    text = make_stub(source) + "\n\ndef _pack(word):\n    return f'mine: {word}'\n"
    module = module_of(text, "quantize", tmp_path)
    w = mx.random.normal((4, 64), key=mx.random.key(1))
    for one, other in zip(module.quantize(w), tiny_llm_ref.quantize.quantize(w), strict=True):
        assert mx.array_equal(one, other)
    assert module._pack("x") == "mine: x"


def test_a_class_that_is_one_task_is_taken_whole(tmp_path: Path) -> None:
    """The learner's half stores its numbers in another attribute than the one that the reference's other half reads."""
    source = (REFERENCE / "positional_encoding.py").read_text()
    written = "        _check_dims(dims)\n        self.mine = seq_len\n"
    body = source.partition("traditional: bool = False):\n")[2].partition("    def __call__")[0]
    half = source.replace(body, written + "\n").partition("        _check_input")[0]
    stub = make_stub(source)
    text = half + stub.partition("def __call__")[2].partition("\n")[2]
    assert "self.mine" in text
    assert "is yours to write" in text
    x = mx.random.normal((1, 3, 2, 8), key=mx.random.key(1))
    found = module_of(text, "positional_encoding", tmp_path).RoPE(8, 16)(x)
    assert mx.array_equal(found, tiny_llm_ref.positional_encoding.RoPE(8, 16)(x))


# ------------------------------------------------------------------------------------- what a command needs


def test_what_is_counted_as_missing(clone: Clone) -> None:
    write(clone, "w1d1.1", "w1d1.2")

    def counted(*options: str) -> str:
        run = clone.run("main", "--impl", "mine", "--prompt", "x", *options)
        assert run.returncode == 1
        assert "first: w1d2.1, " in run.stderr
        return run.stderr.partition("still to be written: ")[2].partition("\n")[0]

    assert counted() == str(len(WEEK_1) - 2)
    assert counted("--temp", "0") == str(len(GREEDY) - 2)
    of_week_2 = [task for task in tasks() if task.id.week == 2 and task.id not in METAL]
    kernels = [task for task in of_week_2 if task.id.day in (3, 4, 5, 6, 7)]
    assert counted("--bits", "4", "--layers", "kernels") == str(len(WEEK_1) - 2 + len(kernels))
    write(clone, *WEEK_1)
    run = clone.run("main", "--impl", "mine", "--prompt", "x", "--bits", "4")
    assert "still to be written: 4\nfirst: w2d3.1, " in run.stderr


@pytest.mark.parametrize(
    ("layers", "is_cached"), [("plain", False), ("plain", True), ("kernels", True)], ids=["loop", "cache", "kernels"]
)
def test_what_is_needed_is_enough(layers: str, is_cached: bool, clone: Clone) -> None:
    """If only these tasks are solved, the command runs; and no task in Metal is among them."""
    needed = needs_of_text(layers == "kernels", layers, is_greedy=True, is_cached=is_cached)
    assert not needed & METAL
    write(clone, *needed)
    options = ["--bits", "4", "--layers", layers] if layers == "kernels" else []
    run = clone.run("main", "--impl", "mine", *TEXT, *options)
    assert run.returncode == 0, run.stderr
    assert "not written" not in run.stderr
    assert ("This speed is expected: without a KV cache" in run.stderr) == (not is_cached)
    assert ("the same 12 tokens as the reference" in run.stderr) == (layers == "plain")


def test_no_task_in_metal_is_needed_by_requests() -> None:
    from tiny_llm_course.model.needs import needs_of_serving

    needed = needs_of_serving(True, "kernels", range(1, 8))
    assert not needed & METAL
    left = {str(task.id) for task in tasks() if task.id.week in (1, 3)} - {str(task) for task in needed}
    assert left == {"w1d6.1", "w3d2.2", "w3d2.3", "w3d4.3"}


def test_a_text_that_parts_from_the_references_later(clone: Clone, expected: str) -> None:
    """The message names the first different token, and quotes both texts from there."""
    write(clone, *GREEDY)
    edit(
        clone,
        "generate.py",
        "        tokens.append(token)\n",
        "        tokens.append(token if len(tokens) < 9 else 7)\n",
    )
    run = clone.run("main", "--impl", "mine", *TEXT)
    assert assert_differs(run, expected) > 1


def test_ends_of_texts_are_compared() -> None:
    """One text ends where the reference's text does, one ends too early, and one does not end."""
    wanted = Wanted("tiny_llm", "story", "float32")
    model, tokenizer = models.load("story", mx.float32)
    messages = [{"role": "user", "content": "Mia put the red key in the old box. Where is the key?"}]
    prompt = list(tokenizer.apply_chat_template(messages, add_generation_prompt=True))
    tokens = list(generate(model, prompt, greedy, 60, model.config.eos_token_ids))
    assert 1 < len(tokens) < 60
    assert compared(wanted, prompt, tokens, has_ended=True) == Compared(len(tokens))
    assert compared(wanted, prompt, tokens[:-1], has_ended=False) == Compared(len(tokens) - 1)
    early = compared(wanted, prompt, tokens[:-1], has_ended=True)
    assert early == Compared(len(tokens) - 1, "", tokenizer.decode(tokens[-1:]))
    told = early.told(Messages("en"))
    assert f"your text continues with the end of the text, the reference's with {early.theirs!r}." in told
    late = compared(wanted, prompt, [*tokens, tokens[0]], has_ended=False)
    assert late == Compared(len(tokens), tokenizer.decode(tokens[:1]), "")
