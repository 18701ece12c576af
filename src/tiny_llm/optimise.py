"""The layer seam: a built model whose layers run week 2's kernels, as far as they are written. Given.

The model does not change, and the plain layers stay what these are tested against.
"""

import mlx.core as mx

from .kernels.quantized_matmul import quantized_matmul
from .kernels.quantized_matvec import quantized_matvec
from .kernels.rms_norm import rms_norm
from .kernels.rope import rope
from .kernels.swiglu import swiglu
from .layer_norm import RMSNorm
from .mlp import SwiGLU
from .positional_encoding import RoPE
from .quantize import QuantizedEmbedding, QuantizedLinear
from .qwen2 import CausalLM

__all__ = ["optimise", "optimise_linear", "optimise_parts"]

FEW = 8  # rows: up to here a product with each is faster than making the weight dense


def optimise(model: CausalLM) -> None:
    """All of it. Attention is the cache's business: KVCache(layers, attention=kernels.attention.flash_attention)."""
    optimise_linear(model)
    optimise_parts(model)


def optimise_linear(model: CausalLM) -> None:
    """Products with quantised weights (days 4 and 6): every `QuantizedLinear`, and the quantised table as output layer."""
    for block in model.layers:
        for owner, names in ((block.self_attn, "qkvo"), (block.mlp, ("gate", "up", "down"))):
            for name in names:
                layer = getattr(owner, f"{name}_proj")
                if isinstance(layer, QuantizedLinear):
                    setattr(owner, f"{name}_proj", KernelLinear(layer))
    if isinstance(model.lm_head, QuantizedLinear):
        model.lm_head = KernelLinear(model.lm_head)
    elif model.lm_head is None and isinstance(model.embed_tokens, QuantizedEmbedding):
        model.lm_head = KernelLinear(model.embed_tokens)


def optimise_parts(model: CausalLM) -> None:
    """Norms, RoPE and SwiGLU (day 5)."""
    for block in model.layers:
        for owner, name in ((block, "input_layernorm"), (block, "post_attention_layernorm")):
            setattr(owner, name, KernelNorm(getattr(owner, name)))
        attention = block.self_attn
        for name in ("q_norm", "k_norm"):
            if hasattr(attention, name):
                setattr(attention, name, KernelNorm(getattr(attention, name)))
        attention.rope = KernelRoPE(attention.rope, model.config.rope_theta)
        block.mlp = KernelSwiGLU(block.mlp)
    model.norm = KernelNorm(model.norm)


class KernelLinear:
    """A quantised layer that never makes its whole weight dense."""

    def __init__(self, layer: QuantizedLinear | QuantizedEmbedding):
        self.weight = layer.packed, layer.scales, layer.biases, layer.group_size, layer.bits
        self.bias = getattr(layer, "bias", None)

    def __call__(self, x: mx.array) -> mx.array:
        multiply = quantized_matvec if x.size <= FEW * x.shape[-1] else quantized_matmul
        y = multiply(x, *self.weight)
        return y if self.bias is None else y + self.bias


class KernelNorm:
    def __init__(self, norm: RMSNorm):
        self.weight, self.eps = norm.weight, norm.eps

    def __call__(self, x: mx.array) -> mx.array:
        return rms_norm(x, self.weight, self.eps)


class KernelRoPE:
    def __init__(self, plain: RoPE, base: float):
        self.base, self.traditional = base, plain.traditional

    def __call__(self, x: mx.array, offset: int | mx.array) -> mx.array:
        return rope(x, offset, self.base, self.traditional)


class KernelSwiGLU:
    def __init__(self, mlp: SwiGLU):
        self.gate_proj, self.up_proj, self.down_proj = mlp.gate_proj, mlp.up_proj, mlp.down_proj

    def __call__(self, x: mx.array) -> mx.array:
        return self.down_proj(swiglu(self.gate_proj(x), self.up_proj(x)))
