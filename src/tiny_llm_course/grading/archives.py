"""Reads the files of a submission: a folder, a ZIP archive or a tar archive.

Archives are read in place. Nothing is unpacked into folders, so a name such as ../../x does no harm. Files that are not
regular are listed but never opened: opening a FIFO can block forever, and a link may point to any file.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Protocol

__all__ = ["HandedInFile", "RefusedError", "Tree", "archive_stem", "kind_of", "opened", "tree_of"]

MAX_ENTRIES = 50_000
MAX_UNPACKED = 2**28  # the most bytes of an archive within an archive, or of a tar file after decompression
CHUNK = 2**16  # bytes that are read at once
NOT_HANDED_IN = {  # folders of other programs, and of the course itself
    *("__pycache__", "__MACOSX", "node_modules", "site-packages", "venv", "env"),
    *("tiny_llm_ref", "tiny_llm_course", "tiny_llm_given", "tiny_llm_models", "tiny_llm_native", "metal_host"),
}
SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class RefusedError(Exception):
    """The refusal of a submission. The message gives the reason."""


@dataclass(frozen=True)
class HandedInFile:
    """A file of a submission.

    size: the number of bytes. odd: the kind of the file, such as "a link", or "" for a regular file.
    """

    size: int
    open: Callable[[], IO[bytes]]
    odd: str = ""


class Readable(Protocol):
    """A stream that can be read from its beginning to its end."""

    def read(self, size: int, /) -> bytes: ...


Tree = dict[str, HandedInFile]  # path -> file


def archive_stem(name: str) -> str | None:
    """Return an archive's name without the suffix. Return None if the name is not that of an archive."""
    suffix = max((suffix for suffix in SUFFIXES if name.lower().endswith(suffix)), key=len, default=None)
    return name[: -len(suffix)] if suffix else None


def tree_of(path: Path) -> Tree:
    """Return the files of a folder or an archive."""
    return _folder(path) if path.is_dir() else opened(path.open("rb"))


def opened(stream: IO[bytes]) -> Tree:
    """Return the files of an archive. The content of the archive, not its name, decides the format."""
    magic = stream.read(2)
    stream.seek(0)
    if magic == b"PK":
        return _collected(_zip(stream))
    return _collected(_tar(_decompressed(stream, magic)))


def kind_of(mode: int) -> str:
    """Return the kind of a file with this mode, such as "a link", or "" for a regular file or a folder."""
    return KINDS.get(stat.S_IFMT(mode), "")


def _collected(entries: Iterator[tuple[str, HandedInFile]]) -> Tree:
    """Return the entries that may belong to the package, keyed by path. The folders in a path are separated by `/`."""
    tree: Tree = {}
    for name, entry in entries:
        path = PurePosixPath(name.replace("\\", "/"))
        if all(map(_is_handed_in, path.parts)):
            tree[str(path)] = entry
        if len(tree) > MAX_ENTRIES:
            raise RefusedError(f"expected up to {MAX_ENTRIES:,} files, got more")
    return tree


def _is_handed_in(name: str) -> bool:
    """Tell whether a file or folder may belong to the package. Hidden files, ".." and the names in NOT_HANDED_IN never
    belong to the package."""
    return not name.startswith(".") and name not in NOT_HANDED_IN


def _folder(folder: Path) -> Tree:
    return _collected(_walk(folder))


def _walk(folder: Path) -> Iterator[tuple[str, HandedInFile]]:
    def stop(error: OSError) -> None:
        raise error

    for place, folders, files in os.walk(folder, onerror=stop):
        folders[:] = filter(_is_handed_in, folders)  # so that a virtual environment's many files are not listed
        links = [name for name in folders if Path(place, name).is_symlink()]
        for file in (Path(place, name) for name in [*files, *links]):
            status = file.lstat()
            entry = HandedInFile(status.st_size, partial(_of_folder, file), kind_of(status.st_mode))
            yield file.relative_to(folder).as_posix(), entry


def _of_folder(file: Path) -> IO[bytes]:
    return file.open("rb")


def _zip(stream: IO[bytes]) -> Iterator[tuple[str, HandedInFile]]:
    archive = zipfile.ZipFile(stream)
    for info in archive.infolist():
        if not info.filename.endswith(("/", "\\")):
            kind = kind_of(info.external_attr >> 16)
            yield info.filename, HandedInFile(info.file_size, partial(_of_zip, archive, info), kind)


def _of_zip(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> IO[bytes]:
    if info.flag_bits & 1:
        raise RefusedError("expected an archive without a password, got an encrypted one")
    return _unpacked(archive.open(info))


def _tar(stream: IO[bytes]) -> Iterator[tuple[str, HandedInFile]]:
    archive = tarfile.TarFile(fileobj=stream)
    for member in archive:
        if member.size < 0:  # with a negative size, some versions of tarfile loop forever
            raise RefusedError("the archive is damaged")
        if not member.isdir():
            kind = "" if member.isreg() else "a link" if member.issym() or member.islnk() else "not a regular file"
            yield member.name, HandedInFile(member.size, partial(_of_tar, archive, member), kind)


def _decompressed(stream: IO[bytes], magic: bytes) -> IO[bytes]:
    if magic == b"\x1f\x8b":
        return _unpacked(gzip.GzipFile(fileobj=stream))
    if magic == b"BZ":
        return _unpacked(bz2.BZ2File(stream))
    if magic == b"\xfd7":
        return _unpacked(lzma.LZMAFile(stream))
    return stream


def _of_tar(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    return archive.extractfile(member) or io.BytesIO()


def _unpacked(stream: Readable) -> IO[bytes]:
    """Copy a stream into an unnamed temporary file, so that the stream's content can be read in any order."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 (the reader closes it)
    while chunk := stream.read(CHUNK):
        if file.tell() + len(chunk) > MAX_UNPACKED:
            raise RefusedError(f"expected up to {MAX_UNPACKED // 2**20} MiB unpacked, got more")
        file.write(chunk)
    file.seek(0)
    return file
