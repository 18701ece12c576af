"""`tiny-llm install`: installs packages that only some commands need, with the tool that made the environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer

from ..base.extras import GROUPS, WHAT, install_command, missing, requirements_of
from ..base.places import IS_CLONE, ROOT
from ..base.reporting import reporting
from ..ui import CommandError, Lang, Messages, left, one_of, phrase, show

__all__ = ["install"]

DEFAULT = ("kernels",)  # the extras that ./course always installs
LOCKED = "--frozen-lockfile"  # use pdm.lock even if a newer PDM calls that file outdated


def install(
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar=f"[{'|'.join(WHAT)}]...", help="What to install. Default: list the choices."),
    ] = None,
    lang: Lang = None,
) -> None:
    """Install the packages that only some commands need."""
    with reporting(lang) as words:
        for name in what or ():
            if name not in WHAT:
                raise CommandError("wrong_value", option="install", expected=one_of(WHAT), got=name)
        if not what:
            _list(words)
            return
        before, start = _installed(), monotonic()
        wanted = [name for name in what if missing(name)]
        if wanted:
            _run(command_for([part for name in wanted for part in WHAT[name]]), wanted)
        added = len(_installed() - before)
        show(words("install_done", names=", ".join(what), count=added, seconds=f"{monotonic() - start:.0f}"))


def command_for(parts: list[str], environment: Path = Path(sys.prefix), is_clone: bool = IS_CLONE) -> list[str]:
    """Return the command that installs extras and dependency groups, with the tool that made this environment."""
    settings = environment / "pyvenv.cfg"
    has_uv = settings.exists() and "\nuv = " in settings.read_text(encoding="utf-8")
    if is_clone and has_uv:
        kinds = ("--group" if part in GROUPS else "--extra" for part in parts)
        return [
            "uv",
            "sync",
            "--inexact",
            *(word for pair in zip(kinds, parts, strict=True) for word in pair),
        ]
    if is_clone and (pdm := _pdm(environment)):
        return [*pdm, "install", LOCKED, *options_of_pdm(parts)]
    pip = ["uv", "pip", "install", "--python", sys.executable] if has_uv else [sys.executable, "-m", "pip", "install"]
    return [*pip, *(text for part in parts for text in requirements_of(part))]


def options_of_pdm(parts: list[str]) -> list[str]:
    """Return PDM's options for these parts. Without --prod, PDM would add all dependency groups; with --prod, PDM
    accepts no dependency group."""
    chosen = [word for part in dict.fromkeys(parts) for word in ("-G", part)]
    return chosen if set(GROUPS) & set(parts) else ["--prod", *chosen]


def _pdm(environment: Path) -> list[str]:
    """Return the command of ./course's own PDM. If ./course has no PDM, but the PDM on PATH made the environment,
    return the command of the PDM on PATH. Otherwise, return []."""
    own = environment / "pdm" / "bin" / "python"
    if own.exists():
        return [str(own), "-m", "pdm"]
    return ["pdm"] if (ROOT / ".pdm-python").exists() else []


def _run(command: list[str], names: list[str]) -> None:
    """Install the packages, and record their names, because ./course installs them again after an update."""
    if shutil.which(command[0]) is None:
        raise CommandError("install_no_tool", tool=command[0], exit_code=1)
    settings = {"PDM_PROJECT": str(ROOT), "PDM_PYTHON": sys.executable, "PDM_IGNORE_ACTIVE_VENV": "1"}
    settings |= {"PDM_CHECK_UPDATE": "0", "UV_PROJECT_ENVIRONMENT": sys.prefix}
    run = subprocess.run(command, cwd=ROOT if IS_CLONE else None, env=os.environ | settings)
    left_over = [package for name in names for package in missing(name)]
    if run.returncode or left_over:
        ended = phrase("exit_code", code=run.returncode)
        reason = phrase("install_absent", names=", ".join(left_over)) if left_over else ended
        raise CommandError("install_failed", command=" ".join(command), reason=reason, exit_code=1)
    if (Path(sys.prefix) / "pdm").exists():
        asked = [*DEFAULT, *(part for name in WHAT if not missing(name) for part in WHAT[name])]
        (Path(sys.prefix) / "options").write_text(" ".join(options_of_pdm(asked)) + "\n", encoding="utf-8")


def _list(words: Messages) -> None:
    for name in WHAT:
        absent = missing(name)
        state = words("install_missing", command=install_command(name)) if absent else words("install_there")
        show(f"{left(name, 8)} {words(f'install_{name}')}")
        show(f"{left('', 8)} {state}", dim=True)


def _installed() -> set[str]:
    from importlib import metadata

    return {each.name for each in metadata.distributions()}
