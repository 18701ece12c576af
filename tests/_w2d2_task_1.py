"""Week 2 Day 2, task 1: what a step costs."""

import mlx.core as mx
import numpy as np
import oracles
import pytest

from tiny_llm_course.recording import record
from tiny_llm_models import bundled
from tiny_llm_models.untrained import QWEN3_0_6B, untrained_config

task_1 = pytest.mark.task("w2d2.1")

STORY = untrained_config(
    vocab_size=4096,
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=5,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    tie_word_embeddings=True,
)
NARROW = untrained_config()  # E = 48, but 6 heads of 12 numbers
WIDE = untrained_config(hidden_size=200, num_attention_heads=10, num_key_value_heads=5, head_dim=14)
ONE_HEAD = untrained_config(num_key_value_heads=1, num_hidden_layers=2, tie_word_embeddings=True)
QWEN2 = untrained_config("qwen2", num_attention_heads=6, num_key_value_heads=3)

over_configs = pytest.mark.parametrize(
    "config",
    [STORY, QWEN3_0_6B, NARROW, WIDE, ONE_HEAD, QWEN2],
    ids=["story", "qwen3-0.6b", "narrow", "wide", "one-key-head", "qwen2"],
)
over_lengths = pytest.mark.parametrize(("L", "S"), [(1, 1), (7, 7), (1, 130), (5, 12), (16, 528)], ids=str)


def matrices(config):
    """Shapes of the weights of one layer that are matrices, outputs x inputs."""
    E, I, D = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    H_q, H_kv = config["num_attention_heads"], config["num_key_value_heads"]
    attention = {"q": (H_q * D, E), "k": (H_kv * D, E), "v": (H_kv * D, E), "o": (E, H_q * D)}
    return [*attention.values(), (I, E), (I, E), (E, I)]


def naive(config, L, S, bytes_per_weight=2):
    """Operations and bytes, matrix by matrix, and one visible pair of query and key after the other."""
    E, V, D = config["hidden_size"], config["vocab_size"], config["head_dim"]
    operations = 2 * E * V
    weights, cache = E * V, 0
    visible = int((oracles.causal_mask(L, S) == 0).sum())
    for _ in range(config["num_hidden_layers"]):
        for outputs, inputs in matrices(config):
            operations += L * outputs * 2 * inputs
            weights += outputs * inputs
        for _ in range(config["num_attention_heads"]):
            operations += visible * 2 * D  # query times key
            operations += visible * 2 * D  # weight times value
        for _ in range(config["num_key_value_heads"]):
            cache += S * (D + D) * 2
    return operations, weights * bytes_per_weight + cache


def cost_of(impl, config, *lengths, **options):
    return impl.costs.model_cost(impl.config.ModelConfig.from_hf(config), *lengths, **options)


def assert_costs(got, expected):
    """Fail unless operations and bytes are these, but for the last digit of a float."""
    __tracebackhide__ = True
    assert got is not None, "expected a Cost, got None (is a `return` missing?)"
    names = ("operations", "bytes")
    assert all(hasattr(got, name) for name in names), "expected a Cost: Cost(operations=..., bytes=...)"
    values = [getattr(got, name) for name in names]
    assert not any(isinstance(value, mx.array) for value in values), (
        "expected numbers of Python: an mx.array in float32 counts exactly only to 16,777,216"
    )
    record(np.array(values, np.float64), "number", 1e-9)
    for name, value, right in zip(names, values, expected, strict=True):
        if not abs(value - right) <= 1e-12 * right:
            pytest.fail(f"{name}: expected {right:,.10g}, got {value:,.10g}, {value / right:.6g} times as many")


@task_1
def test_task_1_first_token(impl):
    assert_costs(cost_of(impl, STORY, 1, 1), naive(STORY, 1, 1))


@task_1
@over_configs
@over_lengths
def test_task_1_costs(impl, config, L, S):
    assert_costs(cost_of(impl, config, L, S), naive(config, L, S))


@task_1
@over_configs
@pytest.mark.parametrize("bytes_per_weight", [4, 1, 8.5 / 8, 4.5 / 8, 0.3])
def test_task_1_weights_of_other_sizes(impl, config, bytes_per_weight):
    """Keys and values stay at 2 bytes a number: this is about weights."""
    got = cost_of(impl, config, 3, 40, bytes_per_weight=bytes_per_weight)
    assert_costs(got, naive(config, 3, 40, bytes_per_weight))


@task_1
def test_task_1_weights_by_position(impl):
    """`bytes_per_weight` is the fourth argument."""
    assert_costs(cost_of(impl, NARROW, 1, 9, 0.5625), naive(NARROW, 1, 9, 0.5625))


@task_1
@pytest.mark.parametrize("tied", [False, True])
def test_task_1_table_is_read_once(impl, tied):
    """An embedding of its own is not read, only a row for each token: tied or not, a pass costs the same."""
    config = NARROW | {"tie_word_embeddings": tied}
    assert_costs(cost_of(impl, config, 4, 11), naive(config, 4, 11))


@task_1
@pytest.mark.parametrize("name", ["story", "story-qwen2"])
def test_task_1_bytes_of_a_checkpoint(impl, name):
    """What a pass reads is what its matrices occupy in the file (an embedding of its own left out), and the cache."""
    config = impl.config.ModelConfig.from_pretrained(bundled(name))
    arrays = mx.load(str(bundled(name) / "model.safetensors"))
    if not config.tie_word_embeddings:
        del arrays["model.embed_tokens.weight"]
    in_file = sum(array.nbytes for array in arrays.values() if array.ndim == 2)
    cache = config.num_hidden_layers * 2 * config.num_key_value_heads * config.head_dim * 2
    got = impl.costs.model_cost(config, 1, 10, bytes_per_weight=2)
    assert_costs(got, (got.operations, in_file + 10 * cache))


@task_1
@pytest.mark.parametrize(("done", "L"), [(0, 9), (6, 3), (8, 1)])
def test_task_1_pieces_of_a_prompt(impl, done, L):
    """A text in two pieces needs as many operations as at once, but for one more row of logits."""
    config = STORY | {"vocab_size": 1}
    first = cost_of(impl, config, done, done).operations if done else 0
    pieces = first + cost_of(impl, config, L, done + L).operations
    at_once, _ = naive(config, done + L, done + L)
    record(np.array([pieces]), "number", 1e-9)
    logits = 2 * config["hidden_size"]
    extra = pieces - at_once
    assert extra == (logits if done else 0), f"the pieces need {extra:,.10g} operations more than the text at once"


@task_1
@pytest.mark.parametrize(("L", "S"), [(0, 0), (0, 5), (-1, 3), (2, 1), (6, 5)], ids=str)
def test_task_1_impossible_lengths(impl, L, S):
    """No new token, or more of them than positions, is a ValueError. The given `_check_lengths` raises it."""
    with pytest.raises((ValueError, AssertionError)):
        cost_of(impl, STORY, L, S)
