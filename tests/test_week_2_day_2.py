"""Week 2 Day 2: what a step costs; softmax in C++, with vectors, with threads."""

import math

import mlx.core as mx
import numpy as np
import oracles
import pytest
from helpers import DTYPES, TOLERANCE, Inputs, array64, assert_close, over_dtypes
from parallel import assert_shared, race_injection, threads
from quantized import ROUNDED_ONCE

from tiny_llm_course.diagnosis.observation import record
from tiny_llm_models import bundled
from tiny_llm_models.untrained import QWEN3_0_6B, untrained_config

task_1 = pytest.mark.task("w2d2.1")
task_2 = pytest.mark.task("w2d2.2")
task_3 = pytest.mark.task("w2d2.3")
task_4 = pytest.mark.task("w2d2.4")
task_5 = pytest.mark.task("w2d2.5")

# ------------------------------------------------------------------------------------------ task 1: what a step costs

STORY = untrained_config(
    vocab_size=4096,
    hidden_size=256,
    intermediate_size=768,
    num_hidden_layers=6,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    tie_word_embeddings=True,
)
NARROW = untrained_config()  # E = 48, but 6 heads of size 12
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
    """Return the shapes of one layer's weight matrices, outputs x inputs."""
    E, I, D = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    H_q, H_kv = config["num_attention_heads"], config["num_key_value_heads"]
    attention = {"q": (H_q * D, E), "k": (H_kv * D, E), "v": (H_kv * D, E), "o": (E, H_q * D)}
    return [*attention.values(), (I, E), (I, E), (E, I)]


def naive(config, L, S, bytes_per_weight=2):
    """Count operations and bytes, one matrix at a time and one visible pair of query and key at a time."""
    E, V, D = config["hidden_size"], config["vocab_size"], config["head_dim"]
    operations = 2 * E * V
    weights, cache = E * V, 0
    visible = int((oracles.causal_mask(L, S) == 0).sum())
    for _ in range(config["num_hidden_layers"]):
        for outputs, inputs in matrices(config):
            operations += L * outputs * 2 * inputs
            weights += outputs * inputs
        for _ in range(config["num_attention_heads"]):
            operations += visible * 2 * D  # dot product of query and key
            operations += visible * 2 * D  # adds weight times value
        for _ in range(config["num_key_value_heads"]):
            cache += S * (D + D) * 2
    return operations, weights * bytes_per_weight + cache


def cost_of(impl, config, *lengths, **options):
    return impl.costs.model_cost(impl.given.config.ModelConfig.from_hf(config), *lengths, **options)


def assert_costs(got, expected):
    """Fail unless operations and bytes are as expected, up to the last digit of a float."""
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
    """`bytes_per_weight` is about weights only. Keys and values keep 2 bytes per element."""
    got = cost_of(impl, config, 3, 40, bytes_per_weight=bytes_per_weight)
    assert_costs(got, naive(config, 3, 40, bytes_per_weight))


@task_1
def test_task_1_weights_by_position(impl):
    """`bytes_per_weight` is the fourth argument."""
    assert_costs(cost_of(impl, NARROW, 1, 9, 0.5625), naive(NARROW, 1, 9, 0.5625))


@task_1
@pytest.mark.parametrize("tied", [False, True])
def test_task_1_table_is_read_once(impl, tied):
    """A pass reads only a few rows of an untied embedding, so tied and untied models cost the same."""
    config = NARROW | {"tie_word_embeddings": tied}
    assert_costs(cost_of(impl, config, 4, 11), naive(config, 4, 11))


@task_1
@pytest.mark.parametrize("name", ["story", "story-qwen2"])
def test_task_1_bytes_of_a_checkpoint(impl, name):
    """A pass reads the cache, and as many bytes as the matrices occupy in the file, except for an untied embedding."""
    config = impl.given.config.ModelConfig.from_pretrained(bundled(name))
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
    """A text in two pieces needs as many operations as the whole text, plus one more row of logits."""
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
    """No new token, or more new tokens than positions, raises a ValueError. Keep the call to `_check_lengths`."""
    cost_of(impl, STORY, 1, 1)  # a stub ends here
    with pytest.raises((ValueError, AssertionError)):
        cost_of(impl, STORY, L, S)


