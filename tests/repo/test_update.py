"""`tiny-llm update`: a newer course comes into a clone with work in it, with real git repositories."""

import re
import shutil
import signal
import subprocess

import pytest
from learner import GIT, Clone, commit, git, run_python

from tiny_llm_course.base.conflict import abort_command
from tiny_llm_course.learner.git import Git, take_back_commit
from tiny_llm_course.tasks.regions import regions
from tiny_llm_course.tasks.splice import code_of
from tiny_llm_course.tasks.syllabus import TaskId
from tiny_llm_course.ui.errors import CommandError
from tiny_llm_course.update.update_plan import LEARNERS, UpdatePlan, _Merges


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A repository with the course as it is."""
    course = Clone.create(tmp_path_factory.mktemp("first") / "course")
    git(course.root, "init", "--quiet")
    commit(course, "first")
    return course.root


@pytest.fixture
def course(first, tmp_path):
    """Where the course is published."""
    git(tmp_path, "clone", "--quiet", str(first), "published")
    return Clone(tmp_path / "published")


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


def publish(course, **sources):
    """Change files of the learner's package, as a new version of the stubs would."""
    for name, change in sources.items():
        edit(course.file(f"{name}.py"), change)
    commit(course, "newer")


def edit(file, change):
    source = change(file.read_text())
    assert source != file.read_text()
    file.write_text(source)


def newer(text):
    return text.replace('"""Attention:', '"""Newer. Attention:')


def state(clone):
    """All that a command could change, but for its own notes."""
    files = [file for file in clone.root.rglob("*") if file.is_file() and not {".tiny-llm", ".git"} & {*file.parts}]
    files = [file for file in files if "__pycache__" not in file.parts]
    return {file: file.read_bytes() for file in files} | {"HEAD": git(clone.root, "rev-parse", "HEAD")}


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
    assert "src/tiny_llm/attention.py: took over the newer stubs and kept your code" in result.stdout
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
    """What is written in one stays, and what was added around it; the rest and other regions' stubs come in."""
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
    assert f"src/tiny_llm/{name}: took over the newer stubs and kept your code" in result.stdout
    merged = clone.file(name).read_text()
    assert merged.startswith("// my notes\n// A newer first line.\n")
    assert "KERNEL(scalar," in merged
    assert "Week 2 Day 2 Task 4: Newer. " in merged
    assert regions(merged, name)[TaskId(2, 2, 2)] == regions(mine, name)[TaskId(2, 2, 2)]
    assert "my_largest" in merged
    assert clone.file("kernels/newer.h").exists()
    assert clone.run("undo").returncode == 0
    assert clone.file(name).read_text() == "// my notes\n" + mine


def test_a_region_that_moves_to_a_header(course, clone):
    """So did w2d7.2, from attention.cpp to attend_block.h. A region in Metal of the same task stays where it is."""
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
    publish(course, attention=newer)
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


def test_modules_of_the_course_that_moved(course, clone):
    """`update` and `undo` finish after they replaced the files that hold their own code and texts."""
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


def test_what_the_learner_changed_in_the_course_itself_is_kept_in_a_backup(course, clone):
    """Changed files, one that the newer course has no more, and two of the learner's that it has now, too."""
    names = ["tests/oracles.py", "tests/activations.py", "tests/test_new.py", "src/tiny_llm/new.py"]
    for name in names:
        (clone.root / name).write_text("# mine\n")
    for name in ("tests/oracles.py", "tests/test_new.py", "src/tiny_llm/new.py"):
        (course.root / name).write_text("# newer\n")
    (course.root / "tests/activations.py").unlink()
    publish(course, attention=newer)
    shown = clone.run("update").stdout
    for name in names:
        assert f"{name}: this file belongs to the course, so your changes to it were replaced" in shown
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


WORK = """

def my_helper(x):
    return os.path.basename(x)


LIMIT = 3

if sys.flags.dev_mode:
    print(LIMIT, my_helper(__file__))
"""


def work(text):
    """What a learner may do in a file besides solving a task."""
    text = text.replace("import math\n", "import math\nimport os\nimport sys\n")
    text = text.replace("__all__ = [", '__all__ = [\n    "my_helper",', 1)
    text = text.replace("\n\ndef _check_groups(", "\n\n# between\n\n\ndef _check_groups(")
    text = text.replace('raise ValueError(f"num_heads must', 'raise ValueError(f"mine: num_heads must')
    return f"# my notes\n{text}{WORK}"


def test_all_that_a_learner_added_stays_and_solved_tasks_are_tried(course, clone):
    """Comments, an import that a top-level `if` uses, an export, an edit of given code, helpers.

    A module that could not be imported before is no obstacle, nor is a task that failed before.
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
    """The course's are in the file, and it is said where the others are."""
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
    """The newer tests of a solved task fail, and a module cannot be imported."""
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


