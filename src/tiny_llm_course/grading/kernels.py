"""Submitted kernels: compiled by the judge's side, since a submission may start no process, and tested in the worker.

A submission decides what the compiler reads. So that runs in a sandbox, too, and what is included is looked at before.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from time import monotonic

from .. import bridge
from ..build_ext import kernels_of
from ..compiling import COMPILE
from ..regions import is_native, parts_of
from ..task_code import StubError
from ..workspace import Workspace
from .sandbox import NONE, wrapped

__all__ = ["compile_submitted", "is_taken"]

SECONDS, MEMORY, FILE = 60, 2**32, 2**26  # of the compiler: for a file
STEP = 0.2  # seconds between two looks at `stop`
INCLUDE = re.compile(r'#\s*include\s*(<\w+(\.h)?>|"\w+\.(h|cpp)")\s*(//.*|/\*.*)?')
REFUSED = re.compile(r"\b(asm|__asm|__asm__|incbin|embed|__has_include)\b")


def is_taken(path: str, workspace: Workspace) -> bool:
    """Whether a submitted file is used, and not the course's own: of what makes kernels run only files with tasks."""
    if not path.startswith("kernels/"):
        return True
    own = workspace.reference / path
    if not own.exists():
        return True
    try:
        return own.suffix in (".py", ".cpp", ".metal") and bool(parts_of(own.read_text(encoding="utf-8"), path))
    except StubError:
        return False


def compile_submitted(package: Path, sandbox: str, stop: threading.Event) -> None:
    """Compile what is written in a submission's package, until `stop` is set. What does not compile, its tests find out
    again.

    The course's own kernels, which given code calls, are those of the reference.
    """
    workspace = Workspace()
    target = bridge.built(package)
    target.mkdir(parents=True, exist_ok=True)
    for file in sorted(package.rglob("*")):
        if is_native(file) and (problem := _refused(file.read_text(encoding="utf-8", errors="replace"))):
            file.write_text(f'#error "a submission may not use: {problem}"\n', encoding="utf-8")
    written = kernels_of(package).written
    own = [file for file in written if not is_taken(f"kernels/{file.name}", workspace)]
    _compile(workspace.reference, [file.name for file in own], NONE, stop)
    libraries = [library for file in own for library in bridge.built(workspace.reference).glob(f"{file.stem}-*.so")]
    for file in [*bridge.files(workspace.reference), *libraries]:
        shutil.copy(file, target)
    _compile(package, [file.name for file in written if file not in own], sandbox, stop)


def _compile(package: Path, names: list[str], sandbox: str, stop: threading.Event) -> None:
    """As the worker asks for them: with its PATH, and the grader's compiler."""
    if not names:
        return
    built = bridge.built(package)
    environment = {"PATH": os.defpath, "TMPDIR": str(built)}
    if compiler := os.environ.get("CXX"):
        environment["CXX"] = compiler
    command = [sys.executable, "-I", "-c", COMPILE, str(package / "kernels"), *names]
    process = subprocess.Popen(
        wrapped(sandbox, command, reads=[package], writes=[built]),
        cwd=package,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=_limit,
        start_new_session=True,
    )
    end = monotonic() + SECONDS * len(names)
    while process.poll() is None and monotonic() < end and not stop.is_set():
        with suppress(subprocess.TimeoutExpired):
            process.wait(STEP)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _refused(source: str) -> str:
    """What would let a kernel's source read other files while it is compiled."""
    for line in source.replace("\\\n", "").splitlines():
        text = line.strip()
        if re.match(r"(#|%:|\?\?=)\s*(include|import)", text) and not INCLUDE.fullmatch(text):
            return re.sub(r"[^\w ./<>#]", " ", text)[:80]
        if match := REFUSED.search(text):
            return match[0]
    return ""


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, FILE))
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
