"""Random sequences of commands and edits in the clone in which this program runs. An error means that text was lost.

Commands run alone, or two at once, and some are killed at a random moment. A sequence begins with stubs. After each
step, every text that a file contained is still in this file or in a backup, as is all that the learner ever wrote;
progress.txt still has the lines of tasks that no command was about; a killed command has done all of its work, or
nothing.

python random_commands.py SEQUENCES SEED [FIRST]   (FIRST: the sequence to begin with, to repeat one)
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import typer

from tiny_llm_course.base.places import ROOT
from tiny_llm_course.learner.progress import SKIPPED, SOLVED
from tiny_llm_course.learner.progress_commands import hint, next_task
from tiny_llm_course.learner.solution_commands import reset, solution, undo
from tiny_llm_course.learner.workspace import Workspace, changing, settle
from tiny_llm_course.pytest_runs.test_run import PytestRun, Result
from tiny_llm_course.tasks.syllabus import TaskId, select_days, tasks
from tiny_llm_course.testing.progress_change import keep_progress
from tiny_llm_course.update import update_command as updates

PACKAGE, NOTES, PROGRESS = ROOT / "src/tiny_llm", ROOT / ".tiny-llm", ROOT / "progress.txt"
PUBLISHED = ROOT.parent / "published"
WATCHED = (
    "tiny_llm_course/base/whole_files.py",
    "tiny_llm_course/learner/backups.py",
    "tiny_llm_course/learner/progress.py",
    "tiny_llm_course/learner/git.py",
)  # where kills happen
MOMENTS = 120  # of them, in most commands
REPLACED = 6  # files that most commands replace
FIRST = subprocess.check_output(["git", "rev-list", "--max-parents=0", "HEAD"], cwd=ROOT, text=True).strip()
BUG = 99  # exit code
chance = random.Random()
updates.trouble = lambda *_: None  # it imports MLX, and changes nothing


@dataclass
class Command:
    """A command, and the tasks that it is about; None means any task."""

    name: str
    call: Callable[[], object]
    about: set[TaskId] | None = field(default_factory=set)
    expected: dict[TaskId, set[str | None]] = field(default_factory=dict)  # states that it may leave, if it succeeds
    is_solution: bool = False  # whether it then leaves no stub of its task

    def __str__(self) -> str:
        return self.name


def command() -> Command:
    task = chance.choice(tasks()).id
    day = chance.choice(select_days(None, None))
    of_day = {one.id for one in day.tasks}
    kept: set[str | None] = {SOLVED, SKIPPED}
    return chance.choice(
        [
            Command(
                f"solution {task} --apply", lambda: solution(str(task), apply=True), {task}, {task: {SKIPPED}}, True
            ),
            Command(f"solution {task}", lambda: solution(str(task))),
            Command(
                f"solution --day {day.week}.{day.number}",
                lambda: solution(None, day=f"{day.week}.{day.number}"),
                of_day,
                dict.fromkeys(of_day, kept),
            ),
            Command(f"reset {task}", lambda: reset(str(task)), {task}),
            Command("undo", undo, None),
            Command("undo", undo, None),
            Command(f"test {task}", lambda: tested(task, "passed"), {task}, {task: kept}),
            Command(f"test {task} passed", lambda: tested(task, "passed"), {task}, {task: kept}),
            Command(f"test {task} failed", lambda: tested(task, "failed"), {task}, {task: {None}}),
            Command(f"hint {task}", lambda: hint(str(task), more=True)),
            Command("next --path", lambda: next_task(chance.choice(["core", "all"]))),
            Command("update", updates.update),
        ]
    )


def tested(task: TaskId, outcome: str) -> None:
    """Record the outcome of a task's tests in progress.txt, as `test` does."""
    with changing("test") as workspace:
        keep_progress(workspace, PytestRun(results=[Result("test", task, outcome)], collected=Counter({task: 1})))


def start(chosen: Command, kill: Kill | None, gate: int) -> int:
    """Start a process that runs the command once the gate opens. Return its process id."""
    if process := os.fork():
        return process
    try:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            os.read(gate, 1)
            sys.setprofile(kill)
            chosen.call()
        os._exit(0)
    except typer.Exit as end:
        os._exit(end.exit_code)
    except BaseException:
        sys.setprofile(None)
        traceback.print_exc()
        os._exit(BUG)


