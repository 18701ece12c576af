"""Writing files so that nothing is lost: all of a file or nothing, and a copy of what was there before."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from .syllabus import Text

__all__ = ["Backups", "ChangedSinceError", "Undone", "write_whole"]


def write_whole(path: Path, content: bytes) -> None:
    """All of it or nothing: a reader never sees half a file, and a crash leaves the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(content)
    if path.exists():
        shutil.copymode(path, temporary)
    os.replace(temporary, path)


@dataclass(frozen=True)
class Undone:
    """What was taken back."""

    reason: Text
    files: list[Path]
    copies: Path


class ChangedSinceError(Exception):
    """A file was changed, after a command wrote it, in the same lines."""

    def __init__(self, path: Path, copy: Path):
        super().__init__(path, copy)
        self.path = path
        self.copy = copy  # of the file as it was before the command


class Backups:
    """Copies of files as they were before a command changed them, the newest of which can be brought back.

    folder/2026-11-21_14-03-05.123456/ holds the files of one command: `before`, and `after` as it wrote them.
    `backup.json` says which: a file that was not there before has no copy.
    """

    def __init__(self, folder: Path, root: Path):
        self._folder = folder
        self._root = root

    def write(self, files: dict[Path, bytes | None], reason: Text) -> Path:
        """Write files below the root, or remove those of None; what they hold is kept first, in the folder returned.

        Raises:
            CommandError: one is read-only. Nothing was changed.
        """
        _check_writable(files)
        copies = self._keep(list(files), reason)
        for path, content in files.items():
            if content is None:
                path.unlink(missing_ok=True)
            else:
                write_whole(copies / "after" / path.relative_to(self._root), content)
                write_whole(path, content)
        return copies

    def undo(self) -> Undone | None:
        """Take back the newest command that was not taken back yet, and only that: what was written since stays. None
        if there is nothing to undo.

        Raises:
            ChangedSinceError: something was written in the same lines. Nothing was changed.
            CommandError: a file is read-only. Nothing was changed.
        """
        open_ = [copies for copies in self.all() if not (copies / "undone").exists()]
        if not open_:
            return None
        copies = open_[-1]
        record = json.loads((copies / "backup.json").read_text(encoding="utf-8"))
        files = {self._root / name: existed for name, existed in record["existed"].items()}
        _check_writable(files)
        contents = {path: self._without(copies, path, existed) for path, existed in files.items()}
        undone = {language: f"undo: {reason}" for language, reason in record["reason"].items()}
        replaced = self._keep(list(files), undone)
        (replaced / "undone").touch()  # so that the next undo goes one step further back
        for path, content in contents.items():
            if content is None:
                path.unlink(missing_ok=True)
            else:
                write_whole(path, content)
        (copies / "undone").touch()
        return Undone(record["reason"], list(files), copies)

    def all(self) -> list[Path]:
        """The folders of copies, oldest first. One that a crash left without its record is not among them."""
        return sorted(record.parent for record in self._folder.glob("*/backup.json"))

    def _without(self, copies: Path, path: Path, existed: bool) -> bytes | None:
        """What a file holds now, without what the command of these copies changed in it. None: it goes."""
        name = path.relative_to(self._root)
        before, after = copies / "before" / name, copies / "after" / name
        if not path.exists() or not after.exists() or path.read_bytes() == after.read_bytes():
            return before.read_bytes() if existed else None
        if not existed:
            return path.read_bytes()
        options = ["--ours"] if path.suffix == ".txt" else []  # of the progress, the newer lines
        try:
            command = ["git", "merge-file", "-p", "-q", *options, str(path), str(after), str(before)]
            merged = subprocess.run(command, capture_output=True)
        except FileNotFoundError:  # no git
            raise ChangedSinceError(path, before) from None
        if merged.returncode:
            raise ChangedSinceError(path, before)
        return merged.stdout

    def _keep(self, files: list[Path], reason: Text) -> Path:
        """Copy files into a new folder. The record comes last: a folder without one is not used."""
        folder = self._new_folder()
        existed = {}
        for path in files:
            name = path.relative_to(self._root).as_posix()
            existed[name] = path.exists()
            if path.exists():
                (folder / "before" / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, folder / "before" / name)
        write_whole(folder / "backup.json", json.dumps({"reason": reason, "existed": existed}, indent=2).encode())
        return folder

    def _new_folder(self) -> Path:
        while True:
            folder = self._folder / datetime.now().strftime("%Y-%m-%d_%H-%M-%S.%f")
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                continue
            return folder


def _check_writable(files: Iterable[Path]) -> None:
    """Replacing a file asks nobody whether it may be written, so this does."""
    from .problems import CommandError  # here, since tests load this module, and need no texts

    for path in files:
        if path.exists() and not path.stat().st_mode & 0o222:
            raise CommandError("read_only", file=os.path.relpath(path), exit_code=1)
