"""`write_stubs` and `check_stubs`: no work is lost, and an interruption does no harm."""

import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tiny_llm_course.learner.stub_files import check_stubs, write_stubs
from tiny_llm_course.tasks.stubs import make_stub
from tiny_llm_course.tasks.task_code import StubError

SCRIPT = Path(__file__).parents[2] / "scripts" / "stubs.py"
TASK = '"""Numbers."""\n\n\ndef f():\n    """The answer, é.\n\n    Task: w1d1.1\n    """\n    return 42\n'


class Course:
    """A reference, its stubs and its manifest, arranged as in the repository."""

    def __init__(self, root: Path):
        self.reference, self.out = root / "src/tiny_llm_ref", root / "src/tiny_llm"
        self.manifest = root / "scripts/stubs.manifest.json"
        self.write_reference("basics.py", TASK)
        self.write_reference("given.py", "x = 1\n")
        self.write_reference("serving/engine.py", TASK)

    def write_reference(self, path: str, text: str) -> None:
        file = self.reference / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())

    def write(self) -> list[str]:
        return write_stubs(self.reference, self.out, self.manifest)

    def check(self) -> list[str]:
        return check_stubs(self.reference, self.out, self.manifest)

    def files(self) -> dict[Path, bytes]:
        """Return the content of all files that the command writes, hidden files included."""
        places = [self.out, self.manifest.parent]
        return {file: file.read_bytes() for place in places for file in sorted(place.rglob("*")) if file.is_file()}

    def change_all(self) -> None:
        """Change one file of the reference, add one, and remove one."""
        self.write_reference("basics.py", TASK.replace("answer", "question"))
        self.write_reference("new.py", TASK)
        (self.reference / "given.py").unlink()


@pytest.fixture
def course(tmp_path):
    return Course(tmp_path)


def test_stubs_are_written_once(course):
    assert course.write() == [f"wrote {course.out / name}" for name in ("basics.py", "given.py", "serving/engine.py")]
    assert (course.out / "serving/engine.py").read_text(encoding="utf-8") == make_stub(TASK)
    before = course.files()
    assert course.check() == []
    assert course.write() == []
    assert course.files() == before


def test_changes_of_the_reference_reach_the_stubs(course):
    course.write()
    course.change_all()
    names = {"stale": "basics.py", "missing": "new.py", "left over, its reference is gone": "given.py"}
    assert course.check() == [f"{what}: {course.out / name}" for what, name in names.items()] + [
        f"stale: {course.manifest}"
    ]
    assert len(course.write()) == 3
    assert course.check() == []
    assert not (course.out / "given.py").exists()


def test_one_edited_file_stops_everything(course):
    course.write()
    for name in ("basics.py", "given.py"):
        (course.out / name).write_text("mine\n")
    (course.out / "own.py").write_text("a learner's own file\n")
    course.change_all()
    before = course.files()
    with pytest.raises(StubError) as raised:
        course.write()
    assert course.files() == before
    assert f"  {course.out / 'basics.py'}\n  {course.out / 'given.py'}\n" in str(raised.value)
    assert "own.py" not in str(raised.value)
    assert "new.py" not in str(raised.value)
    assert "move your file away" in str(raised.value)
    assert course.check() == [
        f"edited: {course.out / 'basics.py'}",
        f"edited: {course.out / 'given.py'}",
        f"missing: {course.out / 'new.py'}",
        f"stale: {course.manifest}",
    ]


def test_a_file_moved_away_comes_back_fresh(course):
    course.write()
    (course.out / "basics.py").write_text("mine\n")
    (course.out / "basics.py").rename(course.out / "my_basics.py")
    assert course.check() == [f"missing: {course.out / 'basics.py'}"]
    course.write()
    assert course.check() == []
    assert (course.out / "my_basics.py").read_text() == "mine\n"


def test_work_that_no_manifest_knows_is_safe(course):
    course.write()
    course.manifest.unlink()
    course.write()  # a file that equals its stub contains no work
    course.manifest.unlink()
    (course.out / "basics.py").write_text("mine\n")
    with pytest.raises(StubError, match=r"basics\.py"):
        course.write()
    assert not course.manifest.exists()


