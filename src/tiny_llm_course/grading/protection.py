"""Finds out which sandbox works on this machine, and says whether submissions ran in that sandbox."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache

from ..base.places import ROOT, SRC
from ..native.mlx_extension import system_command
from ..ui import CommandError, Messages, Phrase, phrase
from . import system_calls
from .sandbox import BUBBLEWRAP, HIDDEN, NONE, PROGRAMS, SANDBOX_EXEC, wrapped

__all__ = ["Protection", "protection", "told"]

SECONDS = 60  # seconds for starting a sandbox, on a busy machine
UNSEEN = (SRC / "tiny_llm_ref", SRC / "tiny_llm", ROOT / "tests", *HIDDEN)  # must be empty or missing in a sandbox
SHOWN = 300  # the most characters of a sandbox's error that are shown

PROBE = """
import os, shutil, sys
from contextlib import suppress
compiler, *unseen = sys.argv[1:]
for folder in unseen:
    with suppress(OSError):
        assert not os.listdir(folder), f"{folder} can be read in the sandbox"
assert not compiler or shutil.which(compiler), f"{compiler} is not in the folders that the sandbox shows"
"""


@dataclass(frozen=True)
class Protection:
    """The sandbox that works on this machine. sandbox: the sandbox's name in sandbox.py. reason: the reason why no
    sandbox works, or None."""

    sandbox: str
    reason: Phrase | None = None


@cache
def protection() -> Protection:
    """Find the sandbox that works on this machine: start a sandbox, and check which folders it hides.

    Raises:
        CommandError: on Linux, the library that filters system calls is missing.
    """
    sandbox = SANDBOX_EXEC if sys.platform == "darwin" else BUBBLEWRAP
    if sandbox == BUBBLEWRAP:
        _check_filter()
        if not shutil.which(PROGRAMS[sandbox]):
            return Protection(NONE, phrase("sandbox_absent", name=sandbox, command=system_command(sandbox)))
    if said := _probe(sandbox):
        return Protection(NONE, phrase("sandbox_fails", name=sandbox, said=said))
    return Protection(sandbox)


def told() -> str:
    """Return the line under a table of grades that says whether submissions ran in a sandbox."""
    protected, words = protection(), Messages()
    if protected.sandbox == NONE:
        return words("grade_unprotected", reason=protected.reason)
    return words("grade_protected", sandbox=protected.sandbox)


def _probe(sandbox: str) -> str:
    """Try a sandbox. Return "" if the sandbox works, otherwise a description of the problem."""
    compiler = os.environ.get("CXX", "").partition(" ")[0]
    command = [sys.executable, "-I", "-S", "-c", PROBE, compiler, *map(str, UNSEEN)]
    try:
        run = subprocess.run(wrapped(sandbox, command), capture_output=True, text=True, timeout=SECONDS, cwd="/")
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)[:SHOWN]
    if run.returncode == 0:
        return ""
    return (run.stderr.strip().splitlines() or [f"exit code {run.returncode}"])[-1][:SHOWN]


def _check_filter() -> None:
    try:
        system_calls.library()
    except OSError:
        command = system_command(system_calls.LIBRARY)
        raise CommandError("grade_no_filter", library=system_calls.LIBRARY, command=command, exit_code=1) from None
