"""A checked run finds every barrier that is dropped or has the wrong flags, even if the result is right."""

import re

import pytest
from metal_idioms import IDIOMS
from test_metal_idioms import run

from metal_host import MetalKernelError

BARRIER = re.compile(r"(threadgroup|simdgroup)_barrier\(mem_flags::(mem_\w+)\);")
OTHER = {"mem_device": "mem_threadgroup", "mem_threadgroup": "mem_device"}
NAMES = ["threadgroup_tree", "two_levels", "tiled_matmul", "neighbours", "device_barrier", "simd_barrier"]


def mutants():
    for name in NAMES:
        for number, barrier in enumerate(BARRIER.finditer(IDIOMS[name].source)):
            kind, flags = barrier.groups()
            yield name, number, ";"
            yield name, number, f"{kind}_barrier(mem_flags::{OTHER[flags]});"
            yield name, number, f"{kind}_barrier(mem_flags::mem_none);"
            if kind == "threadgroup":
                yield name, number, f"simdgroup_barrier(mem_flags::{flags});"


@pytest.mark.parametrize("order", ["forward", "7"])
@pytest.mark.parametrize(("name", "number", "instead"), list(mutants()))
def test_mutant_of_a_barrier_is_found(name, number, instead, order, monkeypatch):
    monkeypatch.setenv("METAL_HOST", "check")
    monkeypatch.setenv("METAL_HOST_ORDER", order)
    idiom = IDIOMS[name]
    barrier = list(BARRIER.finditer(idiom.source))[number]
    source = idiom.source[: barrier.start()] + instead + idiom.source[barrier.end() :]
    with pytest.raises(MetalKernelError) as found:
        run(f"{name}_{number}", type(idiom)(**(vars(idiom) | {"source": source})))
    assert found.value.kind in ("race", "unwritten")
