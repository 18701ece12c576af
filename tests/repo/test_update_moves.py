"""`tiny-llm update` to a course in which code has moved: the learner's code moves, too."""

import re

import pytest
from learner import Clone, commit, git
from updating import clone, course, edit, publish, state

from tiny_llm_course.tasks.regions import regions
from tiny_llm_course.tasks.splice import code_of
from tiny_llm_course.tasks.syllabus import TaskId
from tiny_llm_course.update.update_plan import LEARNERS, UpdatePlan, _Merges

__all__ = ["clone", "course"]


def test_a_region_that_moves_to_a_header(course, clone):
    """w2d7.2 moved in this way from attention.cpp to attend_block.h. A region of the same task in Metal stays."""
    name, header, task = "kernels/softmax.cpp", "kernels/vector_row.h", TaskId(2, 2, 3)
    mine = clone.solved(name, "w2d2.3").replace("float most", "float my_most")
    clone.file(name).write_text("// my notes\n" + mine)
    stub = course.file(name).read_text()
    template = "template <typename T>\nvoid softmax_{}("
    start, end = stub.index(template.format("vector")), stub.index(template.format("threads"))
    course.file(header).write_text(f'#pragma once\n#include "vector.h"\n\n{stub[start:end]}')
    course.file(name).write_text(stub[:start] + stub[end:])
    commit(course, "newer")
    result = clone.run("update")
    assert result.returncode == 0, result.stderr
    moved = f"w2d2.3 moved from src/tiny_llm/{name} to src/tiny_llm/{header}, with your code for it"
    assert moved in result.stdout
    assert regions(clone.file(header).read_text(), header)[task] == regions(mine, name)[task]
    merged = clone.file(name).read_text()
    assert merged.startswith("// my notes\n")
    assert task not in regions(merged, name)
    assert clone.run("undo").returncode == 0
    assert clone.file(name).read_text() == "// my notes\n" + mine


def test_modules_of_the_course_that_moved(course, clone):
    """`update` and `undo` finish although they replace the files with their own code and texts."""
    before = state(clone)
    package = course.root / "src/tiny_llm_course"
    for old, new in (("learner", "pupil"), ("ui", "face")):
        (package / old).rename(package / new)
        for file in package.rglob("*.py"):
            file.write_text(re.sub(rf'(?<=[."]){old}(?=[. ])', new, file.read_text()))
    publish(course)
    result = clone.run("update")
    assert result.returncode == 0, result.stderr
    assert (clone.root / "src/tiny_llm_course/pupil/git.py").exists()
    result = clone.run("undo")
    assert result.returncode == 0, result.stderr
    assert state(clone) == before


def test_a_task_whose_file_has_another_name_takes_the_work_along(course, clone):
    """All of the learner's text in the file moves. The task is found by its id and its name."""
    (clone.root / "progress.txt").write_text("w1d4.1 solved\n")
    edit(clone.file("layer_norm.py"), lambda text: f"# my notes\n{text}\n\ndef mine():\n    return RMSNorm\n")
    for package in ("tiny_llm", "tiny_llm_ref"):
        git(course.root, "mv", f"src/{package}/layer_norm.py", f"src/{package}/norms.py")
    uses = [*course.root.glob("src/tiny_llm*/**/*.py"), *course.root.glob("tests/*.py")]
    for file in [*uses, course.root / "src/tiny_llm_course/syllabus.toml"]:
        text = file.read_text()
        file.write_text(text.replace(".layer_norm", ".norms").replace('["layer_norm"', '["norms"'))
    publish(course, norms=lambda text: text.replace("scales each token's", "newer: scales each token's"))
    result = clone.run("update")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "src/tiny_llm/layer_norm.py is now src/tiny_llm/norms.py; your code moved with it" in result.stdout
    assert not clone.file("layer_norm.py").exists()
    norms = clone.file("norms.py").read_text()
    assert norms.startswith("# my notes\n")
    assert norms.endswith("\n\ndef mine():\n    return RMSNorm\n")
    assert "mx.rsqrt(my_mean + self.eps)" in norms
    assert "newer: scales" in norms
    assert "✔ w1d4.1" in clone.run("progress").stdout
    assert clone.run("test", "w1d4.1").returncode == 0
    assert clone.run("undo").returncode == 0
    assert clone.file("layer_norm.py").read_text().startswith("# my notes\n")
    assert not clone.file("norms.py").exists()


@pytest.mark.parametrize("target", ["basics", "masks"])
def test_a_task_that_moves_to_another_file(course, clone, target):
    """The task moves to an existing or a new file, and the old file stays."""
    solved = clone.solved("attention.py", "w1d3.1").replace("<= query_positions", "<= _mine(query_positions)")
    clone.file("attention.py").write_text("# my notes\n" + solved + "\n\ndef _mine(x):\n    return x\n")
    source = course.file("attention.py").read_text()
    mask = source[source.index("def causal_mask") : source.index("def ", source.index("def causal_mask") + 5)]
    course.file("masks.py").write_text('"""Masks."""\n\nimport mlx.core as mx\n')
    publish(
        course,
        attention=lambda text: text.replace(mask, "").replace(
            "from .basics import ", f"from .{target} import causal_mask\nfrom .basics import "
        ),
        **{target: lambda text: f"{text}\n\n{mask}"},
    )
    result = clone.run("update")
    assert result.returncode == 0, result.stderr
    moved = f"causal_mask moved from src/tiny_llm/attention.py to src/tiny_llm/{target}.py, with your code for it"
    assert moved in result.stdout
    assert "def causal_mask" not in clone.file("attention.py").read_text()
    assert clone.file("attention.py").read_text().startswith("# my notes\n")
    there = clone.file(f"{target}.py").read_text()
    assert code_of(there, "causal_mask") == code_of(solved, "causal_mask")
    assert "def _mine(x):" in there
    assert "_mine" in clone.file("attention.py").read_text(), "it may be in use there, too"
    assert clone.run("undo").returncode == 0
    assert code_of(clone.file("attention.py").read_text(), "causal_mask") == code_of(solved, "causal_mask")


