"""From documents to batches of token ids, with a weight for each token's loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from ..stories.documents import END, Document, document
from .tokenizer import with_fewer_merges

__all__ = ["DOCUMENTS", "Batch", "Corpus", "Encoder", "corpus_documents", "echo", "write_corpus"]

DOCUMENTS = 60_000
LONG_SHARE = 0.2  # of the documents in the second half of the corpus; the first has short ones only
_ECHOES_FIRST = 0.2  # echoes before the first document, and between documents, for each document
_ECHOES_LATER = 0.03
_CUT_SHARE = 0.4  # of the nouns, each time for a whole document
_CUT_MERGES = (0.05, 0.1, 0.2, 0.4)


def corpus_documents(count: int) -> Iterator[Document]:
    """The training documents in the order of training: short ones first."""
    for index in range(count):
        yield document("train", index, LONG_SHARE if 2 * index >= count else 0)


class Encoder:
    """From documents to token ids.

    The tokenizer knows every noun of the training stories as one token, but cuts those that it never saw into pieces.
    So that the model can read those too, some nouns of each document are cut up as if they were unknown (compare
    BPE-dropout, Provilkov et al. 2020, arXiv:1910.13267).
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._cut = [with_fewer_merges(tokenizer, share) for share in _CUT_MERGES]

    def encode(self, document: Document, random: Random) -> tuple[list[int], list[float]]:
        """The token ids, and for each token the weight of the piece of text in which it begins."""
        text = document.text
        weights = [weight for piece, weight in document.pieces for _ in piece]
        cut = {noun: random.choice(self._cut) for noun in document.nouns if random.random() < _CUT_SHARE}
        encoding = self._tokenizer.encode(text)
        ids, token_weights = [], []
        for id_, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            tokenizer = cut.get(text[start:end].strip())
            pieces = [id_] if tokenizer is None else tokenizer.encode(text[start:end]).ids
            ids += pieces
            token_weights += [weights[start]] * len(pieces)
        return ids, token_weights


def echo(random: Random, vocab_size: int) -> tuple[list[int], list[float]]:
    """Any tokens, and the same again, a few times: what comes next can only be looked up.

    To find a thing by a name that it never saw, a model has to copy whatever stood behind the same tokens before
    (induction heads, Olsson et al. 2022, arXiv:2209.11895).
    From stories it learns that late, or for known names only.
    """
    run = [random.randrange(vocab_size) for _ in range(random.randint(8, 40))]
    times = random.randint(2, 4)
    return run * (1 + times), [0.0] * len(run) + [1.0] * len(run) * times


def write_corpus(path: Path, tokenizer: Tokenizer, count: int, advance: Callable[[int], Any]) -> None:
    """Encode this many documents into one file. advance: is told how many more are done."""
    all_ids, all_weights, lengths = [], [], []
    for ids, weights in _encoded(tokenizer, count, advance):
        all_ids.append(np.array(ids, dtype=np.uint16))
        all_weights.append(np.array(weights, dtype=np.uint8))
        lengths.append(len(ids))
    unfinished = path.with_suffix(".unfinished.npz")
    np.savez(unfinished, ids=np.concatenate(all_ids), weights=np.concatenate(all_weights), lengths=np.array(lengths))
    unfinished.rename(path)


def _encoded(
    tokenizer: Tokenizer, count: int, advance: Callable[[int], Any]
) -> Iterator[tuple[list[int], list[float]]]:
    """Ids and weights in the order of training: echoes, then documents with some more echoes between them."""
    encoder, random, vocab_size = Encoder(tokenizer), Random(0), tokenizer.get_vocab_size(with_added_tokens=False)
    for _ in range(int(_ECHOES_FIRST * count)):
        yield echo(random, vocab_size)
    for doc in corpus_documents(count):
        yield encoder.encode(doc, random)
        if random.random() < _ECHOES_LATER:
            yield echo(random, vocab_size)
        advance(1)


@dataclass(frozen=True)
class Batch:
    """Documents of about one length, filled up at their ends."""

    ids: np.ndarray[Any, Any]  # B, L int64
    weights: np.ndarray[Any, Any]  # B, L float32: how much each token counts as a target; 0 for the filling


class Corpus:
    """The encoded documents, and the order in which they are trained on."""

    def __init__(self, path: Path, context: int):
        with np.load(path) as arrays:
            self._ids, self._weights, self._lengths = arrays["ids"], arrays["weights"], arrays["lengths"]
        self._starts = np.concatenate([[0], np.cumsum(self._lengths)])
        self._context = context
        self._fill = Tokenizer.from_file(str(path.parent / "tokenizer.json")).token_to_id(END)

    def plan(self, batch_tokens: int, seed: int, epochs: int = 1) -> list[list[int]]:
        """The documents' numbers, batch by batch: those that stand near each other are sorted by their lengths."""
        random, batches = Random(seed), []
        for epoch in range(epochs):
            order = list(range(len(self._lengths)))
            if epoch:
                random.shuffle(order)
            for start in range(0, len(order), 1000):
                window = self._group(order[start : start + 1000], batch_tokens)
                random.shuffle(window)
                batches += window
        return batches

    def batch(self, documents: list[int]) -> Batch:
        length = min(max(self._padded(i) for i in documents), self._context)
        ids = np.full((len(documents), length), self._fill, dtype=np.int64)
        weights = np.zeros((len(documents), length), dtype=np.float32)
        for row, i in enumerate(documents):
            start, end = self._starts[i], self._starts[i] + min(self._lengths[i], length)
            ids[row, : end - start] = self._ids[start:end]
            weights[row, : end - start] = self._weights[start:end]
        return Batch(ids, weights)

    def _group(self, documents: list[int], batch_tokens: int) -> list[list[int]]:
        batches: list[list[int]] = [[]]
        for i in sorted(documents, key=lambda i: self._lengths[i]):
            if (len(batches[-1]) + 1) * min(self._padded(i), self._context) > batch_tokens and batches[-1]:
                batches.append([])
            batches[-1].append(i)
        return batches

    def _padded(self, i: int) -> int:
        return -(-int(self._lengths[i]) // 32) * 32
