"""Encoding of documents as token ids, with a weight for each token in the loss."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from random import Random

from tokenizers import Encoding, Tokenizer

from ..storyteller.documents import Document
from .tokenizer import with_fewer_merges

__all__ = ["Encoder"]

_RANDOM_SHARE, _MADE_UP_SHARE, _CUT_SHARE = 0.2, 0.5, 0.2  # shares of the names and things in a respelled document
_CUT_MERGES = (0.05, 0.1, 0.2, 0.4)
_VOWELS = [*"aeiou", "ai", "ea", "ee", "oa", "oo"]
_CONSONANTS = [
    *"bcdfghjklmnprstvwy",
    "br",
    "ch",
    "cl",
    "ck",
    "gr",
    "ll",
    "mp",
    "nd",
    "ph",
    "sh",
    "st",
    "tch",
    "th",
    "tr",
]
_KANJI, _KANA = (0x4E00, 0x9FA0), ((0x3042, 0x3094), (0x30A2, 0x30F4))  # half-open ranges of code points
_Spell = Callable[[str], list[int]]


class Encoder:
    """An encoder from documents to token ids.

    If every name and thing were always a single token, a model would learn to copy only these tokens. So in some
    documents, the names and things that questions ask about are respelled: some words become made-up words, some are
    cut into pieces (compare BPE-dropout, Provilkov et al. 2020, arXiv:1910.13267), and some become a few random tokens.
    Only stories that the model reads without learning to tell them are respelled, along with the answers about them.

    respelled: the share of respelled documents among the documents that list `subjects`.
    named: the weight of words for a story's persons and things, if the model learns to tell the story.
    """

    def __init__(self, tokenizer: Tokenizer, respelled: float, named: int):
        self._tokenizer, self._respelled, self._named = tokenizer, respelled, named
        self._cut = [with_fewer_merges(tokenizer, share) for share in _CUT_MERGES]
        self._vocab_size = tokenizer.get_vocab_size(with_added_tokens=False)

    def encode(self, document: Document, random: Random) -> tuple[list[int], list[float]]:
        """Return the token ids and each token's weight.

        A token has the weight of its piece of text, or a greater weight if the token belongs to a word for one of the
        story's persons and things.
        """
        spellings: dict[str, _Spell] = {}
        if document.subjects and random.random() < self._respelled:
            spellings = {word: spell for word in document.subjects if (spell := self._spelling(word, random))}
        ids: list[int] = []
        weights: list[float] = []
        for (text, weight), encoding in zip(document.pieces, self._encodings(document), strict=True):
            piece = _respelled(text, encoding, spellings) if spellings else encoding.ids
            ids += piece
            weights += [weight] * len(piece)
            if weight and document.named:
                for i, (start, end) in enumerate(encoding.offsets, len(weights) - len(piece)):
                    if text[start:end].strip() in document.named:
                        weights[i] = max(weight, self._named)
        return ids, weights

    def _encodings(self, document: Document) -> list[Encoding]:
        """Encode each piece by itself. The result equals the tokens of the whole text, because pieces begin and end at
        line breaks or special tokens."""
        return self._tokenizer.encode_batch([text for text, _ in document.pieces])

    def _spelling(self, word: str, random: Random) -> _Spell | None:
        """Choose the spelling of a word in one document. Return None to keep the tokenizer's spelling."""
        lot = random.random()
        if lot < _RANDOM_SHARE:
            tokens = [random.randrange(self._vocab_size) for _ in range(random.randint(1, 3))]
            return lambda text: tokens
        if lot < _RANDOM_SHARE + _MADE_UP_SHARE:
            made_up = _made_up(word, random)
            return lambda text: self._tokenizer.encode(f" {made_up}" if text.startswith(" ") else made_up).ids
        if lot < _RANDOM_SHARE + _MADE_UP_SHARE + _CUT_SHARE:
            cut = random.choice(self._cut)
            return lambda text: list(cut.encode(text).ids)
        return None


def _made_up(word: str, random: Random) -> str:
    """Return a made-up word in the language of `word`."""
    if word.isascii():
        parts = [random.choice(_VOWELS if i % 2 else _CONSONANTS) for i in range(random.randint(3, 7))]
        made_up = "".join(parts)
        return made_up.capitalize() if word[0].isupper() else made_up
    if random.random() < 0.6:
        return "".join(chr(random.randrange(*_KANJI)) for _ in range(random.randint(1, 3)))
    letters = random.choice(_KANA)
    return "".join(chr(random.randrange(*letters)) for _ in range(random.randint(2, 5)))


def _respelled(text: str, encoding: Encoding, spellings: dict[str, _Spell]) -> list[int]:
    """Return the tokens of a text, with the chosen spellings of its words."""
    ids: list[int] = []
    tokens = zip(encoding.ids, encoding.offsets, encoding.word_ids, strict=True)
    for _, group in groupby(tokens, key=itemgetter(2)):
        whole, offsets, _ = zip(*group, strict=True)
        word = text[offsets[0][0] : offsets[-1][1]]
        spell = spellings.get(word.strip())
        ids += spell(word) if spell else whole
    return ids
