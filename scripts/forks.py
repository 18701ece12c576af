"""Runs Python programs as forks of one process, which has imported the modules that most of the programs need.

Importing these modules, Transformers among them, takes a second of processor time, which is more than most programs
need for their own work. Like a newly started process, a fork has its own state, working directory, environment and
files.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

__all__ = ["Program", "run_python", "start_python"]

CAN_FORK = sys.platform == "linux"  # on macOS, Apple's frameworks do not survive a fork
SIZE = 4  # bytes of a number in a message
ONLY_ONCE = ("PYTHONIOENCODING", "HF_HOME", "MALLOC_ARENA_MAX")  # variables that are read only once in a process
AT_FIRST = dict(os.environ)  # the environment for the process that forks


def run_python(
    words: Sequence[str],
    cwd: Path,
    environment: Mapping[str, str],
    input: str | None = None,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `python WORDS`, and return its exit code and output. WORDS: a script, or -m and a module, or -c and code, and
    then arguments.

    input: the text to pipe into the program, if any. timeout: the time limit in seconds.

    Raises:
        subprocess.TimeoutExpired: the program exceeded the time limit, and was killed.
    """
    with (
        open(os.devnull) if input is None else tempfile.TemporaryFile("w+") as given,
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as error,
    ):
        if input:
            given.write(input)
            given.seek(0)
        process = start_python(words, cwd, environment, [given.fileno(), out.fileno(), error.fileno()])
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired as expired:
            process.kill()
            process.wait()
            expired.output, expired.stderr = (_content(file) for file in (out, error))
            raise
        return subprocess.CompletedProcess([sys.executable, *words], code, _content(out), _content(error))


def start_python(
    words: Sequence[str], cwd: Path, environment: Mapping[str, str], files: Sequence[int], in_terminal: bool = False
) -> Program | subprocess.Popen[bytes]:
    """Start `python WORDS`.

    files: the descriptors of stdin, stdout and stderr. in_terminal: whether stdin is a terminal. If so, the program
    starts in a new session with this controlling terminal.
    """
    if CAN_FORK and not _is_for_a_start(environment):
        return Program(words, cwd, environment, files, in_terminal)
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=cwd,
        env=environment,
        stdin=files[0],
        stdout=files[1],
        stderr=files[2],
        start_new_session=in_terminal,
        preexec_fn=_control_terminal if in_terminal else None,
    )


