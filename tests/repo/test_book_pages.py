"""A page of the book, as built and as a browser shows it: its address, words, code, formulas and search."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page
from test_book import LANGUAGES, ROOT, build_pages, language, page, said, small_book

sys.path += [str(ROOT / "scripts"), str(ROOT / "book")]

from check_book_pages import open_browser
from extension.math import untranslated

__all__ = ["language"]

pytestmark = pytest.mark.filterwarnings("ignore:'myst_parser")

FOLDER = "locale/ja/LC_MESSAGES"
INDEX = "# Front page\n\n{about}\n\n```{{toctree}}\n:caption: Weeks\n\nweek_1/index\n```\n"
WEEK = "# Week 1: a week\n\n```{toctree}\nday_1\nday_2\n```\n"
LONG = (
    "    answer = first + second  # " + "a comment that is longer than the screen of a phone and than a code box " * 2
)
CODE = f"def f(x):\n{LONG.rstrip()}\n\n    return answer"
CHAPTER = rf"""# Sampling

Tokens with $q_i = \frac{{1}}{{2}}$ are *drawn*. {"A sentence of many words follows it. " * 8}

$$
w \approx \text{{scale}} \cdot \text{{level}} + \text{{bandwidth}} \cdot \text{{norm}}(\text{{scores}})
+ \text{{bits per weight}} \cdot \text{{bytes per token}}
$$

$$
M_{{ij}} = \begin{{cases}}
0 & \text{{if key }} j \text{{ is at or before query }} i \\ -\infty & \text{{otherwise}}
\end{{cases}}
$$

## A part

```python
{CODE}
```

```{{output}} table
```

```{{output}} story
```

