"""Translation of addresses in a program to lines of the kernel's text."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from .toolchain import Toolchain

__all__ = ["Place", "calls_of", "lines_of"]

Place = tuple[str, int]  # a file's name, and a line number


def lines_of(
    program: Path, codes: Sequence[str], texts: Mapping[str, str], tools: Toolchain
) -> list[Place | None] | None:
    """For each hexadecimal address, return the innermost line of the kernel's own text to which the address belongs.

    For an address without such a line, the list has None. Return None if this machine has no tool that finds lines.
    """
    places = calls_of(program, codes, texts, tools)
    return None if places is None else [next(iter(calls), None) for calls in places]


def calls_of(
    program: Path, codes: Sequence[str], texts: Mapping[str, str], tools: Toolchain
) -> list[list[Place]] | None:
    """For each address, return its line and the lines of the inlined calls that led there, the innermost first."""
    if sys.platform == "darwin":
        symbols = f"{program}.dSYM/Contents/Resources/DWARF/{program.name}"
        parts = [_output(["xcrun", "atos", "-i", "-o", symbols, code]) for code in codes]
    elif tool := tools.addr2line():
        parts = _by_address(_output([tool, "-a", "-i", "-e", str(program), *codes]))
    else:
        return None
    return [[place for text in part if (place := _place(text, texts))] for part in parts]


def _output(command: Sequence[str]) -> list[str]:
    try:
        run = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return run.stdout.splitlines()


def _by_address(output: Sequence[str]) -> list[list[str]]:
    """Split addr2line's output into the lines for each address. In the output, each address precedes its lines."""
    parts: list[list[str]] = []
    for text in output:
        if text.startswith("0x"):
            parts.append([])
        elif parts:
            parts[-1].append(text)
    return parts


def _place(text: str, texts: Mapping[str, str]) -> Place | None:
    """Read a place in the format of addr2line, "/tmp/x/name.metal:3 (discriminator 1)", or of atos, "f (in kernel)
    (name.metal:3)"."""
    file, _, line = text.partition(" (d")[0].rstrip(")").rpartition(":")
    file = file.rsplit("/", 1)[-1].rsplit("(", 1)[-1]
    return (file, int(line)) if file in texts and line.isdigit() else None
