"""`tiny-llm doctor --report`: writes the results of all checks, tests and measurements on this machine into one
file."""

from __future__ import annotations

import datetime
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import typer

from ..base.arguments import OUT
from ..base.machine import about
from ..base.packages import PACKAGES
from ..base.places import IS_CLONE, ROOT, address
from ..ui import CommandError, Messages, phrase, show, show_note
from .machine_report import Found, MachineReport, has_failed
from .machine_trial import RECORD, Trial, gpu_with_metal

__all__ = ["check_report", "write_report"]


def check_report(as_json: bool) -> None:
    """Raise a CommandError if no report can be made."""
    if as_json:
        raise CommandError("exclusive", one="--report", other="--json")
    if not IS_CLONE:
        raise CommandError("command_of_clone", name="doctor --report")
    if "ref" not in PACKAGES or not RECORD.exists():
        raise CommandError("machine_no_reference")


def write_report(file: Path | None, checks: Sequence[Found], words: Messages) -> bool:
    """Run all parts of the report on this machine, and write the report. Return whether everything passed.

    file: the file to write. None: a file in `out` that is named after the machine.
    """
    known, gpu = about("tiny-llm doctor --report", "mlx", "mlx-lm", "numpy", "nanobind"), gpu_with_metal()
    found = {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        **known,
        "system": _system(),
        "course": _course(),
        "gpu": gpu,
        "doctor": list(checks),
    }
    file = file or OUT / f"machine-{_slug(known['machine'])}.json"
    report = MachineReport(file, found)
    try:
        Trial(report, PACKAGES["ref"], words).run()
    except KeyboardInterrupt:
        show_note("\n" + words("machine_stopped", file=file))
        raise typer.Exit(130) from None
    url = address()
    issue = phrase("report_issue_at", address=f"{url}/issues") if url else phrase("report_issue")
    show("\n" + words("machine_wrote", file=file, issue=issue))
    return not has_failed(report.found)


def _system() -> str:
    if sys.platform == "darwin":
        return f"macOS {platform.mac_ver()[0]}, {platform.machine()}"
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        name = platform.system()
    return ", ".join(filter(None, [name, " ".join(platform.libc_ver()).strip()]))


def _course() -> str:
    """Return the version of the course. If git is installed, add the clone's commit."""
    version = metadata.version("tiny-llm")
    if shutil.which("git") is None:
        return version
    run = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    changes = subprocess.run(["git", "status", "--porcelain", "src", "tests"], cwd=ROOT, capture_output=True, text=True)
    commit = run.stdout.strip()
    return f"{version}, commit {commit}{' with changes' if changes.stdout else ''}" if commit else version


def _slug(machine: str) -> str:
    """Return the machine's description in a form that can be part of a file's name, such as `apple-m4`."""
    return re.sub(r"[^a-z0-9]+", "-", machine.partition(",")[0].lower()).strip("-") or "unknown"
