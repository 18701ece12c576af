"""`tiny-llm update` and git: conflicts, clones without a history, staged files, and updates that are killed."""

import shutil
import signal
import subprocess

import pytest
from learner import GIT, Clone, commit, git, run_python
from updating import WORK, clone, course, edit, newer, publish, state, work

from tiny_llm_course.base.conflict import abort_command
from tiny_llm_course.learner.git import Git, take_back_commit
from tiny_llm_course.ui.errors import CommandError

__all__ = ["clone", "course"]


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
    assert "undo it with `git merge --abort`; then run ./course update" in clone.run("update").stderr
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
    """The reference, not git, shows with which stubs the learner began."""
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
    """The kill comes before, during and after the commit; the next command notices."""
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
    """Return a clone in which an update was recorded while README was staged, and the folder of the update's copies."""
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
    """Git says which file to delete."""
    root, copies = recorded
    (root / ".git/index.lock").touch()
    with pytest.raises(CommandError) as error:
        take_back_commit(root, copies)
    assert error.value.key == "git_failed"
    assert "index.lock" in str(error.value.values)
    (root / ".git/index.lock").unlink()
    take_back_commit(root, copies)
    assert git(root, "diff", "--cached", "--name-only") == "README\n"