```{{solution}} w1d1.1
A secret.
```
"""
TABLE = f"$ ./course bench --all\n{'name':<30}{'time':<30}speed\n{'kernel':<30}{'1.5 ms':<30}2\n"
STORY = f"$ ./course main\n{'Once upon a time there was a pelican. ' * 5}\n"
ABOUT = "The first paragraph of the book, in one sentence."
WORDS = {
    "en": ["Next", "Previous", "On this page", "Back to top", "Skip to content", "Link to this heading"],
    "ja": ["次へ", "前へ", "このページの内容", "先頭に戻る", "本文へ移動", "この見出しへのリンク"],
}
SCROLLS = "box => box.scrollWidth > box.clientWidth"


device = pytest.fixture(lambda: None)  # nothing here computes on one


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("book")
    pages = {"index.md": INDEX.format(about=ABOUT), "week_1/index.md": WEEK, "week_1/day_1.md": CHAPTER}
    pages |= {"week_1/day_2.md": "# Last\n", "outputs/table.txt": TABLE, "outputs/story.txt": STORY}
    source = small_book(folder / "source", pages)
    (source / FOLDER).mkdir(parents=True)
    shutil.copy(ROOT / "book" / FOLDER / "sphinx.po", source / FOLDER)
    build_pages(source, folder)
    return folder


def found(pattern: str, text: str) -> list[str]:
    return [said(match).strip() for match in re.findall(pattern, text, re.DOTALL)]


def test_a_chapter_says_its_place_and_its_hours(built: Path, language: str) -> None:
    place, entry, hours = {
        "en": ("Week 1, day 1: Sampling", "Day 1: Sampling", "About 2 hours"),
        "ja": ("第 1 週 1 日目：Sampling", "1 日目：Sampling", "所要時間：約 2 時間"),
    }[language]
    text = page(built, language)
    assert found("<title>(.*?)</title>", text)[0] == f"{place} - tiny-llm"
    assert found("<h1>(.*?)<a", text) == [place]
    assert found('</h1>\\s*<p class="hours">(.*?)</p>', text) == [hours]
    assert found('class="toctree-l2 current.*?><a.*?>(.*?)</a>', text) == [entry]
    assert 'href="#sampling"' in text  # links into the page stay
    week = (built / language / "week_1/index.html").read_text(encoding="utf-8")
    assert place in found('class="next-page".*?class="title">(.*?)</div>', week)


def test_a_page_says_what_it_is_about(built: Path, language: str) -> None:
    def properties(name: str) -> dict[str, str]:
        text = (built / language / name).read_text(encoding="utf-8")
        return {key: unescape(value) for key, value in re.findall('<meta [a-z]+="(.*?)" content="(.*?)">', text)}

    front, chapter = properties("index.html"), properties("week_1/day_1.html")
    assert front["description"] == front["og:description"] == ABOUT
    assert front["og:locale"] == {"en": "en_US", "ja": "ja_JP"}[language]
    assert chapter["og:title"] == {"en": "Week 1, day 1: Sampling", "ja": "第 1 週 1 日目：Sampling"}[language]
    assert chapter["description"].startswith("Tokens with qi=12 are drawn. A sentence")
    assert chapter["description"].endswith("it.")
    assert 100 < len(chapter["description"]) <= 200
    assert f'<html class="no-js" lang="{language}"' in page(built, language)


def test_words_in_formulas_are_translated(built: Path) -> None:
    for words in ("スケール", "レベル", "それ以外"):
        assert words in page(built, "ja")
        assert words not in page(built, "en")
    assert ">level<" in page(built, "en")
    assert ">level<" not in page(built, "ja")
    assert untranslated(r"\text{scale} + \text{norm}_1 + \text{no such word} + \text{係数}") == ["no such word"]


def test_the_theme_speaks_the_pages_language(built: Path, language: str) -> None:
    text = page(built, language)
    other = next(words for name, words in WORDS.items() if name != language)
    assert [word for word in WORDS[language] if word not in text] == []
    assert [word for word in other if word in text] == []


def test_the_text_for_the_search_gives_no_solution_away(built: Path, language: str) -> None:
    text = (built / language / "texts/week_1/day_1.js").read_text(encoding="utf-8")
    assert text.startswith('texts["week_1/day_1"] = "')
    assert "return answer" in text
    assert "pelican" in text
    assert "secret" not in text
    assert "scaled_dot_product" not in text


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as found:
        yield found


@pytest.fixture(scope="module")
def pages(browser: Browser, built: Path) -> dict[str, Page]:
    """Open the chapter in both languages, with all folds open."""
    opened = {each: browser.new_page() for each in LANGUAGES}
    for each, shown in opened.items():
        shown.goto((built / each / "week_1/day_1.html").as_uri())
        shown.evaluate("document.querySelectorAll('details').forEach(fold => fold.open = true)")
    return opened


@pytest.fixture
def shown(pages: dict[str, Page], language: str) -> Page:
    return pages[language]


def resize(shown: Page, width: int) -> None:
    """Resize a page. Return when the page has seen the change: observers run before a frame is drawn."""
    shown.set_viewport_size({"width": width, "height": 800})
    shown.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def test_long_lines_continue_below(shown: Page) -> None:
    for width in (1440, 1280):
        resize(shown, width)
        boxes = shown.locator("article pre")
        assert boxes.count() == 4
        assert boxes.evaluate_all(f"boxes => boxes.map({SCROLLS})") == [False] * 4
        rows = (
            "lines => lines.map(line => Math.round(line.clientHeight / parseFloat(getComputedStyle(line).lineHeight)))"
        )
        assert boxes.first.locator(".line").evaluate_all(rows) == [1, 3, 1, 1]
        assert shown.locator("pre.output").nth(1).locator(".line").evaluate_all(rows) == [1, 3]


def test_what_scrolls_on_a_phone_can_be_reached_by_keyboard(shown: Page, language: str) -> None:
    resize(shown, 390)
    boxes = shown.locator("article pre")
    scrolls = [False, True, False, False]  # a table keeps its columns
    assert boxes.evaluate_all(f"boxes => boxes.map({SCROLLS})") == scrolls
    assert boxes.evaluate_all("boxes => boxes.map(box => box.tabIndex === 0 && box.role === 'group')") == scrolls
    label = {"en": "Code, scrolls sideways", "ja": "コード（横にスクロール）"}[language]
    assert boxes.nth(1).get_attribute("aria-label") == label
    resize(shown, 1280)
    assert boxes.nth(1).get_attribute("tabindex") is None


def test_what_is_copied(shown: Page, language: str) -> None:
    """Long lines are copied in one piece; of an output, only the command; of the reference, no line numbers."""
    shown.evaluate("navigator.clipboard.writeText = async text => { window.copied = text; }")
    resize(shown, 390)
    reference = (ROOT / "src/tiny_llm_ref/attention.py").read_text(encoding="utf-8")
    for number, expected in enumerate([CODE, "./course bench --all", "./course main", None]):
        button = shown.locator("article pre + .copy").nth(number)
        button.click()
        copied = shown.evaluate("window.copied")
        assert copied == expected or (expected is None and copied.startswith("def ") and copied in reference)
        assert button.text_content() == {"en": "Copied", "ja": "コピーしました"}[language]


def test_no_formula_is_cut_off_on_a_phone(shown: Page) -> None:
    resize(shown, 390)
    formulas = shown.locator(".katex-display")
    assert formulas.evaluate_all(f"boxes => boxes.map({SCROLLS})") == [False, False]
    right = "parts => Math.max(...parts.map(part => part.getBoundingClientRect().right))"
    assert shown.locator(".katex-display .mord").evaluate_all(right) <= 390


def test_the_contents_are_beside_the_text(shown: Page) -> None:
    resize(shown, 1280)
    contents = shown.locator(".toc-tree").bounding_box()
    article = shown.locator("article").bounding_box()
    assert contents is not None
    assert article is not None
    assert article["x"] + article["width"] <= contents["x"]
    assert contents["x"] + contents["width"] <= 1280


def test_headings_are_smaller_than_the_title_and_japanese_has_room(shown: Page, language: str) -> None:
    resize(shown, 1280)
    size = "part => parseFloat(getComputedStyle(part).fontSize)"
    assert shown.locator("h2").evaluate(size) < 0.75 * shown.locator("h1").evaluate(size)
    paragraph = shown.locator("article p:not(.hours)").first
    height = "part => parseFloat(getComputedStyle(part).lineHeight) / parseFloat(getComputedStyle(part).fontSize)"
    assert paragraph.evaluate(height) == {"en": 1.5, "ja": 1.75}[language]
    is_set = "Hiragino" in paragraph.evaluate("part => getComputedStyle(part).fontFamily")
    assert is_set == (language == "ja")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_nothing_is_too_pale_or_without_a_name(shown: Page, scheme: Literal["light", "dark"], width: int) -> None:
    """axe-core finds no serious and no critical problem."""
    shown.emulate_media(color_scheme=scheme)
    resize(shown, width)
    findings = Axe().run(shown).response["violations"]
    bad = [finding for finding in findings if finding["impact"] in ("serious", "critical")]
    assert [(finding["id"], node["html"]) for finding in bad for node in finding["nodes"]] == []


@pytest.mark.parametrize(
    ("language", "query", "marked"),
    [("en", "pelicans", "pelican"), ("ja", "所要時間", "所要時間")],
)
def test_results_of_a_search_show_where_it_is(
    browser: Browser, built: Path, language: str, query: str, marked: str
) -> None:
    shown = browser.new_page()
    shown.goto(f"{(built / language / 'search.html').as_uri()}?q={query}")
    result = shown.locator("ul.search li", has=shown.locator("a[href^='week_1/day_1.html']")).first
    assert result.locator(".context mark").first.text_content(timeout=60_000) == marked
    assert len(result.locator(".context").text_content() or "") < 250
    shown.close()
