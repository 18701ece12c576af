"""Backups: a command changes all of its files or none, and keeps copies that `undo` restores."""

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

NAME = "%Y-%m-%d_%H-%M-%S.%f"  # the name of a command's folder
Merge: TypeAlias = Callable[[bytes, bytes, bytes], bytes]  # (now, after, before) -> now without the change


@dataclass(frozen=True)
class Undone:
    """A command that `undo` has taken back."""

    reason: Text
    files: list[Path]
    copies: Path


class ChangedSinceError(Exception):
    """The error raised when a command cannot be taken back, because lines that it wrote have been changed since."""

    def __init__(self, path: Path, copy: Path):
        super().__init__(path, copy)
        self.path = path
        self.copy = copy  # the copy of the file from before the command


class Backups:
    """Copies of the files that each command changed, made before the change. `undo` takes back the newest command.

    folder/2026-11-21_14-03-05.123456/ contains the copies for one command: `before` has the old files, and `after` has
    the files that the command wrote. `backup.json` lists the files, since a new file has no copy in `before`. If the
    folder has a file `writing`, the command is still running or was killed.

    merges: functions that take back a change in a file that git cannot merge properly, keyed by the file's name.
    on_taken_back: a function that is called with a command's folder after the command's files have been restored.
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
        """Write files as `writing` does, but without a block. Return the folder of the copies."""
        with self.writing(files, reason) as copies:
            return copies

    @contextmanager
    def writing(self, files: Mapping[Path, bytes | None], reason: Text, undoes: str = "") -> Iterator[Path]:
        """Write files in the root folder, and remove the files whose content is None. Yield the folder of the copies.

        If writing or the block fails, all files are restored. If the process is killed, `take_back_interrupted`
        restores the files.
        reason: what the command does, in each language. undoes: the folder name of the command that this command takes
        back, or "".

        Raises:
            CommandError: a file is read-only, or the disk is full. No file was changed.
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
        """Take back the newest command that has not been taken back yet, but keep later changes. Return None if there
        is nothing to undo.

        Raises:
            ChangedSinceError: lines that the command wrote were changed since, so all files stay as they are.
            CommandError: a file is read-only, or the disk is full. No file was changed.
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
        """Take back the changes of a command that was killed while writing. Return the `reason` that the command gave
        to `writing`. Return None if no command was killed.

        The caller must hold the lock.
        """
        for copies in self._folder.glob("*"):
            if not (copies / "backup.json").exists():  # the command was killed before it changed anything
                shutil.rmtree(copies, ignore_errors=True)
        for copies in self.interrupted():  # at most one, since commands take turns
            reason: Text = _record(copies)["reason"]
            self._take_back(copies)
            return reason
        return None

    def interrupted(self) -> list[Path]:
        """Return the folders of commands that are running or were killed."""
        marked = sorted(mark.parent for mark in self._folder.glob("*/writing"))
        return [copies for copies in marked if (copies / "backup.json").exists()]

    def all(self) -> list[Path]:
        """Return the folders of copies, oldest first, except folders that a crash left without a record."""
        return sorted(record.parent for record in self._folder.glob("*/backup.json"))

    def _keep(self, files: Mapping[Path, bytes | None], reason: Text, undoes: str) -> Path:
        """Copy the files and their new contents into a new folder. Write the record last, so that an incomplete folder
        has no record and is not used."""
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
        """Replace a file with its new version. Moving a file needs no disk space, so a full disk cannot stop a command
        halfway."""
        new = copies / "new" / path.relative_to(self._root)
        if not new.exists():
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(new, path)

    def _take_back(self, copies: Path) -> None:
        """Restore all files that a command changed, and forget the command. If the same lines of a file have been
        changed since then, the file stays as it is.

        Raises:
            CommandError: the system refused to change a file. The next command tries again.
        """
        shutil.rmtree(copies / "new", ignore_errors=True)
        with _brought_back_later():
            for name, existed in _record(copies)["existed"].items():
                if not existed or (copies / "before" / name).exists():  # otherwise the file has been restored
                    with suppress(ChangedSinceError):
                        self._bring_back(copies, name)
        self._on_taken_back(copies)
        (copies / "backup.json").unlink()  # first, because a folder without a record is not used
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
            _replace(before, path)  # moving a file needs no disk space
        else:
            write_whole(path, content)

    def _without(self, copies: Path, name: str) -> bytes | None:
        """Return the present content of a file without the changes that the command made. Return None if the file must
        be removed."""
        now, before, after = (content_of(file) for file in self._versions(copies, name))
        if now is None or now == after:
            return before
        if now == before:
            return now
        if merge := self._merges.get(name):
            return merge(now, after or b"", before or b"")
        if before is None:  # the command created the file, which the learner has edited since
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
        """Return the paths of three versions of a file: the present version, the version from before the command, and
        the version that the command wrote."""
        return self._root / name, copies / "before" / name, copies / "after" / name

    def _new_folder(self) -> Path:
        """Make a folder whose name sorts after the names of all other folders, even if the clock was set back."""
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
    """Move a file to this path, or to the target of a link at this path."""
    path = path.resolve()
    try:
        os.replace(file, path)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        write_whole(path, file.read_bytes())  # the package's folder is a link to another disk


def _copy(content: bytes, copy: Path, path: Path) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    write_like(copy, content, path)


def _check_writable(files: Iterable[Path]) -> None:
    """Raise a CommandError if a file is read-only, because `os.replace` would replace even a read-only file."""
    from ..ui import CommandError  # imported here, since tests load this module and need no messages

    for path in files:
        if path.exists() and not path.stat().st_mode & 0o222:
            raise CommandError("read_only", file=os.path.relpath(path), exit_code=1)


@contextmanager
def _nothing_changed() -> Iterator[None]:
    """Turn an OSError into a CommandError that says that no file was changed."""
    from ..ui import CommandError, os_reason

    try:
        yield
    except OSError as error:
        raise CommandError("nothing_written", file=_named(error), reason=os_reason(error), exit_code=1) from error


@contextmanager
def _brought_back_later() -> Iterator[None]:
    """Turn an OSError into a CommandError that says that the next command will try again to restore the files."""
    from ..ui import CommandError, os_reason

    try:
        yield
    except OSError as error:
        raise CommandError("not_taken_back", file=_named(error), reason=os_reason(error), exit_code=1) from error


def _named(error: OSError) -> str:
    return os.path.relpath(error.filename) if error.filename else "?"
