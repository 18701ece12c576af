"""Processes of the judge's that run what a submission brings."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

from .remote import Connection

__all__ = ["limit", "start"]

SOURCE = Path(__file__).parents[2]
PR_SET_PDEATHSIG = 1


def start(
    module: str, arguments: list[str], folder: str, patience: float, **environment: str
) -> tuple[subprocess.Popen[bytes], Connection]:
    """`python -m module SOCKET arguments`, and the connection to it.

    folder: all that it can call its own. patience: seconds until its first answer.
    """
    ours, theirs = socket.socketpair()
    ours.settimeout(patience)
    environment |= {"PATH": os.defpath, "HOME": folder, "TMPDIR": folder, "PYTHONPATH": str(SOURCE)}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", "MLX_ENABLE_TF32": "0", "HF_HUB_OFFLINE": "1"}
    if compiler := os.environ.get("CXX"):  # with which kernels are compiled
        environment["CXX"] = compiler
    process = subprocess.Popen(
        [sys.executable, "-m", module, str(theirs.fileno()), *arguments],
        cwd=folder,
        env=environment,
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    theirs.close()
    return process, Connection(ours, is_open=False)


def limit(memory: int, file: int) -> None:
    """In such a process: the bytes that it may use, and write into a file. It ends with the judge."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file, file))
    if sys.platform == "linux":  # macOS has neither
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
