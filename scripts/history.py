#!/usr/bin/env python3
"""Checks git's history: every version in CHANGELOG.md names one of its commits, and the subject of each commit since
the newest version has at most 72 characters.

python scripts/history.py   exits with 1 if something is wrong

In a copy without the complete history, nothing is checked. .ci/run calls this before anything is installed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from tiny_llm_course.update.versions import CHANGELOG, read_versions  # noqa: E402

LONGEST = 72  # characters of a subject


def has_history(root: Path) -> bool:
    """Tell whether this is a repository of its own whose history is complete."""
    shallow = _git(root, "rev-parse", "--is-shallow-repository")
    return (root / ".git").exists() and shallow.stdout == "false\n" and _git(root, "rev-parse", "HEAD").returncode == 0


def problems(root: Path) -> list[str]:
    """Name the versions whose commit is not in the history; if there are none, the subjects that are too long."""
    versions = read_versions((root / CHANGELOG).read_text(encoding="utf-8"))
    lost = [
        f"{CHANGELOG}: {version} names {commit}, which is not in the history of HEAD"
        for version, commit in versions.items()
        if _git(root, "merge-base", "--is-ancestor", commit, "HEAD").returncode
    ]
    if lost or not versions:
        return lost or [f"{CHANGELOG} names no version"]
    newest = next(iter(versions.values()))
    log = _git(root, "log", "--no-merges", "--format=%h %s", f"{newest}..HEAD").stdout
    subjects = dict(line.split(" ", 1) for line in log.splitlines())
    return [
        f"{commit}: the subject has {len(subject)} characters, and at most {LONGEST} are allowed: {subject}"
        for commit, subject in subjects.items()
        if len(subject) > LONGEST
    ]


def _git(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, encoding="utf-8")


def main() -> int:
    if not has_history(ROOT):
        print("the history is not here, so nothing was checked in it")
        return 0
    found = problems(ROOT)
    print(*found or ["every version names its commit, and no subject is too long"], sep="\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
