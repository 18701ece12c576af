"""Keeps finished grades, so that an interrupted command can continue where it stopped."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from time import time

from ..base.places import ROOT, SRC
from ..base.whole_files import write_whole
from ..tasks.syllabus import Day
from .grades import Grade, GradingLimits
from .submissions import Submission

__all__ = ["KeptGrades"]

PACKAGES = (  # packages on which grades depend
    *("tiny_llm_course", "tiny_llm_given", "tiny_llm_models", "tiny_llm_native", "tiny_llm_ref", "metal_host"),
)
NO_PART = {"repo", "train", "__pycache__", "built"}  # folders on which no grade depends
LIBRARIES = ("mlx", "numpy", "pytest")
DAYS = 60  # a grade is deleted when it has not been used for this many days


class KeptGrades:
    """Saved grades in a folder, without students' names. The name of a grade's file is a digest of everything that
    decides the grade."""

    def __init__(self, folder: Path, days: list[Day], hidden: Path | None, limits: GradingLimits):
        self._folder = folder
        about = [[str(task.id) for day in days for task in day.tasks], asdict(limits)]
        about += [platform.platform(), sys.version, os.environ.get("CXX", "")]
        self._digest = hashlib.sha256(json.dumps([*about, *map(version, LIBRARIES)]).encode())
        for file in _files(hidden):
            content = file.read_bytes()
            self._digest.update(f"{file.name} {len(content)} ".encode() + content)

    def find(self, submissions: list[Submission]) -> dict[str, Grade]:
        """Return the grades that earlier commands gave for the same files, keyed by the submission's name."""
        grades = {submission.name: self._find(submission) for submission in submissions if not submission.problem}
        return {name: replace(grade, name=name) for name, grade in grades.items() if grade}

    def add(self, submission: Submission, grade: Grade) -> OSError | None:
        """Save a grade if the grade is final and comes from a run of the tests. If saving fails, return the error
        instead of raising it, because a full disk should not end the grading."""
        if grade.is_final and any(task.total for task in grade.tasks):
            content = json.dumps(replace(grade, name="").as_json()).encode()
            try:
                write_whole(self._file(submission), content)
            except OSError as error:
                return error
        return None

    def prune(self) -> None:
        """Delete the grades that have not been used for DAYS days."""
        for file in self._folder.glob("*"):
            with suppress(OSError):
                if file.stat().st_mtime < time() - DAYS * 24 * 3600:
                    file.unlink()

    def _find(self, submission: Submission) -> Grade | None:
        file = self._file(submission)
        try:
            grade = Grade.from_json(json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return None
        with suppress(OSError):
            file.touch()
        return grade

    def _file(self, submission: Submission) -> Path:
        digest = self._digest.copy()
        digest.update(submission.digest.encode())
        return self._folder / f"{digest.hexdigest()}.json"


def _files(hidden: Path | None) -> Iterator[Path]:
    """Yield all files that decide a grade, except the submission's files, in a fixed order."""
    for folder in (ROOT / "tests", *(SRC / package for package in PACKAGES)):
        for file in sorted(folder.rglob("*")):
            if file.is_file() and not NO_PART.intersection(file.relative_to(folder).parts):
                yield file
    yield ROOT / "pyproject.toml"
    yield from sorted(hidden.glob("*.py")) if hidden else ()
