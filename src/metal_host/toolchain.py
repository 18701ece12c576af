"""The machine's C++ compilers: how to find and run them, how to run compiled programs, and which machine they target.

`tiny_llm_native` also uses this module to compile kernels in C++, and `tiny_llm_course` to build the MLX extension and
to check a failed kernel again (second_look.py). The module does not need MLX.
"""

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .errors import MetalHostError

__all__ = [
    "NO_COMPILER",
    "Toolchain",
    "compiler_command",
    "for_this_processor",
    "processor",
    "recent_clang",
    "run_in_english",
    "run_tool",
    "toolchain",
    "whole",
]

NO_COMPILER = "no C++ compiler: looked for c++, clang++ and g++. How to get one: ./course doctor"

_COMPILERS = ("c++", "clang++", "g++")
_CLANGS = ("clang++", *(f"clang++-{n}" for n in range(30, 15, -1)))


@dataclass(frozen=True)
class Toolchain:
    """A compiler and its target.

    command: the compiler, with fixed options, such as the target's.
    version: the output of `--version`.
    triple: the target machine, such as aarch64-linux-gnu.
    runner: the emulator, such as qemu, that runs the programs if they are for another machine.
    """

    command: tuple[str, ...]
    version: str
    triple: str
    runner: tuple[str, ...]

    @property
    def is_clang(self) -> bool:
        return "clang" in self.version

    @property
    def machine(self) -> str:
        return self.triple.split("-")[0]

    @property
    def has_half(self) -> bool:
        """Tell whether the target is x86-64 and this processor has instructions that round float to half (F16C)."""
        return self.machine == "x86_64" and "f16c" in processor()

    @property
    def linking(self) -> tuple[str, ...]:
        """Return the linker's options: fixed addresses for code, and the linker gold, if installed, because gold takes
        only a third of the default linker's time."""
        if sys.platform == "darwin":
            return ()
        has_gold = not self.is_clang and self._is_at_home and shutil.which("ld.gold")
        return ("-no-pie", "-fno-pie", *(("-fuse-ld=gold",) if has_gold else ()))

    def addr2line(self) -> str | None:
        """Return the tool that finds an address's source line in a program. Return None if there is no such tool."""
        names = ["llvm-addr2line", "addr2line", f"{self.triple}-addr2line"]
        return next((tool for name in reversed(names) if self._reads(name) and (tool := shutil.which(name))), None)

    def _reads(self, tool: str) -> bool:  # a binutils tool reads only programs for its own machine
        return tool != "addr2line" or self._is_at_home

    @property
    def _is_at_home(self) -> bool:
        return self.machine == platform.machine().replace("arm64", "aarch64")


def toolchain() -> Toolchain:
    """Return the compiler that METAL_HOST_CXX or else CXX names. If neither is set, return the first compiler found.

    METAL_HOST_RUN names an emulator that runs the compiled programs.

    Raises:
        MetalHostError: there is no compiler.
    """
    command = compiler_command("METAL_HOST_CXX")
    if not command:
        raise MetalHostError(NO_COMPILER)
    return _known(command, os.environ.get("METAL_HOST_RUN", ""))


def compiler_command(*variables: str) -> tuple[str, ...]:
    """Return the command that compiles C++, as a tuple of words. Return () if there is no compiler.

    The first of these environment variables that is set names the compiler. If none of the variables is set, CXX names
    the compiler. If CXX is not set either, return the first compiler that is found on the PATH.
    """
    chosen = next(filter(None, map(os.environ.get, (*variables, "CXX"))), None)
    return tuple(shlex.split(chosen or next(filter(None, map(shutil.which, _COMPILERS)), "")))


def for_this_processor() -> str:
    """Return the compiler's option that enables all instructions of this machine's processor."""
    return "-mcpu=native" if platform.machine() in ("arm64", "aarch64") else "-march=native"


@cache
def processor() -> str:
    """Return the line of /proc/cpuinfo that lists the processor's features. Without this file, return the processor's
    name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


@contextmanager
def whole(place: Path) -> Iterator[Path]:
    """Give the block a temporary path, and move the file or folder written there to `place` when the block ends.

    If the block fails, nothing is moved. Other processes never see an unfinished file or folder.
    """
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".") as folder:
        unfinished = Path(folder) / place.name
        yield unfinished
        unfinished.rename(place)


def recent_clang() -> Toolchain | None:
    """Return a clang of version 16 or later: the clang that METAL_HOST_CLANG names or, without this variable, a clang
    that is found. Return None if there is no such clang, or if the variable is empty."""
    chosen = os.environ.get("METAL_HOST_CLANG")
    return _recent(chosen if chosen is not None else os.pathsep.join(_CLANGS), os.environ.get("PATH", ""))


@cache
def _recent(names: str, path: str) -> Toolchain | None:
    for name in filter(None, names.split(os.pathsep)):
        if not shutil.which(shlex.split(name)[0], path=path):
            continue
        found = _known(tuple(shlex.split(name)), "")
        version = re.search(r"(Apple )?clang version (\d+)", found.version)
        if version and int(version[2]) >= (15 if version[1] else 16):  # Apple's version numbers are different
            return found
    return None


def run_in_english(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Run a compiler that prints its messages in English, whatever the user's language is."""
    environment = os.environ | {"LC_ALL": "C"}
    return subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment)


def run_tool(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Run a compiler, like `run_in_english`.

    Raises:
        MetalHostError: there is no such program.
    """
    try:
        return run_in_english(command)
    except OSError as error:
        raise MetalHostError(f"{error}: is there a C++ compiler? ./course doctor") from None


@cache
def _known(command: tuple[str, ...], runner: str) -> Toolchain:
    version = run_tool([*command, "--version"]).stdout
    triple = run_tool([*command, "-dumpmachine"]).stdout.strip().replace("arm64", "aarch64")
    return Toolchain(command, version, triple, tuple(shlex.split(runner)))