def test_line_ends_of_windows_are_no_edit(course):
    course.write()
    for file in course.out.rglob("*.py"):
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    assert course.check() == []
    course.change_all()
    course.write()
    assert course.check() == []


@pytest.mark.parametrize("text", [b"x = '\xff'\n", b"def f(:\n", b"def f():\n    'Task: w9d9.9'\n"])
def test_a_faulty_reference_file_is_named_and_nothing_written(course, text):
    course.write()
    course.change_all()
    (course.reference / "serving/engine.py").write_bytes(text)
    before = course.files()
    for run in (course.write, course.check):
        with pytest.raises(StubError) as raised:
            run()
        assert str(course.reference / "serving/engine.py") in str(raised.value)
    assert course.files() == before


def test_a_lost_reference_deletes_nothing(course):
    course.write()
    shutil.rmtree(course.reference)
    with pytest.raises(StubError, match="holds no code"):
        course.write()
    assert (course.out / "basics.py").exists()


def test_a_damaged_manifest_is_named(course):
    course.write()
    course.manifest.write_text("<<<<<<< HEAD\n")
    with pytest.raises(StubError, match=r"stubs\.manifest\.json"):
        course.write()


class Killed(BaseException):
    pass


def test_an_interruption_does_no_harm(tmp_path, monkeypatch):
    """After an interruption at any moment, a second run gives the result of a single run, plus a hidden file that git
    ignores."""
    left = []
    for moment in itertools.count():
        course = Course(tmp_path / str(moment))
        course.write()
        course.change_all()
        with monkeypatch.context() as patch:
            kill_at(moment, patch)
            try:
                course.write()
            except Killed:
                pass
            else:
                break
        course.write()
        assert course.check() == []
        files = {path.relative_to(tmp_path / str(moment)): text for path, text in course.files().items()}
        unfinished = [path for path in files if path.match(".*.tmp")]
        assert len(unfinished) <= 1
        left.append({path: text for path, text in files.items() if path not in unfinished})
    assert all(files == left[0] for files in left)
    assert [path.name for path in left[0]] == ["basics.py", "new.py", "engine.py", "stubs.manifest.json"]
    assert moment == 3 * 4 + 2  # three files to write, one to delete


def kill_at(moment, patch):
    """Raise Killed at the given moment: before, during or after one of the changes on the disk."""
    moments = itertools.count()

    def pass_moment():
        if next(moments) == moment:
            raise Killed

    def killable(change):
        def run(*arguments):
            pass_moment()
            change(*arguments)
            pass_moment()

        return run

    def write_in_halves(file, content):
        with file.open("wb") as stream:
            pass_moment()
            stream.write(content[: len(content) // 2])
            pass_moment()
            stream.write(content[len(content) // 2 :])

    patch.setattr(Path, "write_bytes", write_in_halves)
    patch.setattr(os, "replace", killable(os.replace))
    patch.setattr(Path, "unlink", killable(Path.unlink))


def test_command(course):
    script = course.manifest.parent / "stubs.py"
    script.parent.mkdir()
    shutil.copy(SCRIPT, script)

    def run(*arguments):
        command = [sys.executable, script, *arguments]
        return subprocess.run(command, cwd=course.manifest.parents[1], capture_output=True, text=True, check=False)

    stale = run("--check")
    assert stale.returncode == 1
    assert stale.stdout.endswith("problems: 4\n")
    assert not course.out.exists()
    written = run()
    assert written.returncode == 0
    assert written.stdout.splitlines() == [
        f"wrote src/tiny_llm/{name}" for name in ("basics.py", "given.py", "serving/engine.py")
    ] + ["files changed: 3"]
    assert run("--check").returncode == 0
    (course.out / "basics.py").write_text("mine\n")
    refused = run()
    assert refused.returncode == 1
    assert "basics.py" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert "--check" in run("--help").stdout
