"""Finds the conflict markers that a merge by git leaves in a learner's files, and tells the learner how to resolve the
conflict."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ..tasks.regions import code_files
from ..ui import CommandError

__all__ = ["abort_command", "conflict_in", "conflict_in_package"]

MARKERS = re.compile(rb"^<<<<<<< .*\n(?s:.*?)^=======\r?\n(?s:.*?)^>>>>>>> ", re.MULTILINE)
UNFINISHED = {  # file or folder in .git during an unfinished merge or rebase -> the command that aborts it
    "MERGE_HEAD": "git merge --abort",
    "rebase-merge": "git rebase --abort",
    "rebase-apply": "git rebase --abort",
    "CHERRY_PICK_HEAD": "git cherry-pick --abort",
}


def conflict_in_package(root: Path, package: Path) -> CommandError | None:
    """Return the error about the first conflict in the learner's files. Return None if there is no conflict."""
    return next((problem for file in code_files(package) if (problem := conflict_in(root, file))), None)


def conflict_in(root: Path, file: Path) -> CommandError | None:
    """Return the error about the first conflict in this file. Return None if there is no conflict."""
    source = file.read_bytes() if file.is_file() else b""
    if b"<<<<<<< " not in source or not (match := MARKERS.search(source)):
        return None
    line = source.count(b"\n", 0, match.start()) + 1
    place = f"{os.path.relpath(file)}:{line}"
    if command := abort_command(root):
        return CommandError("conflict_open", place=place, command=command, exit_code=1)
    return CommandError("conflict_left", place=place, exit_code=1)


def abort_command(root: Path) -> str | None:
    """Return the command that aborts the merge, rebase or cherry-pick in progress. Return None if there is no
    such operation."""
    return next((command for name, command in UNFINISHED.items() if (_git_folder(root) / name).exists()), None)


def _git_folder(root: Path) -> Path:
    """Return the folder `.git`, or, in a linked worktree, the folder that the file `.git` names."""
    git = root / ".git"
    text = git.read_text(encoding="utf-8") if git.is_file() else ""
    return root / text.removeprefix("gitdir:").strip() if text else git
