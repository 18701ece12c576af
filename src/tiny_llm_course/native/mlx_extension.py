"""Builds the MLX extension (mlx_extension.cpp), once for programs and once for tests, and checks that the extension
works.

The build needs a compiler, Python's headers, CMake, and a nanobind with the same ABI as MLX's wheel. With a different
nanobind, the build succeeds, but the first call fails.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from metal_host.toolchain import compiler_command, run_in_english

from ..base.extras import install_command
from ..base.places import ROOT
from ..base.whole_files import write_whole
from ..tasks.regions import BUILT
from ..ui import CommandError, Messages, StatusLine
from .child import running

__all__ = [
    "NAMES",
    "SOURCE",
    "STAMP",
    "build",
    "built",
    "compiler",
    "compiler_problem",
    "has_headers",
    "is_built",
    "is_current",
    "system_command",
    "tools",
]

SOURCE, HEADERS = "mlx_extension.cpp", ("kernel.h", "pool.h")
NAMES = "_mlx_extension", "_mlx_extension_watched"  # the builds: for programs, and for tests (with `checks`)
PACKAGES = ("nanobind", "cmake", "ninja")
STAMP = "mlx_extension.json"
CMAKE = Path(__file__).with_name("mlx_extension.cmake")
LOG = Path(".tiny-llm") / "build-ext.log"
NINJA = re.compile(r"\[(\d+)/(\d+)\] ")  # the start of Ninja's lines of progress
MOST = 300  # the most characters of an error that are shown
STALE = 3600  # seconds after which a build's folder counts as left over

CHECK = """
import importlib.util, sys
import mlx.core as mx
spec = importlib.util.spec_from_file_location("_mlx_extension", sys.argv[1])
mlx_extension = importlib.util.module_from_spec(spec)
spec.loader.exec_module(mlx_extension)
x = mx.arange(6.0).reshape(2, 3)
assert mlx_extension.copied(x).tolist() == x.tolist(), "a kernel of the MLX extension gave a wrong result"
"""

SYSTEMS = {  # missing part -> system -> the command to type
    "compiler": {
        "debian": "sudo apt install g++",
        "fedora": "sudo dnf install gcc-c++",
        "mac": "xcode-select --install",
    },
    "newer compiler": {
        "debian": "sudo apt install g++-12 && export CXX=g++-12",
        "fedora": "sudo dnf upgrade gcc-c++",
        "mac": "softwareupdate --install --all",
    },
    "headers": {
        "debian": "sudo apt install python{version}-dev",
        "fedora": "sudo dnf install python3-devel",
        "mac": "brew install python",
    },
    "bubblewrap": {"debian": "sudo apt install bubblewrap", "fedora": "sudo dnf install bubblewrap"},
    "libseccomp.so.2": {"debian": "sudo apt install libseccomp2", "fedora": "sudo dnf install libseccomp"},
}


def built(folder: Path) -> Path:
    """Return the folder for the compiled files of a source folder."""
    return folder / BUILT


def is_built(native: Path) -> bool:
    """Tell whether both builds exist, current or outdated. native: the folder of tiny_llm_native."""
    return all(any(built(native).glob(f"{name}.*")) for name in NAMES)


def is_current(native: Path) -> bool:
    """Tell whether the MLX extension was built from these files, for this Python and this MLX."""
    try:
        stamp = json.loads((built(native) / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return is_built(native) and stamp == _stamp(native, stamp.get("nanobind", ""))


def build(native: Path, words: Messages, tell: Callable[[str], None]) -> None:
    """Build the MLX extension if it is not current. tell: a function that shows a message.

    Raises:
        CommandError: a requirement is missing or does not fit, or the build failed. The error says what to do.
    """
    if not is_current(native):
        _check_tools(native, words)
        tell(words("ext_building"))
        _build(native, words)


def compiler() -> str | None:
    """Return the version of the C++ compiler that compiles kernels. Return None if no compiler answers."""
    run = _compiler("--version")
    return None if run is None or run.returncode else run.stdout.strip().partition("\n")[0]


def compiler_problem(native: Path, words: Messages) -> tuple[str, str] | None:
    """Return the reason why the compiler cannot compile kernels, and the command that helps. Return None if the
    compiler can compile kernels."""
    version, name = compiler(), os.environ.get("CXX")
    if version is None:
        missing = words("ext_wrong_cxx", name=name), "unset CXX"
        return missing if name else (words("ext_no_compiler"), system_command("compiler"))
    run = _compiler("-std=c++20", "-fsyntax-only", "-x", "c++", str(native / "kernel.h"))
    if run is None or run.returncode == 0:
        return None
    error = _first_error(run.stderr)
    return words("ext_old_compiler", version=version, error=error), system_command("newer compiler")


def _compiler(*arguments: str) -> subprocess.CompletedProcess[str] | None:
    """Run the compiler. Return None if there is no compiler."""
    command = compiler_command()
    return run_in_english([*command, *arguments]) if command and shutil.which(command[0]) else None


def tools() -> dict[str, str | None]:
    """Return the versions of the packages that build the MLX extension, keyed by name, with None for missing
    packages."""
    found: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "(system)" if shutil.which(name) else None
    return found


def has_headers() -> bool:
    """Tell whether this Python's headers are installed."""
    return (Path(sysconfig.get_path("include")) / "Python.h").exists()