class Kill:
    """A kill of the own process, at a call or return in code that writes files, or just before it replaces a file."""

    def __init__(self, replaces: bool):
        self._replaces = replaces
        self._left = chance.randrange(1, REPLACED if replaces else MOMENTS)

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        is_moment = frame.f_code.co_filename.endswith(WATCHED)
        if is_moment and (not self._replaces or (event == "c_call" and argument is os.replace)):
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)


def run(chosen: list[Command], kills: list[Kill | None]) -> list[int]:
    """Run commands at the same time. Return their exit codes; -9 means that a command was killed."""
    gate, opener = os.pipe()
    processes = [start(one, kill, gate) for one, kill in zip(chosen, kills, strict=True)]
    os.write(opener, b"x" * len(processes))
    codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
    os.close(gate)
    os.close(opener)
    return codes


class Learner:
    """A learner, who edits files, and remembers each of these edits by a mark in the text."""

    def __init__(self) -> None:
        self.marks: set[bytes] = set()

    def edit(self) -> str:
        file = chance.choice(sorted(PACKAGE.glob("*.py")))
        lines = file.read_bytes().splitlines(keepends=True) or [b"\n"]
        place, mark = chance.randrange(len(lines)), b"mine_%d" % chance.randrange(10**9)
        kinds = ["append", "append", "comment", "change", "break", "mend", "delete line", "crlf", "bom", "remove"]
        kind = chance.choice(kinds)
        match kind:
            case "append":
                lines.append(b"\n\ndef %s():\n    return 1\n" % mark)
            case "comment":
                lines.insert(place, b"# %s\n" % mark)
            case "change":
                lines[place] = lines[place].rstrip() + b"  # %s\n" % mark
            case "break":
                lines.insert(place, b"def broken(:\n")
            case "mend":
                lines = [line for line in lines if line.strip() != b"def broken(:"]
            case "delete line":
                del lines[place]
            case "crlf":
                lines = [line.rstrip(b"\r\n") + b"\r\n" for line in lines]
            case "bom":
                lines[0] = b"\xef\xbb\xbf" + lines[0].removeprefix(b"\xef\xbb\xbf")
        before = file.read_bytes()
        file.unlink() if kind == "remove" else file.write_bytes(b"".join(lines))
        after = b"" if kind == "remove" else file.read_bytes()
        gone = {mark for mark in self.marks if mark in before and mark not in after}
        self.marks = (self.marks - gone) | ({mark} if mark in after else set())
        return f"{kind} {file.name}"


def publish() -> None:
    """Publish a newer course, which differs in a comment somewhere in a stub."""
    file = chance.choice(sorted((PUBLISHED / "src/tiny_llm").glob("*.py")))
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    lines.insert(chance.randrange(len(lines)), f"# newer {chance.randrange(10**9)}\n")
    file.write_text("".join(lines), encoding="utf-8")
    git(PUBLISHED, "commit", "--quiet", "--all", "-m", "newer")


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def snapshot() -> dict[Path, bytes]:
    files = [file for file in PACKAGE.rglob("*") if file.suffix in (".py", ".cpp", ".metal")]
    return {file: file.read_bytes() for file in [*files, *ROOT.glob("progress.txt")]}


def backed_up() -> set[bytes]:
    folders = ("before", "after")
    files = (file for name in folders for file in NOTES.glob(f"backups/*/{name}/**/*") if file.is_file())
    return {file.read_bytes() for file in files}


def states(content: bytes) -> dict[str, str]:
    return dict(line.split(" ", 1) for line in content.decode().splitlines() if re.match(r"w\d+d\d", line))