# ---------------------------------------------------------------------------------------------- tasks 2 to 5: softmax

SIZES = [*range(1, 66), 1000]  # lengths of rows, around every width of a vector
UNEVEN = [33, 5, 97, 16]
SIZES_IN_METAL = [1, 3, 4, 5, 97, 127, 128, 129, 130, 257, 1000, 4101]  # around the steps of both groups
UNEVEN_IN_METAL = [4101, 5, 97, 300]


def assert_softmax(got, x, dtype=mx.float32):
    """Compare rows of S values as multiples of 1 / S, because the values of a long row are small."""
    __tracebackhide__ = True
    expected = oracles.softmax(array64(x))
    assert_close(got, expected, dtype=dtype)
    S = x.shape[-1]
    assert_close(got.astype(mx.float32) * S, expected * S, tolerance=TOLERANCE[dtype])


def rows_of(S, dtype):
    """Return four rows whose largest value is first, last, or anywhere."""
    x = array64(Inputs(200 + S, dtype).normal(4, S, scale=3))
    x[0, 0], x[1, -1] = 12, 12
    return mx.array(x.astype(np.float32)).astype(dtype)


def extremes(S):
    """Return rows whose exponentials are infinite or 0 unless the maximum is subtracted first."""
    x = np.random.RandomState(S).standard_normal((9, S))
    rows = [x[0] + 1e4, x[1] - 1e4, x[2] * 1e3, x[3] * 1e30, x[4] * 0 - 90, x[5] * 0 + 90, x[6], x[7], x[8] - 1e6]
    rows[6][S // 2] = -300  # the largest magnitude, but not the maximum
    rows[7][-1] = 300
    return mx.array(np.stack(rows).astype(np.float32))


def check_sizes(softmax, dtype, sizes=SIZES):
    for S in sizes:
        x = rows_of(S, dtype)
        assert_softmax(softmax(x), x, dtype)


def check_extremes(softmax, sizes=UNEVEN):
    for S in sizes:
        x = extremes(S)
        assert_softmax(softmax(x), x)


def check_hidden(softmax, sizes=UNEVEN):
    """Check rows with -inf, as a mask adds it."""
    for S in sizes:
        x = array64(Inputs(210 + S).normal(5, S))
        x[0, 1:] = -math.inf  # only the first value is left
        x[1, :-1] = -math.inf  # only the last value is left
        x[2, S // 2 :] = -math.inf
        x[3, ::2] = -math.inf
        x[4, : S // 2] = -math.inf
        x = mx.array(x.astype(np.float32))
        assert_softmax(softmax(x), x)


def check_nan(softmax, sizes=UNEVEN):
    for S in sizes:
        for place in (0, S // 2, S - 1):
            x = array64(Inputs(220 + S).normal(3, S))
            x[1, place] = math.nan
            got = softmax(mx.array(x.astype(np.float32)))
            assert_close(mx.isnan(got).astype(mx.float32), np.isnan(x).any(axis=-1, keepdims=True) * np.ones(x.shape))
            assert_close(got[::2], oracles.softmax(x[::2]))


def check_equal_numbers(softmax, dtype, sizes=(257, 5000)):
    """Check rows of equal values, whose softmax is 1 / S. A sum of ones that is kept in 16 bits stops at 256 or
    2048."""
    for S in sizes:
        x = mx.full((2, S), 1.5, dtype)
        assert_softmax(softmax(x), x, dtype)


def check_rounded_once(softmax, dtype):
    """Check that exponentials, their sum and the quotient are float32, so that the error is that of one rounding."""
    steps = mx.broadcast_to(-mx.arange(1, 65)[:, None] / 64, (64, 256))
    alike = mx.concatenate([mx.zeros((64, 1)), steps], axis=-1)  # all would be rounded the same way
    for x in (Inputs(235, dtype).normal(64, 103, scale=2), alike.astype(dtype)):
        got = softmax(x).astype(mx.float32)
        assert_close(got * 4096, oracles.softmax(array64(x)) * 4096, tolerance=ROUNDED_ONCE[dtype])


def check_shapes(softmax):
    inputs = Inputs(230)
    for shape in [(7,), (1,), (1, 1), (2, 3, 4, 5), (64, 1), (0, 5), (2, 0, 5), (3, 0)]:
        x = inputs.normal(*shape)
        got = softmax(x)
        assert_close(got, oracles.softmax(array64(x)) if x.size else np.zeros(shape))


def check_strides(softmax):
    """Check rows that are not contiguous in memory."""
    x = Inputs(240).normal(6, 10, 20)
    for view in (x.swapaxes(1, 2), x[:, ::3], x[..., 1::2], x[::-1, :, ::-1], mx.broadcast_to(x[:1, :1], (3, 2, 20))):
        assert_softmax(softmax(view), view)


@task_2
def test_task_2_softmax(impl):
    x = Inputs(250).normal(64, 64)
    assert_close(impl.kernels.softmax.softmax_scalar(x), oracles.softmax(array64(x)))


@task_2
@over_dtypes
def test_task_2_rows_of_every_size(impl, dtype):
    check_sizes(impl.kernels.softmax.softmax_scalar, dtype)


@task_2
def test_task_2_extreme_numbers(impl):
    """No value is too large or too small, because the row's maximum is subtracted before the exponential."""
    check_extremes(impl.kernels.softmax.softmax_scalar)


@task_2
def test_task_2_hidden_by_a_mask(impl):
    """exp(-inf) is 0, so values that a mask hides get 0, and the others add up to 1."""
    check_hidden(impl.kernels.softmax.softmax_scalar)


@task_2
def test_task_2_nan_stays_in_its_row(impl):
    """A row with a NaN becomes NaN throughout, and the other rows do not."""
    check_nan(impl.kernels.softmax.softmax_scalar)


@task_2
@over_dtypes
def test_task_2_long_rows_of_equal_numbers(impl, dtype):
    """The arithmetic is float32 for every dtype of x, because a sum in 16 bits stops growing before it is complete."""
    check_equal_numbers(impl.kernels.softmax.softmax_scalar, dtype)


@task_2
@over_dtypes
def test_task_2_rounded_once(impl, dtype):
    """Only the result is rounded to 16 bits, and no intermediate value."""
    check_rounded_once(impl.kernels.softmax.softmax_scalar, dtype)


@task_2
def test_task_2_shapes(impl):
    check_shapes(impl.kernels.softmax.softmax_scalar)


@task_2
def test_task_2_views(impl):
    check_strides(impl.kernels.softmax.softmax_scalar)


@task_3
def test_task_3_softmax(impl):
    x = Inputs(251).normal(64, 64)
    assert_close(impl.kernels.softmax.softmax_vector(x), oracles.softmax(array64(x)))


@task_3
@over_dtypes
def test_task_3_rows_of_every_size(impl, dtype):
    """The values after the last whole vector belong to the row, too."""
    check_sizes(impl.kernels.softmax.softmax_vector, dtype)


@task_3
def test_task_3_extreme_numbers(impl):
    """No value is too large or too small, wherever it is: in any lane of a vector, or after the last whole vector."""
    check_extremes(impl.kernels.softmax.softmax_vector)


@task_3
def test_task_3_hidden_by_a_mask(impl):
    """exp(-inf) is 0, so values that a mask hides get 0, and the others add up to 1."""
    check_hidden(impl.kernels.softmax.softmax_vector)


@task_3
def test_task_3_nan_stays_in_its_row(impl):
    """A row with a NaN becomes NaN throughout, and the other rows do not."""
    check_nan(impl.kernels.softmax.softmax_vector)


@task_3
@over_dtypes
def test_task_3_long_rows_of_equal_numbers(impl, dtype):
    """The arithmetic is float32 for every dtype of x, because a sum in 16 bits stops growing before it is complete."""
    check_equal_numbers(impl.kernels.softmax.softmax_vector, dtype)


@task_3
@over_dtypes
def test_task_3_rounded_once(impl, dtype):
    """Only the result is rounded to 16 bits, and no intermediate value."""
    check_rounded_once(impl.kernels.softmax.softmax_vector, dtype)


@task_3
def test_task_3_shapes(impl):
    check_shapes(impl.kernels.softmax.softmax_vector)


@task_3
def test_task_3_views(impl):
    check_strides(impl.kernels.softmax.softmax_vector)


@task_4
def test_task_4_softmax(impl):
    x = Inputs(252).normal(64, 64)
    assert_close(impl.kernels.softmax.softmax(x), oracles.softmax(array64(x)))


@task_4
@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_task_4_any_number_of_threads_and_rows(impl, count):
    """Every row is computed once, whether or not the number of threads divides the number of rows."""
    x = Inputs(253).normal(1009, 333)
    impl.kernels.softmax.softmax(x[:1])
    with threads(impl, count):
        for rows in (1, 2, 7, 100, 1009):
            assert_softmax(impl.kernels.softmax.softmax(x[:rows]), x[:rows])


@task_4
def test_task_4_work_is_shared(impl):
    """4,096 rows are enough work to wake other threads, so call `threads`, which the function gets."""
    x = Inputs(254).normal(4096, 256)
    impl.kernels.softmax.softmax(x[:1])
    with threads(impl, 2):
        assert_shared(impl, lambda: assert_softmax(impl.kernels.softmax.softmax(x), x))


@task_4
@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float16", "bfloat16"])
def test_task_4_dtypes(impl, dtype):
    x = Inputs(255, dtype).normal(700, 77, scale=3)
    impl.kernels.softmax.softmax(x[:1])
    with threads(impl, 3):
        assert_softmax(impl.kernels.softmax.softmax(x), x, dtype)


@task_4
def test_task_4_long_rows(impl):
    x = Inputs(256).normal(5, 20001)
    impl.kernels.softmax.softmax(x[:1])
    with threads(impl, 3):
        assert_softmax(impl.kernels.softmax.softmax(x), x)


@task_4
def test_task_4_parts_in_turns(impl):
    """The result is the same every time, in whatever order the threads run."""
    x = Inputs(257).normal(300, 200)
    impl.kernels.softmax.softmax(x[:1])
    with race_injection(impl):
        for _ in range(16):
            assert_softmax(impl.kernels.softmax.softmax(x), x)


@task_4
def test_task_4_shapes(impl):
    check_shapes(impl.kernels.softmax.softmax)


@task_5
def test_task_5_softmax(impl):
    x = Inputs(258).normal(4, 96)
    assert_close(impl.kernels.softmax.softmax_metal(x), oracles.softmax(array64(x)))


@task_5
@over_dtypes
def test_task_5_rows_of_every_size(impl, dtype):
    """A row may have any length: less than a simdgroup, or more than a threadgroup can read at once."""
    check_sizes(impl.kernels.softmax.softmax_metal, dtype, SIZES_IN_METAL)


@task_5
def test_task_5_extreme_numbers(impl):
    """The maximum of the whole row is subtracted, whichever simdgroup finds it."""
    check_extremes(impl.kernels.softmax.softmax_metal, UNEVEN_IN_METAL)


@task_5
def test_task_5_hidden_by_a_mask(impl):
    """exp(-inf) is 0, so values that a mask hides get 0, and the others add up to 1."""
    check_hidden(impl.kernels.softmax.softmax_metal, UNEVEN_IN_METAL)


@task_5
def test_task_5_nan_stays_in_its_row(impl):
    """A row with a NaN becomes NaN throughout, and the other rows do not."""
    check_nan(impl.kernels.softmax.softmax_metal, UNEVEN_IN_METAL)


@task_5
@over_dtypes
def test_task_5_long_rows_of_equal_numbers(impl, dtype):
    """The arithmetic is float32 for every dtype of x, because float16 ends at 65,504."""
    check_equal_numbers(impl.kernels.softmax.softmax_metal, dtype, (257, 66000))


@task_5
@over_dtypes
def test_task_5_rounded_once(impl, dtype):
    """Only the result is rounded to 16 bits, and no intermediate value."""
    check_rounded_once(impl.kernels.softmax.softmax_metal, dtype)


@task_5
def test_task_5_shapes(impl):
    check_shapes(impl.kernels.softmax.softmax_metal)


@task_5
def test_task_5_views(impl):
    check_strides(impl.kernels.softmax.softmax_metal)
