"""RMSNorm, which scales each token's vector to a root mean square of 1."""

import mlx.core as mx

__all__ = ["RMSNorm"]


class RMSNorm:
    """Root mean square normalisation: x / sqrt(mean(x^2) + eps) * weight, computed in float32.

    Shapes: weight: dim; call with x: N.. x dim -> the same shape. weight, x and the result have the same dtype.
    Source: Zhang and Sennrich 2019, "Root Mean Square Layer Normalization", arXiv:1910.07467.

    Raises:
        ValueError: the shape of weight is not (dim,).
    """

    def __init__(self, dim: int, weight: mx.array, eps: float = 1e-5):
        _check_weight(weight, dim)
        self.dim = dim
        self.weight = weight
        self.eps = eps

    def __call__(self, x: mx.array) -> mx.array:
        """Normalise the last axis.

        Square and average half-precision input in float32, because in float16 even 300^2 is infinity.

        Task: w1d4.1
        """
        raise NotImplementedError(
            "Week 1 Day 4 Task 1: RMSNorm.__call__ is yours to write. "
            "Chapter: RMSNorm and the gated MLP. "
            "Test: ./course test w1d4.1"
        )


def _check_weight(weight: mx.array, dim: int) -> None:
    if weight.shape != (dim,):
        raise ValueError(f"weight: expected shape {(dim,)}, got {weight.shape}")
