"""README, front page, preface, commands and plans, which a newcomer reads first, describe exactly what exists."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest
from learner import ROOT
from test_book import build, build_pages, language, said, small_book

from tiny_llm_course.base import places
from tiny_llm_course.tasks.plan import CORE, about, days_of, hours
from tiny_llm_course.tasks.syllabus import Day, select_days, weeks
from tiny_llm_course.tasks.toml import read_toml
from tiny_llm_course.ui.command_table import ALL

__all__ = ["language"]

READMES = ("README.md", "README.ja.md")
IDEA = "https://github.com/skyzh/tiny-llm"
FRONT = """\
# Front page

```{start} week_0/index
```

About {hours}`all`, or {hours}`core`; {hours}`w2` for week 2, {hours}`w1d2` for a day. {speed}`w2d7` tokens.

```{weeks}
```

```{term-week} 3 1.5 1.6
By the author.
```

```{core-path}
```

```{clone}
```

```{toctree}
:glob:
week_*/*
```
"""
WRONG = {
    "{hours}`w9`": "there is no week '9'",
    "{hours}`x`": "there is no week 'x'",
    "{speed}`w9d1`": "expected one of week 1, w2d1, ",
    "```{term-week} 1 1.9\n```": "week 1 has no day '9'",
}
pytestmark = pytest.mark.filterwarnings("ignore:'myst_parser")


device = pytest.fixture(lambda: None)  # nothing here computes on one


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", READMES)
def test_a_readme_is_short_and_links_to_every_chapter(name: str) -> None:
    text = text_of(name)
    assert len(text.splitlines()) <= 120
    assert "./course main " in text[: len(text) // 3], "the two commands are at the top"
    links = set(re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text))
    assert [link for link in links if not (ROOT / link).exists()] == []
    assert {f"book/week_{day.week}/day_{day.number}.md" for day in select_days(None, None)} <= links
    assert {f"book/week_{week.number}/index.md" for week in weeks()} <= links


@pytest.mark.parametrize(
    ("name", "whole", "core"),
    [("README.md", "about {} hours", "core path about {}"), ("README.ja.md", "約 {} 時間", "コアパスなら約 {} 時間")],
)
def test_a_readme_tells_the_hours(name: str, whole: str, core: str) -> None:
    for words, days in ((whole, select_days(None, None)), (core, days_of(CORE))):
        assert words.format(about(hours(days))) in text_of(name)


def test_credits() -> None:
    for name in (*READMES, "book/preface.md", "book/index.md", "src/tiny_llm_course/grading/handout/README.md"):
        assert IDEA in text_of(name), name
    assert IDEA in read_toml(ROOT / "pyproject.toml")["project"]["urls"].values()


def test_the_address_is_one_value(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in READMES:
        assert places.address() in text_of(name)
    monkeypatch.setattr(places, "ROOT", tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.tiny-llm]\naddress = "https://example.org/x"\n')
    assert places.address() == "https://example.org/x"
    monkeypatch.setattr(places, "IS_CLONE", False)
    assert places.address() == ""


def test_every_command_is_explained() -> None:
    named = set(re.findall(r"^\| `\./course ([\w-]+)", text_of("book/commands.md"), re.MULTILINE))
    assert named == {*ALL, "python"}


@pytest.mark.parametrize("name", READMES)
def test_a_readme_names_commands_that_exist(name: str) -> None:
    named = set(re.findall(r"`(?:\./course|pdm run) ([a-z][\w-]+)", text_of(name)))
    assert len(named) > 5
    assert named <= {*ALL, "python"}


def test_what_is_where_exists() -> None:
    _, *sections = text_of("book/layout.md").split("\n## ")
    for section, folders in zip(sections, ([ROOT], [ROOT / "src/tiny_llm", ROOT / "src"]), strict=True):
        cells = re.findall(r"^\| (`.*?) \|", section.partition("|---")[2], re.MULTILINE)
        names = [name for cell in cells for name in re.findall("`(.*?)`", cell)]
        made = {"progress.txt", ".tiny-llm/", "out/"}
        assert len(names) > 10
        for name in {*names} - made:
            assert any([*folder.glob(name.replace("_W_day_D", "_*_day_*"))] for folder in folders), name


def plans() -> list[list[tuple[int, list[Day]]]]:
    """Return, for each plan, the weeks of the term: their numbers and days."""
    _, *sections = re.split("^## A plan for", text_of("book/instructors.md"), flags=re.MULTILINE)
    found = []
    for section in sections:
        lines = re.findall(r"^```\{term-week\} (.*)$", section, re.MULTILINE)
        found.append(
            [
                (int(number), [select_days(*name.split("."))[0] for name in names])
                for number, *names in map(str.split, lines)
            ]
        )
    return found


@pytest.mark.parametrize(("place", "length", "first", "each"), [(0, 12, 0, 4), (1, 6, 1, 8)])
def test_a_plan_has_every_day_once_and_weeks_of_like_length(place: int, length: int, first: int, each: int) -> None:
    plan = plans()[place]
    assert [number for number, _ in plan] == list(range(1, length + 1))
    days = [day for _, days in plan for day in days]
    assert days == [day for day in select_days(None, None) if day.week >= first]
    assert about(hours(days) / length) == each
    assert all(0.6 * each <= hours(days) <= 1.4 * each for _, days in plan)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("front")
    pages = {f"week_{day.week}/day_{day.number}.md": "# A day\n" for day in select_days(None, None)}
    pages |= {f"week_{week.number}/index.md": "# A week\n" for week in weeks()}
    source = small_book(folder / "source", {"index.md": FRONT} | pages)
    assert build("gettext", source, folder / "gettext") == ""
    build_pages(source, folder)
    return folder


def front(built: Path, language: str) -> str:
    """Return the article of the page."""
    page = (built / language / "index.html").read_text(encoding="utf-8")
    return re.findall(r'<article role="main".*?</article>', page, re.DOTALL)[0]


def test_cards_list_every_day_with_its_hours(built: Path, language: str) -> None:
    page = front(built, language)
    cards = re.findall(r'<div class="sd-card .*?(?=<div class="sd-col|<p class="rubric)', page, re.DOTALL)
    assert len(cards) == len(weeks())
    for week, card in zip(weeks(), cards, strict=True):
        assert week.title[language] in said(card)
        for day in week.days:
            assert f'href="week_{day.week}/day_{day.number}.html"' in card
            assert day.chapter[language] in said(card)
    assert page.count("sd-badge") == len(days_of(CORE))
    assert said(page).count("1.6 " + select_days("1", "6")[0].chapter[language]) == 2, (
        "of the term, and of the core path"
    )
    texts = {"en": ("(1½ hours)", "(1 hour)", "Start here"), "ja": ("（1 時間半）", "（1 時間）", "ここから始める")}
    assert all(text in said(page) for text in texts[language])


def test_hours_and_speeds_in_sentences(built: Path) -> None:
    ladder = json.loads((ROOT / "benches/results/ladder.json").read_text(encoding="utf-8"))
    speeds = {row["stage"]: row["decode"] for row in ladder["model"]}
    sentence = f"About 51 hours, or 12 hours; 21 hours for week 2, 1½ hours for a day. {speeds['w2d7']:.0f} tokens."
    assert sentence in said(front(built, "en"))


def test_a_week_of_a_term(built: Path, language: str) -> None:
    text = said(front(built, language))
    assert {"en": "Week 3 of the term: 3½ hours", "ja": "学期の第 3 週：3 時間半"}[language] in text
    assert "By the author." in text


def test_the_command_that_clones_needs_an_address(built: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert ("git clone" in front(built, "en")) == bool(places.address())
    monkeypatch.setattr(places, "address", lambda: "https://example.org/x")
    source = small_book(tmp_path / "source", {"index.md": "# Front page\n\n```{clone}\n```\n"})
    assert build("html", source, tmp_path / "out") == ""
    assert "git clone https://example.org/x tiny-llm" in said((tmp_path / "out/index.html").read_text(encoding="utf-8"))


def test_translators_see_what_authors_wrote(built: Path) -> None:
    template = html.unescape((built / "gettext/index.pot").read_text(encoding="utf-8"))
    assert "By the author." in template
    for words in ("Attention by hand", "Start here", "of the term", "hours)"):
        assert words not in template


def test_what_is_wrong_fails_the_build(tmp_path: Path) -> None:
    source = small_book(tmp_path / "source", {"index.md": "# Front page\n\n" + "\n\n".join(WRONG)})
    warnings = build("html", source, tmp_path / "out")
    for text in WRONG.values():
        assert text in warnings, text
