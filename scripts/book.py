#!/usr/bin/env python3
"""The book, in both languages: build/book/en and build/book/ja.

python scripts/book.py              build
python scripts/book.py --update     bring the Japanese catalogues up to date with the English text, then build
python scripts/book.py --check      build, and fail if a sentence has no translation or an outdated one
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from babel.messages.pofile import read_po

ROOT = Path(__file__).resolve().parent.parent
BOOK, BUILD = ROOT / "book", ROOT / "build" / "book"
LOCALE = BOOK / "locale"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="bring the catalogues up to date")
    parser.add_argument("--check", action="store_true", help="fail if a translation is missing or outdated")
    options = parser.parse_args()
    sphinx("gettext", BUILD / "gettext")
    if options.update:
        run("sphinx_intl", "update", "-p", str(BUILD / "gettext"), "-d", str(LOCALE), "-l", "ja", "-w", "100")
    for language in ("en", "ja"):
        sphinx("html", BUILD / language, "-D", f"language={language}")
        print(f"built {BUILD / language / 'index.html'}")
    problems = untranslated()
    print("".join(f"{problem}\n" for problem in problems), end="", file=sys.stderr)
    return int(options.check and bool(problems))


def untranslated() -> list[str]:
    """What the pages say and the Japanese catalogues do not, and the other way round."""
    problems = []
    for template in sorted((BUILD / "gettext").rglob("*.pot")):
        name = template.relative_to(BUILD / "gettext").with_suffix(".po")
        path = LOCALE / "ja" / "LC_MESSAGES" / name
        with template.open("rb") as file:
            said = {message.id for message in read_po(file) if message.id}
        translated = set()
        if path.exists():
            with path.open("rb") as file:
                translated = {m.id for m in read_po(file, locale="ja") if m.id and m.string and not m.fuzzy}
        problems += [f"{name}: not translated: {_short(text)}" for text in sorted(said - translated)]
        problems += [f"{name}: no longer said: {_short(text)}" for text in sorted(translated - said)]
    return problems


def sphinx(builder: str, out: Path, *options: str) -> None:
    """Build from scratch: an error, or a warning, ends the program."""
    run("sphinx", "--fail-on-warning", "--keep-going", "-E", "-q", "-b", builder, *options, str(BOOK), str(out))


def run(module: str, *arguments: str) -> None:
    if code := subprocess.run([sys.executable, "-m", module, *arguments], cwd=ROOT).returncode:
        sys.exit(code)


def _short(text: object) -> str:
    return text if len(text := " ".join(str(text).split())) < 80 else text[:77] + "..."


if __name__ == "__main__":
    sys.exit(main())
