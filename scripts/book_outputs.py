#!/usr/bin/env python3
"""Check the outputs that the book shows. Each book/outputs/NAME.txt begins with a dollar sign and a command; the other
lines are the command's output.

python scripts/book_outputs.py            run every command and compare the outputs
python scripts/book_outputs.py --update   write the current outputs into the files
python scripts/book_outputs.py circle     only files whose names contain one of these words
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from forks import run_python

from tiny_llm_course.commands import names

ROOT = Path(__file__).resolve().parent.parent
OUTPUTS = ROOT / "book" / "outputs"
AS_A_LEARNER = "import sys, tiny_llm_ref; sys.modules['tiny_llm'] = tiny_llm_ref; "  # the stubs lack code
SETTINGS = ("TINY_LLM_", "METAL_HOST", "MLX_")  # variables that tests set, and readers do not
TIME = (r"in \d+\.\d s$", "in ... s")
VARIES = {  # a pattern for text that differs between machines, and the text that replaces it before the comparison
    "setup_doctor": (r"^  (?:ok|warning) +((?!your files)[^:]+):.*(?:\n {6}.*)*$", r"\1"),
    "preface_mistake": TIME,
    "setup_stub": TIME,
    "setup_test_ref": TIME,
}
WRITTEN = {  # code that a learner wrote before the command: task, file, right code, and the mistake in its place
    "preface_mistake": ("w1d1.1", "attention.py", "scale = 1 / math.sqrt(query.shape[-1])", "scale = 1.0"),
}
FAILS = ("preface_mistake", "setup_stub")  # commands that end with exit code 1: tests of a mistake and of a stub
SCRIPT = AS_A_LEARNER + "import runpy; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD", help="only files whose name contains one of the words")
    parser.add_argument("--update", action="store_true", help="write the current outputs into the files")
    options = parser.parse_args()
    failed = 0
    for file in sorted(OUTPUTS.glob("*.txt")):
        if options.words and not any(word in file.stem for word in options.words):
            continue
        changes = difference(file)
        if changes and options.update:
            file.write_text(printed_now(file), encoding="utf-8")
        elif changes:
            failed += 1
            sys.stderr.write(changes)
    return int(failed > 0)


def printed_now(file: Path) -> str:
    """Return a file's command, and what the command prints now."""
    command = file.read_text(encoding="utf-8").partition("\n")[0]
    if file.stem not in WRITTEN:
        return f"{command}\n{printed_by(command, exit_code=int(file.stem in FAILS))}"
    with tempfile.TemporaryDirectory() as folder:
        clone = written(Path(folder) / "course", *WRITTEN[file.stem])
        return f"{command}\n{printed_by(command, clone, exit_code=int(file.stem in FAILS))}"


def written(folder: Path, task: str, name: str, right: str, wrong: str) -> Path:
    """Create a learner's clone in which a task's solution has a mistake, and return the clone's folder."""
    sys.path.append(str(ROOT / "tests" / "repo"))
    from learner import Clone

    clone = Clone.create(folder)
    text = clone.solved(name, task)
    if right not in text:
        sys.exit(f"{name} does not contain {right!r}")
    clone.file(name).write_text(text.replace(right, wrong), encoding="utf-8")
    return folder


def difference(file: Path) -> str:
    """Return the differences between a file and the current output of its command, except in text that varies."""
    pattern, compared = VARIES.get(file.stem, ("(?!)", ""))
    texts = (
        re.sub(pattern, compared, text, flags=re.MULTILINE).splitlines(keepends=True)
        for text in (file.read_text(encoding="utf-8"), printed_now(file))
    )
    return "".join(difflib.unified_diff(*texts, str(file.relative_to(ROOT)), "printed now"))


def printed_by(command: str, root: Path = ROOT, exit_code: int = 0) -> str:
    """Run `$ ./course ...` in a clone, and return the output. If the exit code is not `exit_code`, end this program."""
    call = call_of(command.removeprefix("$ "), python=("-c", SCRIPT))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS)}
    environment = kept | {"PYTHONPATH": str(root / "src"), "LANG": "C.UTF-8", "COLUMNS": "100", "NO_COLOR": "1"}
    environment |= {"TINY_LLM_CALLED": "./course", "TINY_LLM_ARITHMETIC": "float32"}
    run = run_python(call, root, environment)
    if run.returncode != exit_code:
        sys.exit(f"{command}\nended with exit code {run.returncode}:\n{run.stderr}")
    return run.stdout


def call_of(command: str, python: Sequence[str] = ()) -> list[str]:
    """Return the arguments with which Python runs `./course ...`. python: what replaces `./course python`."""
    words = shlex.split(command, comments=True)
    if words[:2] == ["./course", "python"]:
        return [*python, *words[2:]]
    if words[:1] == ["./course"] and words[1] in names():
        return ["-m", "tiny_llm_course", *words[1:]]
    sys.exit(f"expected `./course python` or `./course` with one of its commands, got {command!r}")


if __name__ == "__main__":
    sys.exit(main())
