"""Draws assets/learner.svg, the README's picture: what `./course test` prints while a learner solves a first task.

python scripts/picture.py
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 100
# Use a font of the reader's machine, because the picture must not load a font from a server.
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tiny-llm"
        for name in ("src", "tests"):
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "repo"))
        shutil.copy(ROOT / "pyproject.toml", tree)
        reference, mine = (tree / "src" / package / "attention.py" for package in ("tiny_llm_ref", "tiny_llm"))
        right = reference.read_text()
        wrong = right.replace("scale = 1 / math.sqrt(query.shape[-1])", "scale = 1.0")
        assert wrong != right
        console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
        command = "./course test w1d1.1"
        show(console, tree, command)
        mine.write_text(wrong)
        console.print("\n[bold bright_black]# written, but without the default scale[/]")
        show(console, tree, command)
        mine.write_text(right)
        console.print("\n[bold bright_black]# now with it[/]")
        show(console, tree, command)
    picture = ROOT / "assets" / "learner.svg"
    picture.parent.mkdir(exist_ok=True)
    picture.write_text(console.export_svg(title="Week 1 Day 1 Task 1", code_format=FORMAT), encoding="utf-8")
    print(f"wrote {picture.relative_to(ROOT)}")


def show(console: Console, tree: Path, command: str) -> None:
    """Run `./course ...` with the packages in a tree, and print the command and its output on the console."""
    console.print(Text(f"$ {command}", style="bold"))
    arguments = command.removeprefix("./course ").split()
    environment = {"PYTHONPATH": str(tree / "src"), "COLUMNS": str(WIDTH), "FORCE_COLOR": "1", "LC_ALL": "C.UTF-8"}
    environment["TINY_LLM_CALLED"] = "./course"
    result = subprocess.run(
        [sys.executable, "-m", "tiny_llm_course", *arguments],
        cwd=tree,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    console.print(Text.from_ansi(result.stdout.rstrip()))


if __name__ == "__main__":
    main()
