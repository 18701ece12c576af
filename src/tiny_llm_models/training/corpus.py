"""The training text on disk, in shards of encoded documents, and the order in which training uses it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from ..hf_format import END
from ..storyteller.documents import Document, Mix, document
from .encoding import Encoder
from .recipes import Stage

__all__ = ["Batch", "Corpus", "chunks", "shards", "training_document", "write_shard", "write_shards"]

_SHARD = 2000  # documents
_CHUNK = 10  # shards that training reads and mixes together
_APART = 10_000_000  # more documents than any stage has, so that a stage's documents do not depend on other stages
_STORY = Mix(shares={"story": 1})
_WINDOW = 4000  # documents that are sorted by length together


def training_document(stage: Stage, index: int) -> Document:
    """Return the training document with this number: a document of the stage's mix, or one that is only a story."""
    is_story = Random(f"train story {index}").random() < stage.stories
    return document("train", index, _STORY if is_story else stage.mix)


@dataclass(frozen=True)
class _Shard:
    path: Path
    stage: Stage
    documents: range  # the documents' numbers among all training documents
    tokenizer: Path


def shards(folder: Path, stages: Sequence[Stage], number: int) -> list[Path]:
    """Return the files of a stage's training text. number: the stage's index."""
    return [shard.path for shard in _shards(folder, stages, number)]


def write_shards(folder: Path, stages: Sequence[Stage], number: int, advance: Callable[[int], Any]) -> None:
    """Write the missing shards of a stage.

    folder: the folder that contains tokenizer.json. number: the stage's index. advance: a function that is called with
    the number of documents finished since its last call.
    """
    missing = [shard for shard in _shards(folder, stages, number) if not shard.path.exists()]
    advance(stages[number].documents - sum(len(shard.documents) for shard in missing))
    if len(missing) < 2:
        for shard in missing:
            advance(_write(shard))
        return
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), initializer=_die_with_parent) as pool:
        for done in as_completed([pool.submit(_write, shard) for shard in missing]):
            advance(done.result())


def write_shard(path: Path, documents: Iterable[Document], encoder: Encoder, seed: str) -> int:
    """Encode documents into one file, which appears only when it is complete. Return the number of documents."""
    all_ids, all_weights, lengths = [np.array([], np.uint16)], [np.array([], np.uint8)], list[int]()
    for index, each in enumerate(documents):
        ids, weights = encoder.encode(each, Random(f"{seed} {index}"))
        all_ids.append(np.array(ids, dtype=np.uint16))
        all_weights.append(np.array(weights, dtype=np.uint8))
        lengths.append(len(ids))
    unfinished = path.with_suffix(".unfinished.npz")
    np.savez(
        unfinished, ids=np.concatenate(all_ids), weights=np.concatenate(all_weights), lengths=np.array(lengths, int)
    )
    unfinished.replace(path)
    return len(lengths)


def _shards(folder: Path, stages: Sequence[Stage], number: int) -> Iterator[_Shard]:
    stage, first = stages[number], (number + 1) * _APART
    for start in range(0, stage.documents, _SHARD):
        count = min(_SHARD, stage.documents - start)
        documents = range(first + start, first + start + count)
        path = folder / f"corpus-{number + 1}-{documents.start:06}-{documents.stop:06}.npz"
        yield _Shard(path, stage, documents, folder / "tokenizer.json")


def _die_with_parent() -> None:
    """End this process when its parent ends, so that no process goes on writing shards after its training run ends."""

    def watch() -> None:
        parent = parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def _write(shard: _Shard) -> int:
    encoder = Encoder(Tokenizer.from_file(str(shard.tokenizer)), shard.stage.respelled, shard.stage.named)
    documents = (training_document(shard.stage, index) for index in shard.documents)
    return write_shard(shard.path, documents, encoder, f"spelling {shard.documents.start}")


@dataclass(frozen=True)
class Batch:
    """Documents of similar lengths, padded at the end."""

    ids: np.ndarray[Any, Any]  # B x L, int64
    weights: np.ndarray[Any, Any]  # B x L, float32: the weight of each token as a target; 0 for padding


class Corpus:
    """The encoded documents of some shards, and the order in which training uses them."""

    def __init__(self, paths: Sequence[Path], stage: Stage):
        parts: dict[str, list[np.ndarray[Any, Any]]] = {"ids": [], "weights": [], "lengths": []}
        for path in paths:
            with np.load(path) as arrays:
                for name, part in parts.items():
                    part.append(arrays[name])
        self._ids, self._weights, self._lengths = (np.concatenate(part) for part in parts.values())
        self._starts = np.concatenate([[0], np.cumsum(self._lengths)])
        self._stage = stage
        self._fill = Tokenizer.from_file(str(paths[0].parent / "tokenizer.json")).token_to_id(END)

    def plan(self, every: int, seed: str) -> list[list[int]]:
        """Return the numbers of each batch's documents. The order is random, but documents in a batch have similar
        lengths.

        every: one in this many documents is used.
        """
        random, batches, count = Random(seed), [], len(self._lengths)
        numbers = random.sample(range(count), count // every)
        for start in range(0, len(numbers), _WINDOW):
            batches += self._group(numbers[start : start + _WINDOW])
        random.shuffle(batches)
        return batches

    def batch(self, documents: list[int]) -> Batch:
        """Return these documents as a batch, each cut to the stage's context."""
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


def chunks(paths: Sequence[Path], more: Sequence[Path] = ()) -> list[list[Path]]:
    """Divide a stage's shards into the chunks that training reads one after the other.

    more: other shards, which are spread evenly over the chunks.
    """
    found = [[*paths[start : start + _CHUNK]] for start in range(0, len(paths), _CHUNK)]
    for i, path in enumerate(more):
        found[i * len(found) // len(more)].append(path)
    return found
