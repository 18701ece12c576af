"""Token embedding: the table that turns token ids into vectors and, in tied models, hidden vectors into logits."""

import mlx.core as mx

from .basics import linear

__all__ = ["Embedding"]


class Embedding:
    """A table of V vectors of size E.

    Shapes: weight: V x E; V = vocab_size, E = embedding_dim.

    Raises:
        ValueError: the shape of weight is not V x E.
    """

    def __init__(self, vocab_size: int, embedding_dim: int, weight: mx.array):
        _check_table(weight, (vocab_size, embedding_dim))
        self.vocab_size = vocab_size
        self.embedding_dim = embedding_dim
        self.weight = weight

    def __call__(self, tokens: mx.array) -> mx.array:
        """Return the vector of each token.

        Shapes: tokens: N.., integers -> N.. x E.

        Task: w1d5.1
        """
        raise NotImplementedError(
            "Week 1 Day 5 Task 1: Embedding.__call__ is yours to write. "
            "Chapter: Qwen2 and Qwen3. "
            "Test: ./course test w1d5.1"
        )

    def as_linear(self, x: mx.array) -> mx.array:
        """Use the table as the output layer's weight: an entry's logit is the dot product of x and the entry's row.

        Shapes: x: N.. x E -> N.. x V.
        Source: Press and Wolf 2016, "Using the Output Embedding to Improve Language Models", arXiv:1608.05859.

        Task: w1d5.1
        """
        raise NotImplementedError(
            "Week 1 Day 5 Task 1: Embedding.as_linear is yours to write. "
            "Chapter: Qwen2 and Qwen3. "
            "Test: ./course test w1d5.1"
        )


def _check_table(weight: mx.array, expected: tuple[int, int]) -> None:
    if weight.shape != expected:
        raise ValueError(f"weight: expected shape {expected}, got {weight.shape}")
