"""Adds what search engines and chats show of a page: its title and its first paragraph."""

from __future__ import annotations

from html import escape
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from .plain import plain, summary

__all__ = ["setup"]

LOCALES = {"en": "en_US", "ja": "ja_JP"}


def describe(app: Sphinx, page: str, template: str, context: dict[str, Any], document: nodes.document | None) -> None:
    if document is None:
        return  # the search's page, or the index
    title = next(document.findall(nodes.title), None)
    about = summary(document)
    properties = {
        "og:type": "article",
        "og:site_name": app.config.html_title,
        "og:locale": LOCALES[app.config.language],
        "og:title": plain(title) if title else app.config.html_title,
        "og:description": about,
    }
    tags = [f'<meta name="description" content="{escape(about)}">']
    tags += [f'<meta property="{name}" content="{escape(text)}">' for name, text in properties.items()]
    context["metatags"] += "\n".join(["", *tags])


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", describe)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
