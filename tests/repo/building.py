"""A clone in which the MLX extension is built for real, once, and changes that make its next build fail."""

import json
import os
import shutil
import time
from contextlib import contextmanager
from functools import cache

from learner import Clone

from tiny_llm_course.native import mlx_extension
from tiny_llm_course.tasks.regions import BUILT

__all__ = [
    "COMPILER",
    "NATIVE",
    "as_built",
    "built",
    "first_build",
    "made",
    "old_compiler",
    "outdate",
    "path_without",
    "refused",
    "script",
    "stopped_compiler",
]

NATIVE = "tiny_llm_native"
# The other kernels take longer to build.
KEPT = {"tiny_llm": ("softmax", "swiglu"), "tiny_llm_ref": ("swiglu",), NATIVE: ("mlx_extension",)}
COMPILER = shutil.which("c++") or shutil.which("clang++") or shutil.which("g++")


@cache
def first_build(root):
    """Run `build-ext` in a new clone in this folder, once for all test files. Return the clone and the finished run."""
    clone = Clone.create(root)
    for package, kept in KEPT.items():
        folder = built(clone, package).parent
        for old in list(folder.rglob(BUILT)):
            shutil.rmtree(old)
        for file in folder.rglob("*.cpp"):
            if file.stem not in kept:
                file.unlink()
    for name, age in {".mlx_extension-ended": 4000, ".mlx_extension-running": 0}.items():
        (built(clone) / name).mkdir(parents=True)
        os.utime(built(clone) / name, (time.time() - age,) * 2)
    return clone, clone.run("build-ext")


@contextmanager
def as_built(tmp_path_factory):
    """Yield the clone with its MLX extension. Afterwards, undo all changes in the clone."""
    clone, run = first_build(tmp_path_factory.getbasetemp() / "built")
    assert run.returncode == 0, run.stderr
    folders = [clone.root / "src" / package for package in (*KEPT, "tiny_llm_course")]
    for folder in folders:
        if not folder.with_suffix(".kept").exists():
            shutil.copytree(folder, folder.with_suffix(".kept"))
    try:
        yield clone
    finally:
        for folder in folders:
            shutil.rmtree(folder)
            shutil.copytree(folder.with_suffix(".kept"), folder)


def built(clone, package=NATIVE):
    folder = clone.root / "src" / package
    return mlx_extension.built(folder if package == NATIVE else folder / "kernels")


def made(clone):
    """Return the contents of the MLX extension's file and of the files next to it, keyed by file name."""
    return {file.name: file.read_bytes() for file in built(clone).iterdir() if file.is_file()}


def outdate(clone, **stamp):
    """Change the stamp of the MLX extension, as if it had been built for another machine or version."""
    file = built(clone) / mlx_extension.STAMP
    file.write_text(json.dumps(json.loads(file.read_text()) | stamp))


def script(folder, name, *lines):
    """Write a shell script with this name. Return its path."""
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text("#!/bin/sh\n" + "".join(f"{line}\n" for line in lines))
    file.chmod(0o755)
    return str(file)


HIDDEN = """
import sysconfig
from importlib import metadata
real = metadata.version
def version(name):
    if name in {names}:
        raise metadata.PackageNotFoundError(name)
    return real(name)
metadata.version = version
get_path = sysconfig.get_path
if "Python.h" in {names}:
    sysconfig.get_path = lambda name, *more: "/nowhere" if name == "include" else get_path(name, *more)
"""


def path_without(clone, folder, names):
    """Return a PYTHONPATH with which these packages seem not to be installed. One name may be Python.h."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(HIDDEN.format(names=names))
    return os.pathsep.join([str(folder), str(clone.root / "src")])


def refused(run):
    """Return the message of a failed command. Check that it is one line, without a traceback."""
    assert run.returncode == 1
    assert "Traceback" not in run.stderr
    assert len(run.stderr.splitlines()) == 1
    return run.stderr


def old_compiler(folder):
    """Write a compiler that lacks the types that kernels use. Return its path."""
    version = 'case "$*" in *--version*) echo "g++ 9.5.0"; exit;; esac'
    return script(folder, "c++", version, "echo 'kernel.h:70: error: _Float16 does not name a type' >&2; exit 1")


def stopped_compiler(folder, *lines):
    """Write a compiler that answers questions like the real one, but runs these lines instead of compiling."""
    answers = f'case "$*" in *--version*|*-fsyntax-only*) exec {COMPILER} "$@";; esac'
    return script(folder, "c++", answers, *lines)
