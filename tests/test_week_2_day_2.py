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
    return impl.costs.model_cost(impl.given.config.ModelConfig.from_hf(config), *lengths, **options)


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
    """No new token, or more of them than positions, is a ValueError. Keep the call of `_check_lengths`."""
    cost_of(impl, STORY, 1, 1)  # a stub ends here
    with pytest.raises((ValueError, AssertionError)):
        cost_of(impl, STORY, L, S)


# ---------------------------------------------------------------------------------------------- tasks 2 to 5: softmax

SIZES = [*range(1, 66), 1000]  # of rows: below, at and above every width of a vector
UNEVEN = [33, 5, 97, 16]
SIZES_IN_METAL = [1, 3, 4, 5, 97, 127, 128, 129, 130, 257, 1000, 4101]  # around a simdgroup's and a threadgroup's step
UNEVEN_IN_METAL = [4101, 5, 97, 300]


def assert_softmax(got, x, dtype=mx.float32):
    """Rows of S numbers are compared as multiples of 1 / S: in a long row each of them is small."""
    __tracebackhide__ = True
    expected = oracles.softmax(array64(x))
    assert_close(got, expected, dtype=dtype)
    S = x.shape[-1]
    assert_close(got.astype(mx.float32) * S, expected * S, tolerance=TOLERANCE[dtype])


def rows_of(S, dtype):
    """Four rows, the largest number of which stands first, last, and somewhere."""
    x = array64(Inputs(200 + S, dtype).normal(4, S, scale=3))
    x[0, 0], x[1, -1] = 12, 12
    return mx.array(x.astype(np.float32)).astype(dtype)


def extremes(S):
    """Rows of numbers whose exponentials are infinite or 0, unless the largest is subtracted first."""
    x = np.random.RandomState(S).standard_normal((9, S))
    rows = [x[0] + 1e4, x[1] - 1e4, x[2] * 1e3, x[3] * 1e30, x[4] * 0 - 90, x[5] * 0 + 90, x[6], x[7], x[8] - 1e6]
    rows[6][S // 2] = -300  # the largest of its amount, and not the largest
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
    """-inf, as a mask adds it."""
    for S in sizes:
        x = array64(Inputs(210 + S).normal(5, S))
        x[0, 1:] = -math.inf  # one is left, at the start
        x[1, :-1] = -math.inf  # at the end
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
    """Each is 1 / S. In 16 bits a sum of ones stays at 256 or 2048, so it is kept in float32."""
    for S in sizes:
        x = mx.full((2, S), 1.5, dtype)
        assert_softmax(softmax(x), x, dtype)


def check_rounded_once(softmax, dtype):
    """Exponentials, their sum and the share are float32: the error of the result is that of one rounding."""
    steps = mx.broadcast_to(-mx.arange(1, 65)[:, None] / 64, (64, 256))
    alike = mx.concatenate([mx.zeros((64, 1)), steps], axis=-1)  # rounded exponentials are all wrong to the same side
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
    """Rows that do not lie one behind the other in memory."""
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
    """No number is too large or too small: the largest of its row is subtracted before the exponential."""
    check_extremes(impl.kernels.softmax.softmax_scalar)


@task_2
def test_task_2_hidden_by_a_mask(impl):
    """exp(-inf) is 0: what a mask hides gets nothing, and the others share 1."""
    check_hidden(impl.kernels.softmax.softmax_scalar)


@task_2
def test_task_2_nan_stays_in_its_row(impl):
    """A row with a NaN is NaN throughout, and no other row is."""
    check_nan(impl.kernels.softmax.softmax_scalar)


@task_2
@over_dtypes
def test_task_2_long_rows_of_equal_numbers(impl, dtype):
    """The arithmetic is float32, whatever x is: in 16 bits a sum stands still before it is complete."""
    check_equal_numbers(impl.kernels.softmax.softmax_scalar, dtype)


@task_2
@over_dtypes
def test_task_2_rounded_once(impl, dtype):
    """Only the result is rounded to 16 bits, not what it is computed from."""
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
    """What is left behind the last whole vector belongs to the row as well."""
    check_sizes(impl.kernels.softmax.softmax_vector, dtype)


@task_3
def test_task_3_extreme_numbers(impl):
    """No number is too large or too small, wherever in a vector, or behind the last one, it stands."""
    check_extremes(impl.kernels.softmax.softmax_vector)


@task_3
def test_task_3_hidden_by_a_mask(impl):
    """exp(-inf) is 0: what a mask hides gets nothing, and the others share 1."""
    check_hidden(impl.kernels.softmax.softmax_vector)


@task_3
def test_task_3_nan_stays_in_its_row(impl):
    """A row with a NaN is NaN throughout, and no other row is."""
    check_nan(impl.kernels.softmax.softmax_vector)


@task_3
@over_dtypes
def test_task_3_long_rows_of_equal_numbers(impl, dtype):
    """The arithmetic is float32, whatever x is: in 16 bits a sum stands still before it is complete."""
    check_equal_numbers(impl.kernels.softmax.softmax_vector, dtype)


@task_3
@over_dtypes
def test_task_3_rounded_once(impl, dtype):
    """Only the result is rounded to 16 bits, not what it is computed from."""
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
    """Every row is computed once, whether or not the threads' number divides that of the rows."""
    x = Inputs(253).normal(1009, 333)
    impl.kernels.softmax.softmax(x[:1])
    with threads(impl, count):
        for rows in (1, 2, 7, 100, 1009):
            assert_softmax(impl.kernels.softmax.softmax(x[:rows]), x[:rows])


@task_4
def test_task_4_work_is_shared(impl):
    """4,096 rows are worth waking other threads for: call `threads`, which was given to the function."""
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
    """The same result each time, however the threads happen to run."""
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
    """A row is as long as it likes: shorter than a simdgroup, longer than a threadgroup can take at once."""
    check_sizes(impl.kernels.softmax.softmax_metal, dtype, SIZES_IN_METAL)


@task_5
def test_task_5_extreme_numbers(impl):
    """The largest number of the whole row is subtracted, whichever simdgroup has found it."""
    check_extremes(impl.kernels.softmax.softmax_metal, UNEVEN_IN_METAL)


@task_5
def test_task_5_hidden_by_a_mask(impl):
    """exp(-inf) is 0: what a mask hides gets nothing, and the others share 1."""
    check_hidden(impl.kernels.softmax.softmax_metal, UNEVEN_IN_METAL)


@task_5
def test_task_5_nan_stays_in_its_row(impl):
    """A row with a NaN is NaN throughout, and no other row is."""
    check_nan(impl.kernels.softmax.softmax_metal, UNEVEN_IN_METAL)


@task_5
@over_dtypes
def test_task_5_long_rows_of_equal_numbers(impl, dtype):
    """The arithmetic is float32, whatever x is: float16 has nothing beyond 65,504."""
    check_equal_numbers(impl.kernels.softmax.softmax_metal, dtype, (257, 66000))


@task_5
@over_dtypes
def test_task_5_rounded_once(impl, dtype):
    """Only the result is rounded to 16 bits, not what it is computed from."""
    check_rounded_once(impl.kernels.softmax.softmax_metal, dtype)


@task_5
def test_task_5_shapes(impl):
    check_shapes(impl.kernels.softmax.softmax_metal)


@task_5
def test_task_5_views(impl):
    check_strides(impl.kernels.softmax.softmax_metal)
