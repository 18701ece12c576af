"""A chapter's place in the course: week and day in its heading, and below the heading how long the day takes."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms import SphinxTransform

from tiny_llm_course.syllabus import Day, select_days

from .course import COURSE, generated
from .words import word

__all__ = ["setup"]


def day_of_page(page: str) -> Day | None:
    """The day whose chapter a page is."""
    match = re.fullmatch(r"week_(\d+)/day_(\d+)", page)
    return select_days(*match.groups())[0] if match else None


def language(env: BuildEnvironment) -> str:
    return "ja" if env.config.language == "ja" else "en"


class Place(SphinxTransform):
    """Puts week, day and hours into a chapter. The sidebar's entries and the search's results get week and day, too."""

    default_priority = 30  # after the translation

    def apply(self, **kwargs: Any) -> None:
        day = day_of_page(self.env.docname)
        if day is None:
            return
        self.env.note_dependency(str(COURSE / "syllabus.toml"))
        title = next(self.document.findall(nodes.title))
        place = word("chapter", language(self.env), week=day.week, day=day.number)
        title.insert(0, nodes.Text(place))
        hours = word("hour" if day.hours == 1 else "hours", language(self.env), hours=day.hours)
        title.parent.insert(1, generated(nodes.paragraph("", hours, classes=["hours"])))


def shorten_entry(app: Sphinx, document: nodes.document) -> None:
    """Leaves the week out of the page's entry in the sidebar, where it stands below its week."""
    page = app.env.docname
    if day := day_of_page(page):
        entry = next(app.env.tocs[page].findall(nodes.reference))
        entry[0] = nodes.Text(word("entry", language(app.env), day=day.number))


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_transform(Place)
    app.connect("doctree-read", shorten_entry, priority=600)  # after Sphinx has made the entry
    return {"parallel_read_safe": True, "parallel_write_safe": True}
