"""The pytest plugin of `tiny-llm grade`. With `--submission DIR`, the package under test runs in another process."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from ..diagnosis.package_under_test import is_replayed, task_of
from .metal import MetalRunner
from .processes import Box, uncounted
from .remote import Connection, GoneError
from .sandbox import BUBBLEWRAP, NONE, SANDBOX_EXEC

START_SECONDS = 120  # seconds that a new process may take for its imports, on a busy machine
MAX_DEATHS = 3  # after this many processes of a submission have died, its other tests fail without a new process
MEMORY = 2**32  # bytes
PACKAGES = ("given", "given.serving", "kernels", "native", "serving")  # packages that tests access through `impl`
MODULE = "tiny_llm_course.grading.worker"
OF_MLX = ((mx.random, "seed"), (mx, "get_active_memory"), (mx, "get_peak_memory"), (mx, "reset_peak_memory"))
HELPERS = ("barred.py", "hangs.py", "scenes.py", "stalled.py")  # modules of the tests that a submission's process needs


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--submission", metavar="DIR", help="folder with the submission's package tiny_llm")
    parser.addoption(
        "--sandbox", choices=[BUBBLEWRAP, SANDBOX_EXEC, NONE], default=NONE, help="the submission's sandbox"
    )
    parser.addoption("--memory", type=int, default=MEMORY, metavar="BYTES", help="memory that a submission may use")
    parser.addoption("--patience", type=float, default=30, metavar="S", help="seconds to wait for an answer")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--submission"):
        worker = config.stash[WORKER] = Worker(config)
        for owner, name in OF_MLX:
            setattr(owner, name, worker.asking(name, getattr(owner, name)))


def pytest_unconfigure(config: pytest.Config) -> None:
    if worker := config.stash.get(WORKER, None):
        worker.end()


def package_of(request: pytest.FixtureRequest) -> RemotePackage | None:
    """Return the package under test if the package belongs to a submission. Otherwise return None."""
    worker = request.config.stash.get(WORKER, None)
    if worker is None:
        return None
    task = str(task_of(request.node) or "")
    return RemotePackage(cache(lambda: worker.begin(task)))


class RemotePackage:
    """A package whose modules, such as `package.kernels.softmax`, are imported in the submission's process.

    begin: a function that starts the test in that process. The function is called when the test first uses a module.
    """

    def __init__(self, begin: Callable[[], Connection], name: str = ""):
        self._begin = begin
        self._name = name  # the name of a subpackage, with a dot
        self._modules: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._modules:
            self._modules[name] = self._find(f"{self._name}{name}")
        return self._modules[name]

    def play(self, scene: str, *arguments: Any) -> Any:
        """Play a scene from tests/scenes.py in the submission's process, and return the scene's report."""
        return self._begin().request("scene", scene, arguments)

    def _find(self, name: str) -> Any:
        if name in PACKAGES:
            return RemotePackage(self._begin, f"{name}.")
        return self._begin().request("module", name)


class Worker:
    """The submission's process. If the process dies, the next test starts a new process."""

    def __init__(self, config: pytest.Config):
        self._submission = Path(config.getoption("--submission")).resolve()
        self._tests = config.rootpath / "tests"
        self._sandbox = str(config.getoption("--sandbox"))
        self._memory = int(config.getoption("--memory"))
        self._patience = float(config.getoption("--patience"))
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None  # None while there is no process
        self._deaths = 0
        self._metal = MetalRunner(self._submission / "metal", self._sandbox, self._memory)

    def begin(self, task: str) -> Connection:
        """Tell the process that a test of this task begins, and return the connection to the process."""
        connection = self._connected()
        connection.forget()
        device = "gpu" if mx.default_device() == mx.Device(mx.gpu) else "cpu"
        connection.request("begin", task, device)
        return connection

    def asking(self, name: str, here: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls an MLX function in this process and then, except in a replay, the MLX function
        with this name in the submission's process. That function returns the second call's result or, in a
        replay, the first call's."""

        def both(*values: Any) -> Any:
            found = here(*values)
            return found if is_replayed() else self._connected().request(name, *values)

        return both

    def _connected(self) -> Connection:
        if self._process is not None and self._is_gone():
            self.end()
        if self._connection is None:
            with uncounted("the submission's process"):
                self._start()
        assert self._connection
        return self._connection

    def _is_gone(self) -> bool:
        assert self._process
        assert self._connection
        return self._process.poll() is not None or self._connection.is_broken

    def end(self) -> None:
        """Kill the process."""
        self._metal.end()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._deaths += 1
        self._process = self._connection = None

    def _start(self) -> None:
        if self._deaths >= MAX_DEATHS:
            raise GoneError(f"the submission's process ended or hung {self._deaths} times; it was not started again")
        arguments = [str(self._submission), str(self._tests), str(self._memory)]
        reads = [self._submission, *(self._tests / name for name in HELPERS)]
        box = Box(self._sandbox, self._submission, reads)
        environment = {"TINY_LLM_KERNELS": "watched", "TINY_LLM_ARITHMETIC": "float32"}
        self._process, self._connection = box.connect(MODULE, arguments, environment, START_SECONDS)
        self._connection.commands = {"metal": self._metal.run}
        try:
            self._connection.request("ready")
        except GoneError as error:  # the process has imported no code of the submission yet
            raise GoneError(f"the process for the submission did not start: {error}") from None
        self._connection.set_patience(self._patience)


WORKER = pytest.StashKey[Worker]()
