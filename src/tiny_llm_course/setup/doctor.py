"""`tiny-llm doctor`: checks the machine and the installation, and says how to solve each problem."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Annotated

import typer

from metal_host.toolchain import recent_clang

from ..base.extras import install_command
from ..base.places import IS_CLONE, ROOT
from ..base.reporting import reporting
from ..learner.workspace import Workspace
from ..native import mlx_extension
from ..native.arithmetic import choices
from ..native.checked_build import BuildError, build_checked, can_name_lines
from ..native.kernel_files import has_kernels, kernels_of
from ..tasks.regions import is_native
from ..tasks.splice import definitions
from ..tasks.syllabus import Day, select_days
from ..tasks.task_code import task_parts
from ..ui import CommandError, Lang, Messages, show, styled, terminal_width
from .doctor_report import check_report, write_report

__all__ = ["doctor"]

OK, WARNING, ERROR = "ok", "warning", "error"
STATES = {OK: "green", WARNING: "yellow", ERROR: "red"}
GIB = 2**30
# The checks whose results a report contains. The results of other checks name folders, so a report leaves them out.
REPORTED = {"system", "packages", "mlx", "compiler", "build_tools", "spaces", "memory"}

MLX = """
import json, mlx.core as mx
gpu = mx.is_available(mx.gpu)
a = mx.arange(6.0).reshape(2, 3)
assert (a @ a.T).tolist() == [[5, 14], [14, 50]], "a wrong product"
print(json.dumps({"device": "gpu (Metal)" if gpu and mx.metal.is_available() else "gpu" if gpu else "cpu"}))
"""


@dataclass(frozen=True)
class Check:
    """The result of a check, which `doctor` shows in one line."""

    name: str  # the line's label is `doctor_NAME` in messages.toml
    state: str
    found: str
    fix: str = ""  # a command, or a sentence


def doctor(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="With --report: the file to write. Default: a file in out/.")
    ] = None,
    report: Annotated[
        bool,
        typer.Option(
            "--report",
            help="Run small Metal kernels, week 2's tests of Metal kernels and, on a Mac, `bench --device gpu` (takes "
            "minutes), and write all results into a file that you can attach to an issue.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts and bug reports.")] = False,
    lang: Lang = None,
) -> None:
    """Check Python, MLX, compiler, disk, memory, cache, terminal and your files. If something is broken, the exit code
    is 1."""
    with reporting(lang) as words:
        if report:
            check_report(as_json)
        elif file is not None:
            raise CommandError("machine_file_alone", file=file)
        checks = []
        for check in _checks(words):
            checks.append(check)
            if not as_json:
                _show(check, words)
        states = {check.name: check.state for check in checks}
        works = all(states[name] != ERROR for name in ("system", "packages", "mlx"))
        kernels = states["compiler"] == OK and OK in (states["mlx_extension"], states["build_tools"])
        days = _days(works, works and kernels)
        if as_json:
            typer.echo(json.dumps({"checks": [asdict(check) for check in checks], "days": days}, indent=2))
        elif IS_CLONE:
            show(f"  {words('doctor_days')}: {_listed(days, words)}")
        is_broken = any(check.state == ERROR for check in checks)
        if report:
            is_broken |= not write_report(file, [asdict(check) for check in checks if check.name in REPORTED], words)
        if is_broken:
            raise typer.Exit(1)


def _show(check: Check, words: Messages) -> None:
    state = styled(words("doctor_" + check.state), fg=STATES[check.state])
    show(f"  {state}  {words('doctor_' + check.name)}: {check.found}")
    if check.fix:
        show(f"      {words('doctor_fix')}:  {check.fix}", bold=True)


def _checks(words: Messages) -> Iterator[Check]:
    yield _python()
    yield _system(words)
    yield _packages()
    yield _mlx(words)
    yield _compiler(words)
    yield _build_tools(words)
    yield _mlx_extension(words)
    yield _arithmetic(words)
    yield _checked(words)
    yield _spaces(words)
    yield _disk(words)
    yield _memory(words)
    yield _cache(words)
    yield _terminal(words)
    if IS_CLONE:
        yield _files(words)


def _python() -> Check:
    return Check("python", OK, f"{platform.python_version()} ({sys.executable})")  # older versions do not start


def _system(words: Messages) -> Check:
    if sys.platform == "darwin":
        version, _, machine = platform.mac_ver()
        fits = machine == "arm64" and int(version.partition(".")[0]) >= 14
        system, fix = f"macOS {version}, {machine}", words("doctor_system_mac")
        return Check("system", OK if fits else ERROR, system, "" if fits else fix)
    library, version = platform.libc_ver()
    fits = library != "glibc" or tuple(map(int, version.split("."))) >= (2, 35)
    system = f"{platform.system()}, {platform.machine()}, {library} {version}"
    return Check("system", OK if fits else ERROR, system, "" if fits else words("doctor_system_linux"))


def _packages() -> Check:
    versions, missing = [], []
    for name in ("mlx", "mlx-lm", "numpy", "pytest", "typer"):
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        return Check("packages", ERROR, f"- {', '.join(missing)}", "rm -r .venv && ./course next")
    return Check("packages", OK, ", ".join(versions))


def _mlx(words: Messages) -> Check:
    """Check MLX in a process of its own, since a broken installation may crash Python."""
    try:
        run = subprocess.run([sys.executable, "-c", MLX], capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return Check("mlx", ERROR, words("doctor_no_answer"), "rm -r .venv && ./course next")
    if run.returncode:
        reason = (run.stderr.strip().splitlines() or [f"exit code {run.returncode}"])[-1]
        return Check("mlx", ERROR, reason, "rm -r .venv && ./course next")
    device = json.loads(run.stdout)["device"]
    if sys.platform == "darwin" and device == "cpu":
        return Check("mlx", WARNING, device, words("doctor_metal"))
    return Check("mlx", OK, device)


def _compiler(words: Messages) -> Check:
    if problem := mlx_extension.compiler_problem(Workspace().native, words):
        return Check("compiler", WARNING, *problem)
    return Check("compiler", OK, mlx_extension.compiler() or "")


def _build_tools(words: Messages) -> Check:
    """Check the tools that build the MLX extension."""
    tools = mlx_extension.tools()
    missing = [name for name, version in tools.items() if version is None]
    text = ", ".join(f"{name} {version}" for name, version in tools.items() if version)
    if missing:
        return Check("build_tools", WARNING, f"- {', '.join(missing)}", install_command("kernels"))
    if not mlx_extension.has_headers():
        return Check("build_tools", WARNING, "- Python.h", mlx_extension.system_command("headers"))
    return Check("build_tools", OK, text)


def _mlx_extension(words: Messages) -> Check:
    """Check the MLX extension, and list the kernels that are no longer stubs."""
    native = Workspace().native
    if not mlx_extension.is_built(native):
        return Check("mlx_extension", WARNING, words("doctor_not_built"), "./course build-ext")
    if not mlx_extension.is_current(native):
        return Check("mlx_extension", WARNING, words("doctor_outdated"), "./course build-ext")
    kernels = kernels_of(Workspace().package)
    names = ", ".join(file.stem for file in kernels.written) or words("doctor_none")
    return Check("mlx_extension", OK, words("doctor_built", mlx=metadata.version("mlx"), names=names))


def _arithmetic(words: Messages) -> Check:
    """Show the measured speeds of the tuned layers' arithmetic modes, and the chosen mode."""
    if not mlx_extension.compiler():
        return Check("arithmetic", WARNING, words("doctor_none"))
    try:
        speeds = import_module("tiny_llm_native.matmul.arithmetic").remembered()
    except Exception as error:  # native code may be broken in any way
        return Check("arithmetic", WARNING, str(error))
    if speeds is None:
        return Check("arithmetic", OK, words("doctor_arithmetic_unknown"))
    return Check("arithmetic", WARNING if speeds.problems else OK, "; ".join(choices(speeds, words)))


