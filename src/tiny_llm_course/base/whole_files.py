"""Writes files atomically."""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

__all__ = ["content_of", "write_whole"]


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically: a reader never sees half of the file, and after a crash or on a full disk the old
    content remains. A symbolic link stays a link."""
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")  # another process may be writing `path`, too
    write_like(temporary, content, path)
    os.replace(temporary, path)


def write_like(file: Path, content: bytes, path: Path) -> None:
    """Write a new file with the permissions of `path`, the file that the new file will replace."""
    try:
        file.write_bytes(content)
        if path.exists():
            shutil.copymode(path, file)
    except OSError as error:
        with suppress(OSError):
            file.unlink(missing_ok=True)
        error.filename = error.filename or str(path)  # on a full disk, the system's error names no file
        raise


def content_of(path: Path) -> bytes | None:
    """Return the content of a file. Return None if the file does not exist."""
    return path.read_bytes() if path.is_file() else None
