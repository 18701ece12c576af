"""The machine's C++ compilers: which they are, for which machine they compile, and how they and their programs are run.

Kernels in C++ (`tiny_llm_native`), the MLX extension and second looks (`tiny_llm_course`) use it, too. It needs no MLX.
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

    command: the compiler, with options of its own, such as the target's.
    version: what it says of itself.
    triple: of the machine that it compiles for, such as aarch64-linux-gnu.
    runner: what programs for another machine than this are run by, such as qemu.
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
        """Whether the target is this machine, and its processor rounds floats to halves."""
        return self.machine == "x86_64" and "f16c" in processor()

    @property
    def linking(self) -> tuple[str, ...]:
        """Options of the linker: code lies where its file says; and gold, where it is, takes a third of the time."""
        if sys.platform == "darwin":
            return ()
        has_gold = not self.is_clang and self._is_at_home and shutil.which("ld.gold")
        return ("-no-pie", "-fno-pie", *(("-fuse-ld=gold",) if has_gold else ()))

    def addr2line(self) -> str | None:
        """The tool that knows which line an address of a program comes from."""
        names = ["llvm-addr2line", "addr2line", f"{self.triple}-addr2line"]
        return next((tool for name in reversed(names) if self._reads(name) and (tool := shutil.which(name))), None)

    def _reads(self, tool: str) -> bool:  # binutils know their own machine only
        return tool != "addr2line" or self._is_at_home

    @property
    def _is_at_home(self) -> bool:
        return self.machine == platform.machine().replace("arm64", "aarch64")


def toolchain() -> Toolchain:
    """What METAL_HOST_CXX, or else CXX, asks for, or the first that is found; METAL_HOST_RUN runs its programs."""
    command = compiler_command("METAL_HOST_CXX")
    if not command:
        raise MetalHostError(NO_COMPILER)
    return _known(command, os.environ.get("METAL_HOST_RUN", ""))


def compiler_command(*variables: str) -> tuple[str, ...]:
    """Return the command that compiles C++, in words, or () if there is none.

    It is what the first of these environment variables that is set says, or else CXX, or else the first compiler that
    is found.
    """
    chosen = next(filter(None, map(os.environ.get, (*variables, "CXX"))), None)
    return tuple(shlex.split(chosen or next(filter(None, map(shutil.which, _COMPILERS)), "")))


def for_this_processor() -> str:
    """Return the option with which a compiler uses all that this machine's processor can do."""
    return "-mcpu=native" if platform.machine() in ("arm64", "aarch64") else "-march=native"


@cache
def processor() -> str:
    """Return what the processor can do, as Linux lists it; on other systems, its name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


@contextmanager
def whole(place: Path) -> Iterator[Path]:
    """In the block, another path to write a file or folder to. Unless the block fails, it then gets its own path at
    once, so that processes which compile or load the same thing never see a part of it.
    """
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".") as folder:
        unfinished = Path(folder) / place.name
        yield unfinished
        unfinished.rename(place)


def recent_clang() -> Toolchain | None:
    """A clang of version 16 or later, if there is one; METAL_HOST_CLANG may name it, or be empty for none."""
    chosen = os.environ.get("METAL_HOST_CLANG")
    return _recent(chosen if chosen is not None else os.pathsep.join(_CLANGS), os.environ.get("PATH", ""))


@cache
def _recent(names: str, path: str) -> Toolchain | None:
    for name in filter(None, names.split(os.pathsep)):
        if not shutil.which(shlex.split(name)[0], path=path):
            continue
        found = _known(tuple(shlex.split(name)), "")
        version = re.search(r"(Apple )?clang version (\d+)", found.version)
        if version and int(version[2]) >= (15 if version[1] else 16):  # Apple counts in its own way
            return found
    return None


def run_in_english(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Run a compiler, whose messages then are in English."""
    environment = os.environ | {"LC_ALL": "C"}
    return subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment)


def run_tool(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Run a compiler as `run_in_english` does. If there is no such program, raise a MetalHostError."""
    try:
        return run_in_english(command)
    except OSError as error:
        raise MetalHostError(f"{error}: is there a C++ compiler? ./course doctor") from None


@cache
def _known(command: tuple[str, ...], runner: str) -> Toolchain:
    version = run_tool([*command, "--version"]).stdout
    triple = run_tool([*command, "-dumpmachine"]).stdout.strip().replace("arm64", "aarch64")
    return Toolchain(command, version, triple, tuple(shlex.split(runner)))