def system_command(what: str) -> str:
    """Return the command that installs a missing part on this system, or the commands for several systems if this
    system is unknown. what: a key of SYSTEMS."""
    commands = {key: text.format(version=_python_version()) for key, text in SYSTEMS[what].items()}
    if sys.platform == "darwin":
        return commands["mac"]
    known = ""
    with suppress(OSError):
        known = Path("/etc/os-release").read_text(encoding="utf-8")
    names = " ".join(re.findall(r'^ID(?:_LIKE)?="?([^"\n]*)', known, re.MULTILINE)).split()
    family = {"debian": "debian", "ubuntu": "debian", "fedora": "fedora", "rhel": "fedora", "centos": "fedora"}
    found = next((family[name] for name in names if name in family), None)
    return commands[found] if found else f"{commands['debian']} (Debian, Ubuntu); {commands['fedora']} (Fedora)"


def _build(native: Path, words: Messages) -> None:
    folder = built(native)
    folder.mkdir(exist_ok=True)
    for left_over in folder.glob(".mlx_extension-*"):
        with suppress(FileNotFoundError):
            if time.time() - left_over.stat().st_mtime > STALE:
                shutil.rmtree(left_over, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".mlx_extension-") as name:
        _run_cmake(native, Path(name), words)
        made = [next(Path(name).glob(f"{each}.*")) for each in NAMES]
        for file in made:
            _check_works(file, words)
        for old in [*(old for each in NAMES for old in folder.glob(f"{each}.*")), folder / STAMP]:
            old.unlink(missing_ok=True)
        for file in made:
            file.rename(folder / file.name)
    write_whole(folder / STAMP, json.dumps(_stamp(native, metadata.version("nanobind"))).encode())


def _check_tools(native: Path, words: Messages) -> None:
    if bad := next((sign for sign in ';"' if sign in f"{native}{sys.prefix}"), None):
        raise CommandError("ext_bad_folder", sign=bad, folder=native.parents[1], exit_code=1)
    if problem := compiler_problem(native, words):
        raise CommandError("ext_compiler", found=problem[0], command=problem[1], exit_code=1)
    if missing := [name for name, version in tools().items() if version is None]:
        raise CommandError("ext_no_packages", names=", ".join(missing), command=install_command("kernels"), exit_code=1)
    if not has_headers():
        raise CommandError("ext_no_headers", command=system_command("headers"), exit_code=1)


