"""The MLP, the second half of a transformer block."""

from collections.abc import Callable

import mlx.core as mx

from .basics import silu

__all__ = ["SwiGLU"]


class SwiGLU:
    """Gated MLP, also called feed-forward layer: down(silu(gate(x)) * up(x)).

    gate_proj, up_proj, down_proj: `Linear` layers, or objects with the same interface, from E to I, E to I, and I to E
    numbers; E = hidden_size and I = intermediate_size. A call never changes x, even if a layer returns x itself.
    Shapes: call with x: N.. x E -> N.. x E.
    Source: Shazeer 2020, "GLU Variants Improve Transformer", arXiv:2002.05202.
    """

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        gate_proj: Callable[[mx.array], mx.array],
        up_proj: Callable[[mx.array], mx.array],
        down_proj: Callable[[mx.array], mx.array],
    ):
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.gate_proj, self.up_proj, self.down_proj = gate_proj, up_proj, down_proj

    def __call__(self, x: mx.array) -> mx.array:
        """Multiply each of the I numbers of up(x) by its gate, silu(gate(x)), and map the products back to E numbers.

        Task: w1d4.2
        """
        raise NotImplementedError(
            "Week 1 Day 4 Task 2: SwiGLU.__call__ is yours to write. "
            "Chapter: RMSNorm and the gated MLP. "
            "Test: ./course test w1d4.2"
        )
