"""The fastest form of a model: packed weights, one operation before each attention, and one after it. Given.

This form plugs in at the layer seam: `tune` replaces a built model's embedding, blocks, last norm and output layer with
objects of the same interface. Week 2 leads up to this model, and tests compare these objects with the plain layers.
"""

from typing import Any

import mlx.core as mx

from tiny_llm_given.config import ModelConfig
from tiny_llm_given.linears import named_linears
from tiny_llm_native.matmul.block import after_attention, before_attention, embed, join, norm_matmul
from tiny_llm_native.matmul.packed import GROUP, ROWS, can_pack, can_pack_unquantised, pack, pack_unquantised

from .kv_cache import LayerCache
from .quantize import QuantizedEmbedding, QuantizedLinear
from .qwen2 import CausalLM

__all__ = ["TunedBlock", "TunedEmbedding", "tune"]


def tune(model: CausalLM, dtype: mx.Dtype | None = None) -> None:
    """Replace the parts of a built model with tuned parts.

    Weights of 4 bits are multiplied by activations in float32 or bfloat16, and sums are in float32. If int8 is chosen
    (tiny_llm_native/matmul/arithmetic.py), the parts round activations to 8 bits, with a scale per 64 activations. Then
    a product has a relative error of 0.6 % (root mean square). Weights that are not quantised are stored in bfloat16,
    and multiplied in float32. dtype: the dtype of activations; None means that of the model.

    Raises:
        ValueError: a layer is quantised, but not to 4 bits per weight in groups of 64 weights with bfloat16 scales. Or
            a layer is not quantised, and bfloat16 cannot represent its weights exactly. Or a layer's number of rows is
            not a multiple of 16, or its number of columns not a multiple of 64. The model is then unchanged.
        KernelError: no kernels are built. The model is then unchanged.
    """
    parts: Any = model  # the new layers have other types, but the same interface
    dtype = dtype or model.norm.weight.dtype
    for layer in (parts.embed_tokens, *(getattr(owner, name) for _, owner, name in named_linears(model))):
        _check(layer)
    table = _panels(parts.embed_tokens)
    head = table if parts.lm_head is None else _panels(parts.lm_head)
    embedding = TunedEmbedding(table, dtype)
    embedding(mx.array([0]))  # raises an error if no kernel can run
    parts.layers = [TunedBlock(block, model.config, dtype) for block in parts.layers]
    norm, eps = model.norm.weight.astype(dtype), model.norm.eps
    parts.embed_tokens = embedding
    parts.lm_head = lambda x: norm_matmul(x, norm, head, eps)  # the last norm is included
    parts.norm = lambda x: x


class TunedBlock:
    """The tuned form of a `TransformerBlock`, with the same interface."""

    def __init__(self, block: Any, config: ModelConfig, dtype: mx.Dtype):
        attention, mlp = block.self_attn, block.mlp
        q, k, v = attention.q_proj, attention.k_proj, attention.v_proj
        self.heads = (config.num_attention_heads, config.num_key_value_heads, config.head_dim)
        self.scale = config.head_dim**-0.5
        self.eps, self.base = config.rms_norm_eps, config.rope_theta
        self.norms = [x.weight.astype(dtype) for x in (block.input_layernorm, block.post_attention_layernorm)]
        head_norms = [attention.q_norm, attention.k_norm] if hasattr(attention, "q_norm") else []
        self.head_norms = [x.weight.astype(dtype) for x in head_norms] or None
        self.bias = None if q.bias is None else mx.concatenate([layer.bias for layer in (q, k, v)]).astype(dtype)
        qkv = mx.concatenate([_panels(layer) for layer in (q, k, v)])
        gate_up = mx.stack([_panels(mlp.gate_proj), _panels(mlp.up_proj)], axis=1).flatten(0, 1)
        parts = join([qkv, _panels(attention.o_proj), gate_up, _panels(mlp.down_proj)])
        mx.eval(parts)
        self.qkv, self.o, self.gate_up, self.down = parts

    def __call__(self, x: mx.array, layer_cache: LayerCache) -> mx.array:
        q, k, v = self.before(x, layer_cache.offset)
        return self.after(layer_cache.attend(q, k, v, self.scale), x)

    def before(self, x: mx.array, offset: int | mx.array) -> list[mx.array]:
        """Return the block's queries and keys, both rotated, and its values."""
        return before_attention(
            x, self.norms[0], self.qkv, self.head_norms, self.bias, self.heads, self.eps, self.base, offset
        )

    def after(self, attended: mx.array, x: mx.array) -> mx.array:
        """Return the block's output. attended: the result of attention. x: the block's input."""
        return after_attention(attended, x, self.o, self.norms[1], self.gate_up, self.down, self.eps)


class TunedEmbedding:
    """An embedding whose table is packed."""

    def __init__(self, panels: mx.array, dtype: mx.Dtype):
        self.panels, self.dtype = panels, dtype

    def __call__(self, tokens: mx.array) -> mx.array:
        return embed(mx.contiguous(tokens.astype(mx.int32)), self.panels, self.dtype)


def _check(layer: Any) -> None:
    """Raise a ValueError if a layer's weights cannot be packed."""
    if not isinstance(layer, QuantizedLinear | QuantizedEmbedding):
        if not can_pack_unquantised(layer.weight):
            raise ValueError(
                f"expected weights that bfloat16 represents exactly, a multiple of {ROWS} rows and a multiple of "
                f"{GROUP} columns, got a matrix of {layer.weight.shape} in {layer.weight.dtype}"
            )
    elif not can_pack(layer.packed, layer.scales, layer.group_size, layer.bits):
        raise ValueError(
            f"expected 4 bits in groups of 64, bfloat16 scales and a multiple of {ROWS} rows, got {layer.bits} bits in "
            f"groups of {layer.group_size}, {layer.scales.dtype} and {layer.packed.shape[0]} rows"
        )


def _panels(layer: Any) -> mx.array:
    if isinstance(layer, QuantizedLinear | QuantizedEmbedding):
        return pack(layer.packed, layer.scales, layer.biases)
    return pack_unquantised(layer.weight)
