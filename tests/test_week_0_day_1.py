"""Week 0 Day 1: attention by hand."""

import math

import mlx.core as mx
import numpy as np
import oracles
import pytest
from helpers import Inputs, array64, assert_attends, assert_close, assert_unchanged, over_dtypes

task_1 = pytest.mark.task("w0d1.1")
task_2 = pytest.mark.task("w0d1.2")
task_3 = pytest.mark.task("w0d1.3")


@task_1
@over_dtypes
@pytest.mark.parametrize("shape", [(7,), (1,), (5, 7), (2, 3, 7)], ids=str)
def test_task_1_softmax(impl, shape, dtype):
    x = Inputs(1, dtype).normal(*shape, scale=2, shift=1)
    assert_close(impl.foundations.softmax(x), oracles.softmax(array64(x)), dtype=dtype)


@task_1
@over_dtypes
@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
def test_task_1_along_each_axis(impl, axis, dtype):
    x = Inputs(2, dtype).normal(4, 3, 5)
    expected = np.moveaxis(oracles.softmax(np.moveaxis(array64(x), axis, -1)), -1, axis)
    assert_close(impl.foundations.softmax(x, axis), expected, dtype=dtype)


@task_1
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_task_1_all_axes_of_one_size(impl, axis):
    """All axes have the same size, so maxima and sums without `keepdims` still broadcast, but along the wrong axis."""
    x = Inputs(7).normal(4, 4, 4)
    expected = np.moveaxis(oracles.softmax(np.moveaxis(array64(x), axis, -1)), -1, axis)
    assert_close(impl.foundations.softmax(x, axis=axis), expected)


@task_1
@over_dtypes
@pytest.mark.parametrize("shift", [1000.0, -1000.0])
def test_task_1_large_numbers(impl, shift, dtype):
    """The numbers are around 1,000 or -1,000. exp(1000) is infinity and exp(-1000) is 0, so the code must compute
    neither."""
    x = Inputs(3, dtype).normal(5, 7, scale=20, shift=shift)
    assert_close(impl.foundations.softmax(x), oracles.softmax(array64(x)), dtype=dtype)


@task_1
@pytest.mark.parametrize("axis", [0, 1])
def test_task_1_rows_of_different_sizes(impl, axis):
    """Rows have very different sizes, so subtracting the maximum of the whole array turns all exponentials of a small
    row into 0."""
    x = Inputs(4).normal(3, 4)
    rows = mx.array([-500.0, 0.0, 500.0])
    x = x + (rows[:, None] if axis else mx.array([-500.0, 0.0, 500.0, 100.0])[None])
    expected = np.moveaxis(oracles.softmax(np.moveaxis(array64(x), axis, -1)), -1, axis)
    assert_close(impl.foundations.softmax(x, axis=axis), expected)


@task_1
@over_dtypes
def test_task_1_minus_infinity_is_a_weight_of_0(impl, dtype):
    x = Inputs(5, dtype).normal(4, 6)
    x = mx.where(mx.arange(6) < 4, x, mx.array(-mx.inf, dtype))
    assert_close(impl.foundations.softmax(x), oracles.softmax(array64(x)), dtype=dtype)


@task_1
@over_dtypes
def test_task_1_a_row_of_minus_infinity(impl, dtype):
    """A row of only -inf has no softmax, so all of its values are NaN. The other rows stay as they are."""
    x = mx.array([[-mx.inf, -mx.inf, -mx.inf], [0.0, math.log(3), -mx.inf]]).astype(dtype)
    assert_close(impl.foundations.softmax(x), [[np.nan, np.nan, np.nan], [0.25, 0.75, 0.0]], dtype=dtype)


@task_1
def test_task_1_numbers_of_the_book(impl):
    x = mx.array([10.0, 5.0, 2.0, 1.0])
    assert_close(impl.foundations.softmax(x), [0.992855, 0.006690, 0.000333, 0.000123], tolerance=5e-7)
    assert_close(impl.foundations.softmax(x / 8), [0.448875, 0.240265, 0.165132, 0.145728], tolerance=5e-7)


