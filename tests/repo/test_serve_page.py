"""The server's page in a browser: a chat that streams, the engine at work, both languages, and no error."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, Route, expect
from test_serve import Running, running

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))

from check_book_pages import open_browser  # noqa: E402

expect.set_options(timeout=60_000)  # whatever else the machine does
WIDTHS = {"desktop": (1100, 1000), "phone": (390, 800)}
# Looks at each change. A check from time to time might come only after an answer has begun and ended.
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
    with open_browser() as found:
        yield found


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


# The contrast of each text with its background (WCAG 2, 1.4.3), as the browser computes colours.
CONTRASTS = """() => {
  const parse = (colour) => { const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number); return [r, g, b, a]; };
  const over = (front, back) => [0, 1, 2].map((i) => front[3] * front[i] + (1 - front[3]) * back[i]);
  const luminance = (colour) => colour.slice(0, 3).map((x) => x / 255)
    .map((x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4))
    .reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0);
  const canvas = document.body.appendChild(document.createElement("p"));
  canvas.style.color = "Canvas";
  const page = parse(getComputedStyle(canvas).color);
  canvas.remove();
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    const kinds = [...(own ? [null] : []), ...(element.placeholder ? ["::placeholder"] : [])];
    for (const kind of element.checkVisibility() ? kinds : []) {
      let back = page;
      const around = [];
      for (let parent = element; parent; parent = parent.parentElement) around.unshift(getComputedStyle(parent));
      for (const style of around) back = over(parse(style.backgroundColor), back);
      const [r, g, b, a] = parse(getComputedStyle(element, kind).color);
      const front = over([r, g, b, around.reduce((product, style) => product * style.opacity, a)], back);
      const lights = [luminance(front), luminance(back)].sort((a, b) => b - a);
      found.push([(lights[0] + 0.05) / (lights[1] + 0.05), element.tagName + (kind ?? ""), element.textContent]);
    }
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(server: Running, browser: Browser, scheme: Literal["light", "dark"]) -> None:
    page = opened(browser, server.url, "en", 900, 800, [])
    page.emulate_media(color_scheme=scheme)
    expect(page.locator("#model")).to_have_text("story")
    page.locator("#most").fill("5")
    page.locator("#text").fill("Hello.")
    page.locator("#text").press("Enter")
    expect(page.locator("#finished tr")).not_to_have_count(0)
    expect(page.locator("#send")).to_be_visible()  # the page, too, has seen the end of the answer
    page.locator("#most").fill("5000")
    page.locator("#text").fill("Again.")
    page.locator("#text").press("Enter")
    expect(page.locator("#talk p.problem")).to_be_visible()
    found = page.evaluate(CONTRASTS)
    assert {"P", "BUTTON", "TD", "TEXTAREA::placeholder"} <= {name for _, name, _ in found}
    assert [text for text in found if text[0] < 4.5] == []
    page.close()


SHOWN = """lengths => {
  const running = lengths.map(([prompt, output], i) =>
    ({ id: `${i}`, prompt, output, stored: prompt + output, chunk: 1, drafted: 0, accepted: 0 }));
  show({ steps: 1, preempted: 0, rate: 5, running, waiting: [], slots: 16, pages: null, finished: [] });
  const width = (element) => element.getBoundingClientRect().width;
  const part = (bar) => [...bar.children].reduce((sum, piece) => sum + width(piece), 0) / width(bar);
  return [[...document.querySelectorAll(".bar")].map(part), document.querySelector("#scale").textContent];
}"""


def test_bars_compare_requests(server: Running, browser: Browser) -> None:
    """All bars have the same scale, which the page states, however long the longest bar is."""
    page = opened(browser, server.url, "en", 900, 800, [])
    for lengths, scale in (([[16, 16], [4, 4]], 64), ([[100, 412], [64, 64], [30, 2]], 512), ([[40_000, 1]], 65_536)):
        widths, told = page.evaluate(SHOWN, lengths)
        assert widths == pytest.approx([sum(length) / scale for length in lengths], abs=0.01)
        assert told == f"full bar = {scale} tokens"
    page.close()


@pytest.mark.parametrize("locale", ["en", "ja"])
def test_requests_that_are_over(server: Running, browser: Browser, locale: str) -> None:
    """The page shows how long they waited, also for requests of other clients."""
    asked = {"model": "story", "prompt": "Once", "extra_body": {"ignore_eos": True}}
    server.client().completions.create(**asked, max_tokens=1)
    server.client().completions.create(**asked, max_tokens=40)
    page = opened(browser, server.url, locale, 390, 800, [])
    seconds, end = {"en": ("s", "at its limit"), "ja": ("秒", "上限")}[locale]
    rows = page.locator("#finished tr")
    expect(rows.nth(0)).to_have_text(re.compile(rf"^[0-9a-f]{{8}}\d+ \+ 40\d+\.\d\d {seconds}[\d.]+{end}$"))
    expect(rows.nth(1)).to_have_text(re.compile(rf"^[0-9a-f]{{8}}\d+ \+ 1\d+\.\d\d {seconds}–{end}$"))
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.close()


def write_on(page: Page) -> None:
    """Let the next answer continue until the test stops it. A story might end by itself earlier."""

    def ask(route: Route) -> None:
        route.continue_(post_data=json.dumps(route.request.post_data_json | {"ignore_eos": True}))

    page.route("**/v1/chat/completions", ask, times=1)


def test_a_new_chat_while_an_answer_comes(server: Running, browser: Browser) -> None:
    """The new chat begins with an empty conversation, and the running request ends."""
    page = opened(browser, server.url, "en", 900, 800, [])
    expect(page.locator("#model")).to_have_text("story")
    page.locator("#temperature").fill("0")
    write_on(page)
    page.locator("#most").fill("900")
    page.locator("#text").fill("Tell me a long story.")
    page.locator("#text").press("Enter")
    expect(page.locator("#talk p:not(.user)")).not_to_be_empty()
    page.locator("#clear").click()
    expect(page.locator("#talk p")).to_have_count(0)
    expect(page.locator("#finished tr").first).to_contain_text("stopped")
    page.locator("#most").fill("3")
    page.locator("#text").fill("Hello.")
    with page.expect_request("**/v1/chat/completions") as asked:
        page.locator("#send").click()
    assert asked.value.post_data_json["messages"] == [{"role": "user", "content": "Hello."}]
    expect(page.locator("#send")).to_be_visible()
    expect(page.locator("#talk p")).to_have_count(2)
    page.locator("#text").fill("And then?")
    with page.expect_request("**/v1/chat/completions") as asked:
        page.locator("#send").click()
    contents = [message["content"] for message in asked.value.post_data_json["messages"]]
    assert [contents[0], contents[2]] == ["Hello.", "And then?"]
    page.close()


def test_stop_and_errors(server: Running, browser: Browser) -> None:
    problems: list[str] = []
    page = opened(browser, server.url, "en", 900, 800, problems)
    expect(page.locator("#model")).to_have_text("story")
    write_on(page)
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
