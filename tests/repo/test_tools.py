"""What programs find in the repository: the stubs' generator, contracts, formatter, linter, type checker, compilers."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

__all__ = ["check"]


device = pytest.fixture(lambda: None)  # nothing here computes on one


def check(*command):
    run = subprocess.run(
        [sys.executable, *command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if run.returncode:
        pytest.fail(f"{' '.join(command)} ended with exit code {run.returncode}:\n{run.stdout}", pytrace=False)


def test_stubs():
    """In a learner's fork this fails, as it should."""
    check("scripts/stubs.py", "--check")


def test_contracts():
    """In a learner's fork this finds nothing, because it looks at the reference."""
    check("scripts/contracts.py", "--check")


def test_format():
    check("-m", "ruff", "format", "--check", ".")


def test_lint():
    check("-m", "ruff", "check", ".")


def test_types():
    check("-m", "mypy")


def test_native_code():
    check("scripts/check_native.py")
