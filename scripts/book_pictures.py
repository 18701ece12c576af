#!/usr/bin/env python3
"""Draw the book's pictures into each week's folder `images`.

Each module of book/pictures/ lists in `PICTURES` the functions that draw its SVG files. The `./course viz` commands in
the chapters draw PNG files, one in each language.

python scripts/book_pictures.py             all pictures
python scripts/book_pictures.py week_0      only modules whose name contains one of these words
python scripts/book_pictures.py --into DIR  write into this folder instead of book/
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
from importlib import import_module
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from book_outputs import call_of
from forks import run_python

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "book" / "pictures"
VIZ = re.compile(r"^(./course viz .*)\n```\n\n```{figure} images/(\w+)\.png$", re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD", help="only modules whose name contains one of the words")
    parser.add_argument("--into", type=Path, default=ROOT / "book", metavar="DIR", help="output folder; default: book/")
    options = parser.parse_args()
    sys.path.insert(0, str(PICTURES))
    for file in sorted(PICTURES.glob("week_*.py")):
        if not options.words or any(word in file.stem for word in options.words):
            draw_all(file.stem, options.into)
            visualise(file.stem, options.into)


def draw_all(module: str, book: Path) -> None:
    """Call the drawing functions of a module, and write their pictures. A function draws into pyplot's current figure,
    or it returns an SVG, or SVGs keyed by language."""
    plt.rcParams.update(import_module("style").STYLE)
    for draw in import_module(module).PICTURES:
        picture = picture_of(module, draw.__name__, book)
        picture.parent.mkdir(parents=True, exist_ok=True)
        drawn = draw()
        if isinstance(drawn, dict):
            for language, svg in drawn.items():
                ending = ".svg" if language == "en" else f".{language}.svg"
                picture.with_suffix(ending).write_text(svg, encoding="utf-8")
        elif drawn:
            picture.write_text(drawn, encoding="utf-8")
        else:
            plt.savefig(picture, metadata={"Date": None}, bbox_inches="tight", dpi=150)
            plt.close()
        print(f"drew {picture}")


def visualise(chapter: str, book: Path) -> None:
    """Run the chapter's `viz` commands that are followed by a figure: in English for NAME.png, in Japanese for
    NAME.ja.png."""
    week, _, day = chapter.partition("_day_")
    file = ROOT / "book" / week / f"day_{day}.md"
    for command, name in VIZ.findall(file.read_text(encoding="utf-8") if day else ""):
        for language, ending in (("en", ".png"), ("ja", ".ja.png")):
            picture = book / week / "images" / f"{name}{ending}"
            with tempfile.TemporaryDirectory() as folder:
                run_python(
                    [*call_of(command), "--out", folder, "--lang", language], ROOT, os.environ
                ).check_returncode()
                (drawn,) = Path(folder).glob("*.png")
                shutil.copy(drawn, picture)
            print(f"drew {picture}")


def picture_of(module: str, name: str, book: Path) -> Path:
    """Return a picture's file: week_0/images/NAME.svg for the modules week_0 and week_0_x, week_1/images/d2_NAME.svg
    for the module week_1_day_2."""
    week, day = re.fullmatch(r"(week_\d+)(?:_day_(\d+)|_[a-z]+)?", module).groups()
    return book / week / "images" / f"{f'd{day}_' if day else ''}{name}.svg"


if __name__ == "__main__":
    main()
