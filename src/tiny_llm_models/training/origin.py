"""The origin of a model's weights: script, seed and commits, in `origin.toml` next to the weights."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["FILE", "UNKNOWN", "commit_of", "note_origin", "origin_row", "read_origin", "script_of"]

FILE, UNKNOWN = "origin.toml", "unknown"
HEAD = "# The program, seed and commits from which the weights come. The cards are written from this file.\n"
ROWS = ("| origin | {} |", "| 由来 | {} |")
SEEDS = ("seed", "シード")
COMMITS = ("commit", "コミット")
BEFORE = ("not recorded, before `{}`, which added the weights", "記録なし（重みを追加した `{}` より前）")


def note_origin(folder: Path, script: str, seed: int, commit: str) -> None:
    """Write origin.toml when training begins. When training resumes after an interruption, add the current commit."""
    known = read_origin(folder) if (folder / FILE).exists() else {"script": script, "commits": []}
    commits = list(dict.fromkeys([*known["commits"], commit]))
    folder.mkdir(parents=True, exist_ok=True)
    text = f"{HEAD}\nscript = {json.dumps(known['script'])}\nseed = {seed}\ncommits = {json.dumps(commits)}\n"
    (folder / FILE).write_text(text, encoding="utf-8")


def read_origin(folder: Path) -> dict[str, Any]:
    """Read the file that `note_origin` wrote."""
    return tomllib.loads((folder / FILE).read_text(encoding="utf-8"))


def script_of(arguments: Sequence[str]) -> str:
    """Return the command line of the training program with these arguments."""
    return f"python -m {__package__} {shlex.join(arguments)}".rstrip()


def commit_of(folder: Path) -> str:
    """Return the commit of the clone that contains a folder, followed by "with changes" if the clone's code was
    changed. Return UNKNOWN if there is no clone."""
    if shutil.which("git") is None:
        return UNKNOWN
    commit = _git(folder, "rev-parse", "--short=12", "HEAD")
    if not commit:
        return UNKNOWN
    return f"{commit} with changes" if _git(folder, "status", "--porcelain", "--", "*.py", "*.toml") else commit


def _git(folder: Path, *words: str) -> str:
    run = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True)
    return run.stdout.strip() if run.returncode == 0 else ""


def origin_row(origin: dict[str, Any], language: int) -> str:
    """Return the card's row about the origin. language: 0 is English, 1 is Japanese."""
    known = [f"`{commit}`" for commit in origin["commits"] if commit != UNKNOWN]
    if not known:
        known = [BEFORE[language].format(origin["before"]) if "before" in origin else UNKNOWN]
    parts = [f"`{origin['script']}`", f"{SEEDS[language]} {origin['seed']}", f"{COMMITS[language]} {', '.join(known)}"]
    return ROWS[language].format(("; ", "、")[language].join(parts))
