"""The pipeline that makes the bundled models, and these models in Transformers: tests/train, which needs PyTorch.

They run where something has changed that they depend on, and with `./course check --all`.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import verdicts
from fingerprint import digest_of_files

from tiny_llm_course.files import write_whole
from tiny_llm_course.toml import read_toml

ROOT = Path(__file__).resolve().parents[2]
KEPT = Path(__file__).parent / "verdicts" / "train.toml"
INPUTS = [
    "src/tiny_llm_models/**/*.py",
    "src/tiny_llm_models/**/*.toml",
    "src/tiny_llm_models/**/*.txt",
    "src/tiny_llm_models/*/*.json",
    "src/tiny_llm_models/*/*.safetensors",
    "src/tiny_llm_ref/*.py",
    "tests/train/*.py",
]
TEXT = """\
# What tests/train depends on, as it was when these tests passed. `./course check train` runs them if something has
# changed, and writes this file: commit what it writes, do not edit it by hand.

digest = "{digest}"
machine = "{machine}"
"""


@pytest.fixture
def device():
    """Nothing here computes on one."""


def test_train():
    now = digest_of_files(ROOT, INPUTS)
    is_known = KEPT.exists() and read_toml(KEPT)["digest"] == now
    if is_known and os.environ.get("TINY_LLM_CHECK_ALL") != "1":
        return
    command = [sys.executable, "scripts/check_train.py"]
    run = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert run.returncode == 0, run.stdout[-4000:]
    if not is_known:
        write_whole(KEPT, TEXT.format(digest=now, machine=verdicts.machine()).encode())
        pytest.fail(
            f"tests/train passes, and was run since something has changed. Commit {KEPT.relative_to(ROOT)}, which was "
            "written; if CI says this, run `./course check train` first.",
            pytrace=False,
        )
