"""Search in Japanese, which has no spaces between words: by pairs of neighbouring characters.

Sphinx's own drops words of one character, and does not split what is searched for as it splits the pages.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from sphinx.application import Sphinx
from sphinx.search import SearchLanguage

__all__ = ["Japanese", "setup", "split_query"]

# ranges in the notation that Python and JavaScript share: hiragana, katakana, kanji; not the dot between words, ・
JAPANESE = r"\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
RUNS = re.compile(rf"([{JAPANESE}]+)|[^\W{JAPANESE}]+")


def split_query(text: str) -> list[str]:
    """Words in other scripts, pairs of neighbouring Japanese characters, and those that stand alone."""
    return [term for run in _runs(text) for term in _pairs(run)]


def _runs(text: str) -> list[re.Match[str]]:
    return list(RUNS.finditer(unicodedata.normalize("NFKC", text)))


def _pairs(run: re.Match[str]) -> list[str]:
    text = run[0]
    return [text[i : i + 2] for i in range(len(text) - 1)] if run[1] and len(text) > 1 else [text]


class Japanese(SearchLanguage):
    """Pages are split as queries are, and into single characters besides, for queries such as 軸."""

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


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_search_language(Japanese)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