def test_a_task_whose_file_has_another_name_takes_the_work_along(course, clone):
    """With all that the learner has in the file. It is found by its id and its name."""
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
    """To one that is there already, or to a new one, while the old one stays."""
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


def test_a_pull_that_conflicts_leads_to_update(course, clone):
    """Every command that meets the conflict says so, and afterwards `update` does what git could not."""
    edit(clone.file("attention.py"), lambda text: text.replace("import math", "import math  # mine"))
    git(clone.root, "commit", "--quiet", "--all", "-m", "mine")
    publish(course, attention=lambda text: newer(text).replace("import math", "import math  # newer"))
    pull = subprocess.run([*GIT, "pull", "--no-rebase"], cwd=clone.root, capture_output=True, text=True)
    assert pull.returncode == 1, pull.stdout + pull.stderr
    line = 1 + clone.file("attention.py").read_text().splitlines().index("<<<<<<< HEAD")
    expected = f"src/tiny_llm/attention.py:{line}: git could not merge the newer course with your code"
    advice = "`git merge --abort`, then run ./course update"
    for command in (["test", "w1d1.1"], ["next"], ["reset", "w1d1.1"], ["doctor"]):
        run = clone.run(*command)
        shown = " ".join((run.stdout + run.stderr).split())
        assert expected in shown, command
        assert advice in shown, command
    assert "take it back with `git merge --abort`; then run ./course update" in clone.run("update").stderr
    git(clone.root, "merge", "--abort")
    assert clone.run("update").returncode == 0
    assert "import math  # newer" in clone.file("attention.py").read_text()
    assert "Already up to date" in git(clone.root, "pull", "--no-rebase")


def test_conflicts_that_were_committed(clone):
    text = clone.file("attention.py").read_text()
    conflict = "<<<<<<< HEAD\nimport math  # mine\n=======\nimport math\n>>>>>>> newer\n"
    clone.file("attention.py").write_text(text.replace("import math\n", conflict))
    for command in (["test"], ["update"], ["solution", "w1d1.2", "--apply"]):
        run = clone.run(*command)
        assert run.returncode == 1
        assert "git left two versions of these lines" in run.stderr
    clone.file("attention.py").write_text(text + "\nLINE = '<<<<<<< no conflict'\n")
    assert "git left" not in clone.run("next").stdout


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("MERGE_HEAD", "git merge --abort"),
        ("rebase-merge", "git rebase --abort"),
        ("CHERRY_PICK_HEAD", "git cherry-pick --abort"),
    ],
)
def test_what_takes_a_merge_back(tmp_path, name, command):
    git(tmp_path, "init", "--quiet", "course")
    git(tmp_path / "course", "commit", "--quiet", "--allow-empty", "-m", "first")
    git(tmp_path / "course", "worktree", "add", "--quiet", "../second")
    for root, folder in (("course", "course/.git"), ("second", "course/.git/worktrees/second")):
        assert abort_command(tmp_path / root) is None
        (tmp_path / folder / name).touch()
        assert abort_command(tmp_path / root) == command


@pytest.mark.parametrize("kind", ["shallow", "another history"])
def test_clones_without_the_courses_history(course, clone, tmp_path, kind):
    """What the learner began from is known from the reference, not from git."""
    if kind == "shallow":
        git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{course.root}", "other")
        other = Clone(tmp_path / "other")
    else:
        shutil.copytree(clone.root, tmp_path / "other")
        other = Clone(tmp_path / "other")
        shutil.rmtree(other.root / ".git")
        git(other.root, "init", "--quiet")
    (other.root / "my_notes.md").write_text("mine\n")
    edit(other.file("attention.py"), work)
    commit(other, "all of it, with my work")
    publish(course, attention=newer)
    result = other.run("update", str(course.root))
    assert result.returncode == 0, result.stderr
    assert "Newer. Attention" in other.file("attention.py").read_text()
    assert other.file("attention.py").read_text().endswith(WORK)
    assert "# between" in other.file("attention.py").read_text()
    assert (other.root / "my_notes.md").exists()
    assert other.run("update", str(course.root)).stdout == "The course is up to date.\n"


MEANWHILE = """
import tiny_llm_course.update.update_command as update
from tiny_llm_course.base.places import ROOT

def trouble(workspace, *arguments):
    with (ROOT / "src/tiny_llm/attention.py").open("a") as file:
        file.write("# meanwhile")

update.trouble = trouble
update.update()
"""
KILLED = """
import os, signal
from tiny_llm_course.learner.git import Git
from tiny_llm_course.update.update_command import update

run = Git.run

def killed(self, *arguments, **environment):
    if arguments[0] == "COMMAND":
        os.kill(os.getpid(), signal.SIGKILL)
    return run(self, *arguments, **environment)

Git.run = killed
update()
"""


def python(clone, code):
    return run_python(["-c", code], clone.root, clone.environment)


