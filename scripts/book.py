#!/usr/bin/env python3
"""Build the book in both languages: build/book/en and build/book/ja.

python scripts/book.py              build the book
python scripts/book.py --update     bring the Japanese catalogues up to date with the English text, then build
python scripts/book.py --check      build, and fail if a translation is missing or outdated, or a task has no section
python scripts/book.py --serve      serve the book to a browser, and build it again whenever a file changes
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from babel.messages import Catalog
from babel.messages.pofile import read_po

from tiny_llm_course.tasks.syllabus import select_days
from tiny_llm_course.ui.terminal import fitted

ROOT = Path(__file__).resolve().parent.parent
BOOK, BUILD = ROOT / "book", ROOT / "build" / "book"
LOCALE = BOOK / "locale"
LANGUAGES = ("en", "ja")
INTERFACE = "sphinx.po"  # translations of the theme's own texts, which belong to no page

SECTION = re.compile(r"^\s*(?:`{3,}|:{3,})\{task\}\s+(\S+)", re.MULTILINE)
# code, formulas, links, *titles* and "names"
NOT_PROSE = re.compile(r"`+.*?`+|\$.*?\$|\]\(.*?\)|https?://\S+|\*.*?\*|\".*?\"", re.DOTALL)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=fitted(__doc__, sys.stdout), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--update", action="store_true", help="bring the Japanese catalogues up to date")
    parser.add_argument("--check", action="store_true", help="fail if a translation or a task's section is missing")
    parser.add_argument("--serve", action="store_true", help="serve the book, and build it again after each change")
    parser.add_argument("--language", choices=LANGUAGES, default="en", help="the language to serve; default: en")
    options = parser.parse_args()
    if options.serve:
        serve(options.language)
    sphinx("gettext", BUILD / "gettext")
    if options.update:
        catalogues = ("-p", str(BUILD / "gettext"), "-d", str(LOCALE), "-l", "ja")
        run("sphinx_intl", "update", *catalogues, "-w", "100", "--no-obsolete")
    for language in LANGUAGES:
        sphinx("html", BUILD / language, "-D", f"language={language}")
        print(f"built {BUILD / language / 'index.html'}")
    problems = [*stale_translations(BUILD / "gettext", LOCALE / "ja" / "LC_MESSAGES"), *missing_sections(BOOK)]
    print("".join(f"{problem}\n" for problem in problems), end="", file=sys.stderr)
    return int(options.check and bool(problems))


def stale_translations(templates: Path, catalogues: Path) -> list[str]:
    """Return a line for each English text whose translation is missing, fuzzy or equal to the text, and for each
    translation whose English text is no longer in the book."""
    pages = {file.relative_to(templates).with_suffix(".po") for file in templates.rglob("*.pot")}
    pages |= {file.relative_to(catalogues) for file in catalogues.rglob("*.po") if file.name != INTERFACE}
    return [
        f"{page}: {problem}"
        for page in sorted(pages)
        for problem in _problems(_read(templates / page.with_suffix(".pot")), _read(catalogues / page))
    ]


def _problems(template: Catalog, catalogue: Catalog) -> Iterator[str]:
    said = {message.id for message in template if message.id}
    for text in sorted(said - {message.id for message in catalogue}):
        yield f"not translated: {_short(text)}"
    for message in catalogue:
        if message.id and (
            problem := _problem(str(message.id), str(message.string), message.fuzzy, message.id in said)
        ):
            yield f"{problem}: {_short(message.id)}"
    for text in catalogue.obsolete:
        yield f"obsolete: {_short(text)}"


def _problem(source: str, translation: str, fuzzy: bool, is_said: bool) -> str | None:
    if not is_said:
        return "no longer in the book"
    if not translation:
        return "not translated"
    if fuzzy:
        return "fuzzy"
    return "equal to its source" if translation == source and is_prose(source) else None


def is_prose(text: str) -> bool:
    """Tell whether a text needs a translation. It needs one if it has at least two words outside of code, formulas,
    links, titles and quotations, and one of these words is in lower case, so it is not a name."""
    words = re.findall(r"[A-Za-z](?:[\w-]|\.(?=\w))*", NOT_PROSE.sub(" ", text))
    return len(words) > 1 and any(re.fullmatch("[a-z]{3,}", word) for word in words)


def missing_sections(book: Path) -> list[str]:
    """Return a line for each task that has no {task} section on any page, although the task's day has a chapter."""
    sections = {task for page in book.rglob("*.md") for task in SECTION.findall(page.read_text(encoding="utf-8"))}
    return [
        f"{chapter.relative_to(book)}: no {{task}} section for {task.id}"
        for day in select_days(None, None)
        if (chapter := book / f"week_{day.week}" / f"day_{day.number}.md").exists()
        for task in day.tasks
        if str(task.id) not in sections
    ]


def serve(language: str) -> None:
    """Serve the book in one language. The server replaces this process, so this function does not return."""
    watched = [option for name in ("course", "ref") for option in ("--watch", str(ROOT / "src" / f"tiny_llm_{name}"))]
    written = [option for name in ("*.mo", "*.pyc") for option in ("--ignore", str(ROOT / name))]  # by the build
    options = ("-D", f"language={language}", "-A", "alone=1", "--port", "0", *watched, *written)
    command = [sys.executable, "-m", "sphinx_autobuild", *options, str(BOOK), str(BUILD / "serve" / language)]
    os.execv(sys.executable, command)


def sphinx(builder: str, out: Path, *options: str) -> None:
    """Build the book from scratch with one of Sphinx's builders. An error or a warning ends this program."""
    shutil.rmtree(out, ignore_errors=True)
    run("sphinx", "--fail-on-warning", "--keep-going", "-q", "-b", builder, *options, str(BOOK), str(out))


def run(module: str, *arguments: str) -> None:
    if code := subprocess.run([sys.executable, "-m", module, *arguments], cwd=ROOT).returncode:
        sys.exit(code)


def _read(file: Path) -> Catalog:
    """Read a catalogue. If the file does not exist, return an empty catalogue."""
    if not file.exists():
        return Catalog()
    with file.open("rb") as content:
        return read_po(content)


def _short(text: object) -> str:
    return text if len(text := " ".join(str(text).split())) < 80 else text[:77] + "..."


if __name__ == "__main__":
    sys.exit(main())
