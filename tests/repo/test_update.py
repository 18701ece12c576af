"""`tiny-llm update`: a newer course comes into a clone with work in it, with real git repositories."""

import subprocess

import pytest
from learner import Clone

from tiny_llm_course.regions import regions
from tiny_llm_course.syllabus import TaskId

GIT = ["git", "-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "init.defaultBranch=main"]


def git(folder, *arguments):
    run = subprocess.run([*GIT, *arguments], cwd=folder, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.fixture
def course(tmp_path):
    """Where the course is published."""
    course = Clone.create(tmp_path / "published")
    git(course.root, "init", "--quiet")
    commit(course, "first")
    return course


@pytest.fixture
def clone(course, tmp_path):
    """A learner's clone of it, with work that is partly committed."""
    git(tmp_path, "clone", "--quiet", str(course.root), "my course")
    clone = Clone(tmp_path / "my course")
    clone.file("attention.py").write_text(clone.solved("attention.py", "w1d1.1") + "\n\ndef my_idea():\n    return 1\n")
    git(clone.root, "commit", "--quiet", "--all", "-m", "task 1")
    source = clone.solved("layer_norm.py", "w1d4.1").replace("mean_square", "my_mean")
    clone.file("layer_norm.py").write_text(source)
    return clone


def commit(course, message):
    git(course.root, "add", "--all")
    git(course.root, "commit", "--quiet", "-m", message)


def publish(course, **sources):
    """Change files of the learner's package, as a new version of the stubs would."""
    for name, change in sources.items():
        file = course.file(f"{name}.py")
        source = change(file.read_text())
        assert source != file.read_text()
        file.write_text(source)
    commit(course, "newer")


def test_nothing_new(clone):
    assert clone.run("update").stdout == "The course is up to date.\n"


def test_functions_are_kept_and_stubs_come_in(course, clone):
    (course.root / "tests/test_new.py").write_text("# a new test\n")
    publish(
        course,
        attention=lambda text: text.replace(
            "def _check_groups", "def new_given():\n    return 2\n\n\ndef _check_groups"
        ),
        layer_norm=lambda text: text.replace("scales each token's", "newer: scales each token's"),
    )
    result = clone.run("update")
    assert result.returncode == 0, result.stderr
    assert "src/tiny_llm/attention.py: the newer stubs, with your functions" in result.stdout
    attention, layer_norm = (clone.file(name).read_text() for name in ("attention.py", "layer_norm.py"))
    assert "scores = query @ key.swapaxes(-2, -1) * scale" in attention
    assert "def my_idea():\n    return 1\n" in attention
    assert "def new_given():\n    return 2\n" in attention
    assert "newer: scales" in layer_norm
    assert "mx.rsqrt(my_mean + self.eps)" in layer_norm
    assert (clone.root / "tests/test_new.py").exists()
    assert clone.run("test", "--week", "1", "--day", "4", "-k", "task_1").returncode == 0
    assert clone.run("update").stdout == "The course is up to date.\n"


def test_regions_of_kernels_are_kept(course, clone):
    """What is written in one stays, what stands around it and other regions' stubs come in."""
    name = "kernels/softmax.cpp"
    mine = clone.solved(name, "w2d2.2").replace("float largest", "float my_largest")
    clone.file(name).write_text("// my notes\n" + mine)
    stub = course.file(name).read_text()
    newer = stub.replace("KERNEL(softmax_scalar)", "KERNEL(scalar)").replace(
        "Week 2 Day 2 Task 4: ", "Week 2 Day 2 Task 4: Newer. "
    )
    assert newer != stub
    course.file(name).write_text("// A newer first line.\n" + newer)
    course.file("kernels/newer.h").write_text("#pragma once\n")
    commit(course, "newer")
    result = clone.run("update")
    assert result.returncode == 0, result.stderr
    assert f"src/tiny_llm/{name}: the newer stubs, with your functions" in result.stdout
    assert (
        f"src/tiny_llm/{name}: this file belongs to the course, so your changes to it were replaced" in result.stdout
    ), "a line outside of the regions"
    merged = clone.file(name).read_text()
    assert merged.startswith("// A newer first line.\n")
    assert "KERNEL(scalar)" in merged
    assert "Week 2 Day 2 Task 4: Newer. " in merged
    assert regions(merged, name)[TaskId(2, 2, 2)] == regions(mine, name)[TaskId(2, 2, 2)]
    assert "my_largest" in merged
    assert clone.file("kernels/newer.h").exists()
    assert clone.run("undo").returncode == 0
    assert clone.file(name).read_text() == "// my notes\n" + mine


def test_a_kernel_whose_markers_are_gone_stops_everything(course, clone):
    name = "kernels/swiglu.cpp"
    broken = clone.file(name).read_text().replace("// task w2d5.3 end\n", "")
    clone.file(name).write_text(broken)
    course.file(name).write_text("// newer\n" + course.file(name).read_text())
    commit(course, "newer")
    result = clone.run("update")
    assert result.returncode == 1
    assert "nothing was changed" in result.stderr
    assert "`// task w2d5.3 begin` without its partner" in result.stderr
    assert clone.file(name).read_text() == broken


def test_git_has_nothing_to_ask_afterwards(course, clone):
    publish(course, attention=lambda text: text.replace('"""Attention:', '"""Newer. Attention:'))
    clone.run("update")
    assert git(clone.root, "status", "--short") == " M src/tiny_llm/layer_norm.py\n", (
        "what was not committed still is not"
    )
    assert git(clone.root, "log", "--format=%s", "-1").startswith("Update the course to ")
    assert "Already up to date" in git(clone.root, "pull", "--no-rebase", "origin", "main")
    publish(course, basics=lambda text: text.replace('"""The smallest', '"""Newer. The smallest'))
    git(clone.root, "pull", "--no-rebase", "--quiet", "origin", "main")
    assert "Newer. The smallest" in clone.file("basics.py").read_text()


def test_a_changed_signature_is_told_and_the_function_kept(course, clone):
    publish(
        course,
        attention=lambda text: text.replace(
            "    scale: float | None = None,\n    mask: mx.array | None", "    mask: mx.array | None", 1
        ),
    )
    shown = clone.run("update").stdout
    assert "src/tiny_llm/attention.py: a signature changed." in shown
    assert (
        "yours: def scaled_dot_product_attention_simple(query: mx.array, key: mx.array, value: mx.array, scale:"
        in shown
    )
    assert (
        "new:   def scaled_dot_product_attention_simple(query: mx.array, key: mx.array, value: mx.array, mask:" in shown
    )
    assert "* scale  # N.., L, S" in clone.file("attention.py").read_text()


def test_undo_takes_it_back(course, clone):
    before = {file: file.read_bytes() for file in clone.root.rglob("*.py")}
    head = git(clone.root, "rev-parse", "HEAD")
    (course.root / "tests/test_new.py").write_text("# a new test\n")
    (course.root / "tests/oracles.py").unlink()
    publish(course, attention=lambda text: text.replace('"""Attention:', '"""Newer. Attention:'))
    clone.run("update")
    assert not (clone.root / "tests/oracles.py").exists()
    assert clone.run("undo").returncode == 0
    assert {file: file.read_bytes() for file in clone.root.rglob("*.py") if ".tiny-llm" not in file.parts} == before
    assert git(clone.root, "rev-parse", "HEAD") == head
    assert git(clone.root, "status", "--short", "--untracked-files=no") == " M src/tiny_llm/layer_norm.py\n"
    assert "The course was updated" in clone.run("update").stdout, "it can be done again"


def test_what_the_learner_changed_in_the_course_itself_is_kept_in_a_backup(course, clone):
    (clone.root / "tests/oracles.py").write_text("# mine\n")
    publish(course, attention=lambda text: text.replace('"""Attention:', '"""Newer. Attention:'))
    (course.root / "tests/oracles.py").write_text("# newer\n")
    commit(course, "newer oracles")
    assert (
        "tests/oracles.py: this file belongs to the course, so your changes to it were replaced"
        in clone.run("update").stdout
    )
    assert (clone.root / "tests/oracles.py").read_text() == "# newer\n"
    assert "# mine\n" in [file.read_text() for file in clone.root.glob(".tiny-llm/backups/*/before/tests/oracles.py")]


def test_a_file_with_a_syntax_error_stops_everything(course, clone):
    clone.file("attention.py").write_text("def broken(:\n")
    publish(course, attention=lambda text: text.replace('"""Attention:', '"""Newer. Attention:'))
    before = {file: file.read_bytes() for file in clone.root.rglob("*.py")}
    result = clone.run("update")
    assert result.returncode == 1
    assert "nothing was changed" in result.stderr
    assert "attention.py:1: invalid syntax" in result.stderr
    assert {file: file.read_bytes() for file in clone.root.rglob("*.py")} == before


def test_sources_that_are_none(clone, tmp_path):
    result = clone.run("update", str(tmp_path / "nowhere"))
    assert result.returncode == 1
    assert "git fetch failed:" in result.stderr


def test_outside_of_git(tmp_path):
    result = Clone.create(tmp_path / "course").run("update")
    assert result.returncode == 2
    assert "update needs a git clone" in result.stderr
