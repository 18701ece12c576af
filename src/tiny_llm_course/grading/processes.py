"""Processes that run a submission's code."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base.places import SRC
from .remote import Connection
from .sandbox import BUBBLEWRAP, wrapped

__all__ = ["Box", "limit", "uncounted"]

PR_SET_PDEATHSIG = 1
PATH = "/usr/bin:/bin"  # in the order of most shells, because compiled kernels are identified by the compiler's path
CPU_SECONDS, FILES, THREADS = 3600, 256, 1024
RESERVED = 2**36  # bytes of address space that checked Metal kernels reserve without using memory
PER_NAMESPACE = [5, 14]  # from this version of Linux on, the limit counts only processes in the sandbox


@dataclass(frozen=True)
class Box:
    """The sandbox and the folder in which a submission's processes run. Of the grader's environment variables, the
    processes see only CXX.

    reads: the paths that the processes see besides Python and the course's own modules. writes: the paths that the
    processes see and may change.
    """

    sandbox: str
    folder: Path
    reads: Sequence[Path] = ()
    writes: Sequence[Path] = ()

    def run(self, arguments: list[str], environment: dict[str, str], **options: Any) -> subprocess.Popen[bytes]:
        """Start Python in the sandbox. options: further arguments of Popen."""
        place = str(self.folder)
        given = {"PATH": PATH, "HOME": place, "TMPDIR": place, "PYTHONPATH": str(SRC)}
        given |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONSAFEPATH": "1"}
        given |= {"MLX_ENABLE_TF32": "0", "HF_HUB_OFFLINE": "1"}
        if compiler := os.environ.get("CXX"):  # the compiler for kernels
            given["CXX"] = compiler
        command = wrapped(self.sandbox, [sys.executable, *arguments], self.reads, self.writes)
        options |= dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        return subprocess.Popen(command, cwd=self.folder, env=given | environment, **options)

    def connect(
        self, module: str, arguments: list[str], environment: dict[str, str], patience: float
    ) -> tuple[subprocess.Popen[bytes], Connection]:
        """Start `python -m module SOCKET SANDBOX arguments`, and connect to that process. patience: seconds to wait for
        the process's first answer."""
        ours, theirs = socket.socketpair()
        ours.settimeout(patience)
        with theirs:
            number = theirs.fileno()
            command = ["-m", module, str(number), self.sandbox, *arguments]
            return self.run(command, environment, pass_fds=[number]), Connection(ours, is_open=False)


@contextmanager
def uncounted(what: str) -> Iterator[None]:
    """Stop the test's clock during the block, as time_limit.py does while a compiler runs."""
    sys.audit("kernel.compiling", what)
    try:
        yield
    finally:
        sys.audit("kernel.compiled", what)


def limit(sandbox: str, memory: int, file: int) -> None:
    """Set the limits of this process. On Linux, also make the process end when the judge ends.

    memory: bytes that the process may use. file: bytes that the process may write into one file.
    """
    limits = {"CORE": 0, "FSIZE": file, "CPU": CPU_SECONDS, "NOFILE": FILES}
    if sys.platform == "linux":  # macOS does not limit memory
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        limits |= {"DATA": memory, "AS": memory + RESERVED}
        version = [int(part) for part in re.findall(r"\d+", platform.release())[:2]]
        if sandbox == BUBBLEWRAP and version >= PER_NAMESPACE:
            limits["NPROC"] = THREADS
    for name, most in limits.items():
        number = getattr(resource, f"RLIMIT_{name}")
        _, before = resource.getrlimit(number)  # a hard limit cannot be raised
        lowest = most if before == resource.RLIM_INFINITY else min(most, before)
        resource.setrlimit(number, (lowest, lowest))
