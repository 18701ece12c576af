"""The commands that the book shows, beside those whose output it shows: run in a learner's clone, chapter by chapter."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from learner import Clone

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))

from book_outputs import call_of  # noqa: E402

PAGES = sorted((ROOT / "book").glob("week_*/*.md"))
COMMAND = re.compile(r"(?:^|`)\$? ?((?:pdm run|cp src/) ?[^`\n]+)", re.MULTILINE)
FIRST = ("pdm run solution", "pdm run undo")  # for a learner who has not written the day's functions
DOWNLOADS = "--model Qwen/"


@pytest.fixture
def device() -> None:
    """Nothing here computes on one."""


def commands_of(page: Path) -> list[str]:
    """In the order in which a clone can run them: a day's solution taken in and out, copied, and used."""
    found = dict.fromkeys(COMMAND.findall(page.read_text(encoding="utf-8")))
    return sorted(found, key=lambda command: 0 if command.startswith(FIRST) else 1 if command.startswith("cp ") else 2)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_commands_of_a_chapter(page: Path, tmp_path: Path) -> None:
    clone = Clone.create(tmp_path)
    shutil.copy(ROOT / "src/tiny_llm_models/story/model.safetensors", clone.root / "src/tiny_llm_models/story")
    for earlier in PAGES:
        if earlier < page or page.stem == "index":
            for command in commands_of(earlier):
                if command.startswith("cp "):
                    subprocess.run(shlex.split(command), cwd=clone.root, check=True)
    for command in commands_of(page):
        if DOWNLOADS not in command:
            call = shlex.split(command) if command.startswith("cp ") else call_of(command)
            if "generate" in call and "--max-tokens" not in call:
                call += ["--max-tokens", "8"]
            run = subprocess.run(
                call, cwd=clone.root, env=clone.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
            )
            assert run.returncode == 0, f"{command}\n{run.stdout}{run.stderr}"


def test_commands_are_found() -> None:
    chapters = [page for page in PAGES if page.stem != "index"]
    assert all(any(command.startswith("cp ") for command in commands_of(page)) for page in chapters)
    assert sum(len(commands_of(page)) for page in chapters) > 25
