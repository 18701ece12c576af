#!/usr/bin/env python3
"""Build the book as a web site, build/site: both languages, and a front page that redirects to the browser's language.

python scripts/book_site.py
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from book import BUILD, LANGUAGES

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "site"
FRONT = ROOT / "scripts" / "book_site.html"
OF_SPHINX = (".doctrees", ".buildinfo", "*.map")


def main() -> int:
    if code := subprocess.run([sys.executable, "scripts/book.py"], cwd=ROOT).returncode:
        return code
    assemble(BUILD, SITE)
    print(f"built {SITE / 'index.html'}")
    return 0


def assemble(book: Path, site: Path) -> None:
    """Empty the folder `site`, and copy the files to publish from the built book into this folder."""
    shutil.rmtree(site, ignore_errors=True)
    for language in LANGUAGES:
        shutil.copytree(book / language, site / language, ignore=shutil.ignore_patterns(*OF_SPHINX))
    shutil.copy(FRONT, site / "index.html")


if __name__ == "__main__":
    sys.exit(main())
