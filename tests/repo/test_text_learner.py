"""`tiny-llm main` on a learner's code: messages about unwritten code, and about errors in it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from text_runs import PROMPT, Reference, as_line, checkpoint, reference, run

import tiny_llm_ref
from tiny_llm_course.tasks.stubs import make_stub
from tiny_llm_ref import kv_cache

__all__ = ["checkpoint", "reference"]


device = pytest.fixture(lambda: None)  # the commands choose their own


def write_package(parent: Path, last_solved_day: int, week: int = 1) -> Path:
    """Write a learner's package in which all days up to the given one are solved."""
    package = parent / "tiny_llm"
    package.mkdir()
    for file in Path(tiny_llm_ref.__file__).parent.glob("*.py"):
        stub = make_stub(file.read_text(), is_solved=lambda task: (task.week, task.day) <= (week, last_solved_day))
        (package / file.name).write_text(stub)
    return package


def edit(file: Path, old: str, new: str) -> int:
    """Edit a file. Return the number of the edited line."""
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    return text[: text.index(old)].count("\n") + 1


def test_unsolved_tasks_are_named(checkpoint: Path, tmp_path: Path) -> None:
    package = write_package(tmp_path, 3)
    line = (package / "layer_norm.py").read_text().splitlines().index("        raise NotImplementedError(") + 1
    for options in [[], ["--temp", 0]]:  # the first is stopped by day 7's sampler
        code, stdout, stderr = run(
            "main", "--impl", "mine", "--model", checkpoint, "--prompt", "x", *options, PYTHONPATH=str(tmp_path)
        )
        assert (code, stdout) == (1, b"")
        number, first, file, test = stderr.splitlines()
        assert re.fullmatch(r"src/tiny_llm is not finished\. Tasks still to be written: \d\d", number)
        assert first == "first: w1d4.1, week 1 day 4 (RMSNorm and the gated MLP)"
        assert file == f"file:  {os.path.relpath(package / 'layer_norm.py')}:{line}"
        assert test == "test:  ./course test w1d4.1"


def test_learners_code_after_day_6(checkpoint: Path, reference: Reference, tmp_path: Path) -> None:
    """The code runs at temperature 0. An error names its place, and so does a file that does not parse or does not
    exist."""
    package = write_package(tmp_path, 6)

    def mine(*options: object) -> tuple[int, bytes, str]:
        common = ["--impl", "mine", "--model", checkpoint, "--raw", "--prompt", PROMPT, "--max-tokens", 8]
        return run("main", *common, *options, PYTHONPATH=str(tmp_path))

    expected = reference.sample(temperature=0).text(PROMPT, 8)
    assert mine("--temp", 0)[:2] == (0, as_line(expected))

    line = edit(package / "mlp.py", "return self.down_proj(", "return self.down_proj(x @ x + ")
    code, stdout, stderr = mine("--temp", 0)
    assert (code, stdout) == (1, b"")
    assert stderr.startswith("error in src/tiny_llm:\n")
    assert f'File "{package / "mlp.py"}", line {line}, in __call__\n    return self.down_proj(x @ x + ' in stderr
    assert "ValueError: [matmul]" in stderr
    assert stderr.count("File ") == 3

    line = edit(package / "attention.py", "def causal_mask(", "def causal_mask((")
    code, stdout, stderr = mine("--temp", 0)
    assert (code, stdout) == (1, b"")
    assert stderr.startswith(f'error in src/tiny_llm:\n  File "{package / "attention.py"}", line {line}\n')
    assert "SyntaxError: " in stderr
    assert stderr.count("File ") == 1

    (package / "sampler.py").unlink()
    (package / "generate.py").write_text("")
    code, _, stderr = mine("--temp", 0)
    assert (code, stderr) == (1, "error in src/tiny_llm:\nModuleNotFoundError: No module named 'tiny_llm.sampler'\n")


def test_learners_cache_is_used_once_it_is_written(checkpoint: Path, reference: Reference, tmp_path: Path) -> None:
    """The cache is used once all of week 2 day 1 is written. Until then, and in an older course, week 1's loop runs."""
    package = write_package(tmp_path, 1, week=2)
    loops, whole = (package / "generate.py").read_text(), Path(kv_cache.__file__).read_text()
    with_cache, without = "    tokens = new = list(prompt)\n", "    tokens = list(prompt)\n"

    def runs_without(line: str) -> bool:
        """Tell whether text is generated although this line, of one of the loops, raises an error."""
        (package / "generate.py").write_text(loops)
        edit(package / "generate.py", line, "    raise RuntimeError\n")
        common = ["--impl", "mine", "--model", checkpoint, "--raw", "--prompt", PROMPT, "--max-tokens", 8]
        code, stdout, stderr = run("main", *common, "--temp", 0, PYTHONPATH=str(tmp_path))
        assert (code, stdout) == (0, expected) or stderr.endswith("RuntimeError\n")
        return code == 0

    expected = as_line(reference.sample(temperature=0).text(PROMPT, 8))
    assert runs_without(without)
    assert not runs_without(with_cache)
    (package / "kv_cache.py").write_text(make_stub(whole, is_solved=lambda task: str(task) != "w2d1.2"))
    assert runs_without(with_cache)
    (package / "kv_cache.py").write_text(whole)
    loops = loops.replace("def generate(", "def renamed(")
    assert runs_without(with_cache)


def test_learners_error_while_the_model_is_built(checkpoint: Path, tmp_path: Path) -> None:
    """The error may be a ValueError, like the errors of a damaged checkpoint, or the learner's own
    NotImplementedError."""
    file = write_package(tmp_path, 7) / "layer_norm.py"
    options = ["--impl", "mine", "--model", checkpoint, "--prompt", "x"]
    edit(file, "        self.", "        mx.zeros(3).reshape(2)\n        self.")
    code, _, stderr = run("main", *options, PYTHONPATH=str(tmp_path))
    assert code == 1
    assert f'File "{file}"' in stderr
    assert "ValueError: [reshape]" in stderr

    edit(file, "mx.zeros(3).reshape(2)", "raise NotImplementedError('tomorrow')")
    code, _, stderr = run("main", *options, PYTHONPATH=str(tmp_path))
    assert code == 1
    assert stderr.endswith("NotImplementedError: tomorrow\n")

    options = ["--impl", "mine", "--model", tmp_path, "--prompt", "x"]
    code, _, stderr = run("main", *options, PYTHONPATH=str(tmp_path))
    assert (code, stderr) == (1, f"error: --model: {tmp_path} has no config.json\n")