def _checked(words: Messages) -> Check:
    """Check whether a kernel that fails a test can run once more with checks."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cpp"
        file.write_text('#include "kernel.h"\nKERNEL(checked) { call.out[0].as<float>()[0] = 0; }\n', encoding="utf-8")
        try:
            build_checked(file, Workspace().native, Path(folder))
        except BuildError as error:
            reason = (str(error).splitlines() or [""])[0]
            return Check("checks", WARNING, words("doctor_checks_none", reason=reason))
    if not can_name_lines():
        return Check("checks", WARNING, words("doctor_checks_no_lines"), mlx_extension.system_command("compiler"))
    return Check("checks", OK, words("doctor_checks_ok"))


def _spaces(words: Messages) -> Check:
    """Look for a compiler that verifies the address spaces of pointers in Metal."""
    clang = recent_clang()
    if clang is None:
        return Check("spaces", WARNING, words("doctor_spaces_none"))
    return Check("spaces", OK, words("doctor_spaces_ok", version=clang.version.partition("\n")[0]))


def _disk(words: Messages) -> Check:
    free = shutil.disk_usage(ROOT).free / GIB
    return Check(
        "disk", OK if free >= 1 else WARNING, words("doctor_free", gib=f"{free:.1f}"), "" if free >= 1 else "df -h ."
    )


def _memory(words: Messages) -> Check:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    return Check("memory", OK if total >= 4 else WARNING, f"{total:.1f} GiB, {os.cpu_count()} CPU")


def _cache(words: Messages) -> Check:
    """Show where checkpoints from the Hub are stored. The course needs no such checkpoint, because the course includes
    a model."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    models = sorted(hub.glob("models--*")) if hub.is_dir() else []
    place = next(folder for folder in [hub, *hub.parents] if folder.exists())
    if not os.access(place, os.W_OK):
        return Check("cache", WARNING, f"{hub}: {words('doctor_read_only')}", "export HF_HOME=~/hf")
    return Check("cache", OK, f"{hub} ({len(models)})")


