"""Finds faults that need no grammar: broken characters, characters of another script, and words that no story uses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .grammar import lines_of, literals
from .lexicon import WORD, Lexicon

__all__ = ["Spelling", "known_words", "last_word"]

_BROKEN = re.compile("[\ufffd\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_RUN = re.compile("[A-Za-z]+(?:['-][A-Za-z]+)*|[ぁ-ゖゝゞ]+|[ァ-ヺー]+|[一-鿿々〆]+")


class Spelling:
    """A spelling checker that knows all words of a language's plots and forms."""

    def __init__(self, lexicon: Lexicon):
        self._english = lexicon.language == "english"
        self._known = {word.lower() for word in known_words(lexicon)}
        self._longest = max(map(len, self._known))

    def faults(self, sentence: str) -> Iterator[tuple[str, str]]:
        """Yield the kind and the explanation of each fault in this sentence."""
        if broken := _BROKEN.search(sentence):
            yield "broken-character", f"U+{ord(broken[0]):04X}"
        if wrong := "".join(dict.fromkeys(filter(self._foreign, sentence))):
            yield "wrong-script", f"{wrong!r} in {'an English' if self._english else 'a Japanese'} story"
        for word in dict.fromkeys(_RUN.findall(sentence)):
            if not any(map(self._foreign, word)) and not self._is_known(word):
                yield "unknown-word", f"{word!r} is in no story"

    def _foreign(self, character: str) -> bool:
        if not character.isalpha():
            return False
        if self._english:
            return not character.isascii()
        return not _RUN.fullmatch(character) or character.isascii()

    def _is_known(self, word: str) -> bool:
        if self._english or word in self._known:
            return word.lower().removesuffix("'s") in self._known or word.lower() in self._known
        reached = {0}  # a run of Japanese characters may be several words
        for end in range(1, len(word) + 1):
            starts = range(max(0, end - self._longest), end)
            if any(start in reached and word[start:end] in self._known for start in starts):
                reached.add(end)
        return len(word) in reached


def known_words(lexicon: Lexicon) -> set[str]:
    """Return all words of a language's plots and forms. A Japanese word is a run of characters of one script."""
    return {word for text in _texts(lexicon) for word in _RUN.findall(text)}


def last_word(sentence: str) -> str:
    """Return the last word of a sentence without a full stop. This word may be incomplete. Return "" if the sentence
    has a full stop."""
    words = list(_RUN.finditer(sentence))
    return words[-1][0] if words and words[-1].end() == len(sentence) else ""


def _texts(lexicon: Lexicon) -> Iterator[str]:
    for plot in lexicon.plots.values():
        for line in lines_of(plot.steps):
            yield from literals(line.text)
    for lexeme in lexicon.lexemes:
        yield from (*lexeme.words.values(), *lexeme.looks)
    for words in lexicon.genders.values():
        yield from words.values()
    yield from lexicon.gender_of
    yield from (
        WORD.sub(" ", pattern) for forms in lexicon.forms.values() for form in forms.values() for pattern in form
    )
    yield from ("a", "an") if lexicon.language == "english" else ()
