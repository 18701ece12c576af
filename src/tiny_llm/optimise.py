"""The layer seam, where layers that run week 2's kernels replace the layers of a built model. Given.

The model's own code does not change, and tests compare these layers with the plain layers.
"""

from collections.abc import Collection
from typing import Any

import mlx.core as mx

from tiny_llm_given.linears import named_linears

from .kernels.quantized_matmul import quantized_matmul
from .kernels.quantized_matvec import quantized_matvec
from .kernels.rms_norm import add_rms_norm, rms_norm
from .kernels.rope import rope
from .kernels.swiglu import swiglu
from .kv_cache import LayerCache
from .layer_norm import RMSNorm
from .mlp import SwiGLU
from .positional_encoding import RoPE
from .quantize import QuantizedEmbedding, QuantizedLinear
from .qwen2 import CausalLM, TransformerBlock

__all__ = ["KERNELS", "KernelBlock", "KernelLinear", "KernelNorm", "KernelRoPE", "KernelSwiGLU", "optimise"]

KERNELS = ("quantized_matvec", "rms_norm", "rope", "swiglu", "quantized_matmul")
_FEW = 8  # rows of x: up to this many, `quantized_matvec` is faster than `quantized_matmul`


def optimise(model: CausalLM, kernels: Collection[str] = KERNELS) -> None:
    """Replace the layers of a built model with layers that run the named kernels.

    To run the attention kernel, pass it to the cache: KVCache(layers, attention=kernels.attention.flash_attention).

    Raises:
        ValueError: a name is not one of KERNELS.
    """
    if unknown := set(kernels) - set(KERNELS):
        raise ValueError(f"kernels: expected some of {', '.join(KERNELS)}, got {', '.join(sorted(unknown))}")
    parts: Any = model  # the new layers have other types, but the same interface
    if products := {"quantized_matvec", "quantized_matmul"}.intersection(kernels):
        _replace_products(parts, products)
    for block in parts.layers:
        attention = block.self_attn
        if "rope" in kernels:
            attention.rope = KernelRoPE(attention.rope, model.config.rope_theta)
        if "swiglu" in kernels:
            block.mlp = KernelSwiGLU(block.mlp)
        if "rms_norm" in kernels and hasattr(attention, "q_norm"):
            attention.q_norm, attention.k_norm = KernelNorm(attention.q_norm), KernelNorm(attention.k_norm)
    if "rms_norm" in kernels:
        parts.layers = [KernelBlock(block) for block in parts.layers]
        parts.norm = KernelNorm(model.norm)


def _replace_products(model: Any, kernels: Collection[str]) -> None:
    """Replace each `QuantizedLinear`, and a quantised embedding as the output layer, with a `KernelLinear`."""
    for _, owner, name in named_linears(model):
        if isinstance(layer := getattr(owner, name), QuantizedLinear):
            setattr(owner, name, KernelLinear(layer, kernels))
    if model.lm_head is None and isinstance(model.embed_tokens, QuantizedEmbedding):
        model.lm_head = KernelLinear(model.embed_tokens, kernels)


class KernelLinear:
    """A quantised layer that runs one kernel for few rows of x and another kernel for many rows. If `kernels` does not
    include the kernel that is needed, the plain layer runs instead."""

    def __init__(self, layer: QuantizedLinear | QuantizedEmbedding, kernels: Collection[str] = KERNELS):
        self.weight = layer.packed, layer.scales, layer.biases, layer.group_size, layer.bits
        self.bias = getattr(layer, "bias", None)
        self.plain = layer.as_linear if isinstance(layer, QuantizedEmbedding) else layer
        self.few = quantized_matvec if "quantized_matvec" in kernels else None
        self.many = quantized_matmul if "quantized_matmul" in kernels else None

    def __call__(self, x: mx.array) -> mx.array:
        multiply = self.few if x.size <= _FEW * x.shape[-1] else self.many
        if multiply is None:
            return self.plain(x)
        y = multiply(x, *self.weight)
        return y if self.bias is None else y + self.bias


class KernelBlock:
    """A transformer block that computes its first sum and its second norm with one kernel."""

    def __init__(self, block: TransformerBlock):
        self.self_attn, self.mlp = block.self_attn, block.mlp
        self.input_layernorm = KernelNorm(block.input_layernorm)
        self.post_attention_layernorm = KernelNorm(block.post_attention_layernorm)

    def __call__(self, x: mx.array, layer_cache: LayerCache) -> mx.array:
        norm = self.post_attention_layernorm
        x, normed = add_rms_norm(x, self.self_attn(self.input_layernorm(x), layer_cache), norm.weight, norm.eps)
        return x + self.mlp(normed)


class KernelNorm:
    """An RMSNorm that runs a kernel."""

    def __init__(self, norm: RMSNorm):
        self.weight, self.eps = norm.weight, norm.eps

    def __call__(self, x: mx.array) -> mx.array:
        return rms_norm(x, self.weight, self.eps)


class KernelRoPE:
    """A RoPE that runs a kernel, which computes the angles itself and needs no tables."""

    def __init__(self, plain: RoPE, base: float):
        self.base, self.traditional = base, plain.traditional

    def __call__(self, x: mx.array, offset: int | mx.array) -> mx.array:
        return rope(x, offset, self.base, self.traditional)


class KernelSwiGLU:
    """An MLP that computes silu(gate) * up with one kernel, in one pass over memory."""

    def __init__(self, mlp: SwiGLU):
        self.gate_proj, self.up_proj, self.down_proj = mlp.gate_proj, mlp.up_proj, mlp.down_proj

    def __call__(self, x: mx.array) -> mx.array:
        return self.down_proj(swiglu(self.gate_proj(x), self.up_proj(x)))
