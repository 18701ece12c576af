"""Runs commands in a sandbox of the operating system: bubblewrap on Linux, sandbox-exec on macOS.

A sandboxed process sees Python, a compiler and the course's own modules, all read-only. The process does not see the
reference, the tests, other submissions, other processes or the network.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from ..base.places import ROOT, SRC

__all__ = ["BUBBLEWRAP", "HIDDEN", "NONE", "PROGRAMS", "SANDBOX_EXEC", "wrapped"]

BUBBLEWRAP, SANDBOX_EXEC, NONE = "bubblewrap", "sandbox-exec", "none"
PROGRAMS = {BUBBLEWRAP: "bwrap", SANDBOX_EXEC: "sandbox-exec"}
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/home/linuxbrew/.linuxbrew")
DEVICES = ("/dev/null", "/dev/random", "/dev/urandom")  # not /dev/zero, since no limit counts memory mapped from it
LINKED = ("/etc/alternatives", "/etc/ld.so.cache")  # needed to find the system's compiler and libraries
COURSE = ("tiny_llm_course", "tiny_llm_given", "tiny_llm_models", "tiny_llm_native", "metal_host")
HIDDEN = (  # folders of these packages with lines of the reference, or with kernels that other commands compiled
    SRC / "tiny_llm_course" / "catalogue",
    SRC / "metal_host" / "built",
)
NAMESPACES = ("user", "pid", "ipc", "uts", "net", "cgroup-try")

PROFILE = """
(version 1)
(allow default)
(deny network*)
(deny appleevent-send)
(deny lsopen)
(deny signal)
(allow signal (target self) (target children))
{processes}
(deny file-write*)
(deny file-read-data (subpath "/Users") (subpath "/private/tmp") (subpath "/private/var/folders") {hidden})
(allow file-read-data {shown})
(deny file-read-data {within})
(allow file-write* (literal "/dev/null") {writes})
"""  # the last rule that matches wins


def wrapped(sandbox: str, command: list[str], reads: Iterable[Path] = (), writes: Iterable[Path] = ()) -> list[str]:
    """Return the command that runs `command` in this sandbox.

    reads, writes: other files and folders that the command sees. The command may change only those in `writes`.
    """
    if sandbox == BUBBLEWRAP:
        return [*_bubblewrap([*reads], [*writes]), *command]
    if sandbox == SANDBOX_EXEC:
        return ["sandbox-exec", "-p", _profile([*reads], [*writes]), *command]
    return command


def _bubblewrap(reads: list[Path], writes: list[Path]) -> list[str]:
    for folder in HIDDEN:
        folder.mkdir(exist_ok=True)  # otherwise another command may create the folder while the sandbox runs
    mounts = dict.fromkeys(map(Path, (*SYSTEM, *LINKED)), "--ro-bind-try")
    mounts |= dict.fromkeys([*_python(), *(SRC / name for name in COURSE), *reads], "--ro-bind")
    mounts |= dict.fromkeys([ROOT, *HIDDEN], "--tmpfs")
    mounts |= dict.fromkeys(map(Path, DEVICES), "--dev-bind")
    mounts |= dict.fromkeys(writes, "--bind")
    command = ["bwrap", *(f"--unshare-{name}" for name in NAMESPACES)]
    command += ["--die-with-parent", "--new-session", "--cap-drop", "ALL", "--proc", "/proc"]
    command += ["--ro-bind", "/proc/sys", "/proc/sys"]  # root could write to /proc/sys even without capabilities
    for path in sorted(mounts):  # a folder before its files
        places = [path] if mounts[path] == "--tmpfs" else [path, path]
        command += [mounts[path], *map(str, places)]
    return command + [word for path in (Path("/"), ROOT, *HIDDEN) for word in ("--remount-ro", str(path))]


def _profile(reads: list[Path], writes: list[Path]) -> str:
    shown = [*_python(), *(SRC / name for name in COURSE), *reads, *writes]
    return PROFILE.format(
        processes="" if writes else "(deny process-fork)",  # only a compiler has `writes`, and compilers fork
        hidden=_subpaths([ROOT]),
        shown=_subpaths(shown),
        within=_subpaths(HIDDEN),
        writes=_subpaths(writes),
    )


def _subpaths(paths: Iterable[Path]) -> str:
    quoted = (str(path.resolve()).replace("\\", "\\\\").replace('"', '\\"') for path in paths)
    return " ".join(f'(subpath "{path}")' for path in quoted)


def _python() -> list[Path]:
    """Return the folders of this Python and its virtual environment, and the links between these folders."""
    prefixes = [Path(prefix) for prefix in {sys.prefix, sys.base_prefix, sys.exec_prefix}]
    folders = {*prefixes, *(prefix.resolve() for prefix in prefixes)}
    links, link = [], Path(sys.executable)
    while link.is_symlink():
        link = link.parent / link.readlink()
        links.append(link)
    shown = [*folders, *map(Path, SYSTEM)]
    return [*folders, *(link for link in links if not any(link.is_relative_to(folder) for folder in shown))]