def _terminal(words: Messages) -> Check:
    encoding = sys.stdout.encoding or "?"
    fits = encoding.lower().replace("-", "") == "utf8"
    lines = shutil.get_terminal_size().lines
    described = f"{encoding}, {os.environ.get('TERM', '-')}, {terminal_width(sys.stdout)} x {lines}"
    return Check("terminal", OK if fits else WARNING, described, "" if fits else "export LC_ALL=C.UTF-8")


def _files(words: Messages) -> Check:
    workspace = Workspace()
    days = select_days(None, None)
    missing = [file.relative_to(ROOT) for day in days for file in workspace.files(day) if not file.exists()]
    if missing:
        return Check("files", ERROR, words("doctor_missing", name=missing[0]), f"git checkout {missing[0]}")
    broken = next((problem for day in days if (problem := workspace.broken(day))), None)
    if broken:
        return Check("files", WARNING, broken, words("doctor_syntax"))
    if gone := next(_gone(workspace), None):
        return Check("files", WARNING, words("doctor_gone", name=gone))
    return Check("files", OK, words("doctor_open", count=len(workspace.stubs)))


def _gone(workspace: Workspace) -> Iterator[str]:
    """Yield the tasks' functions that the learner's files lack. Tests would not find these functions."""
    for file in {file: None for day in select_days(None, None) for file in workspace.files(day)}:
        if not is_native(file):
            defined = definitions(file.read_text(encoding="utf-8-sig", errors="replace"))
            for names in task_parts(workspace.stub(file)).values():
                yield from (f"{file.relative_to(ROOT)}: {name}" for name in names if name not in defined)


def _days(works: bool, kernels: bool) -> dict[str, bool]:
    """Return whether the tasks of each day can be done on this machine, keyed by the day's name. works: whether MLX
    works. kernels: whether C++ kernels are built or can be built."""
    return {
        _name(day): (kernels if has_kernels([day]) else works) and (ROOT / "tests" / day.test_file).exists()
        for day in select_days(None, None)
    }


def _listed(days: dict[str, bool], words: Messages) -> str:
    """Return a text with the days that can be done."""
    if all(days.values()):
        return words("doctor_all")
    return ", ".join(day for day, works in days.items() if works) or words("doctor_none")


def _name(day: Day) -> str:
    return f"{day.week}.{day.number}"
