"""Quantisation: weights of a few bits each, packed like those of MLX and mlx-lm, and layers that use them."""

from collections.abc import Iterator

import mlx.core as mx

from .basics import Linear, linear
from .embedding import Embedding
from .qwen2 import CausalLM

__all__ = ["QuantizedEmbedding", "QuantizedLinear", "dequantize", "quantize", "quantize_model"]


def quantize(weight: mx.array, group_size: int = 64, bits: int = 4) -> tuple[mx.array, mx.array, mx.array]:
    """Quantise a matrix to packed levels of a few bits, with scales and biases: number ~ scale * level + bias.

    Each run of group_size numbers within a row is a group, with a scale and a bias of its own. For a group whose
    smallest number is low and whose largest number is high, compute in float32:
        step = (high - low) / (2^bits - 1), at least 1e-7
        edge = low if |low| > |high|; else high, and then step = -step: levels count from the edge inwards
        zero = edge / step, rounded: apart from its sign, the number of steps between the edge and 0
        scale, bias = edge / zero, edge; if zero is 0, scale, bias = step, 0
        level = (number - bias) / scale, rounded, and clipped to the range from 0 to 2^bits - 1
    Halves are rounded to even. 32 / bits levels are packed into a uint32, the first into the lowest bits. Scales and
    biases are rounded to the dtype of the weight only at the end.
    Shapes: weight: N.. x I -> packed: N.. x (I * bits / 32), uint32; scales and biases: N.. x (I / group_size).
    Source: MLX's `mx.quantize`, mode "affine", on the CPU.

    Raises:
        ValueError: bits is not 2, 4 or 8; group_size is not 32, 64 or 128, or does not divide I.
            `_check_quantization` (given) raises this error.

    Task: w2d3.1
    """
    _check_quantization(weight.shape[-1], group_size, bits)
    raise NotImplementedError(
        "Week 2 Day 3 Task 1: quantize is yours to write. Chapter: Quantisation. Test: ./course test w2d3.1"
    )


def dequantize(packed: mx.array, scales: mx.array, biases: mx.array, group_size: int = 64, bits: int = 4) -> mx.array:
    """Return the matrix that `quantize` packed, up to rounding errors: scale * level + bias.

    Shapes: packed: N.. x (I * bits / 32), scales and biases: N.. x (I / group_size) -> N.. x I. The result has the
    dtype of the scales. Product and sum are computed in float32, and the result is rounded once.

    Raises:
        ValueError: `quantize` does not take these bits or this group_size, packed is not uint32, or the shapes do not
            match. `_check_packed` (given) raises this error.

    Task: w2d3.2
    """
    _check_packed(packed, scales, biases, group_size, bits)
    raise NotImplementedError(
        "Week 2 Day 3 Task 2: dequantize is yours to write. Chapter: Quantisation. Test: ./course test w2d3.2"
    )


class QuantizedLinear:
    """A linear layer that keeps its weight packed. Each call makes the weight dense, and does not keep the dense copy.

    Shapes: packed: O x (I * bits / 32), scales and biases: O x (I / group_size), bias: O or None;
    call with x: N.. x I -> N.. x O.
    """

    def __init__(
        self,
        packed: mx.array,
        scales: mx.array,
        biases: mx.array,
        group_size: int = 64,
        bits: int = 4,
        bias: mx.array | None = None,
    ):
        self.packed, self.scales, self.biases = packed, scales, biases
        self.group_size, self.bits = group_size, bits
        self.bias = bias

    def __call__(self, x: mx.array) -> mx.array:
        """Compute the linear layer y = x W^T + b. Make W dense in the dtype of x, without rounding W to another dtype
        first.

        x has the dtype of scales, biases and bias, or float32. The result has the dtype of x.

        Task: w2d3.3
        """
        raise NotImplementedError(
            "Week 2 Day 3 Task 3: QuantizedLinear.__call__ is yours to write. "
            "Chapter: Quantisation. "
            "Test: ./course test w2d3.3"
        )


class QuantizedEmbedding:
    """A packed `Embedding`: it turns token ids into vectors and, in tied models, hidden vectors into logits.

    Shapes: packed: V x (E * bits / 32), scales and biases: V x (E / group_size).
    """

    def __init__(self, packed: mx.array, scales: mx.array, biases: mx.array, group_size: int = 64, bits: int = 4):
        self.packed, self.scales, self.biases = packed, scales, biases
        self.group_size, self.bits = group_size, bits

    def __call__(self, tokens: mx.array) -> mx.array:
        """Look up the tokens' rows, and make only these rows dense.

        Shapes: tokens: N.., integers -> N.. x E. The result has the dtype of the scales.

        Task: w2d3.3
        """
        raise NotImplementedError(
            "Week 2 Day 3 Task 3: QuantizedEmbedding.__call__ is yours to write. "
            "Chapter: Quantisation. "
            "Test: ./course test w2d3.3"
        )

    def as_linear(self, x: mx.array) -> mx.array:
        """Use the table as the weight of the output layer, like a `QuantizedLinear` without bias.

        Shapes: x: N.. x E -> N.. x V.

        Task: w2d3.3
        """
        raise NotImplementedError(
            "Week 2 Day 3 Task 3: QuantizedEmbedding.as_linear is yours to write. "
            "Chapter: Quantisation. "
            "Test: ./course test w2d3.3"
        )


def quantize_model(model: CausalLM, group_size: int = 64, bits: int = 4) -> None:
    """Replace every `Linear` of a built model and its `Embedding` with quantised layers. Norms and biases stay as they
    are.

    The layers are: in each block, self_attn.{q,k,v,o}_proj and mlp.{gate,up,down}_proj; in the model, embed_tokens and
    lm_head, which may be None. Layers that are already quantised stay as they are.

    Task: w2d3.4
    """
    raise NotImplementedError(
        "Week 2 Day 3 Task 4: quantize_model is yours to write. Chapter: Quantisation. Test: ./course test w2d3.4"
    )


def _check_quantization(columns: int, group_size: int, bits: int) -> None:
    if bits not in (2, 4, 8):
        raise ValueError(f"bits: expected 2, 4 or 8, got {bits}")
    if group_size not in (32, 64, 128) or columns % group_size:
        raise ValueError(f"group_size: expected 32, 64 or 128 and a divisor of {columns}, got {group_size}")


def _check_packed(packed: mx.array, scales: mx.array, biases: mx.array, group_size: int, bits: int) -> None:
    if packed.dtype != mx.uint32:
        raise ValueError(f"packed: expected uint32, got {packed.dtype}")
    columns = packed.shape[-1] * 32 // max(bits, 1)
    _check_quantization(columns, group_size, bits)
    expected = (*packed.shape[:-1], columns // group_size)
    if not scales.shape == biases.shape == expected:
        raise ValueError(f"scales and biases: expected shape {expected}, got {scales.shape} and {biases.shape}")
