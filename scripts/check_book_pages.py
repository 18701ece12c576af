#!/usr/bin/env python3
"""Open every page of the built book in a headless browser, at the width of a desktop and at the width of a phone.

python scripts/check_book_pages.py

A page fails if it logs an error, requests a file that is not on the disk, or is wider than the screen. A page also
fails if code has to be scrolled on a desktop, or if a box that scrolls on a phone cannot be scrolled with the keyboard.
In each language, searches for a few words must find pages that contain these words. Exit code 1: a page or a search
fails; 2: the book is not built, or there is no browser.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, TimeoutError, sync_playwright

BUILD = Path(__file__).resolve().parent.parent / "build" / "book"
MACOS = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", MACOS)
SEARCHES = {  # keyed by language: words to search for, and a page that contains them
    "en": {"inference engine": "index.html", "axis": "notation.html"},
    "ja": {"推論エンジン": "index.html", "軸": "notation.html", "注意機構": "glossary.html"},
}
FOUND = "page => document.querySelector(`ul.search a[href^='${page}']`)"
TOO_WIDE = """() => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return "";
  const wide = [...document.querySelectorAll("article *")].find(part =>
    part.getBoundingClientRect().right > width && !part.closest(".table-wrapper, .katex-display, .highlight, pre"));
  return wide ? wide.outerHTML.slice(0, 100) : "something outside of the article";
}"""
SCROLLS = {  # keyed by width in pixels: boxes that must not scroll, and the problem if a box scrolls
    1280: ("article :is(pre, .katex-display)", "has to be scrolled"),
    390: ("article :is(pre, .katex-display, .table-wrapper):not([tabindex])", "the keyboard cannot scroll"),
}
SCROLLING = """selector => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() =>
  done([...document.querySelectorAll(selector)].filter(box => box.scrollWidth > box.clientWidth)
    .map(box => box.textContent.trim().slice(0, 60))))))"""


def find_browser() -> str | None:
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Open a headless browser: the system's, or Playwright's own if the system has none."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        yield browser
        browser.close()


def main(build: Path = BUILD) -> int:
    if find_browser() is None:
        print(
            f"no browser: looked for {', '.join(BROWSERS)}. `apt-get install chromium` (Debian) or "
            "`apt-get install chromium-browser` (Ubuntu) installs one.",
            file=sys.stderr,
        )
        return 2
    pages = [file for language in SEARCHES for file in sorted((build / language).rglob("*.html"))]
    if not pages:
        print(f"no book in {build}; `./course book` builds the book", file=sys.stderr)
        return 2
    with open_browser() as browser:
        problems = [*page_problems(browser, build, pages), *search_problems(browser, build)]
    print("".join(f"{problem}\n" for problem in problems), end="", file=sys.stderr)
    print(f"{len(pages)} pages, {len(problems)} problems")
    return int(bool(problems))


def page_problems(browser: Browser, build: Path, files: list[Path]) -> Iterator[str]:
    """Yield the problems of these pages. Each page is loaded only once, although it is checked at several widths,
    because no script of the book reads the width."""
    page, heard = listening(browser)
    for file in files:
        page.set_viewport_size({"width": max(SCROLLS), "height": 800})
        page.goto(file.as_uri())
        for width in SCROLLS:
            page.set_viewport_size({"width": width, "height": 800})
            if part := page.evaluate(TOO_WIDE):
                heard.append(f"wider than {width} pixels: {part}")
            selector, problem = SCROLLS[width]
            heard += [f"{problem} at {width} pixels: {text!r}" for text in page.evaluate(SCROLLING, selector)]
        yield from (f"{file.relative_to(build)}: {problem}" for problem in heard)
        heard.clear()


def search_problems(browser: Browser, build: Path) -> Iterator[str]:
    page, heard = listening(browser)
    for language, queries in SEARCHES.items():
        for query, found in queries.items():
            page.goto(f"{(build / language / 'search.html').as_uri()}?q={query}")
            try:
                page.wait_for_function(FOUND, arg=found, timeout=10_000)
            except TimeoutError:
                heard.append(f"does not find {found}")
            yield from (f"{language}: search for {query}: {problem}" for problem in heard)
            heard.clear()


def listening(browser: Browser) -> tuple[Page, list[str]]:
    """Return a browser page, and a list that collects the page's errors and its requests to the network."""
    page, heard = browser.new_page(), list[str]()

    def logged(message: ConsoleMessage) -> None:
        if message.type == "error":
            heard.append(f"console: {message.text} {message.location['url']}")

    def asked(request: Request) -> None:
        if not request.url.startswith(("file:", "data:")):
            heard.append(f"requests {request.url}")

    page.on("console", logged)
    page.on("request", asked)
    page.on("pageerror", lambda error: heard.append(f"script: {error}"))
    return page, heard


if __name__ == "__main__":
    sys.exit(main())
