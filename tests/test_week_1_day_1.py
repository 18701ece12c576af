"""Week 1 Day 1: attention and multi-head attention."""

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import oracles
import pytest
from helpers import Inputs, array64, assert_close, assert_unchanged, over_dtypes

task_1 = pytest.mark.task("w1d1.1")
task_2 = pytest.mark.task("w1d1.2")

over_batches = pytest.mark.parametrize("batch", [(), (3,), (2, 3)], ids=str)


def qkv(inputs, *batch, L=5, S=7, D=6):
    return inputs.normal(*batch, L, D), inputs.normal(*batch, S, D), inputs.normal(*batch, S, D)


@task_1
@over_batches
@over_dtypes
def test_task_1_default_scale(impl, batch, dtype):
    q, k, v = qkv(Inputs(11, dtype), *batch)
    got = impl.attention.scaled_dot_product_attention_simple(q, k, v)
    assert_close(got, oracles.attention(array64(q), array64(k), array64(v)), dtype=dtype)


@task_1
@pytest.mark.parametrize("scale", [1.0, 0.3, -0.7, 0.0])
def test_task_1_given_scale(impl, scale):
    q, k, v = qkv(Inputs(12), 2)
    got = impl.attention.scaled_dot_product_attention_simple(q, k, v, scale=scale)
    assert_close(got, oracles.attention(array64(q), array64(k), array64(v), scale))


@task_1
@over_dtypes
@pytest.mark.parametrize("shape", [(5, 7), (7,), (1, 7), (5, 1), (3, 5, 7), (2, 3, 5, 7), (2, 1, 5, 7)], ids=str)
def test_task_1_mask_is_added(impl, shape, dtype):
    inputs = Inputs(13, dtype)
    q, k, v = qkv(inputs, 2, 3)
    mask = inputs.normal(*shape, scale=2)
    got = impl.attention.scaled_dot_product_attention_simple(q, k, v, mask=mask)
    assert_close(got, oracles.attention(array64(q), array64(k), array64(v), mask=array64(mask)), dtype=dtype)


@task_1
def test_task_1_scale_and_mask(impl):
    inputs = Inputs(14)
    q, k, v = qkv(inputs, 2)
    mask = inputs.normal(5, 7)
    got = impl.attention.scaled_dot_product_attention_simple(q, k, v, 0.5, mask)
    assert_close(got, oracles.attention(array64(q), array64(k), array64(v), 0.5, array64(mask)))


@task_1
@over_dtypes
def test_task_1_minus_infinity_hides_a_key(impl, dtype):
    inputs = Inputs(15, dtype)
    q, k, v = qkv(inputs, 2)
    hidden = np.zeros((5, 7))
    hidden[:, 4:] = -np.inf
    got = impl.attention.scaled_dot_product_attention_simple(q, k, v, mask=mx.array(hidden).astype(dtype))
    assert_close(got, oracles.attention(array64(q), array64(k)[:, :4], array64(v)[:, :4]), dtype=dtype)


@task_1
@pytest.mark.parametrize("size", [20, 200])
def test_task_1_minus_infinity_hides_a_large_score(impl, size):
    """Scores are in the hundreds or tens of thousands, so only -inf hides a key. A mask of -100 or -10,000 would
    not."""
    q, k, v = qkv(Inputs(15), 2)
    hidden = mx.where(mx.arange(7) < 4, 0.0, -mx.inf)
    got = impl.attention.scaled_dot_product_attention_simple(q * size, k * size, v, mask=hidden)
    expected = oracles.attention(array64(q) * size, array64(k)[:, :4] * size, array64(v)[:, :4])
    assert_close(got, expected, tolerance=1e-3)


@task_1
def test_task_1_large_scores(impl):
    """Scores are in the hundreds, and exp(89) is already infinity in float32. A softmax that does not subtract the
    maximum gives NaN."""
    q, k, v = qkv(Inputs(16), 2)
    got = impl.attention.scaled_dot_product_attention_simple(q * 20, k * 20, v)
    assert_close(got, oracles.attention(array64(q) * 20, array64(k) * 20, array64(v)), tolerance=1e-3)


@task_1
@pytest.mark.parametrize(("L", "S", "D"), [(1, 1, 1), (1, 9, 4), (9, 1, 4), (4, 4, 1), (6, 6, 6)])
def test_task_1_sizes(impl, L, S, D):
    q, k, v = qkv(Inputs(17), 2, L=L, S=S, D=D)
    got = impl.attention.scaled_dot_product_attention_simple(q, k, v)
    assert_close(got, oracles.attention(array64(q), array64(k), array64(v)))


@task_1
def test_task_1_equals_mlx(impl):
    q, k, v = qkv(Inputs(18), 2, 3)
    theirs = mx.fast.scaled_dot_product_attention(q, k, v, scale=0.4)
    assert_close(impl.attention.scaled_dot_product_attention_simple(q, k, v, scale=0.4), theirs)


@task_1
def test_task_1_leaves_its_inputs_alone(impl):
    inputs = Inputs(19)
    arrays = [*qkv(inputs, 2), inputs.normal(5, 7)]
    before = [array64(array) for array in arrays]
    attend = impl.attention.scaled_dot_product_attention_simple
    mx.eval(attend(*arrays[:3]), attend(*arrays[:3], scale=0.5, mask=arrays[3]))
    assert_unchanged(before, *arrays)


