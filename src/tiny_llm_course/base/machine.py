"""Describes the machine, and counts its processors."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

__all__ = ["about", "processors"]


def about(command: str, *packages: str) -> dict[str, Any]:
    """Return the command, the machine and the packages' versions, so that a reader can repeat a measurement."""
    versions = {"python": platform.python_version()} | {name: _version(name) for name in packages}
    system = f"{platform.system()} {platform.machine()}"
    return {
        "command": command,
        "machine": f"{_processor()}, {os.cpu_count()} processors, {system}",
        "versions": {name: found for name, found in versions.items() if found},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    if sys.platform == "darwin":
        run = subprocess.run(["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True)
        return run.stdout.strip()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