def _run_cmake(source: Path, folder: Path, words: Messages) -> None:
    shutil.copy(CMAKE, folder / "CMakeLists.txt")
    tools = {name: _tool(name) for name in ("cmake", "ninja")}
    options = [
        f"-DKERNELS={source}",
        f"-DPython_EXECUTABLE={sys.executable}",
        f"-Dnanobind_DIR={_directory('nanobind', '--cmake_dir')}",
        f"-DCMAKE_PREFIX_PATH={_directory('mlx', '--cmake-dir')}",
        f"-DCMAKE_MAKE_PROGRAM={tools['ninja']}",
    ]
    output: list[str] = []
    start = time.monotonic()
    for command in (
        [tools["cmake"], "-G", "Ninja", "-S", str(folder), "-B", str(folder), *options],
        [tools["cmake"], "--build", str(folder)],
    ):
        if _run(command, output, start, words):
            text = "\n".join(output)
            write_whole(ROOT / LOG, text.encode())
            raise CommandError("ext_failed", error=_first_error(text), log=LOG, exit_code=1)


def _run(command: list[str], output: list[str], start: float, words: Messages) -> int | None:
    """Run a program, add its lines to `output`, and show its progress in a terminal. Return the program's exit
    code."""
    status, step = StatusLine(), words("ext_configuring")
    with running(command) as child:
        try:
            for line in itertools.chain([None], child.lines()):
                if line is not None:
                    output.append(line)
                    if match := NINJA.match(line):
                        step = words("ext_step", step=match[1], count=match[2])
                status.show(f"{step} ({time.monotonic() - start:.0f} s)")
        finally:
            status.clear()
    return child.returncode


def _check_works(made: Path, words: Messages) -> None:
    """Check in a new process that the MLX extension works."""
    run = subprocess.run([sys.executable, "-c", CHECK, str(made)], capture_output=True, text=True)
    if run.returncode == 0:
        return
    reason = (run.stderr.strip().splitlines() or [f"exit code {run.returncode}"])[-1]
    mlx, nanobind, command = metadata.version("mlx"), metadata.version("nanobind"), install_command("kernels")
    if any("TypeError" in line for line in run.stderr.splitlines()):
        raise CommandError("ext_abi", mlx=mlx, nanobind=nanobind, command=command, exit_code=1)
    raise CommandError("ext_does_not_work", mlx=mlx, nanobind=nanobind, reason=reason, command=command, exit_code=1)


def _stamp(native: Path, nanobind: str) -> dict[str, str]:
    """Return the versions of Python and of the packages that a build depends on, and the hash of the build's sources.

    nanobind: the version to return if nanobind is not installed. A finished build works without nanobind, so it need
    not be built again when nanobind is missing.
    """
    with suppress(metadata.PackageNotFoundError):
        nanobind = metadata.version("nanobind")
    return {
        "mlx": metadata.version("mlx"),
        "nanobind": nanobind,
        "python": str(sysconfig.get_config_var("EXT_SUFFIX")),
        "sources": _hash(native),
    }


def _hash(native: Path) -> str:
    files = [CMAKE, *(native / name for name in (SOURCE, *HEADERS)), *sorted((native / "checks").glob("*.h"))]
    return hashlib.sha256(b"\0".join(file.read_bytes().replace(b"\r\n", b"\n") for file in files)).hexdigest()


def _tool(name: str) -> str:
    """Return the path of a program in the virtual environment. If the environment lacks the program, return the path of
    the system's program."""
    own = Path(sys.executable).parent / name
    return str(own) if own.exists() else shutil.which(name) or name


def _directory(module: str, option: str) -> str:
    return subprocess.run([sys.executable, "-m", module, option], capture_output=True, text=True).stdout.strip()


def _first_error(output: str) -> str:
    """Return the compiler's first error. If the compiler reports no error, return CMake's first error, whose text
    follows the line with `CMake Error`."""
    lines = output.strip().splitlines() or ["no output"]
    if of_compiler := next((line for line in lines if re.search(r"\berror: ", line)), ""):
        return of_compiler.strip()
    start = next((number for number, line in enumerate(lines, start=1) if line.startswith("CMake Error")), None)
    if start is None:
        return lines[-1]
    about = itertools.takewhile(lambda line: not line or line.startswith(" "), lines[start:])
    return " ".join(" ".join(about).split())[:MOST] or lines[start - 1]


def _python_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"
