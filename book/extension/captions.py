"""Captions of lists of pages: Sphinx marks them as headings and leaves out the level, which screen readers need."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

__all__ = ["setup"]

PLACES = ("body", "furo_navigation_tree")


def add_level(app: Sphinx, page: str, template: str, context: dict[str, Any], document: object) -> None:
    for place in PLACES:
        if place in context:
            context[place] = context[place].replace('role="heading">', 'role="heading" aria-level="2">')


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", add_level, priority=900)  # after furo has made the sidebar
    return {"parallel_read_safe": True, "parallel_write_safe": True}
