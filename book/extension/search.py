"""Search in Japanese, by pairs of neighbouring characters, and the texts that results show, in both languages.

Sphinx's own search in Japanese drops words of one character, and does not split what is searched for as it splits the
pages. The text of a page is a script, `texts/PAGE.js`: search.js loads it to show where the words are.
"""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.search import SearchLanguage

from .plain import plain

__all__ = ["Japanese", "setup", "split_query"]

# ranges in the notation that Python and JavaScript share: hiragana, katakana, kanji; not the dot between words, ・
JAPANESE = r"\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
RUNS = re.compile(rf"([{JAPANESE}]+)|[^\W{JAPANESE}]+")


def split_query(text: str) -> list[str]:
    """Return words in other scripts, pairs of neighbouring Japanese characters, and isolated Japanese characters."""
    return [term for run in _runs(text) for term in _pairs(run)]


def _runs(text: str) -> list[re.Match[str]]:
    return list(RUNS.finditer(unicodedata.normalize("NFKC", text)))


def _pairs(run: re.Match[str]) -> list[str]:
    text = run[0]
    return [text[i : i + 2] for i in range(len(text) - 1)] if run[1] and len(text) > 1 else [text]


class Japanese(SearchLanguage):
    """Splits pages as queries are split, and also into single characters, for queries such as 軸."""

    lang = "ja"
    language_name = "Japanese"
    js_splitter_code = r"""
function splitQuery(query) {
  const runs = /([JAPANESE]+)|(?:(?![JAPANESE])[\p{Letter}\p{Number}_])+/gu;
  return [...query.normalize("NFKC").matchAll(runs)].flatMap(([text, japanese]) =>
    japanese && text.length > 1 ? Array.from({length: text.length - 1}, (_, i) => text.slice(i, i + 2)) : [text]);
}
""".replace("JAPANESE", JAPANESE)

    def split(self, input: str) -> list[str]:
        return [term for run in _runs(input) for term in [*_pairs(run), *(run[1] or "")]]


def write_text(app: Sphinx, page: str, template: str, context: dict[str, Any], document: nodes.document | None) -> None:
    if page == "search":
        app.add_js_file("search.js")
    if document is not None:
        file = Path(app.outdir) / "texts" / f"{page}.js"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"texts[{json.dumps(page)}] = {json.dumps(plain(document), ensure_ascii=False)};\n", "utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_search_language(Japanese)
    app.connect("html-page-context", write_text)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
