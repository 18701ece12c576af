"""The reference against mlx-lm on the same checkpoint files: logits, greedy tokens, tokenizer, quantised weights."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import mlx.core as mx
import mlx_lm
import mlx_lm.utils
import pytest
from oracle_cases import CASES, GRID, MARGIN, PROMPT, TEXT, TOLERANCE, Case, random_tokens

from tiny_llm_given.config import ModelConfig
from tiny_llm_given.weights import expected_shapes, load_weights
from tiny_llm_models.untrained import untrained_config
from tiny_llm_ref.attention import scaled_dot_product_attention_grouped as attention
from tiny_llm_ref.generate import generate_simple
from tiny_llm_ref.kv_cache import NoCache
from tiny_llm_ref.layer_norm import RMSNorm
from tiny_llm_ref.models import load, load_model
from tiny_llm_ref.positional_encoding import RoPE
from tiny_llm_ref.qwen2 import CausalLM
from tiny_llm_ref.sampler import greedy

Model = Callable[[mx.array], mx.array]


def largest_error(ours: Model, theirs: Model, B: int = 3, L: int = 64) -> float:
    """Return the largest difference of a logit. mlx-lm computes on the CPU, because on a GPU its RoPE rounds more."""
    tokens = mx.array(random_tokens(B, L))
    with mx.stream(mx.cpu):
        expected = theirs(tokens)
    return mx.abs(ours(tokens) - expected).max().item()


@pytest.fixture(scope="module", params=CASES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    path = CASES[request.param].write(tmp_path_factory.mktemp(request.param))
    ours, tokenizer = load(path)
    theirs, their_tokenizer = mlx_lm.load(str(path))
    return SimpleNamespace(ours=ours, tokenizer=tokenizer, theirs=theirs, their_tokenizer=their_tokenizer)


@pytest.mark.parametrize(("B", "L"), GRID)
def test_scores_are_those_of_mlx_lm(pair: SimpleNamespace, B: int, L: int):
    assert largest_error(pair.ours, pair.theirs, B, L) < TOLERANCE


def test_greedy_tokens_are_those_of_mlx_lm(pair: SimpleNamespace):
    cpu = mx.default_stream(mx.cpu)
    steps = list(mlx_lm.stream_generate(pair.theirs, pair.their_tokenizer, PROMPT, max_tokens=64, stream=cpu))
    best = mx.sort(mx.stack([step.logprobs for step in steps]), axis=-1)[:, -2:]
    margin = (best[:, 1] - best[:, 0]).min().item()
    tokens = list(generate_simple(pair.ours, PROMPT, greedy, max_tokens=64))
    assert tokens == [step.token for step in steps]
    assert len(tokens) == 64
    assert len(set(tokens)) >= 16
    assert margin > MARGIN


def test_tokenizer_is_that_of_mlx_lm(pair: SimpleNamespace):
    chat = [{"role": "user", "content": TEXT}]
    for tokenize in (
        lambda tokenizer: tokenizer.encode(TEXT),
        lambda tokenizer: tokenizer.apply_chat_template(chat, add_generation_prompt=True),
    ):
        tokens = tokenize(pair.tokenizer)
        assert list(tokens) == list(tokenize(pair.their_tokenizer))
        assert TEXT in pair.tokenizer.decode(tokens)


# The comparison must detect mistakes. Each function puts one into a model of the reference, and returns what to call.


def wrong_base(model: CausalLM) -> Model:
    rope = RoPE(model.config.head_dim, model.config.max_position_embeddings, model.config.rope_theta / 2)
    for layer in model.layers:
        layer.self_attn.rope = rope
    return model


def neighbouring_pairs(model: CausalLM) -> Model:
    model.layers[0].self_attn.rope.traditional = True  # all layers share it
    return model


def norms(model: CausalLM) -> list[RMSNorm]:
    blocks = [norm for layer in model.layers for norm in (layer.input_layernorm, layer.post_attention_layernorm)]
    heads = [getattr(layer.self_attn, name, None) for layer in model.layers for name in ("q_norm", "k_norm")]
    return [norm for norm in (*blocks, *heads, model.norm) if norm]


def eps_outside_the_root(model: CausalLM) -> Model:
    for norm in norms(model):
        norm.__class__ = RootThenEps
    return model


class RootThenEps(RMSNorm):
    def __call__(self, x: mx.array) -> mx.array:
        return x / (mx.sqrt(mx.mean(x * x, axis=-1, keepdims=True)) + self.eps) * self.weight


def another_eps(model: CausalLM) -> Model:
    for norm in norms(model):
        norm.eps = 1e-6
    return model


def without_bias(projection: str) -> Callable[[CausalLM], Model]:
    def mistake(model: CausalLM) -> Model:
        getattr(model.layers[0].self_attn, projection).bias = None
        return model

    return mistake


def swapped(part: str, one: str, other: str) -> Callable[[CausalLM], Model]:
    """Return a function that swaps two attributes in each layer, or in the layer's `part`."""

    def mistake(model: CausalLM) -> Model:
        for layer in model.layers:
            holder = getattr(layer, part) if part else layer
            first, second = getattr(holder, one), getattr(holder, other)
            setattr(holder, one, second)
            setattr(holder, other, first)
        return model

    return mistake


def attending(wrong: Callable[..., mx.array]) -> Callable[[CausalLM], Model]:
    return lambda model: lambda tokens: model(tokens, NoCache(len(model.layers), wrong))


