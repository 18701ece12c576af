"""The same kernels give the same messages with other compilers, if installed: clang, and g++ or clang for arm64.

METAL_HOST_CLANG names a clang, and METAL_HOST_ARM64 a compiler for arm64 that links statically; qemu runs its programs.
To run all tests with another compiler: METAL_HOST_CXX=clang++ pytest tests/metal_host
"""

import os
import re
import shutil
import subprocess

import pytest
import test_metal_mutants
from broken_kernels import BROKEN
from test_metal_checks import golden
from test_metal_checks import run as run_broken
from test_metal_idioms import compare

from metal_host import MetalKernelError
from metal_host.toolchain import recent_clang

SOME_IDIOMS = [
    "half",
    "bfloat",
    "half_literals",
    "maths",
    "vectors",
    "int4",
    "vectors_of_three",
    "integers",
    "threadgroup_tree",
    "two_levels",
    "tiled_matmul",
    "histogram",
    "simd_divergent",
    "simd_vector",
    "matrix_bfloat",
    "helpers",
]
SOME_BROKEN = [
    "read_past_end",
    "private_past_end",
    "in_header",
    "no_barrier",
    "wrong_flags",
    "neighbour_threadgroup",
    "two_barriers",
    "unwritten_output",
    "missing_tail",
    "misaligned",
    "endless",
    "division",
]


def arm64() -> str:
    chosen = os.environ.get("METAL_HOST_ARM64")
    found = chosen or shutil.which("aarch64-linux-gnu-g++")
    if not found:
        pytest.skip("no compiler for arm64: METAL_HOST_ARM64 may name one")
    said = subprocess.run([*found.split(), "--version"], capture_output=True, text=True).stdout
    version = re.search(r"\) (\d+)\.", said.splitlines()[0]) if "Free Software" in said else None
    if version and int(version[1]) < 13:
        pytest.skip("g++ for arm64 knows half from version 13 on")
    return found if chosen else f"{found} -static"


@pytest.fixture(params=["clang", "arm64"], autouse=True)
def compiler(request, monkeypatch):
    monkeypatch.setenv("METAL_HOST", "check")
    if request.param == "clang":
        clang = recent_clang()
        if clang is None:
            pytest.skip("no clang of version 16 or later: METAL_HOST_CLANG may name one")
        monkeypatch.setenv("METAL_HOST_CXX", " ".join(clang.command))
        return
    runner = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    if runner is None:
        pytest.skip("no qemu for arm64")
    monkeypatch.setenv("METAL_HOST_CXX", arm64())
    monkeypatch.setenv("METAL_HOST_RUN", runner)
    monkeypatch.setenv("METAL_HOST_SECONDS", "60")  # qemu is slow


@pytest.mark.parametrize("name", SOME_IDIOMS)
def test_idiom(name):
    compare(name)


@pytest.mark.parametrize("name", SOME_BROKEN)
def test_broken_kernel_is_named(name):
    with pytest.raises(MetalKernelError) as found:
        run_broken(name, BROKEN[name])
    assert str(found.value) == golden()[f"# {name}"]


@pytest.mark.parametrize(("name", "number", "instead"), list(test_metal_mutants.mutants())[::5])
def test_mutant_of_a_barrier_is_found(name, number, instead, monkeypatch):
    test_metal_mutants.test_mutant_of_a_barrier_is_found(name, number, instead, "forward", monkeypatch)