def _content(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def _control_terminal() -> None:
    """Make stdin the controlling terminal, whose keys, such as Ctrl-C, send signals to this process."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # background jobs of a shell ignore SIGINT


def _is_for_a_start(environment: Mapping[str, str]) -> bool:
    """Tell whether an environment has something that takes effect only when a process starts: another value of a
    variable in ONLY_ONCE, or a sitecustomize.py."""
    folders = environment.get("PYTHONPATH", "").split(os.pathsep)
    others = any(environment.get(name) != AT_FIRST.get(name) for name in ONLY_ONCE)
    return others or any(Path(folder, "sitecustomize.py").exists() for folder in folders)


class Program:
    """A program that runs as a fork. The class has the most important methods of `subprocess.Popen`."""

    def __init__(
        self,
        words: Sequence[str],
        cwd: Path,
        environment: Mapping[str, str],
        files: Sequence[int],
        in_terminal: bool,
    ):
        self.args = [sys.executable, *words]
        self.returncode: int | None = None
        self._socket, theirs = socket.socketpair()  # receives the fork's process id, then its exit code
        with theirs:
            _send(_server(), [list(words), str(cwd), dict(environment), in_terminal], [*files, theirs.fileno()])
        self.pid = _receive(self._socket)

    def poll(self) -> int | None:
        """Return the exit code, or None if the program has not ended."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the program ends, and return its exit code. After `timeout` seconds, raise TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._socket], [], [], timeout)[0]:
                assert timeout is not None
                raise subprocess.TimeoutExpired(self.args, timeout)
            self.returncode = _receive(self._socket)
            self._socket.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@cache
def _server() -> socket.socket:
    """Start the process that forks, and return a socket that is connected to it. The process ends when the socket is
    closed."""
    ours, theirs = socket.socketpair()
    with theirs:
        call = [sys.executable, __file__, str(theirs.fileno())]
        environment = AT_FIRST | {"PYTHONUTF8": "1", "HF_HUB_OFFLINE": "1"}
        subprocess.Popen(call, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=environment)
    return ours


def _serve(number: int) -> list[str]:
    """Fork for each request. Only the forks return from this function. Each returns the words of its program."""
    import mlx.nn  # noqa: F401
    import mlx_lm.tokenizer_utils  # noqa: F401
    import numpy  # noqa: F401
    import rich.console  # noqa: F401
    import typer  # noqa: F401

    gc.freeze()  # so that no fork looks for garbage in the objects that all forks share
    keepers = set[int]()
    with socket.socket(fileno=number) as connection:
        while True:
            head, files, _, _ = socket.recv_fds(connection, SIZE, 4)
            if not head:
                os._exit(0)
            length = int.from_bytes(head, "big")
            words, cwd, environment, in_terminal = json.loads(connection.recv(length, socket.MSG_WAITALL))
            if not (keeper := os.fork()):
                connection.close()
                _keep(files)
                _enter(cwd, environment, files, in_terminal)
                return list(words)
            keepers = {each for each in {*keepers, keeper} if not os.waitpid(each, os.WNOHANG)[0]}
            for file in files:
                os.close(file)


def _keep(files: list[int]) -> None:
    """Fork once more. Only the new fork returns from this function. This process sends the new fork's process id, waits
    until the new fork ends, sends its exit code, and ends, too."""
    *given, number = files
    process = os.fork()
    if not process:
        os.close(files.pop())
        return
    for file in given:
        os.close(file)
    with socket.socket(fileno=number) as told:
        told.sendall(_packed(process))
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        try:
            told.sendall(_packed(code))
        finally:  # even if no process reads from the socket any more
            os._exit(0)


def _send(connection: socket.socket, request: list[Any], files: Sequence[int]) -> None:
    message = json.dumps(request).encode()
    socket.send_fds(connection, [_packed(len(message))], files)
    connection.sendall(message)


def _receive(connection: socket.socket) -> int:
    return int.from_bytes(connection.recv(SIZE, socket.MSG_WAITALL), "big", signed=True)


def _packed(number: int) -> bytes:
    return number.to_bytes(SIZE, "big", signed=True)


def _enter(cwd: str, environment: dict[str, str], files: list[int], in_terminal: bool) -> None:
    """Set up the files, the working directory and the environment with which a new process would start."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    if in_terminal:
        os.setsid()
        _control_terminal()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a new Python process
    options: Any = {"encoding": "utf-8", "closefd": False}
    sys.stdin, sys.stdout = (os.fdopen(n, mode, errors="surrogateescape", **options) for n, mode in enumerate("rw"))
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", **options)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    sys.path[0:1] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))


def _become(words: list[str]) -> None:
    """Run the program in this process, as if by `python WORDS`."""
    first, *rest = words
    if first in ("-m", "-c"):
        name, *arguments = rest
        sys.argv = [first, *arguments]
        sys.path.insert(0, os.getcwd() if first == "-m" else "")
        if first == "-m":
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        else:
            exec(compile(name, "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = words
        sys.path.insert(0, str(Path(first).parent))
        runpy.run_path(first, run_name="__main__")


def _leave(code: int) -> None:
    """End this process the way Python does, but free no objects: a fork has far more objects than its program made."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)  # writes the output of C code
    os._exit(code)


if __name__ == "__main__":
    program, result = _serve(int(sys.argv[1])), 0
    try:
        _become(program)
    except SystemExit as end:
        if end.code and not isinstance(end.code, int):
            raise  # the exit code is a message, which Python prints
        result = int(end.code or 0)
    _leave(result & 0xFF)