def step(learner: Learner, counts: Counter[str]) -> str:
    """Do one step. Raise an AssertionError if anything was lost."""
    if chance.random() < 0.4:
        counts["edits"] += 1
        return learner.edit()
    if chance.random() < 0.1:
        publish()
    chosen = [command() for _ in range(chance.choice([1, 1, 2]))]
    kills = [Kill(chance.random() < 0.5) if chance.random() < 0.4 else None for _ in chosen]
    before, folders = snapshot(), set(Workspace().backups.all())
    codes = run(chosen, kills)
    counts["taken back"] += len(Workspace().backups.interrupted())
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        settle()
    told = ", ".join(f"{one}: {code}" for one, code in zip(chosen, codes, strict=True))
    after = snapshot()
    try:
        assert BUG not in codes, "a traceback"
        _check_texts(learner, before, after)
        _check_progress(chosen, codes, before.get(PROGRESS, b""), after.get(PROGRESS, b""))
        assert not [*PACKAGE.rglob(".*.tmp"), *Workspace().backups.interrupted()], "left over"
        if codes == [-signal.SIGKILL]:
            _check_whole(before, after, set(Workspace().backups.all()) - folders)
    except AssertionError as error:
        raise AssertionError(f"{told}: {error}") from error
    counts["commands"] += len(codes)
    counts["pairs"] += len(codes) == 2
    counts["kills"] += codes.count(-signal.SIGKILL)
    counts["changes"] += before != after
    return told


def _check_texts(learner: Learner, before: dict[Path, bytes], after: dict[Path, bytes]) -> None:
    kept = {*after.values(), *backed_up()}
    lost = [file.name for file, content in before.items() if content not in kept]
    assert not lost or lost == ["progress.txt"], f"lost: {lost}"
    everything = b"".join(kept)
    assert not (gone := [mark for mark in learner.marks if mark not in everything]), f"lost: {gone}"


def _check_progress(chosen: list[Command], codes: list[int], before: bytes, after: bytes) -> None:
    was, is_now = states(before), states(after)
    if any(one.about is None for one in chosen):
        return
    about = {str(task) for one in chosen for task in one.about or ()}
    lost = {task: state for task, state in was.items() if task not in about and is_now.get(task) != state}
    assert not lost, f"progress.txt lost {lost}"
    for one, code in zip(chosen, codes, strict=True):
        others = {task for other in chosen if other is not one for task in other.about or ()}
        for task, allowed in one.expected.items() if code == 0 else ():
            assert task in others or is_now.get(str(task)) in allowed, f"{one} left {is_now.get(str(task))}"
            assert task in others or not one.is_solution or task not in Workspace().stubs, f"{one} left a stub"


def _check_whole(before: dict[Path, bytes], after: dict[Path, bytes], new: set[Path]) -> None:
    """Check that a killed command has changed either nothing, or all that it was to write."""
    changed = {file for file in before.keys() | after.keys() if before.get(file) != after.get(file)}
    if not new:
        assert changed <= {PROGRESS}, f"changed without a backup: {changed}"
        return
    (copies,) = new
    for name in json.loads((copies / "backup.json").read_text(encoding="utf-8"))["existed"]:
        wanted = copies / "after" / name
        content = wanted.read_bytes() if wanted.exists() else None
        assert after.get(ROOT / name, content) == content, f"{name} is half done"


def sequence(number: int, seed: str, counts: Counter[str]) -> None:
    chance.seed(f"{seed} {number}")
    subprocess.run(["rm", "-rf", NOTES, PROGRESS], check=True)
    for folder in (ROOT, PUBLISHED):
        git(folder, "reset", "--quiet", "--hard", FIRST)
    learner, log = Learner(), []
    try:
        for _ in range(chance.randrange(5, 25)):
            log.append(step(learner, counts))
    except AssertionError as error:
        again = f"python random_commands.py 1 {seed} {number}"
        sys.exit("\n".join([*log, str(error), f"sequence {number} of seed {seed}; to repeat it: {again}"]))


def main(count: int, seed: str, start: int = 0) -> None:
    counts = Counter[str]()
    Workspace().next_task()  # reads the syllabus once, for all processes
    for number in range(start, start + count):
        sequence(number, seed, counts)
    told = ", ".join(f"{amount} {name}" for name, amount in counts.items())
    print(f"{count} sequences of seed {seed}, nothing lost: {told}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
