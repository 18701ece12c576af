"""Week 1 Day 3: causal mask and grouped-query attention."""

import mlx.core as mx
import numpy as np
import oracles
import pytest
from helpers import Inputs, array64, assert_close, assert_unchanged, over_dtypes

task_1 = pytest.mark.task("w1d3.1")
task_2 = pytest.mark.task("w1d3.2")

over_heads = pytest.mark.parametrize(("H_q", "H_kv"), [(6, 2), (6, 1), (6, 3), (4, 4)])
over_masks = pytest.mark.parametrize("mask", ["none", "causal", "array"])


def qkv(inputs, *batch, H_q=6, H_kv=2, L=5, S=7, D=4):
    return inputs.normal(*batch, H_q, L, D), inputs.normal(*batch, H_kv, S, D), inputs.normal(*batch, H_kv, S, D)


def mask_of(kind, array):
    """Return the argument `mask` of a call, and the array that it adds to the scores."""
    if kind == "array":
        return array, array64(array)
    return ("causal", oracles.causal_mask(*array.shape[-2:])) if kind == "causal" else (None, None)


@task_1
@over_dtypes
@pytest.mark.parametrize(
    ("L", "S"), [(3, 5), (4, 4), (1, 1), (1, 6), (5, 6), (17, 33), (40, 300), (2, 5000), (1, 40000)]
)
def test_task_1_causal_mask(impl, L, S, dtype):
    assert_close(impl.attention.causal_mask(L, S, dtype), oracles.causal_mask(L, S), dtype=dtype)


@task_1
def test_task_1_adds_to_scores(impl):
    """The mask has only 0 and -inf, so adding it leaves visible scores exactly as they are."""
    scores = Inputs(41).normal(2, 3, 5)
    got = scores + impl.attention.causal_mask(3, 5, mx.float32)
    assert_close(got, array64(scores) + oracles.causal_mask(3, 5), tolerance=0)


@task_1
def test_task_1_float32_by_default(impl):
    assert_close(impl.attention.causal_mask(3, 5), oracles.causal_mask(3, 5))


@task_1
@pytest.mark.parametrize(("L", "S"), [(2, 1), (5, 3)])
def test_task_1_more_queries_than_keys(impl, L, S):
    """More queries than keys raise a ValueError. Keep the stub's call of `_check_lengths`."""
    impl.attention.causal_mask(S, L)  # a stub ends here
    with pytest.raises((ValueError, AssertionError)):
        impl.attention.causal_mask(L, S)


@task_2
@over_heads
@over_dtypes
def test_task_2_without_mask(impl, H_q, H_kv, dtype):
    q, k, v = qkv(Inputs(42, dtype), 2, H_q=H_q, H_kv=H_kv)
    got = impl.attention.scaled_dot_product_attention_grouped(q, k, v)
    assert_close(got, oracles.grouped_attention(array64(q), array64(k), array64(v)), dtype=dtype)


@task_2
@pytest.mark.parametrize("batch", [(), (1,), (3,), (2, 3)], ids=str)
@over_masks
def test_task_2_batches(impl, batch, mask):
    inputs = Inputs(43)
    q, k, v = qkv(inputs, *batch)
    mask, added = mask_of(mask, inputs.normal(*batch, 6, 5, 7))
    got = impl.attention.scaled_dot_product_attention_grouped(q, k, v, mask=mask)
    assert_close(got, oracles.grouped_attention(array64(q), array64(k), array64(v), mask=added))


@task_2
@over_heads
@pytest.mark.parametrize("scale", [1.0, 0.3, -0.7, 0.0])
def test_task_2_given_scale(impl, scale, H_q, H_kv):
    q, k, v = qkv(Inputs(44), 2, H_q=H_q, H_kv=H_kv)
    got = impl.attention.scaled_dot_product_attention_grouped(q, k, v, scale=scale)
    assert_close(got, oracles.grouped_attention(array64(q), array64(k), array64(v), scale))


@task_2
@over_heads
@pytest.mark.parametrize("shape", ["L S", "1 1 L S", "2 1 L S", "H L S", "2 H L S", "2 1 1 S", "S"])
def test_task_2_mask_is_added(impl, H_q, H_kv, shape):
    inputs = Inputs(45)
    q, k, v = qkv(inputs, 2, H_q=H_q, H_kv=H_kv)
    mask = inputs.normal(*[{"L": 5, "S": 7, "H": H_q}.get(size) or int(size) for size in shape.split()], scale=2)
    got = impl.attention.scaled_dot_product_attention_grouped(q, k, v, mask=mask)
    assert_close(got, oracles.grouped_attention(array64(q), array64(k), array64(v), mask=array64(mask)))


@task_2
def test_task_2_mask_of_a_single_query(impl):
    """With one query, "causal" hides nothing, but a mask that is an array still counts."""
    inputs = Inputs(55)
    q, k, v = qkv(inputs, 2, L=1)
    mask = inputs.normal(2, 1, 1, 7, scale=2)
    got = impl.attention.scaled_dot_product_attention_grouped(q, k, v, mask=mask)
    assert_close(got, oracles.grouped_attention(array64(q), array64(k), array64(v), mask=array64(mask)))


