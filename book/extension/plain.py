"""The text of a page without its markup: for search engines, and for the results of the book's own search."""

from __future__ import annotations

import re

from docutils import nodes
from sphinx_design.dropdown import dropdown_main

from .math import letters

__all__ = ["plain", "summary"]

SILENT = (nodes.math_block, nodes.raw, nodes.Invisible, dropdown_main)
LENGTH = 200  # characters of a summary: search engines show no more


def plain(node: nodes.Node) -> str:
    """Return a node's text on one line, without lists of pages, and without folds, because folds contain solutions."""
    return " ".join(_said(node).split())


def _said(node: nodes.Node) -> str:
    if isinstance(node, nodes.math):
        return letters(node.astext())
    if isinstance(node, nodes.Text):
        return node.astext()
    if isinstance(node, SILENT) or "toctree-wrapper" in getattr(node, "attributes", {}).get("classes", []):
        return ""
    return ("" if isinstance(node, nodes.TextElement) else " ").join(map(_said, node.children))


def summary(document: nodes.document) -> str:
    """Return as many sentences of the page's first paragraph as fit into a summary."""
    paragraphs = (node for node in document.findall(nodes.paragraph) if isinstance(node.parent, nodes.section))
    text = next((plain(node) for node in paragraphs if "hours" not in node["classes"]), "")
    if len(text) <= LENGTH:
        return text
    sentences = re.match(rf".{{60,{LENGTH}}}(?:\.(?= )|。)", text)
    return sentences[0] if sentences else f"{text[: LENGTH - 1]}…"
