"""Compiles submitted kernels. The worker cannot do this, because a submission may not start a process.

A submission decides what the compiler reads and how long the compilation takes. So the compiler runs in the
submission's sandbox, with the submission's limits.
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

SECONDS, FILE = 60, 2**26  # limits for compiling a kernel: seconds of processor time; bytes of a file
STEP = 0.2  # seconds between checks of `stop`


def is_taken(path: str, workspace: Workspace) -> bool:
    """Tell whether a submitted file is used. Of the course's files in `kernels`, a submission can replace only files
    with tasks.

    A submitted header with the same name as a header in tiny_llm_native is ignored. Otherwise, the compiler would
    include the submitted header in place of the course's.
    """
    path = path.casefold()  # on some disks, names that differ only in case are the same file
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
    """Return the paths of submitted files in `kernels` for which tiny_llm_native has a file with the same name but
    other content. The course uses its own file instead."""
    own = {path: workspace.native / path.removeprefix("kernels/") for path in files if path.startswith("kernels/")}
    return [path for path, file in own.items() if file.exists() and file.read_bytes() != files[path]]


def compile_submitted(package: Path, sandbox: str, memory: int, seconds: float, stop: threading.Event) -> bool:
    """Compile the kernels in a submission's package that belong to the course's tasks. Errors are ignored here, because
    a kernel's tests report that the kernel does not compile.

    The course's own kernels, which given code calls, are compiled in their own folder.
    memory: the memory limit of each compiler, in bytes. seconds: the time limit for all kernels. Setting `stop` ends
    the compilers at once.

    Return whether every compiler ended by itself.
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
    """Compile a kernel in the package's folder, so that error messages give the file's path relative to the package."""
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
