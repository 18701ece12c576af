"""The words that are one token each, and the pattern that cuts text into words before BPE."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from random import Random

from ..storyteller import LANGUAGES, Entity, Lexicon, lexicon, tell
from ..storyteller.spelling import known_words

__all__ = ["english_words", "lexicon_words", "single_tokens", "told_with_gaps", "word_pattern"]

GAP = "◇"
_PROBES = 1000  # stories in which words are looked for that only look like a word of the lexicon
_SHORT = 3  # letters of words that may be part of others
_HIRAGANA = re.compile("[ぁ-ゖ]")
_ONE_SCRIPT = re.compile("[一-鿿々]+|[ァ-ヺー]+")
# A word keeps to one script: in Japanese, names and things (kanji, katakana) stand apart from particles (hiragana).
_PATTERN = (
    r"'s(?!\p{{L}})| ?\p{{Latin}}+|{words}|\p{{Han}}+|(?:(?!{words})\p{{Hiragana}})+|[\p{{Katakana}}ー]+"
    r"| ?\p{{L}}+| ?\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+|\n+|\s+"
)


def single_tokens() -> list[str]:
    """Every word of the lexicons as the tokenizer meets it: English words with the space before them, and names also
    without it, since they may begin a text. In Japanese, every character of the stories as well."""
    found: dict[str, None] = {}
    for language in LANGUAGES:
        words = lexicon(language)
        found |= dict.fromkeys(f"{words.space}{word}" for word in lexicon_words(words))
        found |= dict.fromkeys(words.gender_of)
    return list(found | dict.fromkeys(sorted(set("".join(known_words(lexicon("japanese")))))))


def english_words() -> list[str]:
    """All words of the English plots, with the space before them."""
    return [f" {word}" for word in sorted(known_words(lexicon("english")))]


def lexicon_words(words: Lexicon) -> list[str]:
    """Names, kinds, nouns, looks and colours. A value of several English words counts as these."""
    values = [*words.gender_of, *words.colours, *words.colours.values()]
    values += [value for lexeme in words.lexemes for value in (lexeme.key, *lexeme.looks)]
    return list(dict.fromkeys(word for value in values for word in value.split()))


@cache
def word_pattern() -> str:
    """The regular expression (Oniguruma's) whose matches are the words within which BPE merges bytes.

    Japanese words of the lexicon are found within runs of hiragana as well, except where the same letters are part of
    another word, as うし in どうして.
    """
    japanese = lexicon("japanese")
    mixed = [word for word in lexicon_words(japanese) if not _ONE_SCRIPT.fullmatch(word)]
    elsewhere = _contexts_elsewhere(japanese, [word for word in mixed if _HIRAGANA.match(word)])
    ordered = sorted(mixed, key=lambda word: (-len(word), word))
    alternatives = "|".join(f"{_unless(word, elsewhere.get(word, ()))}{word}" for word in ordered)
    return _PATTERN.format(words=f"(?:{alternatives})")


def told_with_gaps(words: Lexicon, seed: int) -> tuple[str, str]:
    """Tell the same story twice: as it is, and with a gap for each kind and noun of its cast."""

    def gap(entity: Entity) -> Entity:
        return Entity(entity.sort, {**entity.words, **{word: GAP for word in ("kind", "noun") if entity[word]}})

    return tell(words, Random(seed)).text, tell(words, Random(seed), recast=gap).text


def _contexts_elsewhere(japanese: Lexicon, words: Iterable[str]) -> dict[str, set[tuple[str, str]]]:
    """Return, for each short word, the letters before and after it where it is part of another word of hiragana.

    The letter before is "" if the one after is enough: no kind and no noun is ever followed by it. Letters that also
    surround kinds and nouns are left out: these have to be found there.
    """
    text = "\n".join(told_with_gaps(japanese, seed)[1] for seed in range(_PROBES))
    around = set(_around(text, GAP))
    followers = {after for _, after in around}
    return {
        word: {
            (before if after in followers else "", after)
            for before, after in set(_around(text, word)) - around
            if _HIRAGANA.match(before) or _HIRAGANA.match(after)
        }
        for word in words
        if len(word) <= _SHORT
    }


def _around(text: str, word: str) -> list[tuple[str, str]]:
    """The letters before and after each occurrence."""
    return [
        (text[match.start() - 1], text[match.end()]) for match in re.finditer(f"(?<=.){re.escape(word)}(?=.)", text)
    ]


def _unless(word: str, contexts: Iterable[tuple[str, str]]) -> str:
    """A condition before the word, in the pattern: none of these letters surround it."""
    return "".join(
        f"(?!{f'(?<={re.escape(before)})' if before else ''}{word}{re.escape(after)})"
        for before, after in sorted(contexts)
    )