def tiled_heads(q: mx.array, k: mx.array, v: mx.array, *rest: object) -> mx.array:
    k, v = (mx.tile(x, (1, q.shape[1] // x.shape[1], 1, 1)) for x in (k, v))
    return attention(q, k, v, *rest)


def without_mask(q: mx.array, k: mx.array, v: mx.array, scale: float, mask: str) -> mx.array:
    return attention(q, k, v, scale)


def scaled_by_hidden_size(q: mx.array, k: mx.array, v: mx.array, scale: float, mask: str) -> mx.array:
    return attention(q, k, v, (24 / q.shape[1]) ** -0.5, mask)  # sqrt(E / H_q), which is not sqrt(D) here


def tied(model: CausalLM) -> Model:
    model.lm_head = None
    return model


def without_last_norm(model: CausalLM) -> Model:
    model.norm = lambda x: x
    return model


EVERYWHERE = {
    "a wrong rope base": wrong_base,
    "neighbouring pairs": neighbouring_pairs,
    "eps outside the root": eps_outside_the_root,
    "another eps": another_eps,
    "swapped norms of a block": swapped("", "input_layernorm", "post_attention_layernorm"),
    "gate and up swapped": swapped("mlp", "gate_proj", "up_proj"),
    "no causal mask": attending(without_mask),
    "no last norm": without_last_norm,
}
SOMEWHERE = [
    ("a missing bias of q", "qwen2", without_bias("q_proj")),
    ("a missing bias of k", "qwen2", without_bias("k_proj")),
    ("a missing bias of v", "qwen2", without_bias("v_proj")),
    ("q and k norm swapped", "qwen3", swapped("self_attn", "q_norm", "k_norm")),
    ("tiled heads", "qwen2", attending(tiled_heads)),
    ("tiled heads", "qwen3-tied", attending(tiled_heads)),
    ("sqrt(E / H_q) for sqrt(D)", "qwen3-tied", attending(scaled_by_hidden_size)),
    ("a tied output layer", "qwen3", tied),
]
MISTAKES = [(name, case, mistake) for name, mistake in EVERYWHERE.items() for case in CASES] + SOMEWHERE


@pytest.mark.parametrize(
    ("case", "mistake"), [mistake[1:] for mistake in MISTAKES], ids=[f"{case}: {name}" for name, case, _ in MISTAKES]
)
def test_the_comparison_sees(case: str, mistake: Callable[[CausalLM], Model], tmp_path: Path):
    path = CASES[case].write(tmp_path)
    theirs, _ = mlx_lm.utils.load_model(path)
    assert largest_error(mistake(load_model(path)), theirs) > 10 * TOLERANCE


SIZES = {"hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4}  # multiples of every group size
DENSE = {
    "qwen2": Case(untrained_config("qwen2", **SIZES, head_dim=32), seed=1),
    "qwen3": Case(untrained_config("qwen3", **SIZES, head_dim=64, tie_word_embeddings=True), seed=2),
}
QUANTISED = {
    f"{bits} bits, groups of {size}": {"q_bits": bits, "q_group_size": size}
    for bits in (4, 8)
    for size in (32, 64, 128)
}
QUANTISED["mixed"] = {"q_group_size": 32, "quant_predicate": "mixed_3_6"}
QUANTISED["mlp 4 bits, the rest 8"] = {
    "q_bits": 4,
    "quant_predicate": lambda path, _: "mlp" in path or {"bits": 8, "group_size": 32},
}
QUANTISED["only mlp"] = {"q_bits": 4, "quant_predicate": lambda path, _: "mlp" in path}


@pytest.fixture(scope="module", params=[(dense, how) for dense in DENSE for how in QUANTISED], ids=", ".join)
def quantised(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Yield a checkpoint that `mlx_lm.convert` wrote."""
    dense, how = request.param
    folder = tmp_path_factory.mktemp("quantised")
    mlx_lm.convert(str(DENSE[dense].write(folder / "dense")), folder / "mlx", quantize=True, **QUANTISED[how])
    return folder / "mlx"


def test_quantised_weights_are_those_of_the_file(quantised: Path):
    """Compare bit by bit: dequantising is one product and one sum per number, which MLX does for mlx-lm as well."""
    config = ModelConfig.from_pretrained(quantised)
    stored = mx.load(str(quantised / "model.safetensors"))
    weights = load_weights(quantised, config)
    assert any(name.endswith(".scales") for name in stored)
    for name, (*_, columns) in expected_shapes(config).items():
        expected, layer = stored[name], name.removesuffix(".weight")
        if f"{layer}.scales" in stored:
            scales, biases = stored[f"{layer}.scales"], stored[f"{layer}.biases"]
            bits, group_size = 32 * expected.shape[-1] // columns, columns // scales.shape[-1]
            expected = mx.dequantize(expected, scales, biases, group_size, bits)
        assert weights[name].dtype == mx.float32
        assert mx.array_equal(weights[name], expected)


def test_quantised_scores_are_those_of_mlx_lm(quantised: Path):
    """mlx-lm sums group by group, so in another order, and the logits of a tied model of E = 128 reach 60."""
    theirs, _ = mlx_lm.utils.load_model(quantised)
    assert largest_error(load_model(quantised), theirs) < 3 * TOLERANCE
