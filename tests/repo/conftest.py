"""Tests of the repository that are too slow for every change run with `./course check --all`."""

from __future__ import annotations

import os

import pytest
from verdicts import ALL


def pytest_configure(config: pytest.Config) -> None:
    os.environ["TINY_LLM_AHEAD"] = "off"  # no test compiles in the background
    os.environ["TINY_LLM_CALLED"] = "./course"  # messages name commands in this form, whatever runs pytest
    config.addinivalue_line("markers", "nightly(reason): too slow for every change; runs with `./course check --all`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not ALL and (late := [i for i in items if i.get_closest_marker("nightly")]):
        config.hook.pytest_deselected(items=late)
        items[:] = [item for item in items if item not in late]
