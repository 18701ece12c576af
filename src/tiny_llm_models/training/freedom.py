"""Measurements of a model's own stories: faults, requests honoured, diversity, and copies of the training text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from ..check import language_of
from ..evaluation import chat_prompt
from ..storyteller import Lexicon, tell
from ..storyteller.reading import Reading, read
from ..storyteller.requests import fulfils, request
from .answers import share
from .sampling import LIMIT, Sampler, Settings

__all__ = ["Told", "copies", "distinct", "free_prompts", "openings", "report", "requests", "tell_stories"]

TALE = {"english": "Once upon a time", "japanese": "むかしむかし"}
_READ = 2**16 - 1  # replaces tokens that the model only reads; no token of the vocabulary has this id
_BASE = 0x9E3779B97F4A7C15  # the base of the polynomial that hashes runs of tokens


@dataclass(frozen=True)
class Told:
    """A story that a model has told, and the checker's reading of it."""

    text: str
    ended: bool
    reading: Reading

    @property
    def right(self) -> bool:
        """Tell whether the story is complete and the checker finds no fault."""
        return self.ended and self.reading.right


def openings(words: Lexicon, count: int, split: str = "test") -> list[str]:
    """Return up to `count` different first sentences of stories. Each split has its own seeds."""
    found: dict[str, None] = {}
    for index in range(20 * count):
        found[tell(words, Random(f"opening {split} {words.language} {index}")).sentences[0]] = None
        if len(found) == count:
            break
    return list(found)


def free_prompts(words: Lexicon, count: int, split: str = "test") -> list[str]:
    """Return beginnings of free stories. Half of the beginnings are the usual first words of a tale; the other half are
    `openings`."""
    return [TALE[words.language]] * (count - count // 2) + openings(words, count // 2, split)


def tell_stories(sampler: Sampler, words: Lexicon, prompts: Sequence[str], settings: Settings, seed: int) -> list[Told]:
    """Let the model continue these beginnings, and check the stories."""
    written = sampler.continued(prompts, settings, LIMIT, seed)
    texts = [prompt + text for prompt, (text, _) in zip(prompts, written, strict=True)]
    return [Told(text, ended, read(words, text)) for text, (_, ended) in zip(texts, written, strict=True)]


def report(told: Sequence[Told]) -> dict[str, Any]:
    """Return figures about these stories: the number of stories, the number of faults of each kind, and shares
    from 0 to 1."""
    faults = Counter(fault.kind for each in told for fault in each.reading.faults)
    plots = Counter(each.reading.story.plot.name for each in told if each.reading.story)
    return {
        "stories": len(told),
        "without faults": share([each.right for each in told]),
        "ended": share([each.ended for each in told]),
        "faults": dict(faults.most_common()),
        "plots": {name: round(number / len(told), 4) for name, number in plots.most_common()},
    }


def requests(sampler: Sampler, words: Lexicon, count: int, settings: Settings, seed: int) -> dict[str, Any]:
    """Return figures about held-out requests, such as the share of requests that the model honours in language, subject
    and every named detail."""
    asked = [request(words, Random(f"request test {words.language} {index}")) for index in range(count)]
    written = sampler.continued([chat_prompt(each.text) for each in asked], settings, LIMIT, seed)
    honoured, right, missed = list[bool](), list[bool](), list[str]()
    for each, (text, ended) in zip(asked, written, strict=True):
        wanted = each.story.lexicon
        reading = read(wanted, text)
        story = reading.story
        honoured.append(language_of(text) == wanted.language and story is not None and fulfils(story, each.wish))
        right.append(ended and reading.right)
        if not honoured[-1]:
            missed.append(f"{each.text} – {text}")
    return {
        "requests": count,
        "honoured": share(honoured),
        "without faults": share(right),
        "honoured and without faults": share([a and b for a, b in zip(honoured, right, strict=True)]),
        "missed": missed[:5],
    }


def distinct(tokens: Sequence[Sequence[int]]) -> float:
    """Return how much the stories differ from one another, from 0 to 1. A pair's difference is the share of the first
    story's distinct bigrams that the second story lacks. The result is the mean over all pairs. tokens: the token ids
    of each story.
    """
    bigrams = [set(pairwise(each)) for each in tokens]
    pairs = [(one, other) for one in bigrams for other in bigrams if one is not other and one]
    return round(sum(len(one - other) / len(one) for one, other in pairs) / len(pairs), 4)


def copies(stories: Sequence[Sequence[int]], training: Iterable[Path], length: int) -> list[bool]:
    """Tell for each story whether some run of `length` tokens also occurs in the text that the model learned to write.

    training: the shards of the training text. Tokens without weight in the loss are not searched.
    """
    runs = [_hashes(np.array(tokens), length) for tokens in stories]
    wanted = np.unique(np.concatenate(runs)) if runs else np.array([], dtype=np.uint64)
    found = np.zeros(len(wanted), dtype=bool)
    for path in training:
        with np.load(path) as arrays:
            found |= np.isin(wanted, _hashes(np.where(arrays["weights"] > 0, arrays["ids"], _READ), length))
    known = wanted[found]
    return [bool(np.isin(each, known).any()) for each in runs]


def _hashes(tokens: np.ndarray[Any, Any], length: int) -> np.ndarray[Any, Any]:
    """Hash each run of `length` tokens to 64 bits, with a polynomial that combines the hashes of the run's halves."""
    tokens = tokens.astype(np.uint64)
    if length == 1:
        return tokens
    half = length // 2
    halves = _hashes(tokens, half)
    runs: np.ndarray[Any, Any] = halves[:-half] * np.uint64(pow(_BASE, half, 2**64)) + halves[half:]
    return runs if length % 2 == 0 else runs[:-1] * np.uint64(_BASE) + tokens[length - 1 :]
