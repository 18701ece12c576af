"""From documents to batches of token ids, with a weight for each token's loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from ..hf_format import END
from ..stories import Document, document
from .recipes import Stage
from .tokenizer import with_fewer_merges

__all__ = ["Batch", "Corpus", "Encoder", "training_documents", "write_corpus"]

_RANDOM_SHARE, _CUT_SHARE = 0.35, 0.35  # of names and nouns, each time for a whole document
_CUT_MERGES = (0.05, 0.1, 0.2, 0.4)
_WINDOW = 1000  # documents among which those of one length find together


def training_documents(stages: Sequence[Stage], number: int) -> Iterator[Document]:
    """The documents of the stage of this number, in the order of training."""
    stage, first = stages[number], sum(stage.documents for stage in stages[:number])
    for index in range(stage.documents):
        short = index < stage.short_first * stage.documents
        yield document("train", first + index, replace(stage.mix, long=0) if short else stage.mix)


class Encoder:
    """From documents to token ids.

    The tokenizer knows the nouns and many names of the training stories as single tokens, but cuts those that it never
    saw into pieces. So that the model learns to read and copy any piece, what questions ask for is spelled anew in each
    document: some are cut up as if they were unknown (compare BPE-dropout, Provilkov et al. 2020, arXiv:1910.13267),
    some become a few tokens drawn by lot. Nobody can foresee such a spelling where it first stands: there it has no
    weight, and the model does not learn to write it.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._cut = [with_fewer_merges(tokenizer, share) for share in _CUT_MERGES]
        self._vocab_size = tokenizer.get_vocab_size(with_added_tokens=False)

    def encode(self, document: Document, random: Random) -> tuple[list[int], list[float]]:
        """The token ids, and for each token the weight of the piece of text in which it begins."""
        text = document.text
        weights = [weight for piece, weight in document.pieces for _ in piece]
        spellings = {word: self._spelling(random) for word in document.subjects}
        encoding = self._tokenizer.encode(text)
        tokens = zip(encoding.ids, encoding.offsets, encoding.word_ids, strict=True)
        ids, token_weights, seen = [], [], set()
        for _, group in groupby(tokens, key=itemgetter(2)):
            whole, offsets, _ = zip(*group, strict=True)
            start, end = offsets[0][0], offsets[-1][1]
            spelled, weight = text[start:end], weights[start]
            word = spelled.strip()
            if spell := spellings.get(word):
                pieces = spell(spelled)
                weight = weight if word in seen else 0
                seen.add(word)
            else:
                pieces = list(whole)
            ids += pieces
            token_weights += [weight] * len(pieces)
        return ids, token_weights

    def _spelling(self, random: Random) -> Callable[[str], list[int]] | None:
        """How a word is spelled in one document; None: as the tokenizer does."""
        lot = random.random()
        if lot < _RANDOM_SHARE:
            tokens = [random.randrange(self._vocab_size) for _ in range(random.randint(1, 3))]
            return lambda text: tokens
        if lot < _RANDOM_SHARE + _CUT_SHARE:
            cut = random.choice(self._cut)
            return lambda text: list(cut.encode(text).ids)
        return None


def write_corpus(
    path: Path, tokenizer: Tokenizer, documents: Iterable[Document], advance: Callable[[int], Any]
) -> None:
    """Encode the documents into one file. advance: is told how many more are done."""
    all_ids, all_weights, lengths = [], [], []
    encoder, random = Encoder(tokenizer), Random(0)
    for each in documents:
        ids, weights = encoder.encode(each, random)
        all_ids.append(np.array(ids, dtype=np.uint16))
        all_weights.append(np.array(weights, dtype=np.uint8))
        lengths.append(len(ids))
        advance(1)
    unfinished = path.with_suffix(".unfinished.npz")
    np.savez(unfinished, ids=np.concatenate(all_ids), weights=np.concatenate(all_weights), lengths=np.array(lengths))
    unfinished.rename(path)


@dataclass(frozen=True)
class Batch:
    """Documents of about one length, filled up at their ends."""

    ids: np.ndarray[Any, Any]  # B, L int64
    weights: np.ndarray[Any, Any]  # B, L float32: how much each token counts as a target; 0 for the filling


class Corpus:
    """The encoded documents, and the order in which they are trained on."""

    def __init__(self, path: Path, stage: Stage):
        with np.load(path) as arrays:
            self._ids, self._weights, self._lengths = arrays["ids"], arrays["weights"], arrays["lengths"]
        self._starts = np.concatenate([[0], np.cumsum(self._lengths)])
        self._stage = stage
        self._fill = Tokenizer.from_file(str(path.parent / "tokenizer.json")).token_to_id(END)

    def plan(self, every: int, seed: int) -> list[list[int]]:
        """The documents' numbers, batch by batch: those that stand near each other are sorted by their lengths."""
        random, batches, numbers = Random(seed), [], range(0, len(self._lengths), every)
        for start in range(0, len(numbers), _WINDOW):
            window = self._group(numbers[start : start + _WINDOW])
            random.shuffle(window)
            batches += window
        return batches

    def batch(self, documents: list[int]) -> Batch:
        length = max(self._padded(i) for i in documents)
        ids = np.full((len(documents), length), self._fill, dtype=np.int64)
        weights = np.zeros((len(documents), length), dtype=np.float32)
        for row, i in enumerate(documents):
            start, end = self._starts[i], self._starts[i] + min(self._lengths[i], length)
            ids[row, : end - start] = self._ids[start:end]
            weights[row, : end - start] = self._weights[start:end]
        return Batch(ids, weights)

    def _group(self, documents: Iterable[int]) -> list[list[int]]:
        batches: list[list[int]] = [[]]
        for i in sorted(documents, key=lambda i: self._lengths[i]):
            if (len(batches[-1]) + 1) * self._padded(i) > self._stage.batch_tokens and batches[-1]:
                batches.append([])
            batches[-1].append(i)
        return batches

    def _padded(self, i: int) -> int:
        return min(-(-int(self._lengths[i]) // 32) * 32, self._stage.context)