HEAD = '"""Sums."""\n'
TASK = """

def {name}(x):
    \"\"\"Text.

    Task: w1d1.{number}
    \"\"\"
    {body}
"""
NUMBERS = {"total": 1, "mean": 2}


def _task(name, body=""):
    error = f'raise NotImplementedError("Week 1 Day 1 Task {NUMBERS[name]}: {name} is yours to write. ")'
    return TASK.format(name=name, number=NUMBERS[name], body=body or error)


class Small:
    """A course with two files. The newer course has no `sums.py`, and its first task is in `other.py`."""

    def __init__(self, root, written):
        self.root = self.package = root
        total, mean = (_task(name) for name in NUMBERS)
        self.old = {"sums.py": HEAD + total + mean, "other.py": HEAD}
        self.new = {"other.py": HEAD + total}
        mine = HEAD + "".join(_task(name, "return 1" if name in written else "") for name in NUMBERS)
        (root / "sums.py").write_bytes(b"\xef\xbb\xbf" + mine.replace("\n", "\r\n").encode())
        (root / "other.py").write_text(HEAD)

    def all_files(self):
        return [self.root / name for name in self.old]

    def stub(self, path):
        return self.old[path.name]

    def content(self, entry):
        return self.new[entry].encode()

    def plan(self):
        plan = UpdatePlan()
        theirs = {f"{LEARNERS}{name}": name for name in self.new}
        _Merges(plan, self, self, {}, theirs).plan()
        return plan


@pytest.mark.parametrize("written", [["total"], ["total", "mean"]], ids=str)
def test_a_file_that_is_gone_stays_if_a_task_of_it_went_nowhere(tmp_path, written):
    """Written code moves, without the byte-order mark and the line ends of its file."""
    small = Small(tmp_path, written)
    plan = small.plan()
    assert plan.refused == []
    there = plan.files[tmp_path / "other.py"]
    assert there.startswith(HEAD.encode())
    assert b"    return 1\n" in there
    assert b"\r" not in there
    assert (plan.kept if "mean" in written else plan.dropped) == [tmp_path / "sums.py"]
    assert (tmp_path / "sums.py" in plan.files) == ("mean" not in written)


RULES = """\"\"\"Rules.\"\"\"

from .names import NAME

__all__ = ["limit"]


def limit():
    return len(NAME)
"""
USED = """from . import names, attention  # noqa
if True:
    from .rules import limit
    from .rules import (
        limit as same,
    )
print(limit(), same(), names.NAME)
"""


@pytest.fixture
def moving(course, tmp_path):
    """Return a course that will move three given files to shared packages, and a learner's clone of it."""
    course.file("rules.py").write_text(RULES)
    course.file("names.py").write_text('NAME = "a"\n')
    course.file("kernels/rules.h").write_text("#pragma once\n")
    commit(course, "before")
    git(tmp_path, "clone", "--quiet", str(course.root), "mine")
    for name in ("rules.py", "names.py"):
        git(course.root, "mv", f"src/tiny_llm/{name}", f"src/tiny_llm_given/{name}")
    git(course.root, "mv", "src/tiny_llm/kernels/rules.h", "src/tiny_llm_native/matmul/rules.h")
    commit(course, "after")
    return Clone(tmp_path / "mine")


def test_given_files_that_move_to_a_shared_package(moving):
    """Unchanged files are deleted, edited ones are in the backup, and imports are adapted."""
    edit(moving.file("rules.py"), lambda text: text.replace("return len", "return 2 * len"))
    edit(moving.file("kernels/rules.h"), lambda text: text + "// mine\n")
    moving.file("mine.py").write_text(USED)
    before = state(moving)
    result = moving.run("update")
    assert result.returncode == 0, result.stderr
    for name, place in {"rules.py": "given/rules.py", "kernels/rules.h": "native/matmul/rules.h"}.items():
        line = next(line for line in result.stdout.splitlines() if line.startswith(f"  src/tiny_llm/{name}: "))
        assert f"now uses the course's src/tiny_llm_{place}" in line
        backup = moving.root / line.rpartition(" ")[2]
        assert "mine" in backup.read_text() or "2 * len" in backup.read_text()
        assert not moving.file(name).exists()
    assert "names.py" not in result.stdout
    assert not moving.file("names.py").exists()
    assert "src/tiny_llm/mine.py: imports now name the new places of files that the course moved" in result.stdout
    assert moving.file("mine.py").read_text() == (
        "from tiny_llm_given import names\nfrom . import attention  # noqa\nif True:\n"
        "    from tiny_llm_given.rules import limit\n"
        "    from tiny_llm_given.rules import (\n        limit as same,\n    )\n"
        "print(limit(), same(), names.NAME)\n"
    )
    assert moving.run("undo").returncode == 0
    assert state(moving) == before


def test_a_given_file_with_definitions_of_the_learner_stays(moving):
    edit(moving.file("rules.py"), lambda text: text + "\n\ndef mine():\n    return 1\n")
    moving.file("mine.py").write_text("from .rules import mine\n")
    result = moving.run("update")
    assert result.returncode == 0, result.stderr
    assert "src/tiny_llm/rules.py: the newer course does not have this file; yours was kept" in result.stdout
    assert "from tiny_llm_given.names import NAME\n" in moving.file("rules.py").read_text()
    assert moving.file("mine.py").read_text() == "from .rules import mine\n"
