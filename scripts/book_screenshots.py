#!/usr/bin/env python3
"""Takes screenshots of the server's page for week 3, day 7: book/week_3/images/d7_page.png and d7_page.ja.png.

python scripts/book_screenshots.py

`check_book_pages.py` finds the browser, Chromium or Chrome. While the page shows an answer, the server also answers
other requests, some of them with the same prompt. Screenshots differ from run to run, so take new ones only after the
page has changed, and look at them before you commit them.
"""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from check_book_pages import open_browser
from playwright.sync_api import Browser, expect

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "book" / "week_3" / "images"
MESSAGE = "Tell me a short story about a lively girl."
sys.path.append(str(ROOT / "tests" / "repo"))

from test_serve import Running, running  # noqa: E402


def main() -> None:
    options = ("--max-running", "4", "--pages", "128", "--page-size", "4", "--threads", "1")
    with running(*options) as server, open_browser() as browser:
        for language in ("en", "ja"):
            photograph(server, browser, language)


def photograph(server: Running, browser: Browser, language: str) -> None:
    """Take a screenshot while the page shows the first words of an answer and the server answers other requests."""
    page = browser.new_page(locale=language, viewport={"width": 880, "height": 600})
    page.goto(server.url)
    expect(page.locator("#model")).to_have_text("story")
    page.locator("#temperature").fill("0")
    page.locator("#text").fill(MESSAGE)
    with ThreadPoolExecutor(2) as pool:
        others = [pool.submit(ask, server, message) for message in (MESSAGE, "Tell me a story about a big dog.") * 6]
        expect(page.locator("#slots .row").first).to_be_visible()
        expect(page.locator("#finished tr").nth(2)).to_be_visible(timeout=60_000)
        page.locator("#text").press("Enter")
        expect(page.locator("#talk p:not(.user)")).to_have_text(re.compile(".{60}"))
        file = IMAGES / f"d7_page{'' if language == 'en' else '.' + language}.png"
        page.screenshot(path=file, full_page=True)
        for other in others:
            other.result()
    print(f"wrote {file.relative_to(ROOT)}")
    page.close()


def ask(server: Running, message: str) -> None:
    server.client().chat.completions.create(
        model="story", messages=[{"role": "user", "content": message}], temperature=1, max_tokens=100
    )


if __name__ == "__main__":
    main()
