"""Backups: commands change all of their files or none, and keep copies that `undo` brings back."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

from ..base.whole_files import content_of, write_like, write_whole
from ..tasks.syllabus import Text

__all__ = ["Backups", "ChangedSinceError", "Merge", "Undone"]

NAME = "%Y-%m-%d_%H-%M-%S.%f"  # of a command's folder
Merge: TypeAlias = Callable[[bytes, bytes, bytes], bytes]  # of now, after, before: now, without what was done


@dataclass(frozen=True)
class Undone:
    """A command that was taken back."""

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
    `backup.json` says which: a file that was not there before has no copy. While the file `writing` is there, the
    command is at work, or was killed.

    merges: how changes are taken back in files, by name, for which git's merge is not the right one. on_taken_back: is
    called with the folder of a command whose files are as they were before.
    """

    def __init__(
        self,
        folder: Path,
        root: Path,
        merges: Mapping[str, Merge] | None = None,
        on_taken_back: Callable[[Path], None] = lambda copies: None,
    ):
        self._folder = folder
        self._root = root
        self._merges = merges or {}
        self._on_taken_back = on_taken_back

    def write(self, files: Mapping[Path, bytes | None], reason: Text) -> Path:
        """`writing`, with an empty block."""
        with self.writing(files, reason) as copies:
            return copies

    @contextmanager
    def writing(self, files: Mapping[Path, bytes | None], reason: Text, undoes: str = "") -> Iterator[Path]:
        """Write files below the root, and remove those whose content is None. The block gets the folder of the copies.

        All or none: if it fails, or what the block does, all files are again as they were. If the process is killed,
        `take_back_interrupted` does that. undoes: the name of the folder that this takes back.

        Raises:
            CommandError: one is read-only, or there is no room. Nothing was changed.
        """
        _check_writable(files)
        with _nothing_changed():
            copies = self._keep(files, reason, undoes)
            with self._all_or_nothing(copies):
                for path in files:
                    self._put(copies, path)
        with self._all_or_nothing(copies):
            yield copies
        shutil.rmtree(copies / "new", ignore_errors=True)
        (copies / "writing").unlink()

    def undo(self) -> Undone | None:
        """Take back the newest command that was not taken back yet, and only that: what was written since stays. None
        if there is nothing to undo.

        Raises:
            ChangedSinceError: something was written in the same lines. Nothing was changed.
            CommandError: a file is read-only, or there is no room. Nothing was changed.
        """
        records = {copies: _record(copies) for copies in self.all()}
        undone = {record.get("undoes") for record in records.values()}
        open_ = [
            copies
            for copies, record in records.items()
            if not record.get("undoes") and copies.name not in undone and not (copies / "undone").exists()
        ]
        if not open_:
            return None
        copies, record = open_[-1], records[open_[-1]]
        contents = {self._root / name: self._without(copies, name) for name in record["existed"]}
        reason = {language: f"undo: {text}" for language, text in record["reason"].items()}
        with self.writing(contents, reason, undoes=copies.name):
            self._on_taken_back(copies)
        return Undone(record["reason"], list(contents), copies)

    def take_back_interrupted(self) -> Text | None:
        """Take back what a command did that was killed while it wrote, and return its reason. None if none was.

        The caller holds the lock.
        """
        for copies in self._folder.glob("*"):
            if not (copies / "backup.json").exists():  # it was killed before it changed anything
                shutil.rmtree(copies, ignore_errors=True)
        for copies in self.interrupted():  # one at most, since commands take turns
            reason: Text = _record(copies)["reason"]
            self._take_back(copies)
            return reason
        return None

    def interrupted(self) -> list[Path]:
        """Return the folders of commands that are at work or were killed."""
        marked = sorted(mark.parent for mark in self._folder.glob("*/writing"))
        return [copies for copies in marked if (copies / "backup.json").exists()]

    def all(self) -> list[Path]:
        """Return the folders of copies, oldest first. One that a crash left without its record is not among them."""
        return sorted(record.parent for record in self._folder.glob("*/backup.json"))

    def _keep(self, files: Mapping[Path, bytes | None], reason: Text, undoes: str) -> Path:
        """Copy the files and their new contents into a new folder. The record comes last: a folder without a record is
        not used."""
        folder = self._new_folder()
        try:
            existed = {}
            for path, content in files.items():
                name = path.relative_to(self._root).as_posix()
                existed[name] = path.exists()
                if path.exists():
                    _copy(path.read_bytes(), folder / "before" / name, path)
                if content is not None:
                    _copy(content, folder / "after" / name, path)
                    _copy(content, folder / "new" / name, path)
            (folder / "writing").touch()
            record = {"reason": reason, "existed": existed, "undoes": undoes}
            write_whole(folder / "backup.json", json.dumps(record, indent=2).encode())
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return folder

    @contextmanager
    def _all_or_nothing(self, copies: Path) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._take_back(copies)
            raise

    def _put(self, copies: Path, path: Path) -> None:
        """Replace a file by its new version. That needs no room, so a full disk cannot stop it half way."""
        new = copies / "new" / path.relative_to(self._root)
        if not new.exists():
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(new, path)

    def _take_back(self, copies: Path) -> None:
        """Bring back all files that a command changed, and forget the command. If someone changed the same lines since,
        the file stays.

        Raises:
            CommandError: the system refuses. The next command tries again.
        """
        shutil.rmtree(copies / "new", ignore_errors=True)
        with _brought_back_later():
            for name, existed in _record(copies)["existed"].items():
                if not existed or (copies / "before" / name).exists():  # otherwise it is back already
                    with suppress(ChangedSinceError):
                        self._bring_back(copies, name)
        self._on_taken_back(copies)
        (copies / "backup.json").unlink()  # first: without it, nobody reads what is left
        shutil.rmtree(copies)

    def _bring_back(self, copies: Path, name: str) -> None:
        path, before, _ = self._versions(copies, name)
        content = self._without(copies, name)
        if content is None:
            path.unlink(missing_ok=True)
        elif content_of(path) == content:
            pass
        elif content == content_of(before):
            path.parent.mkdir(parents=True, exist_ok=True)
            _replace(before, path)  # needs no room either
        else:
            write_whole(path, content)

    def _without(self, copies: Path, name: str) -> bytes | None:
        """Return what a file holds now, without the changes that the command of these copies made. None: the file is
        removed."""
        now, before, after = (content_of(file) for file in self._versions(copies, name))
        if now is None or now == after:
            return before
        if now == before:
            return now
        if merge := self._merges.get(name):
            return merge(now, after or b"", before or b"")
        if before is None:  # the learner went on with it
            return now
        if after is None:
            raise ChangedSinceError(self._root / name, copies / "before" / name)
        return self._merged(copies, name)

    def _merged(self, copies: Path, name: str) -> bytes:
        path, before, after = self._versions(copies, name)
        try:
            run = subprocess.run(["git", "merge-file", "-p", "-q", path, after, before], capture_output=True)
        except FileNotFoundError:  # no git
            raise ChangedSinceError(path, before) from None
        if run.returncode:
            raise ChangedSinceError(path, before)
        return run.stdout

    def _versions(self, copies: Path, name: str) -> tuple[Path, Path, Path]:
        """Return the file as it is now, as it was before the command, and as the command wrote it."""
        return self._root / name, copies / "before" / name, copies / "after" / name

    def _new_folder(self) -> Path:
        """Make a folder whose name comes after all others, also when summer time ends."""
        now = datetime.now()
        if others := self.all():
            now = max(now, datetime.strptime(others[-1].name, NAME) + timedelta(microseconds=1))
        folder = self._folder / now.strftime(NAME)
        folder.mkdir(parents=True)
        return folder


