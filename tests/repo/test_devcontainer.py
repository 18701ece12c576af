"""The devcontainer: its commands leave a clone in which the course works."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from learner import ROOT, Clone

SETTINGS = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))
STEPS = ("onCreateCommand", "updateContentCommand", "postCreateCommand")  # in the order in which they run
COMMANDS = [SETTINGS[step] for step in STEPS if step in SETTINGS]


device = pytest.fixture(lambda: None)  # commands choose their own


def run(command: str, clone: Clone) -> str:
    """Run a command as a devcontainer does: by the shell, in the folder of the clone."""
    done = subprocess.run(["sh", "-c", command], cwd=clone.root, env=clone.environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_doctor(report: str) -> None:
    assert re.search(r"^  ok +packages: mlx ", report, re.MULTILINE)
    assert re.search(r"^  ok +kernels.*: ", report, re.MULTILINE), "the first command builds what kernels need"
    assert "error" not in report
    assert report.endswith("days that can be done here: all\n")


def test_it_asks_for_two_cores_and_ends_with_the_doctor() -> None:
    assert SETTINGS["hostRequirements"]["cpus"] == 2
    assert "gpu" not in SETTINGS["hostRequirements"]
    assert COMMANDS[-1] == "./course doctor"


def test_the_commands_work_in_a_clone(tmp_path: Path) -> None:
    """The clone uses the environment that runs the tests."""
    clone = Clone.create(tmp_path / "tiny-llm")
    for name in ("course", "pdm.lock"):
        shutil.copy(ROOT / name, clone.root)
    programs = clone.root / ".venv/bin"
    programs.mkdir(parents=True)
    start = f'#!/bin/sh\nPYTHONPATH="{clone.root}/src" exec "{sys.executable}" {{}} "$@"\n'
    for name, words in {"python": "", "tiny-llm": "-m tiny_llm_course"}.items():
        (programs / name).write_text(start.format(words))
        (programs / name).chmod(0o755)
    files = [clone.root / name for name in ("pyproject.toml", "pdm.lock")]
    (clone.root / ".venv/installed-for").write_text(f"{clone.root}\n" + "".join(map(Path.read_text, files)))
    check_doctor([run(command, clone) for command in COMMANDS][-1])


@pytest.mark.nightly("installs the course from the network, which takes up to three minutes")
def test_the_commands_install_the_course(tmp_path: Path) -> None:
    clone = tmp_path / "tiny-llm"
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, clone / name)
    report = [run(command, Clone(clone)) for command in COMMANDS][-1]
    check_doctor(report)
    assert f"({clone}/.venv/bin/python)" in report
