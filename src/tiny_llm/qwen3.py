"""Qwen3: Qwen2 with a norm on each head's queries and keys, and without the biases."""

import mlx.core as mx

from tiny_llm_given.config import ModelConfig

from .layer_norm import RMSNorm
from .positional_encoding import RoPE
from .qwen2 import Layer, Qwen2Attention

__all__ = ["Qwen3Attention"]


class Qwen3Attention(Qwen2Attention):
    """Qwen3's attention layer. D is config.head_dim, and H_q * D need not be E.

    q_norm, k_norm: RMSNorms over the D numbers of a head.
    Source: Qwen Team 2025, "Qwen3 Technical Report", section 2, arXiv:2505.09388.
    """

    def __init__(
        self,
        config: ModelConfig,
        q_proj: Layer,
        k_proj: Layer,
        v_proj: Layer,
        o_proj: Layer,
        rope: RoPE,
        q_norm: RMSNorm,
        k_norm: RMSNorm,
    ):
        super().__init__(config, q_proj, k_proj, v_proj, o_proj, rope)
        self.q_norm, self.k_norm = q_norm, k_norm

    def project(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        """Return queries, keys and values as Qwen2's `project` does, but with each head's query and key normalised.
        RoPE is applied later.

        Shapes: x: B x L x E -> queries: B x L x H_q x D, keys and values: B x L x H_kv x D.

        Task: w1d5.4
        """
        raise NotImplementedError(
            "Week 1 Day 5 Task 4: Qwen3Attention.project is yours to write. "
            "Chapter: Qwen2 and Qwen3. "
            "Test: ./course test w1d5.4"
        )
