"""Builds a failed kernel again for second_look.py: with checks, with warnings, or with variables that start as 0."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from metal_host.toolchain import compiler_command, for_this_processor, run_in_english

__all__ = ["REQUEST", "SECONDS", "BuildError", "Warned", "build_checked", "build_set", "can_name_lines", "warnings_in"]

REQUEST = "TINY_LLM_SECOND_LOOK"  # the environment variable with the request to checked_run.py
SECONDS = 5  # seconds of processor time that a kernel call may take in a checked run; the longest call takes 0.1 s
RUNTIME = Path(__file__).with_name("checked.cpp")
FAULTS = "bounds,shift,integer-divide-by-zero,signed-integer-overflow,return,unreachable"
CHECKED = (
    "-O1",
    "-g",
    "-fno-omit-frame-pointer",
    "-fno-optimize-sibling-calls",
    "-fno-finite-loops",  # keeps an endless loop endless
    "-fstack-protector-all",
    "-ftrivial-auto-var-init=pattern",  # so that no uninitialised variable is 0 by chance
    f"-fsanitize={FAULTS}",
    f"-fno-sanitize-recover={FAULTS}",
    "-D_GLIBCXX_ASSERTIONS",
    "-D_LIBCPP_HARDENING_MODE=_LIBCPP_HARDENING_MODE_FAST",
)
# GCC and Clang find more problems when they optimise. A function may have parameters that it will use only once a task
# in it is written.
WARNING = ("-O2", "-Wall", "-Wextra", "-Wno-sign-compare", "-Wno-unused-parameter")
SET = ("-O0", "-shared")  # -O0, since an optimising GCC 12 sets a loop's variables only once


class BuildError(Exception):
    """The error raised when the compiler cannot make a build."""


@dataclass(frozen=True)
class Warned:
    line: int
    text: str


def build_checked(source: Path, headers: Path, folder: Path) -> tuple[Path, str]:
    """Build a library from a file of kernels and checked.cpp, with the compiler's checks. Return the library and the
    compiler's warnings.

    Raises:
        BuildError: there is no compiler, the compiler does not know one of our options, or the file has an error.
    """
    compiler = _compiler(headers)
    kernel, runtime, library = (folder / name for name in ("kernel.o", "runtime.o", "checked.so"))
    with ThreadPoolExecutor(3) as pool:
        runs = [
            pool.submit(_run, [*compiler, *CHECKED, "-c", str(source), "-o", str(kernel)]),
            pool.submit(_run, [*compiler, "-O1", "-c", str(RUNTIME), "-o", str(runtime)]),
            pool.submit(_run, [*compiler, *WARNING, "-c", str(source), "-o", str(folder / "warned.o")]),
        ]
        said = [run.result() for run in runs]
    # the library has to call its own `operator new`, not the process's
    own = () if sys.platform == "darwin" else ("-Wl,-Bsymbolic", "-Wl,-z,defs")
    _run([*compiler, "-shared", *own, str(kernel), str(runtime), "-o", str(library)])
    if sys.platform == "darwin":  # needed since the line numbers are in the object file, which is deleted
        _run(["xcrun", "dsymutil", str(library), "-o", f"{library}.dSYM"])
    return library, said[2]


def can_name_lines() -> bool:
    """Tell whether this machine has a tool that finds the source line of an address."""
    return any(map(shutil.which, ("xcrun", "addr2line", "llvm-addr2line")))


def build_set(source: Path, headers: Path, folder: Path) -> tuple[Path, Path]:
    """Build a library in which each local variable starts as 0, and another library in which each local variable starts
    as an unlikely number.

    Raise the same errors as `build_checked`.
    """
    compiler, values = _compiler(headers), ("zero", "pattern")
    libraries = [folder / f"{value}.so" for value in values]
    with ThreadPoolExecutor(2) as pool:
        for run in [
            pool.submit(_run, [*compiler, *SET, f"-ftrivial-auto-var-init={value}", str(source), "-o", str(library)])
            for value, library in zip(values, libraries, strict=True)
        ]:
            run.result()
    return libraries[0], libraries[1]


def _compiler(headers: Path) -> list[str]:
    from tiny_llm_native.compiler import KERNEL_FLAGS  # imported here, so that a faulty compiler.py breaks few commands

    command = compiler_command()
    if not command:
        raise BuildError("no C++ compiler")
    return [*command, *KERNEL_FLAGS, for_this_processor(), f"-I{headers}"]


def _run(command: list[str]) -> str:
    try:
        run = run_in_english(command)
    except OSError as error:
        raise BuildError(str(error)) from error
    if run.returncode:
        raise BuildError(run.stderr)
    return run.stderr


def warnings_in(said: str, source: Path, region: list[int]) -> list[Warned]:
    """Return the compiler's warnings about the lines `region` of a file. A warning that the compiler repeats for each
    type of a template is returned once.

    A warning about inlined code counts for the line in the region that calls the inlined code.
    """
    warnings: dict[Warned, None] = {}
    for text, places in _warnings(said.splitlines()):
        line = next((line for file, line in places if file == source.name and line in region), None)
        if line is not None:
            warnings[Warned(line, text)] = None
    return sorted(warnings, key=lambda warned: warned.line)


def _warnings(lines: list[str]) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """Yield each warning with its places: the warning's line, the calls that were inlined, and the declaration."""
    from tiny_llm_native.compiler import plain

    led: list[tuple[str, int]] = []  # places that precede the warning in the output
    current: tuple[str, list[tuple[str, int]]] | None = None
    for text in lines:
        inlined = re.search(r"inlined from .* at (.+?):(\d+):\d+", text)
        match = re.match(r"(\S+?):(\d+):(?:\d+:)? (warning|note): (.*)", text)
        if inlined:
            led.append((Path(inlined[1]).name, int(inlined[2])))
        elif text.startswith("In ") or "In function" in text or "In member function" in text:
            led = []
        elif match and match[3] == "warning":
            if current:
                yield current
            current = plain(match[4]), [(Path(match[1]).name, int(match[2])), *led]
            led = []
        elif match and current and "declared here" in match[4]:
            current[1].append((Path(match[1]).name, int(match[2])))
    if current:
        yield current
