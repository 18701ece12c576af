"""Lists the packages that only some commands need, and finds out which of these packages are missing."""

from __future__ import annotations

import re

from ..tasks.toml import read_toml
from .places import IS_CLONE, ROOT

__all__ = ["GROUPS", "WHAT", "install_command", "missing"]

WHAT = {  # name -> extras and dependency groups of pyproject.toml
    "kernels": ("kernels",),
    "serve": ("serve",),
    "viz": ("viz",),
    "book": ("book", "viz"),
    "all": ("kernels", "serve", "viz", "book", "dev"),
}
GROUPS = ("book", "dev")  # dependency groups, which only a clone has
if not IS_CLONE:
    WHAT = {name: parts for name, parts in WHAT.items() if name != "book"} | {"all": ("kernels", "serve", "viz")}


def install_command(what: str) -> str:
    """Return the command that installs the packages of an entry of WHAT."""
    return f"./course install {what}"


def missing(what: str) -> list[str]:
    """Return the missing packages of an entry of WHAT."""
    names = (re.match(r"[\w.-]+", text) for part in WHAT[what] for text in requirements_of(part))
    return [name.group() for name in names if name and not _is_installed(name.group())]


def requirements_of(part: str) -> list[str]:
    """Return the requirements that pyproject.toml lists for an extra or a dependency group."""
    if IS_CLONE:
        settings = read_toml(ROOT / "pyproject.toml")
        requirements: list[str] = (settings["project"]["optional-dependencies"] | settings["dependency-groups"])[part]
        return requirements
    from importlib import metadata  # imported in functions, so that commands that need no metadata start sooner

    pattern = re.compile(rf"(.*?)\s*;\s*extra == ['\"]{part}['\"]")
    return [match.group(1) for text in metadata.requires("tiny-llm") or () if (match := pattern.fullmatch(text))]


def _is_installed(name: str) -> bool:
    from importlib import metadata

    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
