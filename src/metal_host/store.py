"""The folder of compiled programs. Several processes may use the folder at the same time.

METAL_HOST_CACHE names the folder. Without that variable, the folder is `built` in this package, or, if that folder is
not writable, a folder in the user's cache.
"""

import os
import shutil
import time
from pathlib import Path

from .errors import MetalHostError

__all__ = ["keep_small", "store"]

_KEPT = 400  # how many of the newest entries are kept; an entry has about 80 KB
_STALE = 600  # seconds: only entries that no process has used for this long are removed


def store() -> Path:
    """Return the folder, and create it if necessary.

    Raises:
        MetalHostError: no folder is writable.
    """
    chosen = os.environ.get("METAL_HOST_CACHE")
    places = [Path(chosen)] if chosen else [Path(__file__).parent / "built", Path.home() / ".cache" / "metal_host"]
    for place in places:
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(place, os.W_OK):
            return place
    raise MetalHostError(
        f"no folder for compiled kernels: {places[-1]} is not writable. Set METAL_HOST_CACHE to another folder"
    )


def keep_small(folder: Path, kept: int = _KEPT) -> None:
    """Keep the `kept` newest entries. Remove older entries that no process has used for a while, and leftovers of
    killed processes.

    A process that uses an entry updates the entry's modification time. Removing an entry does not disturb a
    program that already runs from it.
    """
    ages = {entry: _age(entry) for entry in folder.iterdir()}
    entries = sorted((entry for entry in ages if not entry.name.startswith(".")), key=lambda entry: ages[entry])
    unfinished = [entry for entry in ages if entry.name.startswith(".")]
    for entry in [*entries[kept:], *unfinished]:
        if _age(entry) < _STALE:  # read again, because another process may use the entry by now
            continue
        try:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        except OSError:  # another process has removed it
            continue


def _age(entry: Path) -> float:
    try:
        return time.time() - entry.stat().st_mtime
    except OSError:  # another process has removed the entry
        return 0
