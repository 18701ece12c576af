"""The process in which the judge runs a submission: `python worker.py SOCKET SANDBOX SUBMISSION TESTS MEMORY`.

The process holds no score and no expected value. docs/design/grading.md says what the process may do with
and without a sandbox.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tiny_llm_course.base.places import ROOT, SHARED, SRC
from tiny_llm_course.grading.sandbox import HIDDEN, NONE


def main() -> None:
    number, sandbox, submission, tests, memory = sys.argv[1:]
    stream = socket.socket(fileno=int(number))
    folder, helpers = Path(submission).resolve(), Path(tests).resolve()
    import mlx.core as mx
    import mlx_lm.tokenizer_utils  # noqa: F401  a submission may need this module, but cannot import it later

    from tiny_llm_course.grading import system_calls
    from tiny_llm_course.grading.metal import elsewhere
    from tiny_llm_course.grading.processes import limit
    from tiny_llm_course.grading.remote import Connection
    from tiny_llm_course.tasks.syllabus import TaskId

    sys.path[:0] = [str(folder), str(helpers)]
    barred, scenes = map(importlib.import_module, ("barred", "scenes"))
    loop = asyncio.new_event_loop()  # opens a socket, which is not allowed later
    loop.set_debug(True)
    barred.install("tiny_llm")
    connection = Connection(stream, is_open=True, home=folder)
    _load_extension(elsewhere(connection, lambda: mx.default_device().type == mx.gpu))
    bars: list[Any] = []

    def begin(task: str, device: str) -> None:
        """Prepare this process for a test of the task."""
        connection.forget()
        if bars:
            bars.pop().__exit__(None, None, None)
        bars.append(barred.during(TaskId.parse(task) if task else None))
        bars[-1].__enter__()
        mx.set_default_device(mx.gpu if device == "gpu" else mx.cpu)

    def reset_peak() -> None:
        """Measure peak memory from now on. Copies of the judge's arrays do not count, because these copies exist only
        during grading."""
        connection.received = 0
        mx.reset_peak_memory()

    connection.commands = {
        "ready": lambda: None,
        "begin": begin,
        "seed": mx.random.seed,
        "get_active_memory": mx.get_active_memory,
        "reset_peak_memory": reset_peak,
        "get_peak_memory": lambda: mx.get_peak_memory() - connection.received,
        "module": _module,
        "scene": lambda name, arguments: loop.run_until_complete(
            scenes.whole(getattr(scenes, name)(_Modules(), *arguments))
        ),
    }
    limit(sandbox, int(memory), 0)  # the process may not write a byte into any file
    if sys.platform == "linux":
        system_calls.refuse()
    if sandbox == NONE:
        sys.addaudithook(_guard(helpers))
    connection.serve()
    os._exit(0)  # without waiting for threads of the submission


def _module(name: str) -> Any:
    """Return a module of the submission, or of a package that the course's packages share, such as `given.config`."""
    package, _, module = name.partition(".")
    return importlib.import_module(f"{SHARED[package]}.{module}" if package in SHARED else f"tiny_llm.{name}")


class _Modules:
    """The modules for a scene, such as `modules.serving.server`. A module is imported when the scene first uses it."""

    def __init__(self, start: str = ""):
        self._start = start

    def __getattr__(self, name: str) -> Any:
        path = f"{self._start}{name}"
        if path in SHARED:
            return _Modules(f"{path}.")
        module = _module(path)
        return _Modules(f"{path}.") if hasattr(module, "__path__") else module


def _load_extension(metal_kernel: Callable[..., Any]) -> None:
    """Load the code that runs kernels, before this process gives up its rights. Load no code of the submission."""
    from tiny_llm_native import compiler, extension, metal

    compiler.get_ready()
    extension.get_ready()
    vars(metal)["metal_kernel"] = metal_kernel


def _guard(tests: Path) -> Callable[[str, tuple[Any, ...]], None]:
    """Return an audit hook that raises an error when code opens a file that a sandbox would hide. The hook stops
    mistakes, not attacks."""
    closed = (tests, ROOT / "tests", SRC / "tiny_llm_ref", *HIDDEN, Path("/proc"))

    def guard(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and not isinstance(arguments[0], int):
            path = Path(os.path.realpath(os.fsdecode(arguments[0])))
            if any(path.is_relative_to(folder) for folder in closed):
                raise PermissionError(f"a submission may not read {path}")

    return guard


if __name__ == "__main__":
    main()
