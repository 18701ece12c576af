"""From addresses of a program's code to lines of the kernel's text."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from .toolchain import Toolchain

__all__ = ["Place", "lines_of"]

Place = tuple[str, int]  # a file and a line of it


def lines_of(
    program: Path, codes: Sequence[str], texts: Mapping[str, str], tools: Toolchain
) -> list[Place | None] | None:
    """For each address (hexadecimal) the innermost line of the kernel's own text that it comes from.

    None in place of a line: between the kernel's lines. None instead of the list: no tool here can say it.
    """
    if sys.platform == "darwin":
        command = ["xcrun", "atos", "-i", "-o", str(program)]
    elif tool := tools.addr2line():
        command = [tool, "-a", "-i", "-e", str(program)]
    else:
        return None
    try:
        addresses = "\n".join(codes)
        run = subprocess.run(command, input=addresses, capture_output=True, text=True, errors="replace", timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return [next((p for text in part if (p := _place(text, texts))), None) for part in _parts(run.stdout, len(codes))]


def _parts(output: str, count: int) -> list[list[str]]:
    """The lines that tell of each address: addr2line repeats it before them, atos puts an empty line behind."""
    parts: list[list[str]] = []
    is_new = True
    for text in output.splitlines():
        if is_new or text.startswith("0x"):
            parts.append([])
        is_new = not text
        parts[-1].append(text)
    return [*parts, *([] for _ in range(count))][:count]


def _place(text: str, texts: Mapping[str, str]) -> Place | None:
    """Out of addr2line's "/tmp/x/name.metal:3 (discriminator 1)" or atos' "f (in kernel) (name.metal:3)"."""
    file, _, line = text.partition(" (d")[0].rstrip(")").rpartition(":")
    file = file.rsplit("/", 1)[-1].rsplit("(", 1)[-1]
    return (file, int(line)) if file in texts and line.isdigit() else None