def _record(copies: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((copies / "backup.json").read_text(encoding="utf-8"))
    return record


def _replace(file: Path, path: Path) -> None:
    """Move a file to this path, or to where a link at this path leads."""
    path = path.resolve()
    try:
        os.replace(file, path)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        write_whole(path, file.read_bytes())  # the package is a link to another disk


def _copy(content: bytes, copy: Path, path: Path) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    write_like(copy, content, path)


def _check_writable(files: Iterable[Path]) -> None:
    """Replacing a file asks nobody whether it may be written, so this does."""
    from ..ui import CommandError  # here, since tests load this module, and need no texts

    for path in files:
        if path.exists() and not path.stat().st_mode & 0o222:
            raise CommandError("read_only", file=os.path.relpath(path), exit_code=1)


@contextmanager
def _nothing_changed() -> Iterator[None]:
    """Turn an error of the system into a message, which says that nothing was changed."""
    from ..ui import CommandError, os_reason

    try:
        yield
    except OSError as error:
        raise CommandError("nothing_written", file=_named(error), reason=os_reason(error), exit_code=1) from error


@contextmanager
def _brought_back_later() -> Iterator[None]:
    """Turn an error of the system into a message, which says that the next command tries again."""
    from ..ui import CommandError, os_reason

    try:
        yield
    except OSError as error:
        raise CommandError("not_taken_back", file=_named(error), reason=os_reason(error), exit_code=1) from error


def _named(error: OSError) -> str:
    return os.path.relpath(error.filename) if error.filename else "?"
