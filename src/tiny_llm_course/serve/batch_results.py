"""The results of `tiny-llm batch`: a file with a line for each finished request, kept even after a crash."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import stat
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from pydantic import BaseModel, ValidationError

from tiny_llm_given.serving.answers import Usage

from ..ui import CommandError, Messages, os_reason, show_note

__all__ = ["BatchResult", "Results"]

_BEGINNING = b'{"id": "'  # the beginning of each line


class BatchResult(BaseModel):
    """The result of a request. A line of the file contains only the fields that are set."""

    id: str
    text: str
    finish_reason: str
    usage: Usage | None = None
    reasoning_content: str | None = None
    error: str | None = None


class Results:
    """The results in a file, including those of an earlier run. Use this class as a context manager.

    When `add` returns, the new line is on the disk. After a crash, only the last line can be incomplete. The next run
    removes an incomplete line. done: the ids that have a result. num_errors: how many of these results are errors.

    Raises:
        CommandError: another `batch` uses the file, or the file holds anything but results of these requests.
    """

    def __init__(self, path: Path, ids: Collection[str]):
        self.path = path
        self._is_new = not path.exists()
        if not self._is_new and not stat.S_ISREG(path.stat().st_mode):
            raise CommandError("batch_out_no_file", file=path)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        self.done: set[str] = set()
        self.num_errors = 0
        try:
            self._lock()
            self._read(set(ids))
        except BaseException:
            os.close(self._descriptor)
            raise

    def add(self, result: BatchResult) -> None:
        """Write a result. The line's first key is "id", because `_is_cut` recognises a line by its beginning."""
        found = result.model_dump(exclude_unset=True)
        line = (json.dumps(found, ensure_ascii=False) + "\n").encode("utf-8", "replace")
        with _uninterrupted():  # so that `done` and `num_errors` include each written result
            try:
                while line:
                    line = line[os.write(self._descriptor, line) :]
                os.fsync(self._descriptor)
            except OSError as error:
                raise CommandError("batch_out_failed", file=self.path, reason=os_reason(error), exit_code=1) from None
            self._note(result)

    def __enter__(self) -> Results:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_new and not self.done:
            self.path.unlink(missing_ok=True)
        os.close(self._descriptor)

    def _note(self, result: BatchResult) -> None:
        self.done.add(result.id)
        self.num_errors += result.error is not None

    def _lock(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # released when the process ends
        except BlockingIOError:
            raise CommandError("batch_out_used", file=self.path, exit_code=1) from None
        except OSError:  # a file system without locks
            return

    def _read(self, ids: set[str]) -> None:
        whole, newline, half = self.path.read_bytes().rpartition(b"\n")
        lines = whole.split(b"\n") if newline else []
        for number, line in enumerate(lines, start=1):
            self._take(number, line, ids)
        if half and not _is_cut(half):
            self._take(len(lines) + 1, half, ids)
            os.write(self._descriptor, b"\n")
        elif half:
            os.ftruncate(self._descriptor, len(whole) + len(newline))
            show_note(Messages()("batch_out_cut", file=self.path))

    def _take(self, number: int, line: bytes, ids: set[str]) -> None:
        try:
            result = BatchResult.model_validate_json(line)
        except ValidationError:
            raise CommandError("batch_out_no_results", file=self.path, line=number) from None
        if result.id not in ids:
            raise CommandError("batch_out_other", file=self.path, line=number, id=result.id)
        self._note(result)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C until the block ends."""
    if threading.current_thread() is not threading.main_thread():  # Ctrl-C interrupts only the main thread
        yield
        return
    late: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: late.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        for number in late[:1]:
            signal.raise_signal(number)


def _is_cut(half: bytes) -> bool:
    """Tell whether this is the incomplete line of a result: invalid JSON that begins like a result."""
    try:
        json.loads(half)
    except (ValueError, RecursionError):
        return half[: len(_BEGINNING)] == _BEGINNING[: len(half)]
    return False
