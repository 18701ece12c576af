"""The commands that chapters show, other than those whose output they show, run in a learner's clone."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from learner import Clone
from trees import copy_modules

from tiny_llm_course.tasks.syllabus import Day, select_days

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))

from book_outputs import OUTPUTS, call_of  # noqa: E402
from forks import run_python  # noqa: E402

PAGES = sorted((ROOT / "book").glob("week_*/*.md"))
COMMAND = re.compile(r"(?:^|`)\$? ?(\./course [^`\n]+)", re.MULTILINE)
DOWNLOADS = ("--model Qwen/", "./course install ")  # what needs the network
LAST = {"index": "7", "gpu": "2"}  # days of pages that are not a day's


device = pytest.fixture(lambda: None)  # nothing here computes on one


def commands_of(page: Path) -> list[str]:
    return list(dict.fromkeys(COMMAND.findall(page.read_text(encoding="utf-8"))))


def days_until(page: Path) -> list[Day]:
    """Return the days that a reader of this page has done."""
    week, number = int(page.parent.name[5:]), LAST.get(page.stem, page.stem.removeprefix("day_"))
    return [day for day in select_days(None, None) if (day.week, day.number) <= (week, int(number))]


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    """Return the clone of a reader."""
    clone = Clone.create(tmp_path / "reader")
    for file in [
        *(ROOT / "src/tiny_llm_models").glob("story*/model.safetensors"),
        *(ROOT / "book").glob("week_*/*.py"),
    ]:
        copy = clone.root / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    git(clone, "init", "--quiet")
    git(clone, "add", "--all")
    return clone


def git(clone: Clone, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=clone.root, check=True, capture_output=True, text=True).stdout


def commands_to_run(page: Path) -> list[str]:
    """All commands of a page, except those that need the network and those that test_outputs.py runs.

    `bench` takes long, and runs only on the first page that shows it, where the least code is written.
    """
    elsewhere = {
        file.read_text(encoding="utf-8").partition("\n")[0].removeprefix("$ ") for file in OUTPUTS.glob("*.txt")
    }
    earlier = {command for other in PAGES[: PAGES.index(page)] for command in commands_of(other) if "bench" in command}
    found = [each for each in commands_of(page) if each not in {*elsewhere, *earlier}]
    return [each for each in found if not any(part in each for part in DOWNLOADS)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_commands_of_a_chapter(page: Path, clone: Clone) -> None:
    days = days_until(page)
    for words in (["solution", "--day", f"{days[-1].week}.{days[-1].number}"], ["undo"]):  # of "If you are stuck"
        if page.stem.startswith("day_"):
            assert clone.run(*words).returncode == 0
    for day in days:
        copy_modules(clone.root, ROOT, day.modules)
    for command in commands_to_run(page):
        call = call_of(command)
        if "main" in call and "--max-tokens" not in call:
            call += ["--max-tokens", "8"]
        if "bench" in call:
            call += ["--smoke"]
        if "test" in call:  # which tests it would run: test_course_gates.py runs them
            call += ["--collect-only"]
        run = serve if "serve" in call and "--help" not in call else run_python
        ended = run(call, clone.root, clone.environment)
        assert ended.returncode == 0, f"{command}\n{ended.stdout}{ended.stderr}"
        assert "are skipped" not in ended.stderr, (
            f"{command}\n{ended.stderr}"
        )  # `batch` found another command's results
    untracked = git(clone, "ls-files", "--others", "--exclude-standard").split()
    assert set(untracked) <= {"progress.txt"}, "files that git does not ignore"  # and readers may commit their progress


def serve(call: list[str], cwd: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a server, and end it as soon as it prints its address."""
    said = ""
    command = [sys.executable, *call, "--port", "0"]
    with subprocess.Popen(
        command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            said += line
            if "http://" in line:
                process.terminate()
    return subprocess.CompletedProcess(call, process.returncode, "", said)


def test_commands_are_found() -> None:
    assert sum(len(commands_of(page)) for page in PAGES) > 12
