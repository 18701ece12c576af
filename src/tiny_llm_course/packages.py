"""A package under test, by name."""

from __future__ import annotations

import importlib
import traceback
from types import ModuleType

import pytest

__all__ = ["Package"]


class Package:
    """`package.attention` imports its module when a test first asks for it.

    So an error in one file fails the tests of that file alone.
    """

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, module: str) -> ModuleType:
        try:
            return importlib.import_module(f"{self._name}.{module}")
        except SyntaxError as error:  # its traceback only says who imported the file
            pytest.fail("".join(traceback.format_exception_only(error)), pytrace=False)
