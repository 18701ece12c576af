"""Adds a chapter's place in the course: week and day in the heading, and after the heading how long the day takes."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

from tiny_llm_course.tasks.syllabus import Day, select_days

from .course import COURSE, generated
from .front import time_of
from .words import word

__all__ = ["setup"]


def day_of_page(page: str) -> Day | None:
    """Return the day whose chapter a page is. Return None if the page is no chapter."""
    match = re.fullmatch(r"week_(\d+)/day_(\d+)", page)
    return select_days(*match.groups())[0] if match else None


class Place(SphinxTransform):
    """Adds week, day and hours to a chapter. The sidebar and the search take the heading from here."""

    default_priority = 30  # after the translation

    def apply(self, **kwargs: Any) -> None:
        day = day_of_page(self.env.docname)
        if day is None:
            return
        self.env.note_dependency(str(COURSE / "syllabus.toml"))
        title = next(self.document.findall(nodes.title))
        place = word("chapter", self.config.language, week=day.week, day=day.number)
        title.insert(0, nodes.Text(place))
        takes = word("takes", self.config.language, time=time_of([day], self.config.language))
        title.parent.insert(1, generated(nodes.paragraph("", takes, classes=["hours"])))


def shorten_entry(app: Sphinx, document: nodes.document) -> None:
    """Leave the week out of a chapter's entry in the sidebar, because the parent entry is the week."""
    page = app.env.docname
    if day := day_of_page(page):
        entry = next(app.env.tocs[page].findall(nodes.reference))
        entry[0] = nodes.Text(word("entry", app.config.language, day=day.number))


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_transform(Place)
    app.connect("doctree-read", shorten_entry, priority=600)  # after Sphinx has made the entry
    return {"parallel_read_safe": True, "parallel_write_safe": True}
