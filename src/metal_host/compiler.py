"""Compiles kernels and the runtime, each once, with the machine's C++ compiler.

What is compiled lies in METAL_HOST_CACHE, or else in the folder `built` of this package, or where that cannot be
written, in the user's cache.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from .diagnostics import explain_errors
from .errors import MetalCompileError, MetalHostError
from .source import Program

__all__ = ["compile_program"]

_HERE = Path(__file__).parent
_STALE = 7 * 24 * 3600  # seconds after which a program that nobody ran is removed
_COMMON = (
    "-std=c++17",
    "-g1",
    "-gdwarf-4",
    "-fno-elide-type",
    "-fno-omit-frame-pointer",
    "-fno-exceptions",
    "-fno-rtti",
    "-fsigned-char",
    "-fwrapv",
    "-fno-strict-aliasing",
)
_NUMBERS = ("-ffp-contract=off", "-fno-math-errno")
_FAULTS = "bounds,alignment,integer-divide-by-zero"
_PLAIN = ("-O2",)
_CHECKED = ("-O1", "-fsanitize=thread", f"-fsanitize={_FAULTS}", f"-fno-sanitize-recover={_FAULTS}")
_CHECKED_TOO = ("-fsanitize-coverage=trace-pc", "-ftrivial-auto-var-init=pattern", "-Werror=uninitialized")


def compile_program(name: str, program: Program, checked: bool) -> Path:
    """The program that runs a kernel, compiled if that was not done before.

    Raises:
        MetalCompileError: the kernel has an error.
        MetalHostError: there is no compiler, or it cannot compile our own part.
    """
    flags = [*_COMMON, *_NUMBERS, *_of_this_compiler(checked), *(_CHECKED + _CHECKED_TOO if checked else _PLAIN)]
    found = _built() / f"kernel-{_fingerprint(program.cpp, *flags, _texts_of_package())}"
    if found.exists():
        os.utime(found)  # it is in use
        return found
    objects = _runtime()
    with tempfile.TemporaryDirectory(dir=_built(), prefix=".") as folder:
        source, compiled, linked = (Path(folder) / part for part in ("kernel.cpp", "kernel.o", "kernel"))
        source.write_text(program.cpp, encoding="utf-8")
        problem = _run([*_compiler(), *flags, f"-I{_HERE / 'include'}", "-c", str(source), "-o", str(compiled)])
        if problem:
            raise MetalCompileError(f"kernel '{name}' does not compile:\n{explain_errors(problem, program.texts)}")
        problem = _run([*_compiler(), *_linking(), str(compiled), *map(str, objects), "-lm", "-o", str(linked)])
        if problem:
            raise MetalHostError(f"kernel '{name}' cannot be linked:\n{problem[-1000:]}")
        linked.rename(found)  # at once, for whoever else compiles or runs it
    _remove_stale()
    return found


def _runtime() -> list[Path]:
    """The object files of runtime/."""
    sources = sorted((_HERE / "runtime").glob("*.cpp"))
    flags = ("-std=c++17", "-O2", "-fno-exceptions", "-fno-rtti", "-fno-omit-frame-pointer", *_linking())
    folder = _built() / f"runtime-{_fingerprint(*flags, _texts_of_package())}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=_built(), prefix=".") as temporary:
            unfinished = Path(temporary) / "objects"
            unfinished.mkdir()
            problem = _run([*_compiler(), *flags, "-c", *map(str, sources)], unfinished)
            if problem:
                raise MetalHostError(f"metal_host's runtime does not compile:\n{problem[-2000:]}")
            try:
                unfinished.rename(folder)
            except OSError:
                if not folder.exists():  # otherwise somebody else was faster
                    raise
    os.utime(folder)
    return [folder / f"{source.stem}.o" for source in sources]


def _run(command: Sequence[str], folder: Path | None = None) -> str:
    """What a compiler says that fails; nothing if it does not."""
    environment = os.environ | {"LC_ALL": "C"}  # in English
    try:
        run = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment, cwd=folder)
    except OSError as error:
        raise MetalHostError(f"{error}: is there a C++ compiler? pdm run doctor") from None
    return (run.stderr or f"{command[0]} fails") if run.returncode else ""


@cache
def _compiler() -> tuple[str, ...]:
    found = os.environ.get("CXX") or shutil.which("c++") or shutil.which("clang++") or shutil.which("g++")
    if not found:
        raise MetalHostError("no C++ compiler: looked for c++, clang++ and g++. How to get one: pdm run doctor")
    return tuple(found.split())


@cache
def _version() -> str:
    try:
        return subprocess.run([*_compiler(), "--version"], capture_output=True, text=True, errors="replace").stdout
    except OSError as error:
        raise MetalHostError(f"{error}: is there a C++ compiler? pdm run doctor") from None


def _linking() -> tuple[str, ...]:
    return () if sys.platform == "darwin" else ("-no-pie", "-fno-pie")  # code lies where its file says


def _of_this_compiler(checked: bool) -> list[str]:
    """So that half is rounded after each operation; and, for a checked run, without calls that we do not need."""
    flags = [] if sys.platform == "darwin" else ["-fno-pie"]
    if platform.machine() in ("x86_64", "AMD64") and "f16c" in _processor():
        flags.append("-mf16c")
    if "clang" in _version():
        flags += ["-Xclang", "-ffloat16-excess-precision=none", "-Wno-everything"]
        hidden = ["-mllvm", "-tsan-instrument-func-entry-exit=0", "-mllvm", "-tsan-handle-cxx-exceptions=0"]
        return [*flags, "-fno-finite-loops", *(hidden if checked else [])]
    flags += ["-fexcess-precision=16", "-fno-finite-loops", "-fmax-errors=20"]
    return flags + (["--param", "tsan-instrument-func-entry-exit=0"] if checked else [])


@cache
def _processor() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


@cache
def _texts_of_package() -> str:
    files = sorted(file for part in ("include", "runtime") for file in (_HERE / part).rglob("*.*"))
    return "".join(file.read_text(encoding="utf-8") for file in files)


def _fingerprint(*parts: str) -> str:
    text = "\0".join([*parts, *_compiler(), _version(), platform.machine()])
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _built() -> Path:
    chosen = os.environ.get("METAL_HOST_CACHE")
    places = [Path(chosen)] if chosen else [_HERE / "built", Path.home() / ".cache" / "metal_host"]
    for place in places:
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(place, os.W_OK):
            return place
    raise MetalHostError(
        f"no folder for compiled kernels: {places[-1]} cannot be written. METAL_HOST_CACHE may name one"
    )


def _remove_stale() -> None:
    for old in _built().iterdir():  # also what a process that was killed has left
        try:
            if time.time() - old.stat().st_mtime > _STALE:
                shutil.rmtree(old) if old.is_dir() else old.unlink()
        except OSError:  # somebody else was faster
            continue
