"""Renders formulas with KaTeX while the book is built, so that pages need neither JavaScript nor the network for them.

`katex/` is KaTeX 0.19.1 as its authors publish it on npm: katex.min.js, katex.min.css and the woff2 fonts.
"""

from __future__ import annotations

import base64
import json
import re
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import quickjs
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.locale import _
from sphinx.transforms import SphinxTransform
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

from .words import NAMES, in_formula

__all__ = ["letters", "setup"]

KATEX = Path(__file__).parent / "katex"
STYLESHEET = "katex.css"
# as JSON, because quickjs cannot return a string that was joined from parts
RENDER = "(tex, display) => JSON.stringify(katex.renderToString(tex, {displayMode: display, strict: 'error'}))"

WORDS = re.compile(r"(?<=\\text\{)[^}]*(?=\})")

logger = logging.getLogger(__name__)


@cache
def katex() -> Any:
    context = quickjs.Context()
    context.eval((KATEX / "katex.min.js").read_text(encoding="utf-8"))
    return context.eval(RENDER)


def stylesheet() -> str:
    """Return KaTeX's stylesheet with the fonts inside, because Firefox loads no font from outside the page's folder."""

    def font(match: re.Match[str]) -> str:
        data = base64.b64encode((KATEX / match[1]).read_bytes()).decode()
        return f'src:url(data:font/woff2;base64,{data}) format("woff2")'

    return re.sub(r"src:url\(([^)]+\.woff2)\)[^;}]*", font, (KATEX / "katex.min.css").read_text(encoding="utf-8"))


@cache
def render(tex: str, display: bool) -> str:
    html: str = json.loads(katex()(tex, display))
    return html


def letters(tex: str) -> str:
    """Return the characters of a formula that a reader sees, on one line and without layout."""
    try:
        return unescape(re.sub("<annotation.*?</annotation>|</math>.*|<[^>]*>", "", render(tex, False)))
    except quickjs.JSException:
        return tex  # rendering the page reports the error


def rendered(self: HTML5Translator, node: nodes.math | nodes.math_block) -> str:
    tex = node.astext()
    if self.config.language == "ja":
        for words in untranslated(tex):
            logger.warning("words.py has no Japanese for %r in a formula", words, location=node)
        tex = WORDS.sub(lambda match: in_formula(match[0]), tex)
    try:
        return render(tex, isinstance(node, nodes.math_block))
    except quickjs.JSException as error:
        logger.warning("%s", str(error).partition("\n")[0].removeprefix("ParseError: "), location=node)
        return self.encode(tex)


def untranslated(tex: str) -> list[str]:
    """Return the words in a formula that are neither names nor translated, by words.py or by the formula itself."""
    return [
        words for words in WORDS.findall(tex) if words.isascii() and words not in NAMES and in_formula(words) == words
    ]


def visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(self.starttag(node, "span", "", CLASS="math notranslate nohighlight"))
    self.body.append(f"{rendered(self, node)}</span>")
    raise nodes.SkipNode


def visit_block(self: HTML5Translator, node: nodes.math_block) -> None:
    self.body.append(self.starttag(node, "div", CLASS="math notranslate nohighlight"))
    if node["number"]:
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})')
        self.add_permalink_ref(node, _("Link to this equation"))
        self.body.append("</span>")
    self.body.append(f"{rendered(self, node)}</div>\n")
    raise nodes.SkipNode


class Untranslated(SphinxTransform):
    """Keeps displayed formulas out of the catalogues: Sphinx puts a translated one back as reStructuredText."""

    default_priority = 5  # before the translation

    def apply(self, **kwargs: Any) -> None:
        for node in self.document.findall(nodes.math_block):
            node["translatable"] = False


def write_stylesheet(app: Sphinx) -> None:
    if app.builder.format == "html":
        file = Path(app.outdir) / "_static" / STYLESHEET
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(stylesheet(), encoding="utf-8")


def use_stylesheet(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    if context.get("has_maths_elements"):
        app.add_css_file(STYLESHEET)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("katex", (visit_inline, None), (visit_block, None))
    app.add_transform(Untranslated)
    app.connect("builder-inited", write_stylesheet)
    app.connect("html-page-context", use_stylesheet)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