@task_2
@over_dtypes
@pytest.mark.parametrize(("L", "S"), [(1, 1), (5, 5), (1, 7), (3, 7), (6, 7)])
def test_task_2_causal(impl, L, S, dtype):
    q, k, v = qkv(Inputs(46, dtype), 2, L=L, S=S)
    expected = oracles.grouped_attention(array64(q), array64(k), array64(v), mask=oracles.causal_mask(L, S))
    got = impl.attention.scaled_dot_product_attention_grouped(q, k, v, mask="causal")
    assert_close(got, expected, dtype=dtype)


@task_2
@over_heads
def test_task_2_causal_with_each_number_of_heads(impl, H_q, H_kv):
    q, k, v = qkv(Inputs(54), 2, H_q=H_q, H_kv=H_kv)
    expected = oracles.grouped_attention(array64(q), array64(k), array64(v), mask=oracles.causal_mask(5, 7))
    assert_close(impl.attention.scaled_dot_product_attention_grouped(q, k, v, mask="causal"), expected)


@task_2
@over_masks
@over_dtypes
def test_task_2_mask_and_scale(impl, mask, dtype):
    inputs = Inputs(47, dtype)
    q, k, v = qkv(inputs, 2)
    mask, added = mask_of(mask, inputs.normal(5, 7))
    got = impl.attention.scaled_dot_product_attention_grouped(q, k, v, 0.9, mask)
    assert_close(got, oracles.grouped_attention(array64(q), array64(k), array64(v), 0.9, added), dtype=dtype)


@task_2
@over_masks
def test_task_2_large_scores(impl, mask):
    """Scores are in the hundreds, and -inf still hides a key."""
    q, k, v = qkv(Inputs(48), 2)
    mask, added = mask_of(mask, mx.array(oracles.causal_mask(5, 7)).astype(mx.float32))
    expected = oracles.grouped_attention(array64(q) * 20, array64(k) * 20, array64(v), mask=added)
    got = impl.attention.scaled_dot_product_attention_grouped(q * 20, k * 20, v, mask=mask)
    assert_close(got, expected, tolerance=1e-3)


@task_2
@pytest.mark.parametrize("mask", [None, "causal"])
def test_task_2_equals_mlx(impl, mask):
    q, k, v = qkv(Inputs(49), 2)
    theirs = mx.fast.scaled_dot_product_attention(q, k, v, scale=0.5, mask=mask)
    assert_close(impl.attention.scaled_dot_product_attention_grouped(q, k, v, scale=0.5, mask=mask), theirs)


@task_2
def test_task_2_equal_sizes(impl):
    """Axes have equal sizes, so no shape shows that two of them are mixed up."""
    q, k, v = qkv(Inputs(50), 2, H_q=4, H_kv=2, L=4, S=4)
    expected = oracles.grouped_attention(array64(q), array64(k), array64(v), mask=np.triu(np.full((4, 4), -np.inf), 1))
    assert_close(impl.attention.scaled_dot_product_attention_grouped(q, k, v, mask="causal"), expected)


@task_2
@pytest.mark.parametrize(("H_q", "H_kv"), [(5, 2), (4, 3), (1, 2)])
def test_task_2_heads_that_cannot_be_shared(impl, H_q, H_kv):
    """H_q must be a multiple of H_kv, and otherwise the call raises a ValueError. Keep the stub's call of
    `_check_groups`."""
    q, k, v = qkv(Inputs(52), 2, H_q=H_q, H_kv=H_kv)
    impl.attention.scaled_dot_product_attention_grouped(q, q, q)  # a stub ends here
    with pytest.raises((ValueError, AssertionError)):
        impl.attention.scaled_dot_product_attention_grouped(q, k, v)


@task_2
@pytest.mark.parametrize("mask", ["diagonal", "Causal"])
def test_task_2_unknown_mask(impl, mask):
    """Any string but "causal" raises a ValueError. Keep the stub's call of `_check_mask_name`."""
    q, k, v = qkv(Inputs(53), 2)
    impl.attention.scaled_dot_product_attention_grouped(q, k, v, mask="causal")  # a stub ends here
    with pytest.raises((ValueError, AssertionError)):
        impl.attention.scaled_dot_product_attention_grouped(q, k, v, mask=mask)


@task_2
def test_task_2_leaves_its_inputs_alone(impl):
    inputs = Inputs(51)
    arrays = [*qkv(inputs, 2), inputs.normal(5, 7)]
    before = [array64(array) for array in arrays]
    attend = impl.attention.scaled_dot_product_attention_grouped
    mx.eval(attend(*arrays[:3]), attend(*arrays[:3], mask="causal"), attend(*arrays[:3], 0.5, arrays[3]))
    assert_unchanged(before, *arrays)
