"""Compiles kernels before a command needs them, as many files at a time as there are processors, and shows the
progress."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import Any

from ..base.places import SRC
from ..tasks.regions import code_files
from ..ui import CommandError, Messages, StatusLine, phrase, show_note
from .arithmetic import arithmetic_flags
from .child import running

__all__ = ["COMPILE", "Compiled", "are_compiled", "are_off", "compile_files", "compile_for"]

NATIVE = SRC / "tiny_llm_native"

COMPILE = """
import json, os, signal, sys
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event

names, flags = sys.argv[3:], json.loads(sys.argv[2])
sys.path.insert(0, sys.argv[1])
from tiny_llm_native import compiler
from tiny_llm_native.includes import with_included
may_start = False

class Waits(Exception):
    pass

def look(event, arguments):
    if event == "subprocess.Popen" and not may_start:
        raise Waits

def is_waiting(name):
    try:
        compiler.compile_kernels(Path(name), flags.get(name, ()))
    except (Waits, compiler.CompileError):
        return True
    return False

def tell(*event):
    sys.stdout.write(json.dumps(event) + "\\n")
    sys.stdout.flush()

def make(name):
    tell("begun", name)
    try:
        compiler.compile_kernels(Path(name), flags.get(name, ()))
    except compiler.CompileError as error:
        tell("ended", name, str(error))
    else:
        tell("ended", name, "")

compiler.get_ready()
sys.addaudithook(look)  # a compiler that must not start yet shows that there is something to compile
waiting = [name for name in names if is_waiting(name)]
size = lambda name: sum(file.stat().st_size for file in with_included(Path(name)))
waiting.sort(key=size, reverse=True)  # the files that take longest begin first
may_start = True
tell("waiting", waiting)
processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
pool, interrupted = ThreadPoolExecutor(processors), Event()
signal.signal(signal.SIGINT, lambda *arguments: interrupted.set())
made = [pool.submit(make, name) for name in waiting]
while wait(made, timeout=0.1).not_done:
    if interrupted.is_set():
        may_start = False
        pool.shutdown(wait=False, cancel_futures=True)
        os.killpg(0, signal.SIGINT)  # again and again, since a process between fork and exec loses the signal
if interrupted.is_set():
    raise KeyboardInterrupt
for one in made:
    one.result()
"""  # arguments: the packages' folder, the compiler's flags for each file, and the files to compile


class Compiled:
    """A compilation, which shows its progress in the last line of a terminal or, without a terminal, in lines on
    stderr.

    names: the paths of the files that had to be compiled. problems: the compiler's errors, keyed by the file's path.
    seconds: the time that the compilation took.
    """

    def __init__(self, words: Messages):
        self.names: list[str] = []
        self.problems: dict[str, str] = {}
        self.seconds = 0.0
        self._words, self._status, self._start = words, StatusLine(), monotonic()
        self._begun: dict[str, float] = {}
        self._ended: list[str] = []

    def take(self, event: str, *values: Any) -> None:
        """Record an event that the compiling process reports."""
        if event == "waiting":
            self.names = values[0]
            if self.names:
                self._line("compile_begin", count=len(self.names), names=_stems(self.names))
        elif event == "begun":
            self._begun[values[0]] = monotonic()
        else:
            self._end(*values)
        self.show()

    def show(self) -> None:
        """Show the progress of the compilation if there is a terminal."""
        if running := [name for name in self._begun if name not in self._ended]:
            numbers = {"done": len(self._ended), "count": len(self.names), "names": _stems(running)}
            self._status.show(self._words("compile_status", seconds=f"{self._passed():.0f}", **numbers))

    def finish(self) -> None:
        self._status.clear()
        self.seconds = self._passed()

    def _end(self, name: str, problem: str) -> None:
        self._ended.append(name)
        if problem:
            self.problems[name] = problem
        key = "compile_failed" if problem else "compile_done"
        seconds = f"{monotonic() - self._begun[name]:.1f}"
        numbers = {"done": len(self._ended), "count": len(self.names)}
        self._line(key, name=Path(name).stem, seconds=seconds, **numbers)

    def _line(self, key: str, **values: object) -> None:
        if not self._status.can_show:
            show_note(self._words(key, **values))

    def _passed(self) -> float:
        return monotonic() - self._start


def compile_files(
    files: Sequence[Path], words: Messages, flags: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> Compiled:
    """Compile these files of kernels in a separate process. flags: further options of the compiler, keyed by path.

    Raises:
        CommandError: the process failed.
    """
    compiled, output = Compiled(words), ""
    if not files:
        return compiled
    with running([sys.executable, "-c", COMPILE, str(SRC), json.dumps(dict(flags)), *map(str, files)]) as child:
        try:
            for line in child.lines():
                if line is None:
                    compiled.show()
                elif line.startswith("["):
                    compiled.take(*json.loads(line))
                else:
                    output = line.strip() or output
        finally:
            compiled.finish()
    if child.returncode:
        reason = output or phrase("exit_code", code=child.returncode)
        raise CommandError("ext_kernels", folder=os.path.relpath(files[0].parent), reason=reason, exit_code=1)
    return compiled


def compile_for(package: str, kernels: Collection[str], words: Messages) -> None:
    """Compile these kernels of a package, or of the code that both packages share, unless kernels are off or no MLX
    extension is built. If no kernel has to be compiled, print nothing.

    A kernel that does not compile raises its error when it is first called.
    """
    if not kernels or not _can_run():
        return
    files, by_arithmetic = _files(package, kernels), import_module("tiny_llm_native.matmul.arithmetic").KERNELS
    packed = [str(file) for file in files if file in by_arithmetic]
    compiled = compile_files(files, words, dict.fromkeys(packed, arithmetic_flags(words)) if packed else {})
    if compiled.names and not compiled.problems:
        show_note(words("compile_all", seconds=f"{compiled.seconds:.0f}"))


def are_compiled(package: str, kernels: Collection[str]) -> bool:
    """Tell whether these kernels can run without compiling first. None of them may depend on the arithmetic mode."""
    compiler = import_module("tiny_llm_native.compiler")
    try:
        return _can_run() and all(compiler.library_of(file).exists() for file in _files(package, kernels))
    except (compiler.CompileError, ImportError, OSError):  # there is no compiler, or the extension is damaged
        return False


def are_off() -> bool:
    """Tell whether the environment switches kernels off. Raise a CommandError if one of its variables is wrong."""
    try:
        return bool(import_module("tiny_llm_native.extension").mode() == "off")
    except ValueError as error:
        raise CommandError("wrong_variable", reason=error) from None


def _can_run() -> bool:
    """Tell whether there is an MLX extension, and kernels are not off. Raise a CommandError if a variable of the
    environment is wrong."""
    try:
        return not are_off() and import_module("tiny_llm_native.extension").mlx_extension() is not None
    except ValueError as error:
        raise CommandError("wrong_variable", reason=error) from None


def _files(package: str, kernels: Collection[str]) -> list[Path]:
    own = Path(import_module(package).__file__ or "").parent / "kernels"
    shared = {file.name: file for file in code_files(NATIVE)}
    return [shared.get(f"{name}.cpp", own / f"{name}.cpp") for name in kernels]


def _stems(names: Collection[str]) -> str:
    return ", ".join(Path(name).stem for name in names)
