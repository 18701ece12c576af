"""Where compiled programs lie: in METAL_HOST_CACHE, or else in the folder `built` of this package, or where that cannot
be written, in the user's cache. Several processes may use it at once.
"""

import os
import shutil
import time
from pathlib import Path

from .errors import MetalHostError

__all__ = ["keep_small", "store"]

_KEPT = 400  # of the newest entries, some 80 KB each
_STALE = 600  # seconds: others are removed that nobody has used for so long


def store() -> Path:
    """The folder, made if it is not there."""
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
        f"no folder for compiled kernels: {places[-1]} cannot be written. METAL_HOST_CACHE may name one"
    )


def keep_small(folder: Path, kept: int = _KEPT) -> None:
    """Removes what nobody uses any more, and what processes that were killed have left.

    Who uses an entry touches it. A program that runs may be removed: it runs on.
    """
    ages = {entry: _age(entry) for entry in folder.iterdir()}
    entries = sorted((entry for entry in ages if not entry.name.startswith(".")), key=lambda entry: ages[entry])
    unfinished = [entry for entry in ages if entry.name.startswith(".")]
    for entry in [*entries[kept:], *unfinished]:
        if _age(entry) < _STALE:  # asked again: somebody may have begun to use it
            continue
        try:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        except OSError:  # somebody else was faster
            continue


def _age(entry: Path) -> float:
    try:
        return time.time() - entry.stat().st_mtime
    except OSError:  # it is gone
        return 0
