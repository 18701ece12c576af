"""Runs Python programs as forks of one process that has imported what most of them need, mlx-lm and Transformers.

Importing these takes a second of processor time for each program, more than most of them need for their work. A fork
has its own state, working directory, environment and files, like a process that was started.
"""

from __future__ import annotations

import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

__all__ = ["run_python"]

CAN_FORK = sys.platform == "linux"  # on macOS, Apple's frameworks do not survive a fork
SIZE = 4  # bytes of a number in a message


def run_python(
    words: Sequence[str],
    cwd: Path,
    environment: Mapping[str, str],
    input: str | None = None,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `python WORDS`, where the words begin with a script, with -m and a module, or with -c and code.

    input: the text that is piped in, if any. timeout: in seconds. Raises subprocess.TimeoutExpired after it.
    """
    call = [sys.executable, *words]
    if not CAN_FORK or _is_for_a_start(environment):
        stdin = {"stdin": subprocess.DEVNULL} if input is None else {"input": input}
        return subprocess.run(call, cwd=cwd, env=environment, timeout=timeout, capture_output=True, text=True, **stdin)
    with (
        open(os.devnull) if input is None else tempfile.TemporaryFile("w+") as given,
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as error,
    ):
        if input:
            given.write(input)
            given.seek(0)
        code = _server().run([list(words), str(cwd), dict(environment)], [given, out, error], timeout)
        for file in (out, error):
            file.seek(0)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(call, timeout, out.read(), error.read())
        return subprocess.CompletedProcess(call, code, out.read(), error.read())


def _is_for_a_start(environment: Mapping[str, str]) -> bool:
    """Whether it holds what Python reads only when it starts: an encoding, or a module sitecustomize."""
    folders = environment.get("PYTHONPATH", "").split(os.pathsep)
    return "PYTHONIOENCODING" in environment or any(Path(folder, "sitecustomize.py").exists() for folder in folders)


class _Server:
    """The process that forks. It ends when this process closes its end of the socket."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            call = [sys.executable, __file__, str(theirs.fileno())]
            environment = os.environ | {"PYTHONUTF8": "1"}
            subprocess.Popen(call, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=environment)

    def run(self, request: list[Any], files: Sequence[IO[str]], timeout: float | None) -> int | None:
        """The exit code; None if the program was killed because it did not end in time."""
        message = json.dumps(request).encode()
        socket.send_fds(self._socket, [_packed(len(message))], [file.fileno() for file in files])
        self._socket.sendall(message)
        process = self._receive()
        ended, _, _ = select.select([self._socket], [], [], timeout)
        if not ended:
            os.kill(process, signal.SIGKILL)
        code = self._receive()
        return code if ended else None

    def _receive(self) -> int:
        return int.from_bytes(self._socket.recv(SIZE, socket.MSG_WAITALL), "big", signed=True)


@cache
def _server() -> _Server:
    return _Server()


def _serve(number: int) -> list[str]:
    """Fork for each request. Returns the words of a program in the fork that is to become it."""
    import mlx.nn  # noqa: F401
    import mlx_lm.tokenizer_utils  # noqa: F401
    import numpy  # noqa: F401

    with socket.socket(fileno=number) as connection:
        while True:
            head, files, _, _ = socket.recv_fds(connection, SIZE, 3)
            if not head:
                os._exit(0)
            length = int.from_bytes(head, "big")
            words, cwd, environment = json.loads(connection.recv(length, socket.MSG_WAITALL))
            if not (process := os.fork()):
                _enter(cwd, environment, files)
                return list(words)
            for file in files:
                os.close(file)
            connection.sendall(_packed(process))
            connection.sendall(_packed(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])))


def _packed(number: int) -> bytes:
    return number.to_bytes(SIZE, "big", signed=True)


def _enter(cwd: str, environment: dict[str, str], files: list[int]) -> None:
    """Take on what a new process would have been given."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    sys.path[0:1] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))


def _become(words: list[str]) -> None:
    """Run the program as `python WORDS` does."""
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


if __name__ == "__main__":
    _become(_serve(int(sys.argv[1])))
