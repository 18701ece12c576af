"""Finds the files that a C++ file includes. This module imports none of the course's other modules, so it works even
if they fail."""

import re
from collections.abc import Iterable
from pathlib import Path

__all__ = ["with_included"]

_HEADERS = Path(__file__).parent


def with_included(source: Path, folders: Iterable[Path] = ()) -> list[Path]:
    """Return a file, and all files that it includes from its own folder, this module's folder and further folders."""
    searched = [_HEADERS, *folders]
    found = [source]
    for file in found:  # the loop appends to this list
        for name in re.findall(r'(?m)^#include "(.+)"', file.read_text(encoding="utf-8", errors="replace")):
            place = next((place for folder in (file.parent, *searched) if (place := folder / name).is_file()), source)
            found += [place] if place not in found else []
    return found
