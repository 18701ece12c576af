"""Compiles the runtime and each kernel with the machine's C++ compiler, and keeps the results for later processes."""

import hashlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path

from .diagnostics import explain_errors
from .errors import MetalCompileError, MetalHostError
from .source import Program
from .spaces import mixed_spaces
from .store import keep_small, store
from .toolchain import Toolchain, recent_clang, run_tool, whole

__all__ = ["compile_program"]

_HERE = Path(__file__).parent
_COMMON = (
    "-std=c++17",
    "-pipe",
    "-g1",
    "-gdwarf-4",
    "-fno-elide-type",
    "-fno-omit-frame-pointer",
    "-fno-exceptions",
    "-fno-rtti",
    "-fsigned-char",
    "-fwrapv",
    "-fno-strict-aliasing",
    "-fno-finite-loops",
    "-fno-delete-null-pointer-checks",  # so that an access through a null pointer is not optimised away
)
_REFUSED = ("-Werror=vla",)  # Metal's compiler rejects arrays of variable length, but C++ compilers accept them
_NUMBERS = ("-ffp-contract=off", "-fno-math-errno")
_FAULTS = "bounds,alignment,integer-divide-by-zero"
_RUNTIME = ("-std=c++17", "-O2", "-fno-exceptions", "-fno-rtti", "-fno-omit-frame-pointer", "-fno-sanitize=all")
_PLAIN = ("-O2", "-fno-sanitize=all")
_CHECKED = (
    "-O1",
    "-DMSL_CHECKED",
    f"-fsanitize={_FAULTS}",
    f"-fno-sanitize-recover={_FAULTS}",
    "-fsanitize-coverage=trace-pc",
    "-ftrivial-auto-var-init=pattern",
    "-Werror=uninitialized",
)

_CHECKED_BY_CLANG = (
    *("-Xclang", "-fsanitize=thread"),  # hidden from the driver, which would link the sanitizer's library
    *("-mllvm", "-tsan-instrument-func-entry-exit=0"),
    *("-mllvm", "-tsan-handle-cxx-exceptions=0"),
    *("-mllvm", "-tsan-instrument-read-before-write=1"),
)


def compile_program(name: str, program: Program, checked: bool, tools: Toolchain) -> Path:
    """Return the program that runs a kernel. Compile the program first unless the store has it.

    Raises:
        MetalCompileError: the kernel has an error.
        MetalHostError: there is no compiler, or it cannot compile the runtime.
    """
    checks = _CHECKED if checked else _PLAIN
    flags = [*_COMMON, *_NUMBERS, *tools.linking, *_of_this_compiler(tools, checked), *checks]
    clang = recent_clang()
    parts = (*flags, program.spaces, clang.version) if clang else flags
    if not clang and program.mixed:
        raise MetalCompileError(f"kernel '{name}' does not compile:\n{program.mixed}")
    found = store() / f"kernel-{_fingerprint(tools, program.cpp, *parts)}"
    if found.exists():
        os.utime(found)  # marks the program as used, so that keep_small keeps it
        if sys.platform == "darwin":
            _keep_symbols(found)
        return found
    sys.audit("kernel.compiling", f"{name}.metal")  # pauses a test's time limit
    try:
        _compile_program(name, program, tools, clang, flags, found)
    finally:
        sys.audit("kernel.compiled", f"{name}.metal")
    keep_small(store())
    return found


def _compile_program(
    name: str, program: Program, tools: Toolchain, clang: Toolchain | None, flags: list[str], found: Path
) -> None:
    with whole(found) as linked, ThreadPoolExecutor(2) as pool:
        source, compiled = linked.with_name("kernel.cpp"), linked.with_name("kernel.o")
        runtime = pool.submit(_runtime, tools)
        mixed = pool.submit(mixed_spaces, program.spaces, program.texts, clang, linked.parent) if clang else None
        source.write_text(program.cpp, encoding="utf-8")
        run = run_tool([*tools.command, *flags, f"-I{_HERE / 'include'}", "-c", str(source), "-o", str(compiled)])
        problem = explain_errors(run.stderr, program.texts) if run.returncode else mixed.result() if mixed else ""
        if problem:
            raise MetalCompileError(f"kernel '{name}' does not compile:\n{problem}")
        objects = [compiled, *runtime.result()]
        run = run_tool([*tools.command, *tools.linking, *map(str, objects), "-lm", "-o", str(linked)])
        if run.returncode:
            raise MetalHostError(f"kernel '{name}' cannot be linked:\n{run.stderr[-1000:]}")
        if sys.platform == "darwin":
            _extract_symbols(linked, found)


def _extract_symbols(linked: Path, found: Path) -> None:
    """Save the program's line numbers on macOS, where only a temporary object file contains these numbers."""
    symbols = f"{linked}.dSYM"
    run_tool(["xcrun", "dsymutil", str(linked), "-o", symbols])
    with suppress(OSError):  # there are no symbols, or another process saved them first
        os.rename(symbols, f"{found}.dSYM")


def _keep_symbols(found: Path) -> None:
    with suppress(OSError):
        os.utime(f"{found}.dSYM")


def _runtime(tools: Toolchain) -> list[Path]:
    """Return the object files of runtime/. Compile these files first unless the store has them."""
    sources = sorted((_HERE / "runtime").glob("*.cpp"))
    flags = [*_RUNTIME, *tools.linking]
    command = [*tools.command, *flags, "-c"]
    folder = store() / f"runtime-{_fingerprint(tools, *flags)}"
    if not folder.exists():
        try:
            with whole(folder) as unfinished:
                unfinished.mkdir()
                commands = [[*command, str(source), "-o", str(unfinished / f"{source.stem}.o")] for source in sources]
                with ThreadPoolExecutor(os.cpu_count()) as pool:
                    failed = [run.stderr for run in pool.map(run_tool, commands) if run.returncode]
                if failed:
                    raise MetalHostError(f"metal_host's runtime does not compile:\n{failed[0][-2000:]}")
        except OSError:
            if not folder.exists():  # if the folder exists now, another process was faster
                raise
    os.utime(folder)
    return [folder / f"{source.stem}.o" for source in sources]


def _of_this_compiler(tools: Toolchain, checked: bool) -> list[str]:
    """Return the options that depend on the compiler.

    The options make code round half-precision numbers after each operation, and instrument the code for checked runs.
    """
    flags = ["-mf16c"] if tools.has_half else []
    if tools.is_clang:
        flags += ["-Xclang", "-ffloat16-excess-precision=none", "-Wno-everything", *_REFUSED]
        return [*flags, *(_CHECKED_BY_CLANG if checked else [])]
    flags += ["-fexcess-precision=16", "-fmax-errors=20", *_REFUSED]
    return flags + (["-fsanitize=thread", "--param", "tsan-instrument-func-entry-exit=0"] if checked else [])


@cache
def _texts_of_package() -> str:
    files = sorted(file for part in ("include", "runtime") for file in (_HERE / part).rglob("*.*"))
    files.append(_HERE / "spaces.py")  # decides whether a program may run
    return "".join(file.read_text(encoding="utf-8") for file in files)


def _fingerprint(tools: Toolchain, *parts: str) -> str:
    text = "\0".join([*parts, *tools.command, tools.version, tools.triple, _texts_of_package()])
    return hashlib.sha256(text.encode()).hexdigest()[:24]
