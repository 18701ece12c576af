"""The process in which a submission runs: `python worker.py SOCKET SUBMISSION TESTS MEMORY`, started by the judge.

It holds no score and no expected value. What it may do is limited by the system (memory, file size) and by an audit
hook, which Python code cannot remove. CONTRIBUTING.md says what this stops and what not.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tiny_llm_course.workspace import ROOT

FORBIDDEN = (  # what a submission may not do, and the audit events that say that it is about to
    ("start a process", "os.fork os.forkpty os.exec os.posix_spawn os.spawn os.system subprocess.Popen pty.spawn"),
    ("send a signal", "os.kill os.killpg signal.pthread_kill"),
    ("use ctypes", "ctypes.dlopen ctypes.dlsym ctypes.dlsym/handle ctypes.cdata ctypes.cdata/buffer ctypes.addressof"),
    ("use the network", "socket.connect socket.bind socket.__new__ socket.getaddrinfo socket.sendto"),
    ("look for objects", "gc.get_objects gc.get_referrers gc.get_referents"),
    ("change code", "sys.addaudithook code.__new__ os.putenv os.unsetenv"),
    ("change files", "os.remove os.rename os.mkdir os.rmdir os.link os.symlink os.truncate os.chmod os.chown os.utime"),
)
IMPORTS = ("ctypes", "_ctypes", "_posixsubprocess", "multiprocessing", "_multiprocessing", "tiny_llm_ref")
MLX_WRITERS = ("save", "savez", "savez_compressed", "save_gguf", "save_safetensors", "export_function", "export_to_dot")


def main() -> None:
    number, submission, tests, memory = sys.argv[1:]
    stream = socket.socket(fileno=int(number))
    folder, hidden = Path(submission).resolve(), Path(tests).resolve()
    import mlx.core as mx
    import mlx_lm.tokenizer_utils  # noqa: F401  what a submission may need is there before the doors close

    from tiny_llm_course.grading.metal import elsewhere
    from tiny_llm_course.grading.processes import limit
    from tiny_llm_course.grading.remote import Connection
    from tiny_llm_course.syllabus import TaskId

    sys.path[:0] = [str(folder), str(hidden)]
    barred, scenes = map(importlib.import_module, ("barred", "scenes"))
    loop = asyncio.new_event_loop()  # which takes a socket
    loop.set_debug(True)
    barred.install("tiny_llm")
    connection = Connection(stream, is_open=True, home=folder)
    _load_bridge(folder / "tiny_llm" / "kernels", elsewhere(connection, lambda: mx.default_device().type == mx.gpu))
    bars: list[Any] = []

    def begin(task: str, device: str) -> None:
        """A test of this task begins."""
        connection.forget()
        if bars:
            bars.pop().__exit__(None, None, None)
        bars.append(barred.during(TaskId.parse(task) if task else None))
        bars[-1].__enter__()
        mx.set_default_device(mx.gpu if device == "gpu" else mx.cpu)

    connection.commands = {
        "begin": begin,
        "module": lambda name: importlib.import_module(f"tiny_llm.{name}"),
        "scene": lambda name, arguments: loop.run_until_complete(
            scenes.whole(getattr(scenes, name)(_Modules("tiny_llm"), *arguments))
        ),
    }
    limit(int(memory), 0)  # not a byte into any file
    for name in MLX_WRITERS:  # they write files without a word to the audit hook
        setattr(mx, name, _refuse)
    for name in [name for name in sys.modules if name.partition(".")[0] in IMPORTS]:
        del sys.modules[name]
    sys.addaudithook(_guard(hidden))
    connection.serve()
    os._exit(0)  # threads of the submission are not waited for


class _Modules:
    """`modules.serving.server` is imported when it is asked for."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Any:
        found = importlib.import_module(f"{self._name}.{name}")
        return _Modules(found.__name__) if hasattr(found, "__path__") else found


def _load_bridge(kernels: Path, metal_kernel: Callable[..., Any]) -> None:
    """The course's own modules that run kernels, before the doors close, and none of the submission's with them."""
    for name in ("compiler", "extension", "metal"):
        file = kernels / f"{name}.py"
        if not file.exists():
            return
        spec = importlib.util.spec_from_file_location(f"tiny_llm.kernels.{name}", file)
        assert spec
        assert spec.loader
        module = sys.modules[f"tiny_llm.kernels.{name}"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        if name == "metal":
            vars(module)["metal_kernel"] = metal_kernel
        else:
            module.get_ready()


def _refuse(*args: object, **kwargs: object) -> None:
    raise PermissionError("a submission may not write files")


def _guard(tests: Path) -> Callable[[str, tuple[Any, ...]], None]:
    """An audit hook. Nothing refers to it but Python's own list of hooks, and what it decides by cannot be changed."""
    closed = (tests, ROOT / "tests", ROOT / "src" / "tiny_llm_ref", ROOT / "src" / "tiny_llm_course" / "catalogue")
    folders = (*(str(path) for path in closed), "/proc")
    reasons = tuple((reason, frozenset(events.split())) for reason, events in FORBIDDEN)
    events = frozenset(event for _, group in reasons for event in group)
    imports, realpath, fsdecode, writes = frozenset(IMPORTS), os.path.realpath, os.fsdecode, os.O_WRONLY | os.O_RDWR

    def guard(event: str, arguments: tuple[Any, ...]) -> None:
        if event in events:
            reason = next(reason for reason, group in reasons if event in group)
            raise PermissionError(f"a submission may not {reason} ({event})")
        if event == "import" and arguments[0].partition(".")[0] in imports:
            raise PermissionError(f"a submission may not import {arguments[0]}")
        if event == "open" and not isinstance(arguments[0], int):
            path, mode, flags = arguments
            real = realpath(fsdecode(path))
            if any(real == folder or real.startswith(folder + "/") for folder in folders):
                raise PermissionError(f"a submission may not read {path}")
            if flags & writes if isinstance(flags, int) else set(str(mode)) & set("wax+"):
                raise PermissionError(f"a submission may not write {path}")

    return guard


if __name__ == "__main__":
    main()
