"""The process in which a submission runs: `python worker.py SOCKET SUBMISSION TESTS MEMORY`, started by the judge.

It holds no score and no expected value. What it may do is limited by the system (memory, file size) and by an audit
hook, which Python code cannot remove. CONTRIBUTING.md says what this stops and what not.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
FORBIDDEN = {
    **dict.fromkeys(("os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn", "os.system"), "start a process"),
    **dict.fromkeys(("subprocess.Popen", "pty.spawn"), "start a process"),
    **dict.fromkeys(("os.kill", "os.killpg", "signal.pthread_kill"), "send a signal"),
    **dict.fromkeys(("ctypes.dlopen", "ctypes.dlsym", "ctypes.cdata", "ctypes.addressof"), "use ctypes"),
    **dict.fromkeys(("socket.connect", "socket.bind", "socket.__new__", "socket.getaddrinfo"), "use the network"),
    **dict.fromkeys(("os.putenv", "os.unsetenv", "sys.addaudithook", "code.__new__"), "change the process"),
}
CHANGES = ("remove", "rename", "mkdir", "rmdir", "link", "symlink", "truncate", "chmod", "chown", "utime")
WRITING = {f"os.{name}" for name in CHANGES}


def main() -> None:
    number, submission, tests, memory = sys.argv[1:]
    stream = socket.socket(fileno=int(number))
    folder, hidden = Path(submission).resolve(), Path(tests).resolve()
    import mlx.core as mx
    import mlx_lm.tokenizer_utils  # noqa: F401  what a submission may need is there before the doors close

    from tiny_llm_course.grading.remote import Connection
    from tiny_llm_course.syllabus import tasks

    sys.path[:0] = [str(folder), str(hidden)]
    barred = importlib.import_module("barred")
    barred.install("tiny_llm", sorted({name for task in tasks() for name in task.barred}))
    by_id = {str(task.id): task for task in tasks()}
    connection = Connection(stream, is_open=True, home=folder)
    bars: list[Any] = []

    def begin(task: str, device: str) -> None:
        """A test of this task begins."""
        connection.forget()
        if bars:
            bars.pop().__exit__(None, None, None)
        bars.append(barred.during(by_id.get(task)))
        bars[-1].__enter__()
        mx.set_default_device(mx.gpu if device == "gpu" else mx.cpu)

    connection.commands = {
        "begin": begin,
        "module": lambda name: importlib.import_module(f"tiny_llm.{name}"),
        "seed": mx.random.seed,
    }
    _limit(int(memory))
    sys.addaudithook(_guard(folder, hidden))
    connection.serve()
    os._exit(0)  # threads of the submission are not waited for


def _limit(memory: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**26, 2**26))
    if sys.platform == "linux":  # macOS has neither
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # it ends with the judge
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))


def _guard(folder: Path, hidden: Path) -> Callable[[str, tuple[Any, ...]], None]:
    """An audit hook. It holds what it needs in local variables, so that nothing of it can be replaced."""
    allowed_to_write = (str(folder), os.path.realpath(os.environ["TMPDIR"]), "/dev/null")
    closed = tuple(str(path) for path in (hidden, hidden.parent / "src" / "tiny_llm_ref", Path("/proc")))
    realpath, fspath, fsdecode = os.path.realpath, os.fspath, os.fsdecode
    forbidden, writing, write_flags = dict(FORBIDDEN), frozenset(WRITING), os.O_WRONLY | os.O_RDWR | os.O_CREAT

    def within(path: Any, folders: tuple[str, ...]) -> bool:
        real = realpath(fsdecode(fspath(path)))
        return any(real == folder or real.startswith(folder + "/") for folder in folders)

    def guard(event: str, arguments: tuple[Any, ...]) -> None:
        if event in forbidden:
            raise PermissionError(f"a submission may not {forbidden[event]} ({event})")
        if event == "open" and not isinstance(arguments[0], int):
            path, mode, flags = arguments
            if within(path, closed):
                raise PermissionError(f"a submission may not read {path}")
            writes = (
                bool(flags & write_flags) if isinstance(flags, int) else any(letter in str(mode) for letter in "wax+")
            )
            if writes and not within(path, allowed_to_write):
                raise PermissionError(f"a submission may not write {path}")
        elif event in writing and not all(within(path, allowed_to_write) for path in arguments[:2] if _is_path(path)):
            raise PermissionError(f"a submission may not change {arguments[0]} ({event})")

    return guard


def _is_path(value: Any) -> bool:
    return isinstance(value, str | bytes | os.PathLike)


if __name__ == "__main__":
    main()
