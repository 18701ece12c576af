"""Backups: whatever happens while files are written, either all of them are changed or none is."""

import errno
import shutil
import subprocess
import sys
from datetime import datetime

import pytest

from tiny_llm_course.base import whole_files
from tiny_llm_course.learner import backups as files
from tiny_llm_course.learner.backups import Backups
from tiny_llm_course.ui.errors import CommandError

REASON = {"en": "a change", "ja": "変更"}


def tree(root):
    return {file: file.read_bytes() for file in root.rglob("*") if file.is_file()}


@pytest.fixture
def course(tmp_path):
    """Return a folder with files, which has backups next to it."""
    root = tmp_path / "course"
    root.mkdir()
    for name in ("one", "two", "three"):
        (root / name).write_text(f"{name}\n")
    return root, Backups(tmp_path / "backups", root)


def outcome(act):
    """Return the key of the CommandError that a call raises, or None if it raises none."""
    try:
        act()
    except CommandError as error:
        return error.key
    return None


def changes(root):
    return {root / "one": b"1\n", root / "two": None, root / "three": b"3\n", root / "folder/four": b"4\n"}


@pytest.mark.parametrize("name", ["write_like", "replace"])
def test_every_moment_at_which_the_system_may_refuse(course, monkeypatch, tmp_path, name):
    """All files are changed, or none: at each call that writes or replaces a file, and in `undo`."""
    root, backups = course
    left = 0
    modules = (files, whole_files) if name == "write_like" else (files.os,)
    real = getattr(modules[0], name)

    def limited(*arguments):
        nonlocal left
        left -= 1
        if left < 0:
            left = 10**9  # there is room again
            raise OSError(errno.ENOSPC, "no space", str(arguments[0]))
        return real(*arguments)

    for module in modules:
        monkeypatch.setattr(module, name, limited)
    for act in (lambda: backups.write(changes(root), REASON), backups.undo):
        before, refused = tree(root), 0
        left = 0
        while (problem := outcome(act)) is not None:
            assert problem == "nothing_written"
            assert tree(root) == before, f"after {refused} calls"
            assert not backups.interrupted()
            refused += 1
            left = refused
        assert refused > 3
        assert tree(root) != before
    assert (root / "two").read_text() == "two\n"


def test_a_full_disk_on_which_nothing_can_be_written_while_a_change_is_taken_back(course, monkeypatch):
    """The second file cannot be replaced, and the old content of the first needs no room to come back."""
    root, backups = course
    before, replaced, real = tree(root), [], files.os.replace

    def replace(old, new):
        if new.name == "three" and not replaced:
            replaced.append(new)
            monkeypatch.setattr(files, "write_like", full)
            monkeypatch.setattr(whole_files, "write_like", full)
            raise full(new)
        real(old, new)

    def full(*arguments):
        raise OSError(errno.ENOSPC, "no space", str(arguments[0]))

    monkeypatch.setattr(files.os, "replace", replace)
    assert outcome(lambda: backups.write(changes(root), REASON)) == "nothing_written"
    assert replaced
    assert tree(root) == before
    assert not backups.interrupted()


def test_a_change_that_cannot_be_taken_back_now_is_taken_back_by_the_next_command(course, monkeypatch):
    root, backups = course
    before, real = tree(root), files.os.replace

    def replace(old, new):
        if new.name == "three" or old.parent.name == "before":
            raise OSError(errno.EROFS, "read-only", str(new))
        real(old, new)

    monkeypatch.setattr(files.os, "replace", replace)
    assert outcome(lambda: backups.write(changes(root), REASON)) == "not_taken_back"
    assert tree(root) != before
    monkeypatch.undo()
    assert backups.take_back_interrupted() == REASON
    assert tree(root) == before


def test_a_kill_between_two_files_that_are_brought_back(course):
    """The files that are back have no copy any more, and stay as they are."""
    root, backups = course
    before = tree(root)

    def end(copies):
        shutil.copytree(copies, copies.parent / "killed")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), backups.writing(changes(root), REASON) as copies:
        end(copies)
    copies = (copies.parent / "killed").rename(copies)
    shutil.copytree(copies / "after", root, dirs_exist_ok=True)
    (copies / "before/one").replace(root / "one")
    assert backups.take_back_interrupted() == REASON
    assert tree(root) == before


def test_a_link_stays_a_link(course, tmp_path):
    root, backups = course
    target = tmp_path / "dotfiles/one"
    target.parent.mkdir()
    (root / "one").replace(target)
    (root / "one").symlink_to(target)
    backups.write({root / "one": b"1\n"}, REASON)
    assert (root / "one").is_symlink()
    assert target.read_bytes() == b"1\n"
    backups.undo()
    assert (root / "one").is_symlink()
    assert target.read_bytes() == b"one\n"
    whole_files.write_whole(root / "one", b"2\n")
    assert (root / "one").is_symlink()
    assert target.read_bytes() == b"2\n"
    assert sorted(path.name for path in target.parent.iterdir()) == ["one"]


def test_the_newest_change_is_the_last_one_when_the_clock_goes_back(course, monkeypatch):
    """The clock goes back when summer time ends, for example."""
    root, backups = course
    hours = iter([3, 2, 2])

    class Clock(datetime):
        @classmethod
        def now(cls):
            return datetime(2026, 10, 25, next(hours))

    monkeypatch.setattr(files, "datetime", Clock)
    for content in (b"1\n", b"2\n"):
        backups.write({root / "one": content}, REASON)
    backups.undo()
    assert (root / "one").read_bytes() == b"1\n"


def test_a_block_that_fails_takes_everything_back(course):
    root, backups = course
    before = tree(root)
    with pytest.raises(ZeroDivisionError), backups.writing(changes(root), REASON):
        1 / (root / "one").read_text().count("one")
    assert tree(root) == before
    assert backups.all() == []


KILLED = """
import os, signal, sys
from pathlib import Path
from tiny_llm_course.learner.backups import Backups

def killed(backups, act, moment):
    left = moment

    def profile(frame, event, argument):
        nonlocal left
        if frame.f_code.co_filename.endswith(("learner/backups.py", "base/whole_files.py")):
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    if not (process := os.fork()):
        sys.setprofile(profile)
        act()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL

def tree():
    return {file: file.read_bytes() for file in root.rglob("*") if file.is_file()}

root = Path(sys.argv[1])
backups = Backups(root.parent / "backups", root)
new = {root / "one": b"1", root / "two": None, root / "three": b"3", root / "folder/four": b"4"}
moments, taken_back = 0, 0
for act in (lambda: backups.write(new, {"en": "a change"}), backups.undo):
    before = tree()
    moment = 1
    while killed(backups, act, moment):
        interrupted = len(backups.interrupted())
        if interrupted:
            assert backups.take_back_interrupted() == {"en": "a change"} or act == backups.undo
            taken_back += 1
        backups.take_back_interrupted()
        if tree() != before:
            assert not interrupted, moment  # it had done everything
            break
        moment += 1
    if tree() == before:
        act()
    assert tree() != before
    moments += moment
print(moments, taken_back)
"""


def test_every_moment_at_which_a_command_may_be_killed(course):
    """After `take_back_interrupted`, all files are changed, or none."""
    root, _ = course
    run = subprocess.run([sys.executable, "-c", KILLED, root], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    moments, taken_back = map(int, run.stdout.split())
    assert moments > 200
    assert taken_back > 20