@task_1
def test_task_1_leaves_its_input_alone(impl):
    x = Inputs(6).normal(3, 4)
    before = [array64(x)]
    mx.eval(impl.foundations.softmax(x))
    assert_unchanged(before, x)


def attention_oracle(query, key, value):
    shares = oracles.softmax(query @ key.T)
    return shares @ value, shares


@task_2
@over_dtypes
@pytest.mark.parametrize(
    ("L", "S", "D", "D_v"), [(3, 10, 2, 4), (1, 5, 3, 3), (6, 1, 4, 2), (4, 4, 4, 4), (5, 7, 1, 1)]
)
def test_task_2_many_queries(impl, L, S, D, D_v, dtype):
    inputs = Inputs(11, dtype)
    q, k, v = inputs.normal(L, D), inputs.normal(S, D), inputs.normal(S, D_v)
    assert_attends(
        impl.foundations.dot_product_attention(q, k, v), attention_oracle(*map(array64, (q, k, v))), dtype=dtype
    )


@task_2
@over_dtypes
@pytest.mark.parametrize(("S", "D", "D_v"), [(10, 2, 3), (4, 4, 4), (1, 3, 2)])
def test_task_2_a_single_query(impl, S, D, D_v, dtype):
    inputs = Inputs(12, dtype)
    q, k, v = inputs.normal(D), inputs.normal(S, D), inputs.normal(S, D_v)
    assert_attends(
        impl.foundations.dot_product_attention(q, k, v), attention_oracle(*map(array64, (q, k, v))), dtype=dtype
    )


@task_2
def test_task_2_large_scores(impl):
    inputs = Inputs(13)
    q, k, v = inputs.normal(3, 4, scale=20), inputs.normal(5, 4, scale=20), inputs.normal(5, 2)
    expected = attention_oracle(*map(array64, (q, k, v)))
    assert_attends(impl.foundations.dot_product_attention(q, k, v), expected, tolerance=1e-3)


@task_2
def test_task_2_each_query_has_a_softmax_of_its_own(impl):
    inputs = Inputs(14)
    output, weights = impl.foundations.dot_product_attention(
        inputs.normal(3, 2), inputs.normal(10, 2), inputs.normal(10, 2)
    )
    assert_close(weights.sum(axis=1), np.ones(3))
    assert_close(output, array64(output))


def circle(**longer):
    """Return ten vectors of length 1, at multiples of 36 degrees; `v3=5` makes vector 3 five times as long."""
    angles = np.deg2rad(36 * np.arange(10))
    lengths = np.ones(10)
    for name, factor in longer.items():
        lengths[int(name.removeprefix("v"))] = factor
    return mx.array(np.stack([np.cos(angles), np.sin(angles)], axis=1) * lengths[:, None]).astype(mx.float32)


QUERY = np.array([np.cos(np.pi / 4), np.sin(np.pi / 4)], dtype=np.float32)  # at 45 degrees


@task_2
def test_task_2_the_circle_of_the_book(impl):
    vectors = circle()
    output, weights = impl.foundations.dot_product_attention(mx.array(QUERY), vectors, vectors)
    assert_close(output, [0.31564538, 0.31564537], tolerance=1e-6)
    assert_close(weights.sum(), 1.0)
    assert weights.shape == (10,), f"expected a weight for each of the ten keys, got shape {weights.shape}"


@task_2
def test_task_2_a_vector_five_times_as_long(impl):
    attend = impl.foundations.dot_product_attention
    before, longer = circle(), circle(v3=5)
    assert_close(attend(mx.array(QUERY), before, before)[1][3], 0.1244, tolerance=1e-4)
    output, weights = attend(mx.array(QUERY), longer, longer)
    assert_close(weights[3], 0.4661, tolerance=1e-4)
    assert_close(output, [-0.504307, 2.336856], tolerance=1e-6)


@task_2
def test_task_2_a_heat_map_of_the_weights(impl):
    key = mx.array([[math.log(2), 0.0], [0.0, 99.0], [0.0, 0.0]])
    _, weights = impl.foundations.dot_product_attention(mx.eye(2), key, key)
    assert_close(weights, [[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]])
    shown = impl.foundations.attention_heatmap(weights, ["is", "key"], ["the", "key", "red"])
    assert shown.splitlines() == [
        "      the   key   red",
        " is ▒0.50 ░0.25 ░0.25",
        "key  0.00 █1.00  0.00",
    ]
    with pytest.raises(ValueError, match="queries: expected 2 names, got 1"):
        impl.foundations.attention_heatmap(weights, ["is"])


