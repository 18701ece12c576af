"""A learner's clone of the course in a temporary folder, its commands, and a terminal in which to watch them."""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from trees import UNFINISHED, build_tree

from tiny_llm_course.tasks.stubs import make_stub

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))

from forks import run_python, start_python  # noqa: E402

NOT_A_LEARNERS = ("PYTEST_", "CI", "BUILD_NUMBER", "LC_", "LANG", "TINY_LLM_", "METAL_HOST", "MLX_")  # variables

__all__ = ["GIT", "Clone", "Terminal", "commit", "git", "in_units", "new_clone"]
GIT = ["git", "-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "init.defaultBranch=main"]
IN_A_ROW = """
import json, sys
from tiny_llm_course.commands import app
for arguments in json.load(sys.stdin):
    try:
        app(arguments)
    except SystemExit as end:
        if end.code:
            raise
"""


class Clone:
    """A folder with stubs, the reference, the packages that both share, tests and commands."""

    def __init__(self, root: Path):
        self.root = root

    @classmethod
    def create(cls, root: Path) -> Clone:
        """Create a new clone in this folder."""
        build_tree(root, ROOT, is_solved=lambda task: False)
        shutil.rmtree(root / "src/tiny_llm_ref")
        shutil.copy(ROOT / ".gitignore", root)
        ignored = shutil.ignore_patterns(*UNFINISHED, "*.safetensors", "mistakes")
        names = ("ref", "course", "given", "models", "native")
        for package in [f"tiny_llm_{name}" for name in names]:
            shutil.copytree(ROOT / "src" / package, root / "src" / package, ignore=ignored)
        return cls(root)

    def run(
        self, *arguments: str, cwd: Path | None = None, input: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a `tiny-llm` command. input: the typed text."""
        words = ["-m", "tiny_llm_course", *arguments]
        return run_python(words, cwd or self.root, self.environment | environment, input, timeout=600)

    def run_in_a_row(self, commands: list[list[str]]) -> None:
        """Run `tiny-llm` commands in one process, which takes a tenth of the time. Check that all commands succeed."""
        run = subprocess.run(
            [sys.executable, "-c", IN_A_ROW],
            cwd=self.root,
            env=self.environment,
            input=json.dumps(commands),
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stderr

    def terminal(self, *arguments: str, rows: int = 0, columns: int = 0, **environment: str) -> Terminal:
        """Run a `tiny-llm` command in a terminal. rows, columns: the terminal's size; 0 means the environment's
        size."""
        size = {"LINES": str(rows), "COLUMNS": str(columns)} if rows else {}
        command = [sys.executable, "-m", "tiny_llm_course", *arguments]
        return Terminal(command, self.root, self.environment | size | environment)

    def file(self, name: str) -> Path:
        return self.root / "src/tiny_llm" / name

    def add_model(self) -> None:
        """Add the weights of `story`, which `create` leaves out."""
        weights = "src/tiny_llm_models/story/model.safetensors"
        shutil.copy(ROOT / weights, self.root / weights)

    def solved(self, name: str, *tasks: str) -> str:
        """Return the content of one of the learner's files when these tasks are solved."""
        source = (ROOT / "src/tiny_llm_ref" / name).read_text()
        return make_stub(source, is_solved=lambda task: str(task) in tasks, filename=name)

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(NOT_A_LEARNERS)}
        return kept | {
            "PYTHONPATH": str(self.root / "src"),
            "COLUMNS": "100",
            "LANG": "C.UTF-8",
            "TINY_LLM_CALLED": "./course",
            "TINY_LLM_AHEAD": "off",
            "PYTHONDONTWRITEBYTECODE": "1",  # bytecode does not notice two changes within a second
        }


def new_clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """Create a clone. Use it as a fixture: `clone = pytest.fixture(new_clone, scope="module")`."""
    return Clone.create(tmp_path_factory.mktemp("clones") / "course")


def git(folder: Path, *arguments: str) -> str:
    """Run Git in a folder. Return its output."""
    run = subprocess.run([*GIT, *arguments], cwd=folder, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout


def commit(clone: Clone, message: str) -> None:
    """Commit all new and changed files of a clone."""
    git(clone.root, "add", "--all")
    git(clone.root, "commit", "--quiet", "-m", message)


def in_units(text: str, unit: str) -> str:
    """Indent a text with this unit, docstrings included, as an editor does."""
    rests = [(line, line.lstrip(" ")) for line in text.splitlines(keepends=True)]
    return "".join(unit * ((len(line) - len(rest)) // 4) + rest for line, rest in rests)


class Terminal:
    """A process in a pseudo-terminal."""

    def __init__(self, command: list[str], cwd: Path, environment: dict[str, str]):
        self._descriptor, theirs = os.openpty()
        assert command[0] == sys.executable
        environment = environment | {"TERM": environment.get("TERM", "xterm-256color")}
        self._process = start_python(command[1:], cwd, environment, [theirs] * 3, in_terminal=True)
        os.close(theirs)
        self.raw = ""
        self._seen = 0  # letters of it, by `wait_for_next`
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def screen(self) -> str:
        """Return the text on the screen since it was last cleared, without colours."""
        return re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", self.raw.rpartition("\x1b[H")[2]).replace("\r\n", "\n")

    @property
    def new(self) -> str:
        """Return the output since the last `wait_for_next`, with its colours."""
        return self.raw[self._seen :].replace("\r\n", "\n")

    def wait_for(self, text: str, seconds: float = 120) -> str:
        """Wait until this text is on the screen. Return the screen."""
        self._read_until(lambda: text in self.screen, text, seconds)
        return self.screen

    def wait_for_next(self, pattern: str, seconds: float = 120) -> str:
        """Wait until this pattern occurs in the output since the last call. Return this output."""
        self._read_until(lambda: re.search(pattern, self.new, re.DOTALL), pattern, seconds)
        new, self._seen = self.new, len(self.raw)
        return new

    def _read_until(self, holds: Callable[[], object], expected: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, f"expected {expected!r} on the screen, which shows:\n{self.screen}"
            if select.select([self._descriptor], [], [], 0.1)[0]:
                try:
                    self._read()
                except OSError:  # the process has ended
                    assert holds(), f"expected {expected!r}, and the process ended with:\n{self.screen}"

    def is_asleep(self) -> bool:
        """Tell whether the process waits, for a key or a signal, after a prompt."""
        shown = subprocess.check_output(["ps", "-o", "stat=", "-p", str(self._process.pid)], text=True)
        return shown.startswith("S")

    def send(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def resize(self, width: int) -> None:
        """Set the terminal's width in columns."""
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))

    def exit_code(self, seconds: float = 120) -> int:
        """Wait until the process ends. Return its exit code."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            code = self._process.poll()  # first, so that what it wrote last is read after it
            with suppress(OSError):
                while select.select([self._descriptor], [], [], 0.1 if code is None else 0)[0]:
                    self._read()
            if code is not None:
                self.close()
                return code
        self.close()
        raise AssertionError(f"the process did not end; the screen shows:\n{self.screen}")

    def close(self) -> None:
        """End the process, if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        with suppress(OSError):
            os.close(self._descriptor)
        self._descriptor = -1

    def _read(self) -> None:
        self.raw += self._decoder.decode(os.read(self._descriptor, 65536))
