"""The judge's processes that run a submission's code."""

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
from pathlib import Path

from ..workspace import SRC
from .remote import Connection
from .sandbox import BUBBLEWRAP, wrapped

__all__ = ["limit", "start", "uncounted"]

PR_SET_PDEATHSIG = 1
CPU_SECONDS, FILES, THREADS = 3600, 256, 1024
RESERVED = 2**36  # bytes of addresses without memory, which checked Metal kernels reserve
PER_NAMESPACE = [5, 14]  # since this Linux, a limit of processes counts only those of the sandbox


def start(
    module: str,
    arguments: list[str],
    folder: Path,
    patience: float,
    sandbox: str,
    environment: dict[str, str],
    reads: Sequence[Path] = (),
    writes: Sequence[Path] = (),
) -> tuple[subprocess.Popen[bytes], Connection]:
    """`python -m module SOCKET SANDBOX arguments` in a sandbox, and the connection to it.

    folder: where it runs. patience: seconds until its first answer. reads, writes: what it sees besides Python and the
    course's own modules, and what of it may be changed.
    """
    ours, theirs = socket.socketpair()
    ours.settimeout(patience)
    place = str(folder)
    environment = environment | {"PATH": os.defpath, "HOME": place, "TMPDIR": place, "PYTHONPATH": str(SRC)}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONSAFEPATH": "1"}
    environment |= {"MLX_ENABLE_TF32": "0", "HF_HUB_OFFLINE": "1"}
    if compiler := os.environ.get("CXX"):  # with which kernels are compiled
        environment["CXX"] = compiler
    command = [sys.executable, "-m", module, str(theirs.fileno()), sandbox, *arguments]
    process = subprocess.Popen(
        wrapped(sandbox, command, reads, writes),
        cwd=folder,
        env=environment,
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    theirs.close()
    return process, Connection(ours, is_open=False)


@contextmanager
def uncounted(what: str) -> Iterator[None]:
    """Stop the test's clock during the block, as while a compiler runs (time_limit.py)."""
    sys.audit("kernel.compiling", what)
    try:
        yield
    finally:
        sys.audit("kernel.compiled", what)


def limit(sandbox: str, memory: int, file: int) -> None:
    """Limit this process, and end it with the judge. memory, file: bytes that it may use, and write into a file."""
    limits = {"CORE": 0, "FSIZE": file, "CPU": CPU_SECONDS, "NOFILE": FILES}
    if sys.platform == "linux":  # macOS does not limit memory
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        limits |= {"DATA": memory, "AS": memory + RESERVED}
        version = [int(part) for part in re.findall(r"\d+", platform.release())[:2]]
        if sandbox == BUBBLEWRAP and version >= PER_NAMESPACE:
            limits["NPROC"] = THREADS
    for name, most in limits.items():
        number = getattr(resource, f"RLIMIT_{name}")
        _, before = resource.getrlimit(number)  # which nobody may raise
        lowest = most if before == resource.RLIM_INFINITY else min(most, before)
        resource.setrlimit(number, (lowest, lowest))
