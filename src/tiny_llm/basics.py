"""The smallest parts of a model: softmax, the linear layer, SiLU."""

import mlx.core as mx

__all__ = ["Linear", "linear", "silu", "softmax"]


def softmax(x: mx.array, axis: int = -1) -> mx.array:
    """Compute the softmax along one axis: exp(x) / sum(exp(x)), summed in float32.

    Shapes: x: any shape -> the same shape. The dtype is kept.
    """
    return mx.softmax(x, axis=axis, precise=True)


def linear(x: mx.array, weight: mx.array, bias: mx.array | None = None) -> mx.array:
    """Apply a linear layer: y = x W^T + b.

    Shapes: x: N.. x I, weight: O x I, bias: O -> N.. x O. The dtype is kept.
    Source: PyTorch's `nn.Linear`. Checkpoints, too, store weights as O x I, one row per output.

    Task: w1d1.2
    """
    raise NotImplementedError(
        "Week 1 Day 1 Task 2: linear is yours to write. "
        "Chapter: Attention and multi-head attention. "
        "Test: ./course test w1d1.2"
    )


class Linear:
    """A linear layer with its weights. A model only calls the layer, so any callable with these shapes can replace it.

    Shapes: weight: O x I, bias: O or None; call with x: N.. x I -> N.. x O.
    """

    def __init__(self, weight: mx.array, bias: mx.array | None = None):
        self.weight = weight
        self.bias = bias

    def __call__(self, x: mx.array) -> mx.array:
        return linear(x, self.weight, self.bias)


def silu(x: mx.array) -> mx.array:
    """Compute SiLU, also called swish: x * sigmoid(x).

    Shapes: x: any shape -> the same shape. The dtype is kept.
    Source: Elfwing et al. 2017, "Sigmoid-Weighted Linear Units", arXiv:1702.03118.

    Task: w1d4.2
    """
    raise NotImplementedError(
        "Week 1 Day 4 Task 2: silu is yours to write. Chapter: RMSNorm and the gated MLP. Test: ./course test w1d4.2"
    )
