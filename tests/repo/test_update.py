"""`tiny-llm update`: a newer course is merged into a clone with work in it, with real git repositories."""

from learner import Clone, commit, git
from updating import clone, course, edit, newer, publish, state, work

from tiny_llm_course.tasks.regions import regions
from tiny_llm_course.tasks.syllabus import TaskId

__all__ = ["clone", "course"]


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
    assert "src/tiny_llm/attention.py: has the newer stubs now; your code was kept" in result.stdout
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
    """Code in a written region stays, and so does code around it. The rest of the file and other stubs are updated."""
    name = "kernels/softmax.cpp"
    mine = clone.solved(name, "w2d2.2").replace("float largest", "float my_largest")
    clone.file(name).write_text("// my notes\n" + mine)
    stub = course.file(name).read_text()
    newer = stub.replace("KERNEL(softmax_scalar,", "KERNEL(scalar,").replace(
        "Week 2 Day 2 Task 4: ", "Week 2 Day 2 Task 4: Newer. "
    )
    assert newer != stub
    course.file(name).write_text("// A newer first line.\n" + newer)
    course.file("kernels/newer.h").write_text("#pragma once\n")
    commit(course, "newer")
    result = clone.run("update")
    assert result.returncode == 0, result.stderr
    assert f"src/tiny_llm/{name}: has the newer stubs now; your code was kept" in result.stdout
    merged = clone.file(name).read_text()
    assert merged.startswith("// my notes\n// A newer first line.\n")
    assert "KERNEL(scalar," in merged
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
    before = state(clone)
    (course.root / "tests/test_new.py").write_text("# a new test\n")
    (course.root / "tests/oracles.py").unlink()
    publish(course, attention=newer)
    clone.run("update")
    assert not (clone.root / "tests/oracles.py").exists()
    assert clone.run("undo").returncode == 0
    assert state(clone) == before
    assert git(clone.root, "status", "--short", "--untracked-files=no") == " M src/tiny_llm/layer_norm.py\n"
    assert "The course was updated" in clone.run("update").stdout, "it can be done again"


def test_what_the_learner_changed_in_the_course_itself_is_kept_in_a_backup(course, clone):
    """They are changed files, one that the newer course has deleted, and two of the learner's that the course now has,
    too."""
    names = ["tests/oracles.py", "tests/activations.py", "tests/test_new.py", "src/tiny_llm/new.py"]
    for name in names:
        (clone.root / name).write_text("# mine\n")
    for name in ("tests/oracles.py", "tests/test_new.py", "src/tiny_llm/new.py"):
        (course.root / name).write_text("# newer\n")
    (course.root / "tests/activations.py").unlink()
    publish(course, attention=newer)
    shown = clone.run("update").stdout
    for name in names:
        assert f"{name}: this file belongs to the course, so the course's version replaced yours" in shown
        [copy] = clone.root.glob(f".tiny-llm/backups/*/before/{name}")
        assert copy.read_text() == "# mine\n"
        assert str(copy.relative_to(clone.root)) in shown
    assert clone.file("new.py").read_text() == (clone.root / "tests/oracles.py").read_text() == "# newer\n"
    assert not (clone.root / "tests/activations.py").exists()


def test_a_file_with_a_syntax_error_stops_everything(course, clone):
    clone.file("attention.py").write_text("def broken(:\n")
    publish(course, attention=newer)
    before = state(clone)
    result = clone.run("update")
    assert result.returncode == 1
    assert "nothing was changed" in result.stderr
    assert "attention.py:1: invalid syntax" in result.stderr
    assert state(clone) == before


def test_all_that_a_learner_added_stays_and_solved_tasks_are_tried(course, clone):
    """The learner added comments, an import that a top-level `if` uses, an export, an edit of given code, and helpers.

    A module that could not be imported earlier is no obstacle, nor is a task that failed earlier.
    """
    edit(clone.file("attention.py"), work)
    clone.file("mine.py").write_text("import no_such_module\n")
    edit(clone.file("layer_norm.py"), lambda text: text.replace("self.eps)", "0)"))
    (clone.root / "progress.txt").write_text("w1d1.1 solved\nw1d4.1 solved\n")
    before = clone.file("attention.py").read_text()

    def change(text):
        text = (
            newer(text)
            .replace("__all__ = [", '__all__ = [\n    "given",', 1)
            .replace("import math\n", "import math\n\n")
        )
        text = text.replace("Week 1 Day 1 Task 2: ", "Week 1 Day 1 Task 2: Newer. ").replace("\n\n@", "\n\n# newer\n@")
        return text + "\n\ndef given():\n    return 1\n"

    publish(course, attention=change)
    result = clone.run("update")
    assert result.returncode == 0, result.stderr
    assert "trying the newer course in a copy, with the tests of 2 solved tasks" in result.stderr
    after = clone.file("attention.py").read_text()
    lines = [line for line in before.splitlines() if line not in after.splitlines()]
    assert all("Newer" in newer(line) or "Task 2" in line for line in lines), lines
    assert "def given():" in after
    assert '"my_helper"' in after[: after.index("def ")]
    assert "Newer." in after
    assert clone.run("test", "w1d1.1").returncode == 0
    assert "Your lines" not in result.stdout, "nothing was replaced"


def test_lines_that_both_changed(course, clone):
    """The course's lines are in the file, and a message says where the learner's lines are."""
    edit(clone.file("attention.py"), work)
    publish(
        course,
        attention=lambda text: text.replace(
            'raise ValueError(f"num_heads must', 'raise ValueError(f"the num_heads must'
        ),
    )
    shown = clone.run("update").stdout
    assert "you and the newer course changed the same lines" in shown
    [place] = [line for line in shown.splitlines() if "Your lines: " in line]
    copy, _, number = place.partition("Your lines: ")[2].rpartition(":")
    assert "mine: num_heads must" in (clone.root / copy).read_text().splitlines()[int(number) - 1]
    assert 'f"the num_heads must' in clone.file("attention.py").read_text()


def test_an_update_that_breaks_what_works_is_not_made(course, clone):
    """In the test, the newer tests of a solved task fail, and a module cannot be imported."""
    (clone.root / "progress.txt").write_text("w1d1.1 solved\nw1d4.1 solved\n")
    before = state(clone)
    edit(
        course.root / "tests/test_week_1_day_4.py",
        lambda text: text.replace("oracles.rms_norm(", "2 * oracles.rms_norm("),
    )
    publish(course, attention=newer, positional_encoding=lambda text: text + "\nimport no_such_module\n")
    result = clone.run("update")
    assert result.returncode == 1
    assert "✘ w1d4.1" in result.stdout, "what the newer tests say"
    assert "nothing was changed, because the newer course would break code that works now: " in result.stderr
    assert "tiny_llm.positional_encoding cannot be imported: ModuleNotFoundError: " in result.stderr
    assert "tasks that you solved fail the newer tests: w1d4.1. To update anyway" in result.stderr
    assert state(clone) == before
    assert clone.run("update", "--reopen").returncode == 0
    assert (clone.root / "progress.txt").read_text().splitlines()[2:] == ["w1d1.1 solved"]
    assert clone.run("undo").returncode == 0
    assert state(clone) == before


def test_sources_that_are_none(clone, tmp_path):
    result = clone.run("update", str(tmp_path / "nowhere"))
    assert result.returncode == 1
    assert "git fetch failed:" in result.stderr


def test_outside_of_git(tmp_path):
    result = Clone.create(tmp_path / "course").run("update")
    assert result.returncode == 2
    assert "update needs a git clone" in result.stderr