@task_2
@over_dtypes
@pytest.mark.parametrize("batch", [(), (4,), (2, 4), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("bias", [False, True], ids=["without bias", "with bias"])
def test_task_2_linear(impl, batch, bias, dtype):
    inputs = Inputs(21, dtype)
    x, weight, b = inputs.normal(*batch, 6), inputs.normal(9, 6), inputs.normal(9)
    expected = array64(x) @ array64(weight).T + (array64(b) if bias else 0)
    got = impl.basics.linear(x, weight, b) if bias else impl.basics.linear(x, weight)
    assert_close(got, expected, dtype=dtype)


@task_2
def test_task_2_linear_with_a_square_weight(impl):
    """The weight is square, so the shapes fit with and without the transpose. Only the values tell which one is
    right."""
    inputs = Inputs(22)
    x, weight = inputs.normal(3, 6), inputs.normal(6, 6)
    assert_close(impl.basics.linear(x, weight), array64(x) @ array64(weight).T)


@task_2
@pytest.mark.parametrize(("I", "O"), [(6, 1), (1, 4), (1, 1)])
def test_task_2_linear_with_one_input_or_output(impl, I, O):
    """A layer with one output has a bias with one value, which is added as usual."""
    inputs = Inputs(29)
    x, weight, bias = inputs.normal(3, I), inputs.normal(O, I), inputs.normal(O)
    assert_close(impl.basics.linear(x, weight, bias), array64(x) @ array64(weight).T + array64(bias))


@task_2
def test_task_2_linear_leaves_its_inputs_alone(impl):
    inputs = Inputs(23)
    arrays = [inputs.normal(3, 6), inputs.normal(9, 6), inputs.normal(9)]
    before = [array64(array) for array in arrays]
    mx.eval(impl.basics.linear(*arrays))
    assert_unchanged(before, *arrays)


def multi_head(inputs, E=12):
    """Return weights that keep the size of activations."""
    return [inputs.normal(E, E, scale=E**-0.5) for _ in range(4)]


def multi_head_oracle(q, k, v, weights, heads, mask=None):
    q, k, v = (
        oracles.split_heads(array64(x) @ array64(w).T, heads) for x, w in zip((q, k, v), weights[:3], strict=True)
    )
    out = oracles.attention(q, k, v, mask=mask)  # N, H, L, D
    return np.concatenate(list(out.swapaxes(0, 1)), axis=-1) @ array64(weights[3]).T


@task_2
@over_dtypes
@pytest.mark.parametrize("heads", [1, 3, 4, 12])
def test_task_2_multi_head(impl, heads, dtype):
    inputs = Inputs(24, dtype)
    weights = multi_head(inputs)
    q, k, v = qkv(inputs, 2, D=12)
    got = impl.attention.SimpleMultiHeadAttention(12, heads, *weights)(q, k, v)
    assert_close(got, multi_head_oracle(q, k, v, weights, heads), dtype=dtype)


@task_2
@pytest.mark.parametrize(
    "shape", [(5, 7), (7,), (3, 5, 7), (2, 1, 5, 7), (2, 3, 5, 7), (1, 3, 5, 7), (2, 1, 1, 7)], ids=str
)
def test_task_2_multi_head_mask(impl, shape):
    inputs = Inputs(25)
    weights = multi_head(inputs)
    q, k, v = qkv(inputs, 2, D=12)
    mask = inputs.normal(*shape, scale=2)
    got = impl.attention.SimpleMultiHeadAttention(12, 3, *weights)(q, k, v, mask)
    assert_close(got, multi_head_oracle(q, k, v, weights, 3, array64(mask)))


@task_2
@pytest.mark.parametrize(("N", "L", "S"), [(1, 1, 1), (1, 5, 7), (3, 1, 7), (3, 5, 1)])
def test_task_2_multi_head_sizes(impl, N, L, S):
    """An axis of size 1 stays in the result's shape."""
    inputs = Inputs(20)
    weights = multi_head(inputs)
    q, k, v = qkv(inputs, N, L=L, S=S, D=12)
    got = impl.attention.SimpleMultiHeadAttention(12, 3, *weights)(q, k, v)
    assert_close(got, multi_head_oracle(q, k, v, weights, 3))


@task_2
def test_task_2_multi_head_self_attention(impl):
    """Here L = S and the batch has as many rows as there are heads, so no shape shows that axes are mixed up."""
    inputs = Inputs(26)
    weights = multi_head(inputs)
    x = inputs.normal(3, 3, 12)
    got = impl.attention.SimpleMultiHeadAttention(12, 3, *weights)(x, x, x)
    assert_close(got, multi_head_oracle(x, x, x, weights, 3))


@task_2
def test_task_2_multi_head_remembers_nothing(impl):
    inputs = Inputs(28)
    weights = multi_head(inputs)
    layer = impl.attention.SimpleMultiHeadAttention(12, 3, *weights)
    mx.eval(layer(*qkv(inputs, 2, D=12), inputs.normal(5, 7)))
    q, k, v = qkv(inputs, 2, D=12)
    assert_close(layer(q, k, v), multi_head_oracle(q, k, v, weights, 3))


@task_2
def test_task_2_multi_head_equals_mlx(impl):
    inputs = Inputs(27)
    weights = multi_head(inputs)
    q, k, v = qkv(inputs, 2, D=12)
    theirs = nn.MultiHeadAttention(12, 4)
    layers = [theirs.query_proj, theirs.key_proj, theirs.value_proj, theirs.out_proj]
    for layer, weight in zip(layers, weights, strict=True):
        layer.weight = weight
    got = impl.attention.SimpleMultiHeadAttention(12, 4, *weights)(q, k, v)
    assert_close(got, theirs(q, k, v))
