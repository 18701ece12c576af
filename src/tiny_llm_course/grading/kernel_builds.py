"""Submitted kernels: compiled by the judge's side, since a submission may start no process, and tested in the worker.

A submission decides what the compiler reads and how long it takes. So the compiler runs in the submission's sandbox,
and its limits hold.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic

from ..learner.workspace import Workspace
from ..native import bridge
from ..native.compiling import COMPILE
from ..native.kernel_files import kernels_of
from ..tasks.regions import parts_of
from ..tasks.task_code import StubError
from .locate import known
from .processes import Box
from .sandbox import NONE

__all__ = ["compile_submitted", "is_taken"]

SECONDS, FILE = 60, 2**26  # of the processor, and bytes: for each kernel
STEP = 0.2  # seconds between two looks at `stop`


def is_taken(path: str, workspace: Workspace) -> bool:
    """Whether a submitted file is used, and not the course's own: of what makes kernels run only files with tasks."""
    path = path.casefold()  # on some disks, names that differ in case are one file
    own = workspace.reference / path
    if not path.startswith("kernels/") or not own.exists():
        return True
    try:
        return own.suffix in (".py", ".cpp", ".metal") and bool(parts_of(own.read_text(encoding="utf-8"), path))
    except StubError:
        return False


def compile_submitted(package: Path, sandbox: str, memory: int, seconds: float, stop: threading.Event) -> bool:
    """Compile the kernels in a submission's package that the course asks for. What does not compile, its tests find out
    again.

    The course's own kernels, which given code calls, are those of the reference.
    memory: bytes. seconds: for all of them. They also end when `stop` is set.

    Returns whether each compiler ended by itself.
    """
    workspace = Workspace()
    target = bridge.built(package)
    target.mkdir(parents=True, exist_ok=True)
    written = kernels_of(package).written
    own = [file for file in written if not is_taken(f"kernels/{file.name}", workspace)]
    for file in own:
        _compile(workspace.reference, file.name, NONE, memory, SECONDS, stop)
    libraries = [library for file in own for library in bridge.built(workspace.reference).glob(f"{file.stem}-*.so")]
    for file in [*bridge.files(workspace.reference), *libraries]:
        shutil.copy(file, target)
    end = monotonic() + seconds
    asked = [file.name for file in written if file not in own and f"kernels/{file.name}" in known()]
    ended = [_compile(package, name, sandbox, memory, end - monotonic(), stop) for name in asked]
    return all(ended)


def _compile(package: Path, name: str, sandbox: str, memory: int, seconds: float, stop: threading.Event) -> bool:
    """One kernel, as the worker asks for it: errors name the file as it is seen from the package."""
    built = bridge.built(package)
    command = ["-I", "-c", COMPILE, str(package / "kernels"), name]
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
