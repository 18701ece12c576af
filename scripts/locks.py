#!/usr/bin/env python3
"""Write the same versions into both locks, pdm.lock and uv.lock. `uv run` reads uv.lock. Needs uv (pip install uv).

./course python scripts/locks.py          the newest versions that pyproject.toml allows
./course python scripts/locks.py --keep   the versions of pdm.lock, if a changed pyproject.toml still allows them
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tiny_llm_course.tasks.toml import parse_toml, read_toml

__all__ = ["differences", "foreign_addresses", "requirements", "unmet", "versions"]

ROOT = Path(__file__).resolve().parent.parent
OLD, NEW = "==3.10.*", ">=3.11"  # PDM locks each separately, since some packages have dropped Python 3.10
PUBLIC = ("https://pypi.org/simple", "https://files.pythonhosted.org/packages/")
HASH = """
from pdm.core import Core
print(Core().create_project(".").pyproject.content_hash())
"""
Versions = Mapping[str, Mapping[str, str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="keep the versions of pdm.lock")
    if parser.parse_args().keep:
        keep()
    else:
        pdm("lock", "-G", ":all", "--python", OLD)
        pdm("lock", "-G", ":all", "--append", "--python", NEW)
    lock_with_uv(versions(read_toml(ROOT / "pdm.lock")))
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in ("pdm.lock", "uv.lock")]
    faults = differences(*map(parse_toml, texts)) + [address for text in texts for address in foreign_addresses(text)]
    if faults:
        sys.exit("\n".join(["error: the locks cannot be committed:", *faults]))


def keep() -> None:
    """Check that pdm.lock meets the requirements of pyproject.toml. If so, write the hash of pyproject.toml into
    pdm.lock."""
    project, file = read_toml(ROOT / "pyproject.toml"), ROOT / "pdm.lock"
    if faults := unmet(requirements(project), read_toml(file)):
        sys.exit("\n".join(["error: pdm.lock does not meet these requirements; run without --keep", *faults]))
    command = [str(ROOT / ".venv/pdm/bin/python"), "-c", HASH]
    found = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    text = re.sub(r'(?<=content_hash = "sha256:)\w+', found, file.read_text(encoding="utf-8"))
    file.write_text(text, encoding="utf-8")


def pdm(*words: str) -> None:
    subprocess.run([str(ROOT / ".venv/bin/pdm"), *words], cwd=ROOT, check=True)


def lock_with_uv(known: Versions) -> None:
    """Lock with these versions as constraints, then without constraints: uv keeps the versions of the first lock."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        listed = "".join(f"    {constraint!r},\n" for constraint in constraints(known))
        constrained = settings.replace("[tool.uv]\n", f"[tool.uv]\nconstraint-dependencies = [\n{listed}]\n")
        for text in (constrained, settings):
            (folder / "pyproject.toml").write_text(text, encoding="utf-8")
            subprocess.run(["uv", "lock", "--no-config"], cwd=folder, check=True)
        (ROOT / "uv.lock").write_bytes((folder / "uv.lock").read_bytes())


def constraints(known: Versions) -> Iterator[str]:
    for name, markers in known.items():
        for version, marker in markers.items():
            of = "<" if 'python_version == "3.10"' in marker else ">="
            yield f"{name}=={version}" + (f'; python_version {of} "3.11"' if len(markers) > 1 else "")


def versions(lock: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the versions of each package in a lock by PDM or uv. The value of a version is its marker: where
    the version is installed."""
    found: dict[str, dict[str, str]] = {}
    for package in lock["package"]:
        if package.get("source", {}).get("editable") is None:  # the course itself does not come from a registry
            found.setdefault(package["name"], {})[package["version"]] = package.get("marker", "")
    return found


def differences(pdm_lock: Mapping[str, Any], uv_lock: Mapping[str, Any]) -> list[str]:
    """Return a line for each package whose versions differ between the two locks."""
    ours, theirs = versions(pdm_lock), versions(uv_lock)
    return [
        f"{name}: {', '.join(ours[name])} in pdm.lock, {', '.join(theirs[name])} in uv.lock"
        for name in sorted(ours.keys() & theirs.keys())
        if ours[name].keys() != theirs[name].keys()
    ]


def requirements(project: Mapping[str, Any]) -> list[Requirement]:
    """Return all requirements of pyproject.toml: dependencies, extras and groups."""
    groups = [*project["project"]["optional-dependencies"].values(), *project["dependency-groups"].values()]
    return [Requirement(text) for texts in (project["project"]["dependencies"], *groups) for text in texts]


def unmet(wanted: list[Requirement], lock: Mapping[str, Any]) -> list[str]:
    """Return a line for each requirement that is not locked, or that a locked version does not meet."""
    known = versions(lock)
    return [
        f"{need}: {', '.join(found) or 'not locked'}"
        for need in wanted
        if not (found := known.get(canonicalize_name(need.name), {})) or not all(map(need.specifier.contains, found))
    ]


def foreign_addresses(lock: str) -> list[str]:
    """Return the addresses outside PyPI from which a lock takes packages."""
    found = re.findall(r'(?:url|registry|index|find-links) *= *"([^"]*)"', lock)
    return sorted({address for address in found if not address.startswith(PUBLIC)})


if __name__ == "__main__":
    main()