def test_a_file_that_is_saved_while_an_update_is_checked(course, clone):
    publish(course, attention=newer)
    head = git(clone.root, "rev-parse", "HEAD")
    run = python(clone, MEANWHILE)
    assert "your files changed while the update was being checked, so nothing was written" in run.stderr
    assert clone.file("attention.py").read_text().endswith("# meanwhile")
    assert "Newer" not in clone.file("attention.py").read_text()
    assert git(clone.root, "rev-parse", "HEAD") == head


@pytest.mark.parametrize("command", ["read-tree", "update-ref", "reset"])
def test_an_update_that_is_killed_is_taken_back_as_a_whole(course, clone, command):
    """Before, while and after its commit is made; the next command notices."""
    publish(course, attention=newer)
    before = state(clone)
    assert python(clone, KILLED.replace("COMMAND", command)).returncode == -signal.SIGKILL
    assert "Newer" in clone.file("attention.py").read_text()
    result = clone.run("next")
    assert "Its changes were taken back: the update to" in result.stderr
    assert result.stdout.startswith("next: ")
    assert state(clone) == before
    assert git(clone.root, "status", "--short", "--untracked-files=no") == " M src/tiny_llm/layer_norm.py\n"
    assert clone.run("update").returncode == 0
    assert "Newer" in clone.file("attention.py").read_text()


@pytest.fixture
def recorded(tmp_path):
    """A clone in which an update was recorded while README was staged, and the folder of the update's copies."""
    root = tmp_path / "course"
    git(tmp_path, "init", "--quiet", "course")
    for name in ("README", "given.py"):
        (root / name).write_text("old\n")
    for message in ("first", "newer"):
        git(root, "add", "--all")
        git(root, "commit", "--quiet", "--allow-empty", "-m", message)
    new = git(root, "rev-parse", "HEAD").strip()
    git(root, "reset", "--quiet", "HEAD~")
    (root / "README").write_text("staged\n")
    git(root, "add", "README")
    (root / "given.py").write_text("newer\n")
    (root / "added.py").write_text("newer\n")
    Git(root).record([root / "given.py", root / "added.py"], new, tmp_path)
    return root, tmp_path


def test_taking_an_update_back_leaves_what_is_staged(recorded):
    root, copies = recorded
    assert git(root, "show", "HEAD:given.py") == "newer\n"
    take_back_commit(root, copies)
    assert git(root, "log", "-1", "--format=%s") == "first\n"
    assert git(root, "diff", "--cached", "--name-only") == "README\n"
    assert git(root, "show", ":README") == "staged\n"
    assert git(root, "status", "--short") == "M  README\n M given.py\n?? added.py\n"


def test_a_lock_of_git_that_a_killed_command_left(recorded):
    """Git says which file has to go."""
    root, copies = recorded
    (root / ".git/index.lock").touch()
    with pytest.raises(CommandError) as error:
        take_back_commit(root, copies)
    assert error.value.key == "git_failed"
    assert "index.lock" in str(error.value.values)
    (root / ".git/index.lock").unlink()
    take_back_commit(root, copies)
    assert git(root, "diff", "--cached", "--name-only") == "README\n"


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
    """Two files: the newer course has no `sums.py`, and its first task in `other.py`."""

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
    """What is written comes along, without the byte-order mark and the line ends of its file."""
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
def moving(first, tmp_path):
    """A course with three given files that it will move to shared packages, and a learner's clone of it."""
    git(tmp_path, "clone", "--quiet", str(first), "published")
    course = Clone(tmp_path / "published")
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
    """Those that the learner left alone are gone, edited ones are in the backup, and imports follow."""
    edit(moving.file("rules.py"), lambda text: text.replace("return len", "return 2 * len"))
    edit(moving.file("kernels/rules.h"), lambda text: text + "// mine\n")
    moving.file("mine.py").write_text(USED)
    before = state(moving)
    result = moving.run("update")
    assert result.returncode == 0, result.stderr
    for name, course in {"rules.py": "given/rules.py", "kernels/rules.h": "native/matmul/rules.h"}.items():
        line = next(line for line in result.stdout.splitlines() if line.startswith(f"  src/tiny_llm/{name}: "))
        assert f"now uses the course's src/tiny_llm_{course}" in line
        backup = moving.root / line.rpartition(" ")[2]
        assert "mine" in backup.read_text() or "2 * len" in backup.read_text()
        assert not moving.file(name).exists()
    assert "names.py" not in result.stdout
    assert not moving.file("names.py").exists()
    assert "src/tiny_llm/mine.py: imports of files that the course moved now name the new files" in result.stdout
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


def test_sources_that_are_none(clone, tmp_path):
    result = clone.run("update", str(tmp_path / "nowhere"))
    assert result.returncode == 1
    assert "git fetch failed:" in result.stderr


def test_outside_of_git(tmp_path):
    result = Clone.create(tmp_path / "course").run("update")
    assert result.returncode == 2
    assert "update needs a git clone" in result.stderr