@task_2
def test_task_2_leaves_its_inputs_alone(impl):
    inputs = Inputs(15)
    arrays = [inputs.normal(3, 4), inputs.normal(5, 4), inputs.normal(5, 2)]
    before = [array64(array) for array in arrays]
    mx.eval(impl.foundations.dot_product_attention(*arrays))
    assert_unchanged(before, *arrays)


def network(inputs, D_q, D_k, H):
    """Return w_hidden and w_score, scaled so that scores are around 1."""
    return inputs.normal(H, D_q + D_k, scale=(D_q + D_k) ** -0.5), inputs.normal(H, scale=H**-0.5 * 2)


def additive_oracle(query, key, value, w_hidden, w_score):
    """Compute the scores one pair of query and key at a time."""
    scores = [[w_score @ np.tanh(w_hidden @ np.concatenate([q, k])) for k in key] for q in query]
    shares = oracles.softmax(np.array(scores))
    return shares @ value, shares


@task_3
@over_dtypes
@pytest.mark.parametrize(
    ("L", "S", "D_q", "D_k", "D_v", "H"),
    [(3, 5, 4, 4, 2, 6), (2, 7, 3, 5, 4, 8), (1, 4, 5, 2, 3, 1), (4, 4, 4, 4, 4, 4)],
)
def test_task_3_additive(impl, L, S, D_q, D_k, D_v, H, dtype):
    inputs = Inputs(21, dtype)
    arrays = [inputs.normal(L, D_q), inputs.normal(S, D_k), inputs.normal(S, D_v), *network(inputs, D_q, D_k, H)]
    assert_attends(impl.foundations.additive_attention(*arrays), additive_oracle(*map(array64, arrays)), dtype=dtype)


@task_3
def test_task_3_one_query_at_a_time_gives_the_same(impl):
    inputs = Inputs(22)
    q, k, v, weights = inputs.normal(3, 4), inputs.normal(5, 2), inputs.normal(5, 6), network(inputs, 4, 2, 7)
    together, _ = impl.foundations.additive_attention(q, k, v, *weights)
    for i in range(3):
        output, _ = impl.foundations.additive_attention(q[i : i + 1], k, v, *weights)
        assert_close(output, array64(together[i : i + 1]))


@task_3
def test_task_3_large_scores(impl):
    inputs = Inputs(23)
    q, k, v, (w_hidden, w_score) = (
        inputs.normal(3, 4),
        inputs.normal(5, 2),
        inputs.normal(5, 6),
        network(inputs, 4, 2, 7),
    )
    arrays = [q, k, v, w_hidden, w_score * 200]
    assert_attends(impl.foundations.additive_attention(*arrays), additive_oracle(*map(array64, arrays)), tolerance=1e-3)


@task_3
@over_dtypes
def test_task_3_large_inputs(impl, dtype):
    """The sums before tanh are around 200, where exp is infinity but tanh is 1 or -1. The signs of the keys decide
    them."""
    inputs = Inputs(25, dtype)
    key = inputs.normal(5, 2, scale=20, shift=300) * mx.array([1, -1, 1, 1, -1])[:, None]
    w_hidden, w_score = inputs.normal(7, 6, scale=0.05, shift=0.4), inputs.normal(7, scale=0.5)
    arrays = [inputs.normal(3, 4, scale=20), key, inputs.normal(5, 6), w_hidden, w_score]
    assert_attends(impl.foundations.additive_attention(*arrays), additive_oracle(*map(array64, arrays)), dtype=dtype)


@task_3
def test_task_3_leaves_its_inputs_alone(impl):
    inputs = Inputs(24)
    arrays = [inputs.normal(3, 4), inputs.normal(5, 2), inputs.normal(5, 6), *network(inputs, 4, 2, 7)]
    before = [array64(array) for array in arrays]
    mx.eval(impl.foundations.additive_attention(*arrays))
    assert_unchanged(before, *arrays)
