"""A pytest plugin, `-p input_log --inputs FILE`: writes which files of the repository a run depended on.

These files are the imported modules, those of a mistake's packages included, and all other files that the run read.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from fingerprint import is_input

from tiny_llm_course.diagnosis import mutants
from tiny_llm_course.diagnosis.package_under_test import REFERENCE

ROOT = Path(__file__).resolve().parents[2]

_read: set[str] = set()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--inputs", type=Path)


def pytest_configure() -> None:
    mutants._sources(REFERENCE)  # looks for a task in all files: reading them here keeps them out of the log
    sys.addaudithook(_note)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the files after all mistakes have been made and tested."""
    files = {str(path.relative_to(ROOT)) for path in map(_resolved, {*_read, *_imported()}) if _is_ours(path)}
    if includes := sys.modules.get("tiny_llm_native.includes"):
        # The extension was built before the tests ran.
        extension = includes.with_included(ROOT / "src/tiny_llm_native/mlx_extension.cpp")
        files |= {str(file.relative_to(ROOT)) for file in extension}
    found = sorted(file for file in files if is_input(file) and (ROOT / file).is_file())
    session.config.getoption("--inputs").write_text(json.dumps(found), encoding="utf-8")


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        _read.add(os.fsdecode(arguments[0]))


def _imported() -> set[str]:
    found = {str(file) for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))}
    for name in list(sys.modules):
        package, _, module = name.partition(".")
        if package.startswith("mutant_"):
            place = REFERENCE / module.replace(".", "/")
            found |= {f"{place}.py", f"{place}/__init__.py"}
    return found


def _resolved(path: str) -> Path:
    return Path(os.path.realpath(path))


def _is_ours(path: Path) -> bool:
    return path.is_relative_to(ROOT)
