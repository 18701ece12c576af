#!/usr/bin/env python3
"""Checks that git's history has the commit of every version in CHANGELOG.md, and that the subject of each commit since
the newest version has at most 72 characters.

python scripts/history.py   exit with 1 if something is wrong

In a copy without the complete history, the script checks nothing. .ci/run calls the script before it installs anything.
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
    """Tell whether a folder is the root of a git repository with a complete history."""
    shallow = _git(root, "rev-parse", "--is-shallow-repository")
    return (root / ".git").exists() and shallow.stdout == "false\n" and _git(root, "rev-parse", "HEAD").returncode == 0


def problems(root: Path) -> list[str]:
    """Return a line for each version whose commit is not in the history. If there is no such version, return a line for
    each subject that is too long."""
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
        f"{commit}: the subject has {len(subject)} characters, but at most {LONGEST} are allowed: {subject}"
        for commit, subject in subjects.items()
        if len(subject) > LONGEST
    ]


def _git(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, encoding="utf-8")


def main() -> int:
    if not has_history(ROOT):
        print("this copy does not have the complete history, so nothing was checked")
        return 0
    found = problems(ROOT)
    print(*found or ["every version names its commit, and no subject is too long"], sep="\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
