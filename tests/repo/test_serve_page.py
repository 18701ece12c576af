"""The server's page, in a browser: a chat that streams, the engine at work, both languages, no error."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from test_serve import Running, running

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))

from check_book_pages import find_browser  # noqa: E402

expect.set_options(timeout=60_000)  # whatever else the machine does
WIDTHS = {"desktop": (1100, 1000), "phone": (390, 800)}
# Looks at each change: whatever asks from time to time may come when an answer has begun and ended.
LOOK = """addEventListener("DOMContentLoaded", () => {
  window.seen = { rows: 0, rate: 0, replies: new Set() };
  new MutationObserver(() => {
    seen.rows = Math.max(seen.rows, document.querySelectorAll("#slots .row").length);
    const rate = document.querySelector("#numbers")?.textContent.match(/tok\\/s ([\\d.]+)/);
    if (rate) seen.rate = Math.max(seen.rate, +rate[1]);
    seen.replies.add(document.querySelector("#talk p:not(.user)")?.textContent);
  }).observe(document.body, { childList: true, subtree: true });
});"""


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        yield found
        found.close()


def opened(browser: Browser, url: str, locale: str, width: int, height: int, problems: list[str]) -> Page:
    page = browser.new_page(locale=locale, viewport={"width": width, "height": height})
    page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "request", lambda request: problems.append(request.url) if not request.url.startswith((url, "data:")) else 0
    )
    page.add_init_script(LOOK)
    page.goto(url)
    return page


@pytest.mark.parametrize("locale", ["en", "ja"])
@pytest.mark.parametrize("size", WIDTHS)
def test_the_page(server: Running, browser: Browser, locale: str, size: str, tmp_path: Path) -> None:
    problems: list[str] = []
    page = opened(browser, server.url, locale, *WIDTHS[size], problems)
    expect(page.locator("#model")).to_have_text("story")
    expect(page.locator("html")).to_have_attribute("lang", locale)
    expect(page.locator("#send")).to_have_text({"en": "Send", "ja": "送信"}[locale])
    page.locator("#temperature").fill("0")
    page.locator("#most").fill("300")
    page.locator("#text").fill("Tell me a short story. <b>&amp;</b>")
    page.locator("#text").press("Enter")
    expect(page.locator("#talk p.user")).to_have_text("Tell me a short story. <b>&amp;</b>")  # as text
    reply = page.locator("#talk p:not(.user)")
    expect(reply).not_to_be_empty()
    page.screenshot(path=tmp_path / f"{locale}-{size}.png", full_page=True)
    expect(page.locator("#send")).to_be_visible()
    expect(page.locator("#slots .row")).to_have_count(0)
    assert page.evaluate("seen.rows") == 1  # a request that ran
    assert page.evaluate("seen.replies.size") > 4  # it came piece by piece
    expect(page.locator("#numbers")).to_contain_text(re.compile(r"tok/s 0[^.\d]"))  # nothing is computed any more
    assert page.evaluate("seen.rate") > 0
    expect(page.locator("#page-counts")).to_contain_text({"en": "0 used", "ja": "使用 0"}[locale])
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[size][0]
    page.locator("#language").click()
    expect(page.locator("#send")).to_have_text({"ja": "Send", "en": "送信"}[locale])
    assert problems == []
    page.close()


def test_stop_and_errors(server: Running, browser: Browser) -> None:
    problems: list[str] = []
    page = opened(browser, server.url, "en", 900, 800, problems)
    expect(page.locator("#model")).to_have_text("story")
    page.locator("#most").fill("900")
    page.locator("#text").fill("Tell me a long story.")
    page.locator("#text").press("Enter")
    expect(page.locator("#talk p:not(.user)")).not_to_be_empty()
    page.locator("#stop").click()
    expect(page.locator("#send")).to_be_visible()
    expect(page.locator("#slots .row")).to_have_count(0)
    page.locator("#most").fill("5000")
    page.locator("#text").fill("Again.")
    page.locator("#send").click()
    expect(page.locator("#talk p.problem")).to_contain_text("1024 tokens at most")
    page.close()


def test_a_key(browser: Browser) -> None:
    with running("--api-key", "open sesame") as server:
        page = opened(browser, server.url, "en", 900, 800, [])
        expect(page.locator("#numbers")).to_contain_text("Authorization: expected")
        page.locator("#key").fill("open sesame")
        expect(page.locator("#model")).to_have_text("story")
        page.close()
