"""What a model tells when it is free to: whether its stories end, differ from each other, and are its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise, permutations
from random import Random
from typing import Any

import numpy as np

from .stories import Words, tell_story

__all__ = ["Copies", "distinct_between", "distinct_pooled", "starts"]

_TALE = {"english": "Once upon a time", "japanese": "むかしむかし"}


def starts(language: str, count: int) -> list[str]:
    """How the stories begin: half of them as all tales do, half with the first sentence of a held-out story."""
    words = Words(language, "test")
    stories = (tell_story(words, Random(f"start {language} {i}")) for i in range(count // 2))
    return [_TALE[language]] * (count - count // 2) + [story.sentences[0] for story in stories]


def distinct_between(stories: Sequence[Sequence[int]]) -> float:
    """Mean over all pairs of stories: how many of one's different bigrams the other does not have (0: none, 1: all)."""
    bigrams = [_bigrams(story) for story in stories]
    shares = [len(one - other) / len(one) for one, other in permutations(bigrams, 2)]
    return sum(shares) / len(shares)


def distinct_pooled(stories: Sequence[Sequence[int]]) -> float:
    """Different bigrams of all stories together, per bigram: it falls with the number of stories (Li et al. 2016)."""
    return len(set().union(*map(_bigrams, stories))) / sum(len(story) - 1 for story in stories)


class Copies:
    """Finds what stands word for word in the training text.

    length: of the runs of tokens that count as copied.
    """

    def __init__(self, training: Iterable[list[int]], length: int):
        self._length = length
        texts = [np.array(tokens, dtype=np.uint64) for tokens in training]
        self._known = np.unique(self._hashes(np.concatenate(texts)))  # runs across two texts do no harm

    def found(self, tokens: list[int]) -> bool:
        """Whether a run of this many tokens stands in the training text."""
        runs = self._hashes(np.array(tokens, dtype=np.uint64))
        places = np.searchsorted(self._known, runs).clip(max=len(self._known) - 1)
        return bool((self._known[places] == runs).any())

    def _hashes(self, tokens: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """One number of 64 bits for each run of tokens."""
        runs = len(tokens) - self._length + 1
        result = np.zeros(max(runs, 0), dtype=np.uint64)
        for i in range(self._length if runs > 0 else 0):
            result = result * np.uint64(0x9E3779B97F4A7C15) + tokens[i : i + runs] + np.uint64(1)
        return result


def _bigrams(story: Sequence[int]) -> set[tuple[int, int]]:
    return set(pairwise(story))
