"""Random solutions, resets, undos and edits in the clone in which this is run. Ends with an error if a text is lost.

python -c "$(cat random_commands.py)" STEPS SEED
"""

import contextlib
import io
import random
import sys
from pathlib import Path

from tiny_llm_course.solutions import reset, solution, undo
from tiny_llm_course.syllabus import select_days, tasks
from tiny_llm_course.workspace import ROOT

STEPS, RANDOM = int(sys.argv[1]), random.Random(sys.argv[2])
PACKAGE, BACKUPS = ROOT / "src" / "tiny_llm", ROOT / ".tiny-llm" / "backups"


def snapshot() -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in [*PACKAGE.glob("*.py"), *ROOT.glob("progress.txt")]}


def edit() -> None:
    """What a learner may do to a file: add, change a line, break it, empty it, delete it."""
    file = RANDOM.choice(sorted(PACKAGE.glob("*.py")))
    lines = file.read_bytes().splitlines(keepends=True) or [b"\n"]
    place = RANDOM.randrange(len(lines))
    kind = RANDOM.choice(["append", "append", "append", "change", "break", "delete line", "crlf", "remove file"])
    if kind == "append":
        lines.append(b"\n\ndef mine_%d():\n    return 1\n" % RANDOM.randrange(10**6))
    elif kind == "change":
        lines[place] = lines[place].rstrip() + b"  # mine %d\n" % RANDOM.randrange(10**6)
    elif kind == "break":
        lines.insert(place, b"def broken(:\n")
    elif kind == "delete line":
        del lines[place]
    elif kind == "crlf":
        lines = [line.rstrip(b"\r\n") + b"\r\n" for line in lines]
    if kind == "remove file":
        file.unlink()
    else:
        file.write_bytes(b"".join(lines))


def command() -> None:
    task = str(RANDOM.choice(tasks()).id)
    day = RANDOM.choice(select_days(None, None))
    call = RANDOM.choice(
        [
            lambda: solution(task, apply=True),
            lambda: solution(task),
            lambda: solution(None, day=f"{day.week}.{day.number}"),
            lambda: reset(task),
            undo,
            undo,
        ]
    )
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            call()
        except Exception as error:
            if type(error).__name__ != "Exit":  # typer's, after a message
                raise


def backed_up() -> set[bytes]:
    return {file.read_bytes() for file in BACKUPS.rglob("*") if file.is_file()}


original = snapshot()
written = 0
for _ in range(STEPS):
    if RANDOM.random() < 0.4:
        edit()
        if RANDOM.random() < 0.1:  # the learner takes the file from git again
            for file, content in original.items():
                file.write_bytes(content)
        continue
    before = snapshot()
    command()
    after = snapshot()
    lost = {content for file, content in before.items() if after.get(file) != content}
    if lost:
        written += 1
        missing = lost - backed_up()
        if missing:
            sys.exit(f"lost: {missing}")
assert written > STEPS // 20, f"only {written} commands wrote anything"
print(f"{STEPS} steps, {written} of them wrote, nothing lost")
