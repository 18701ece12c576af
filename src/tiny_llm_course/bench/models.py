"""The stages of a whole model that `bench` measures: week 1's model, and the model after each day of week 2."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

import mlx.core as mx

from tiny_llm_given.config import ModelConfig
from tiny_llm_given.weights import expected_shapes
from tiny_llm_models.untrained import QWEN3_0_6B, untrained_config

from ..model.needs import is_written, open_stubs
from ..model.package_protocols import Model, Tokenizer

__all__ = [
    "STAGES",
    "Stage",
    "bundled_model",
    "bytes_per_weight",
    "make_stage",
    "mlx_lm_stage",
    "model_config",
    "random_model",
]

SMALL = untrained_config(
    "qwen3",
    hidden_size=128,
    intermediate_size=192,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    vocab_size=272,
)
STAGES = ("week 1", "w2d1", "w2d3", "w2d4", "w2d5", "w2d6", "w2d7", "tuned")
DENSE = ("week 1", "w2d1")  # stages with weights in bfloat16
QUANTIZATION = {"group_size": 64, "bits": 4}
KERNELS = {4: ["quantized_matvec"], 5: ["rms_norm", "rope", "swiglu"], 6: ["quantized_matmul"]}  # keyed by week 2's day


@dataclass(frozen=True)
class Stage:
    """A model at one stage of the course, such as after a day of week 2.

    prefill: a function that reads a prompt (1 x L) into an empty cache, and returns the next token's logits and the
    cache.
    decode: a function that reads one more token with that cache, and returns the logits after this token. The cache
    does not change.
    Week 1 has no cache, so the prompt is returned in place of the cache, and decode computes all tokens again.
    """

    prefill: Callable[[mx.array], tuple[mx.array, Any]]
    decode: Callable[[mx.array, Any], mx.array]


def model_config(is_small: bool, is_quantised: bool = True) -> ModelConfig:
    """Return the sizes of Qwen3-0.6B, or of a small Qwen3."""
    sizes = SMALL if is_small else QWEN3_0_6B
    return ModelConfig.from_hf(sizes | {"quantization": QUANTIZATION if is_quantised else None})


def bytes_per_weight(stage: str) -> float:
    """Return the bytes that a stage reads per weight: 2 bytes in bfloat16; when quantised, 4 bits and the weight's
    share of its group's scale and bias."""
    return 2 if stage in DENSE else (QUANTIZATION["bits"] + 32 / QUANTIZATION["group_size"]) / 8


def random_model(package: str, is_small: bool, is_quantised: bool = True) -> Model:
    """Build Qwen3-0.6B, or a small Qwen3, with random weights, either in bfloat16 or quantised to 4 bits per
    weight in groups of 64 weights."""
    config = model_config(is_small, is_quantised)
    mx.random.seed(0)
    weights: dict[str, mx.array] = {}
    for name, shape in expected_shapes(config).items():
        if len(shape) == 1:
            weights[name] = mx.ones(shape, mx.bfloat16)
            continue
        packed = mx.random.randint(0, 2**31 - 1, (shape[0], shape[1] // 8), mx.uint32)
        scales = mx.full((shape[0], shape[1] // 64), 0.1 / shape[1] ** 0.5, mx.bfloat16)
        if is_quantised:
            layer = name.removesuffix(".weight")
            weights |= {name: packed, f"{layer}.scales": scales, f"{layer}.biases": scales * -7.5}
        else:
            weights[name] = mx.dequantize(packed, scales, scales * -7.5, 64, 4)
        mx.eval(weights)
    model: Model = import_module(f"{package}.models").build_model(config, weights)
    return model


def bundled_model(package: str, name: str) -> tuple[Model, Tokenizer]:
    """Load a model that comes with the course, quantised to 4 bits per weight, with tuned kernels. Return the model and
    the model's tokenizer."""
    model, tokenizer = import_module(f"{package}.models").load(name)
    import_module(f"{package}.quantize").quantize_model(model)
    import_module(f"{package}.tuned").tune(model)
    return model, tokenizer


def make_stage(package: str, is_small: bool, name: str) -> Stage:
    """Build the stage of this name, one of STAGES. Raise a NotImplementedError if code that the stage needs is a
    stub."""
    if name in DENSE:
        model = random_model(package, is_small, is_quantised=False)
        return _without_cache(model) if name == "week 1" else _with_cache(package, model)
    model = random_model(package, is_small)
    if name == "tuned":
        import_module(f"{package}.tuned").tune(model)
        return _with_cache(package, model, has_flash=is_written("attention", open_stubs(package)))
    kernels = [kernel for day, kernels in KERNELS.items() if day <= int(name[-1]) for kernel in kernels]
    import_module(f"{package}.optimise").optimise(model, kernels)
    return _with_cache(package, model, has_flash=name == "w2d7")


def mlx_lm_stage(is_small: bool) -> Stage:
    """Build mlx-lm's model with the sizes and the quantisation of the course's models. Raise an ImportError if mlx-lm
    is not installed."""
    import mlx.nn
    from mlx_lm.models.cache import make_prompt_cache, trim_prompt_cache
    from mlx_lm.models.qwen3 import Model, ModelArgs

    from_dict, nn = cast(Any, ModelArgs).from_dict, cast(Any, mlx.nn)
    model = Model(from_dict((SMALL if is_small else QWEN3_0_6B) | {"rope_scaling": None}))
    model.set_dtype(mx.bfloat16)
    nn.quantize(model, **QUANTIZATION)
    mx.eval(model.parameters())

    def prefill(tokens: mx.array) -> tuple[mx.array, Any]:
        cache = make_prompt_cache(model)
        return model(tokens, cache=cache)[:, -1], cache

    def decode(token: mx.array, cache: Any) -> mx.array:
        found: mx.array = model(token, cache=cache)[:, -1]
        trim_prompt_cache(cache, 1)
        return found

    return Stage(prefill, decode)


def _without_cache(model: Model) -> Stage:
    def prefill(tokens: mx.array) -> tuple[mx.array, mx.array]:
        return model(tokens)[:, -1], tokens

    def decode(token: mx.array, before: mx.array) -> mx.array:
        return prefill(mx.concatenate([before, token], axis=1))[0]

    return Stage(prefill, decode)


def _with_cache(package: str, model: Model, has_flash: bool = False) -> Stage:
    next_logits = import_module(f"{package}.generate").next_logits
    KVCache = import_module(f"{package}.kv_cache").KVCache
    options = {"attention": import_module(f"{package}.kernels.attention").flash_attention} if has_flash else {}

    def prefill(tokens: mx.array) -> tuple[mx.array, Any]:
        cache = KVCache(len(model.layers), **options)
        return next_logits(model, tokens, cache), cache

    def decode(token: mx.array, cache: Any) -> mx.array:
        found: mx.array = next_logits(model, token, cache)
        cache.trim(1)
        return found

    return Stage(prefill, decode)
