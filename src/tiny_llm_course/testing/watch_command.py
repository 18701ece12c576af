"""`tiny-llm watch`: tests the current task whenever a file is saved."""

from __future__ import annotations

import os
import select
import shutil
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic

from ..base.arguments import TaskArgument
from ..base.conflict import conflict_in_package
from ..base.packages import PACKAGES
from ..base.places import ROOT, SHARED
from ..base.reporting import reporting
from ..catalogue import entry_of
from ..diagnosis.ahead import compile_ahead
from ..learner.hints import show_hint
from ..learner.next_steps import chosen_task, show_finished, show_next
from ..learner.progress_table import progress_table, week_list
from ..learner.workspace import Workspace, changing
from ..native.kernel_files import ensure_extension
from ..pytest_runs.test_run import asked_time_limit, run_tests
from ..tasks.regions import SUFFIXES
from ..tasks.syllabus import Task, day_of
from ..ui import CommandError, Lang, Messages, show, wrapped
from .outcome import compile_rest, show_outcome
from .progress_change import keep_progress
from .task_lines import TaskLines

__all__ = ["watch"]

FOOTER = 6  # rows after a list: three lines of help, and empty rows
POLL = 1.0  # seconds between checks of the files' times, for file systems that send no events


def watch(task: TaskArgument = None, lang: Lang = None) -> None:
    """Test the current task whenever a file is saved. Keys: n next, h hint, l list, r run, q quit."""
    with reporting(lang) as words:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise CommandError("watch_terminal")
        workspace = Workspace()
        chosen = chosen_task(task, workspace)
        if chosen is None:
            show_next(workspace, words)
            return
        with _keys():
            _Watch(chosen, words).run()


class _Watch:
    """The loop of `watch`, which waits for a key or a saved file and answers on a cleared screen."""

    def __init__(self, task: Task, words: Messages):
        self._task = task
        self._words = words
        self._saved: SimpleQueue[None] = SimpleQueue()
        self._stop = threading.Event()
        self._folder = Workspace().package
        self._watched = [self._folder, *(self._folder.with_name(name) for name in SHARED.values())]
        self._tested: Task | None = None
        self._is_listed = False  # whether the list of the current week is shown
        self._times: dict[Path, tuple[int, int]] = {}  # time and size of each file at the last test

    def run(self) -> None:
        threading.Thread(target=_send_events, args=(self._watched, self._saved, self._stop), daemon=True).start()
        try:
            self._test()
            for happened in self._happenings():
                if happened == "q":
                    return
                self._answer(happened)
        except KeyboardInterrupt:
            return
        finally:
            self._stop.set()
            show()

    def _answer(self, happened: str) -> None:
        workspace = Workspace()
        match happened:
            case "saved" | "r":
                self._test()
            case "n":
                if self._task == self._tested:  # otherwise the task was solved, and `_test` moved on
                    self._task = _after(self._task, workspace)
                self._test()
            case "h":
                self._clear()
                show_hint(self._task, True, self._words, self._words("watch_hint"))
                self._footer()
            case "l":
                self._clear()
                self._list(workspace)
                self._footer()
        self._is_listed = happened == "l" and not self._is_listed

    def _list(self, workspace: Workspace) -> None:
        """Show the current week, shortened to fit the terminal. If the week is already on the screen, show all weeks in
        full."""
        if self._is_listed:
            progress_table(workspace, self._words)
        else:
            week_list(workspace, self._task.id, shutil.get_terminal_size().lines - FOOTER, self._words)
            show("\n" + self._words("watch_list"), dim=True)

    def _test(self) -> None:
        self._times, self._tested = _times(self._watched), self._task
        self._clear()
        show(self._words("watch_running", task=self._task.id), dim=True)
        day, number = day_of(self._task.id), self._task.id.task
        if problem := conflict_in_package(ROOT, self._folder):
            show(str(problem), fg="red")
            self._footer()
            return
        ensure_extension(PACKAGES["mine"], [day], self._words)
        compile_ahead(day)
        done = run_tests([day], PACKAGES["mine"], ["-k", f"test_task_{number}_"], time_limit=asked_time_limit())
        with changing("watch") as workspace:
            kept = keep_progress(workspace, done)
        self._clear()
        TaskLines([day], workspace, self._words).finish(done)
        show_outcome(done, kept, False, self._words)
        compile_rest(done)
        if done.is_solved(self._task.id):
            if self._task.id not in kept.solved:
                show("\n" + wrapped(self._words.of(entry_of(self._task.id).learned)))
            self._task = _after(self._task, workspace)
            show()
            show_finished(day, workspace, self._words)
            show_next(workspace, self._words, self._task)
        self._footer()

    def _footer(self) -> None:
        show()
        show(self._words("watch_keys"), dim=True)
        show(self._words("watch_events"), dim=True)

    def _clear(self) -> None:
        if os.environ.get("TERM", "dumb") != "dumb":
            sys.stdout.write("\x1b[2J\x1b[H")
        sys.stdout.flush()

    def _happenings(self) -> Iterator[str]:
        """Yield each key that is pressed, and "saved" when a file has changed since the last test."""
        looked = 0.0
        while True:
            if select.select([sys.stdin], [], [], 0.1)[0]:
                key = os.read(sys.stdin.fileno(), 1).decode(errors="replace")
                yield key or "q"  # no key can be read because the terminal is gone
            if _drain(self._saved) or monotonic() - looked > POLL:
                looked = monotonic()
                if _times(self._watched) != self._times:
                    yield "saved"


def _send_events(folders: list[Path], saved: SimpleQueue[None], stop: threading.Event) -> None:
    """Put an item into the queue whenever the file system reports changes."""
    from watchfiles import watch as events

    try:
        for _ in events(*folders, stop_event=stop, debounce=100, step=20, rust_timeout=500, yield_on_timeout=False):
            saved.put(None)
    except OSError:  # no events, perhaps because of too many watches: `watch` still polls
        return


def _drain(queue: SimpleQueue[None]) -> bool:
    was_full = False
    while True:
        try:
            queue.get_nowait()
        except Empty:
            return was_full
        was_full = True


def _times(folders: list[Path]) -> dict[Path, tuple[int, int]]:
    times = {}
    for file in chain.from_iterable(folder.rglob("*") for folder in folders):
        if file.suffix in SUFFIXES:
            try:
                status = file.stat()
            except FileNotFoundError:  # an editor is replacing the file
                continue
            times[file] = status.st_mtime_ns, status.st_size
    return times


def _after(task: Task, workspace: Workspace) -> Task:
    """Return the first open task after this task. If there is none, return the task that `next` names or, if all tasks
    are done, this task."""
    later = (other for other in workspace.open_tasks() if other.id > task.id)
    return next(later, None) or workspace.next_task() or task


@contextmanager
def _keys() -> Iterator[None]:
    """Make the terminal pass keys on one by one, without showing them, until the block ends. Ctrl-C still works."""
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
