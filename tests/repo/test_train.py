"""The pipeline that makes the bundled models, and these models in Transformers: tests/train, which needs PyTorch."""

import subprocess
import sys

import pytest
import verdicts

device = pytest.fixture(lambda: None)  # nothing here computes on one


def test_train():
    verdicts.unless_known("train", train)


def train():
    command = [sys.executable, "scripts/check_train.py"]
    run = subprocess.run(command, cwd=verdicts.ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert run.returncode == 0, run.stdout[-4000:]
