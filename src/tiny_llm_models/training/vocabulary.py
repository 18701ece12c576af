"""The words that become single tokens, and the pattern that cuts text into words before BPE."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from random import Random

from ..storyteller import LANGUAGES, Entity, Lexicon, lexicon, tell
from ..storyteller.spelling import known_words

__all__ = ["english_words", "lexicon_words", "single_tokens", "told_with_gaps", "word_pattern"]

GAP = "◇"
_PROBES = 1000  # stories that are searched for words of the lexicon inside other words
_SHORT = 3  # characters; only words of at most this length can be inside other words
_HIRAGANA = re.compile("[ぁ-ゖ]")
_ONE_SCRIPT = re.compile("[一-鿿々]+|[ァ-ヺー]+")
# A word has only one script. In Japanese, this rule separates names and things (kanji, katakana) from particles
# (hiragana).
_PATTERN = (
    r"'s(?!\p{{L}})| ?\p{{Latin}}+|{words}|\p{{Han}}+|(?:(?!{words})\p{{Hiragana}})+|[\p{{Katakana}}ー]+"
    r"| ?\p{{L}}+| ?\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+|\n+|\s+"
)


def single_tokens() -> list[str]:
    """Return every word of the lexicons in the form that the tokenizer sees.

    English words include the space before them. Names are also listed without the space, because they may begin a text.
    In Japanese, every character of the stories is included, too.
    """
    words_seen: dict[str, None] = {}
    for language in LANGUAGES:
        words = lexicon(language)
        words_seen |= dict.fromkeys(f"{words.space}{word}" for word in lexicon_words(words))
        words_seen |= dict.fromkeys(words.gender_of)
    return list(words_seen | dict.fromkeys(sorted(set("".join(known_words(lexicon("japanese")))))))


def english_words() -> list[str]:
    """Return all words of the English plots, each with a space before it."""
    return [f" {word}" for word in sorted(known_words(lexicon("english")))]


def lexicon_words(words: Lexicon) -> list[str]:
    """Return all names, kinds, nouns, looks and colours. A value that consists of several English words is split
    into single words."""
    values = [*words.gender_of, *words.colours, *words.colours.values()]
    values += [value for lexeme in words.lexemes for value in (lexeme.key, *lexeme.looks)]
    return list(dict.fromkeys(word for value in values for word in value.split()))


@cache
def word_pattern() -> str:
    """Return the regular expression (Oniguruma's) whose matches are words. BPE merges bytes only within a word.

    The expression finds Japanese words of the lexicon within runs of hiragana, too, except where the same characters
    are part of another word, such as うし in どうして.
    """
    japanese = lexicon("japanese")
    mixed = [word for word in lexicon_words(japanese) if not _ONE_SCRIPT.fullmatch(word)]
    elsewhere = _contexts_elsewhere(japanese, [word for word in mixed if _HIRAGANA.match(word)])
    ordered = sorted(mixed, key=lambda word: (-len(word), word))
    alternatives = "|".join(f"{_unless(word, elsewhere.get(word, ()))}{word}" for word in ordered)
    return _PATTERN.format(words=f"(?:{alternatives})")


def told_with_gaps(words: Lexicon, seed: int) -> tuple[str, str]:
    """Tell the same story twice: once as usual, and once with a gap in place of each kind and noun of its cast."""

    def gap(entity: Entity) -> Entity:
        return Entity(entity.sort, {**entity.words, **{word: GAP for word in ("kind", "noun") if entity[word]}})

    return tell(words, Random(seed)).text, tell(words, Random(seed), recast=gap).text


def _contexts_elsewhere(japanese: Lexicon, words: Iterable[str]) -> dict[str, set[tuple[str, str]]]:
    """Return the pairs of characters between which a short word is part of another word in hiragana, keyed by word.

    Some characters never follow a kind or noun. If such a character comes after the word, it alone shows that the word
    is part of another word, so the pair's first character is "". Pairs that also surround kinds and nouns are left out,
    because the pattern has to find the word between them.
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
    """Return the characters before and after each occurrence of a word."""
    return [
        (text[match.start() - 1], text[match.end()]) for match in re.finditer(f"(?<=.){re.escape(word)}(?=.)", text)
    ]


def _unless(word: str, contexts: Iterable[tuple[str, str]]) -> str:
    """Return the part of the pattern that excludes a word between any of these pairs of characters."""
    return "".join(
        f"(?!{f'(?<={re.escape(before)})' if before else ''}{word}{re.escape(after)})"
        for before, after in sorted(contexts)
    )
