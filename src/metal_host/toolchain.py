"""The machine's C++ compiler: which it is, for which machine it compiles, and how its programs are run."""

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .errors import MetalHostError

__all__ = ["Toolchain", "recent_clang", "run_tool", "toolchain"]

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
        return self.machine == "x86_64" and "f16c" in _processor()

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
    chosen = os.environ.get("METAL_HOST_CXX") or os.environ.get("CXX")
    command = chosen or shutil.which("c++") or shutil.which("clang++") or shutil.which("g++")
    if not command:
        raise MetalHostError("no C++ compiler: looked for c++, clang++ and g++. How to get one: ./course doctor")
    return _known(command, os.environ.get("METAL_HOST_RUN", ""))


def recent_clang() -> Toolchain | None:
    """A clang of version 16 or later, if there is one; METAL_HOST_CLANG may name it, or be empty for none."""
    chosen = os.environ.get("METAL_HOST_CLANG")
    return _recent(chosen if chosen is not None else os.pathsep.join(_CLANGS), os.environ.get("PATH", ""))


@cache
def _recent(names: str, path: str) -> Toolchain | None:
    for name in filter(None, names.split(os.pathsep)):
        if not shutil.which(shlex.split(name)[0], path=path):
            continue
        found = _known(name, "")
        version = re.search(r"(Apple )?clang version (\d+)", found.version)
        if version and int(version[2]) >= (15 if version[1] else 16):  # Apple counts in its own way
            return found
    return None


def run_tool(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Runs a compiler, with messages in English."""
    environment = os.environ | {"LC_ALL": "C"}
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment)
    except OSError as error:
        raise MetalHostError(f"{error}: is there a C++ compiler? ./course doctor") from None


@cache
def _known(command: str, runner: str) -> Toolchain:
    words = tuple(shlex.split(command))
    version = run_tool([*words, "--version"]).stdout
    triple = run_tool([*words, "-dumpmachine"]).stdout.strip().replace("arm64", "aarch64")
    return Toolchain(words, version, triple, tuple(shlex.split(runner)))


@cache
def _processor() -> str:
    if sys.platform != "linux":
        return ""
    return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
