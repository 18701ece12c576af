"""Submitted kernels: compiled by the judge's side, since a submission may start no process, and tested in the worker.

A submission decides what the compiler reads and how long it takes. So the compiler runs in the submission's sandbox,
and its limits hold.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic

from ..base.places import SRC
from ..learner.workspace import Workspace
from ..native import mlx_extension
from ..native.compiling import COMPILE
from ..native.kernel_files import kernels_of
from ..tasks.regions import SUFFIXES, parts_of
from ..tasks.task_code import StubError
from .locate import known
from .processes import Box
from .sandbox import NONE

__all__ = ["compile_submitted", "is_taken", "replaced"]

SECONDS, FILE = 60, 2**26  # of the processor, and bytes: for each kernel
STEP = 0.2  # seconds between two looks at `stop`


def is_taken(path: str, workspace: Workspace) -> bool:
    """Tell whether a submitted file is used, and not the course's own: of what makes kernels run only files with tasks.

    A header that tiny_llm_native has is not used: the compiler would look for it next to the kernel first.
    """
    path = path.casefold()  # on some disks, names that differ in case are one file
    own = workspace.reference / path
    if not path.startswith("kernels/"):
        return True
    if not own.exists():
        return not (workspace.native / path.removeprefix("kernels/")).exists()
    try:
        return own.suffix in SUFFIXES and bool(parts_of(own.read_text(encoding="utf-8"), path))
    except StubError:
        return False


def replaced(files: Mapping[str, bytes], workspace: Workspace) -> list[str]:
    """The submitted files of which the course uses its own, from tiny_llm_native, and which differ from it."""
    own = {path: workspace.native / path.removeprefix("kernels/") for path in files if path.startswith("kernels/")}
    return [path for path, file in own.items() if file.exists() and file.read_bytes() != files[path]]


def compile_submitted(package: Path, sandbox: str, memory: int, seconds: float, stop: threading.Event) -> bool:
    """Compile the kernels in a submission's package that the course asks for. What does not compile, its tests find out
    again.

    The course's own kernels, which given code calls, are compiled where they are.
    memory: bytes. seconds: for all of them. They also end when `stop` is set.

    Returns whether each compiler ended by itself.
    """
    workspace = Workspace()
    mlx_extension.built(package / "kernels").mkdir(parents=True, exist_ok=True)
    written = kernels_of(package).written
    for file in [file for file in written if file.is_relative_to(workspace.native)]:
        _compile(workspace.native, file, NONE, memory, SECONDS, stop)
    end = monotonic() + seconds
    own = [file for file in written if not file.is_relative_to(workspace.native)]
    asked = [file for file in own if f"kernels/{file.name}" in known()]
    ended = [_compile(package, file, sandbox, memory, end - monotonic(), stop) for file in asked]
    return all(ended)


def _compile(package: Path, file: Path, sandbox: str, memory: int, seconds: float, stop: threading.Event) -> bool:
    """Compile a kernel as the worker asks for it: errors name the file as it is seen from the package."""
    built = mlx_extension.built(file.parent)
    command = ["-I", "-c", COMPILE, str(SRC), "{}", str(file)]
    box = Box(sandbox, package, reads=[package], writes=[built])
    process = box.run(command, {"TMPDIR": str(built)}, preexec_fn=partial(_limit, memory), start_new_session=True)
    end = monotonic() + min(SECONDS, seconds)
    while process.poll() is None and monotonic() < end and not stop.is_set():
        with suppress(subprocess.TimeoutExpired):
            process.wait(STEP)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait() == 0


def _limit(memory: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, FILE))
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
