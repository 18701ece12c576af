"""Configuration of all tests: the package under test, the devices, and the output of a failing test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

os.environ.setdefault("MLX_ENABLE_TF32", "0")  # set before MLX is imported; the tolerances are for full float32
os.environ["TINY_LLM_THREADS"] = "1"  # tests of threads set another number
os.environ["TINY_LLM_KERNELS"] = "watched"  # finds accesses out of bounds, and runs no fallback
os.environ["TINY_LLM_ARITHMETIC"] = "float32"  # the same mode on every machine, even where another mode is faster
os.environ["METAL_HOST"] = "check"  # runs Metal on the CPU of every machine, with all checks

import barred
import mlx.core as mx

from tiny_llm_course.diagnosis.package_under_test import Package, task_of

pytest_plugins = ["tiny_llm_course.testing.pytest_plugin", "tiny_llm_course.grading.judge"]
pytest.register_assert_rewrite("helpers")

DEVICES = {"cpu": mx.cpu, "gpu": mx.gpu} if mx.is_available(mx.gpu) else {"cpu": mx.cpu}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--impl",
        default="tiny_llm",
        choices=["tiny_llm", "tiny_llm_ref"],
        help="the package under test: the learner's (default) or the reference",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "task(id): the course's task that a test belongs to, as in task('w1d2.3')")
    barred.install(config.getoption("--impl"))


@pytest.fixture(params=list(DEVICES), autouse=len(DEVICES) > 1)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """On a machine with a GPU, run every test on the CPU and on the GPU, including kernels in Metal."""
    if request.param == "gpu":
        monkeypatch.setenv("METAL_HOST", "off")
    before = mx.default_device()
    mx.set_default_device(DEVICES[request.param])
    yield
    mx.set_default_device(before)


@pytest.fixture(autouse=True)
def bars(request: pytest.FixtureRequest) -> Iterator[None]:
    """While a task's tests run, bar the package under test from calling what the task asks the learner to write."""
    with barred.during(task_of(request.node)):
        yield


@pytest.fixture
def impl(request: pytest.FixtureRequest) -> Any:
    from tiny_llm_course.grading import judge  # imported here, because pytest has to rewrite the plugin first

    return judge.package_of(request) or Package(request.config.getoption("--impl"))
