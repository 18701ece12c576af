"""The attention layer of Qwen2 and Qwen2.5, and the block and the language model that all later models share."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import mlx.core as mx

from tiny_llm_given.config import ModelConfig

from .embedding import Embedding
from .kv_cache import Cache, LayerCache, NoCache
from .layer_norm import RMSNorm
from .positional_encoding import RoPE

__all__ = ["CausalLM", "Layer", "Qwen2Attention", "TransformerBlock"]

Layer: TypeAlias = Callable[[mx.array], mx.array]  # a `Linear`, or anything that is called in the same way


class Qwen2Attention:
    """Qwen2's attention layer: project, split into heads, rotate, attend, join, project.

    q_proj: E -> H_q * D, k_proj and v_proj: E -> H_kv * D (in Qwen2, all three have a bias), o_proj: H_q * D -> E.
    """

    def __init__(self, config: ModelConfig, q_proj: Layer, k_proj: Layer, v_proj: Layer, o_proj: Layer, rope: RoPE):
        self.num_heads = config.num_attention_heads
        self.num_kv_heads = config.num_key_value_heads
        self.head_dim = config.head_dim
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = q_proj, k_proj, v_proj, o_proj
        self.rope = rope

    def project(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        """Return queries, keys and values of each token, split into heads and not yet rotated.

        Shapes: x: B x L x E -> queries: B x L x H_q x D, keys and values: B x L x H_kv x D. Head h owns columns h*D to
        (h+1)*D - 1; D is config.head_dim, and H_q * D need not be E.

        Task: w1d5.2
        """
        raise NotImplementedError(
            "Week 1 Day 5 Task 2: Qwen2Attention.project is yours to write. "
            "Chapter: Qwen2 and Qwen3. "
            "Test: ./course test w1d5.2"
        )

    def __call__(self, x: mx.array, layer_cache: LayerCache) -> mx.array:
        """Return the layer's output. The cache (`kv_cache.LayerCache`) knows the position of x's first token, and
        computes the attention.

        Shapes: x: B x L x E -> B x L x E. rope takes B x L x H x D and `layer_cache.offset`;
        `layer_cache.attend` takes and returns B x H x L x D.

        Task: w1d5.2
        """
        raise NotImplementedError(
            "Week 1 Day 5 Task 2: Qwen2Attention.__call__ is yours to write. "
            "Chapter: Qwen2 and Qwen3. "
            "Test: ./course test w1d5.2"
        )


class TransformerBlock:
    """A transformer block: attention, then the MLP. Each part reads the residual stream through a norm, and adds its
    result to the stream."""

    def __init__(
        self,
        self_attn: Callable[[mx.array, LayerCache], mx.array],
        mlp: Layer,
        input_layernorm: RMSNorm,
        post_attention_layernorm: RMSNorm,
    ):
        self.self_attn = self_attn
        self.mlp = mlp
        self.input_layernorm = input_layernorm
        self.post_attention_layernorm = post_attention_layernorm

    def __call__(self, x: mx.array, layer_cache: LayerCache) -> mx.array:
        """Add the result of attention to x, then the result of the MLP to this sum.

        `input_layernorm` normalises the input of attention, `post_attention_layernorm` the input of the MLP.
        Shapes: x: B x L x E -> B x L x E.

        Task: w1d5.3
        """
        raise NotImplementedError(
            "Week 1 Day 5 Task 3: TransformerBlock.__call__ is yours to write. "
            "Chapter: Qwen2 and Qwen3. "
            "Test: ./course test w1d5.3"
        )


class CausalLM:
    """A decoder-only language model: after each token, it returns a logit for every vocabulary entry as the next token.

    lm_head: a layer E -> V, or None if the embedding is also the output layer (`tie_word_embeddings`).
    """

    def __init__(
        self,
        config: ModelConfig,
        embed_tokens: Embedding,
        layers: Sequence[TransformerBlock],
        norm: RMSNorm,
        lm_head: Layer | None = None,
    ):
        self.config = config
        self.embed_tokens = embed_tokens
        self.layers = list(layers)
        self.norm = norm
        self.lm_head = lm_head

    def hidden(self, tokens: mx.array, cache: Cache) -> mx.array:
        """Return the vector of each token after all blocks and the last norm.

        Pass `cache.layers[i]` to layer i, and call `cache.advance(L)` once, after all layers.

        Shapes: tokens: B x L, integers -> B x L x E. The result has the embedding's dtype.

        Task: w1d5.3
        """
        raise NotImplementedError(
            "Week 1 Day 5 Task 3: CausalLM.hidden is yours to write. "
            "Chapter: Qwen2 and Qwen3. "
            "Test: ./course test w1d5.3"
        )

    def logits(self, hidden: mx.array) -> mx.array:
        """Return one logit per vocabulary entry: the larger the logit, the likelier the entry is as the next token.

        Shapes: hidden: B x L x E -> B x L x V. The dtype is kept.

        Task: w1d5.3
        """
        raise NotImplementedError(
            "Week 1 Day 5 Task 3: CausalLM.logits is yours to write. "
            "Chapter: Qwen2 and Qwen3. "
            "Test: ./course test w1d5.3"
        )

    def __call__(self, tokens: mx.array, cache: Cache | None = None) -> mx.array:
        """Return the logits after each token. Without a cache, the text begins with `tokens`.

        Shapes: tokens: B x L, integers -> B x L x V.
        """
        return self.logits(self.hidden(tokens, NoCache(len(self.layers)) if cache is None else cache))
