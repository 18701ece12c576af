"""The front page's cards, plans of a term, and figures within sentences, all read from the syllabus and the benches.

`` {hours}`all` `` says how many hours the course takes; `core`, the core path; `w1`, a week; `w1d2`, a day.
`` {speed}`w2d7` `` is the number of tokens that a step of the ladder writes in a second.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxRole

from tiny_llm_course.base import places
from tiny_llm_course.tasks.plan import CORE, PATHS, about, days_of, hours
from tiny_llm_course.tasks.syllabus import Day, SyllabusError, Week, select_days, weeks

from .course import COURSE, CourseDirective, generated
from .measured import RESULTS
from .words import word

__all__ = ["setup"]


class Start(CourseDirective):
    """```{start} setup``` : the button that leads to a page. (Sphinx does not let sphinx-design's be translated.)"""

    def run(self) -> list[nodes.Node]:
        options = ":ref-type: doc\n:color: primary\n"
        button = f"```{{button-ref}} {self.arguments[0]}\n{options}\n{self.word('start')}\n```\n"
        return [generated(node) for node in self.parse_text_to_nodes(button)]


class Cards(CourseDirective):
    """```{weeks}``` : a card for each week, which lists its days by name, with their hours."""

    required_arguments = 0

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(COURSE / "syllabus.toml"))
        cards = "".join(map(self.card, weeks()))
        return [generated(node) for node in self.parse_text_to_nodes(f":::::{{grid}} 1 1 2 2\n{cards}:::::\n")]

    def card(self, week: Week) -> str:
        title = self.word("week_card", week=week.number, title=self.say(week.title))
        about_it = time_of(week.days, self.language) + (self.word("week_optional") if week.number == 0 else "")
        days = "".join(f"1. {self.line(day)}\n" for day in week.days)
        return f"::::{{grid-item-card}} [{title}](week_{week.number}/index.md)\n\n{about_it}\n\n{days}::::\n"

    def line(self, day: Day) -> str:
        core = " {bdg-primary-line}`" + self.word("core") + "`" if day in days_of(CORE) else ""
        return listed(day, self) + core


class TermWeek(CourseDirective):
    """```{term-week} 3 1.5 1.6``` : a week of a term, the days that belong to the week, and then the author's text."""

    optional_arguments = 100
    has_content = True

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(COURSE / "syllabus.toml"))
        number, *names = self.arguments
        days = [self.day_of(name) for name in names]
        title = self.word("term_week", number=number, hours=time_of(days, self.language))
        about_it = [nodes.rubric("", title), *self.parse_text_to_nodes(bullets(days, self))]
        return [*map(generated, about_it), *self.parse_content_to_nodes()]

    def day_of(self, name: str) -> Day:
        week, _, number = name.partition(".")
        try:
            return select_days(week, number)[0]
        except SyllabusError as error:
            raise self.error(str(error)) from None


class CorePath(CourseDirective):
    """```{core-path}``` : the days of the core path, with their hours."""

    required_arguments = 0

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(COURSE / "syllabus.toml"))
        return [generated(node) for node in self.parse_text_to_nodes(bullets(days_of(CORE), self))]


class CloneCommand(CourseDirective):
    """```{clone}``` : the command that clones the project; nothing while the project has no address."""

    required_arguments = 0

    def run(self) -> list[nodes.Node]:
        if not (url := places.address()):
            return []
        return [generated(nodes.literal_block("", f"git clone {url} tiny-llm\ncd tiny-llm", language="sh"))]


class Hours(SphinxRole):
    """The whole hours of a path, or the hours of a week or a day."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        self.env.note_dependency(str(COURSE / "syllabus.toml"))
        language = "ja" if self.config.language == "ja" else "en"
        if self.text in PATHS:
            return [nodes.Text(in_words(about(hours(days_of(self.text))), language))], []
        match = re.fullmatch(r"w(\d+)(?:d(\d+))?", self.text)
        try:
            days = select_days(*match.groups() if match else (self.text, None))
            return [nodes.Text(time_of(days, language))], []
        except SyllabusError as error:
            return [], [self.inliner.reporter.error(str(error), line=self.lineno)]


class Speed(SphinxRole):
    """The tokens per second of the model after a step of week 2's ladder."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        file = RESULTS / "ladder.json"
        self.env.note_dependency(str(file))
        speeds = {row["stage"]: row["decode"] for row in json.loads(file.read_text(encoding="utf-8"))["model"]}
        if self.text not in speeds:
            error = f"expected one of {', '.join(speeds)}, got {self.text!r}"
            return [], [self.inliner.reporter.error(error, line=self.lineno)]
        return [nodes.Text(f"{speeds[self.text]:.{0 if speeds[self.text] >= 10 else 2}f}")], []


def time_of(days: Sequence[Day], language: str) -> str:
    return in_words(hours(days), language)


def in_words(hours: float, language: str) -> str:
    """Return hours in words: `1 hour`, `1½ hours`, `20½ hours`."""
    if hours % 1:
        return word("hours_half", language, hours=int(hours) or "")
    return word("hour" if hours == 1 else "hours", language, hours=int(hours))


def bullets(days: Sequence[Day], page: CourseDirective) -> str:
    """Return a list of days in MyST."""
    return "".join(f"- {day.week}.{day.number} {listed(day, page)}\n" for day in days)


def listed(day: Day, page: CourseDirective) -> str:
    """Return a link to the day's chapter, and the day's hours, in MyST."""
    link = f"[{page.say(day.chapter)}](/week_{day.week}/day_{day.number}.md)"
    return page.word("in_brackets", text=link, more=time_of([day], page.language))


def setup(app: Sphinx) -> dict[str, Any]:
    directives = {"start": Start, "weeks": Cards, "core-path": CorePath, "term-week": TermWeek, "clone": CloneCommand}
    for name, directive in directives.items():
        app.add_directive(name, directive)
    app.add_role("hours", Hours())
    app.add_role("speed", Speed())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
