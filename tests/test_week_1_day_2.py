"""Week 1 Day 2: rotary positional encoding."""

import mlx.core as mx
import numpy as np
import oracles
import pytest
from helpers import Inputs, array64, assert_close, assert_unchanged, over_dtypes

B, L, H, D = 3, 5, 2, 8
SEQ_LEN = 24

OFFSETS = {
    "none": None,
    "0": 0,
    "7": 7,
    "up to the last position": SEQ_LEN - L,
    "slice": slice(4, 4 + L),
    "slice from the start": slice(0, L),
    "slice for each row": [slice(3, 3 + L), slice(0, L), slice(11, 11 + L)],
    "array for each row": mx.array([3, 0, 11]),
    "0-d array": mx.array(6),
}

WRONG_OFFSETS = {
    "one position too far": SEQ_LEN - L + 1,
    "negative": -1,
    "slice too long": slice(4, 5 + L),
    "slice too short": slice(4, 3 + L),
    "slice beyond the end": slice(SEQ_LEN - L + 1, SEQ_LEN + 1),
    "slice for one row only": [slice(0, L)],
    "slice for a row too many": [slice(0, L)] * (B + 1),
    "one slice of several too long": [slice(3, 3 + L), slice(0, 1 + L), slice(11, 11 + L)],
    "one slice of several beyond the end": [slice(3, 3 + L), slice(SEQ_LEN, SEQ_LEN + L), slice(0, L)],
    "array for one row only": mx.array([3]),
    "array for a row too many": mx.array([3, 0, 11, 2]),
}


def starts(offset):
    """Return the first position of each row."""
    if isinstance(offset, mx.array):
        return np.broadcast_to(np.array(offset), B)
    rows = offset if isinstance(offset, list) else [offset] * B
    return np.array([row.start if isinstance(row, slice) else row or 0 for row in rows])


def expected(x, offset, base, traditional):
    positions = starts(offset)[:, None] + np.arange(x.shape[1])
    return oracles.rope(array64(x), positions, base, traditional)


def check_offsets(impl, offset, traditional):
    x = Inputs(31).normal(B, L, H, D)
    offset = mx.array(offset) if isinstance(offset, mx.array) else offset  # a copy, which the code may change
    right = expected(x, offset, 10000, traditional)
    rope = impl.positional_encoding.RoPE(D, SEQ_LEN, traditional=traditional)
    assert_close(rope(x, offset), right)


def check_dtypes(impl, dtype, traditional):
    x = Inputs(32, dtype).normal(B, L, H, D)
    rope = impl.positional_encoding.RoPE(D, SEQ_LEN, traditional=traditional)
    assert_close(rope(x, offset=15), expected(x, 15, 10000, traditional), dtype=dtype)


def check_bases(impl, base, traditional):
    x = Inputs(33).normal(B, L, H, D)
    rope = impl.positional_encoding.RoPE(D, SEQ_LEN, base, traditional)
    assert_close(rope(x, 9), expected(x, 9, base, traditional))


def check_sizes(impl, shape, traditional):
    x = Inputs(34).normal(*shape)
    rope = impl.positional_encoding.RoPE(shape[-1], shape[1], traditional=traditional)
    positions = np.broadcast_to(np.arange(shape[1]), shape[:2])
    assert_close(rope(x), oracles.rope(array64(x), positions, 10000, traditional))


def check_far_positions(impl, traditional):
    """Check angles of thousands of radians. In half precision they would be far off, so compute them in float32
    whatever the dtype of x."""
    x = Inputs(35, mx.bfloat16).normal(B, L, H, D)
    rope = impl.positional_encoding.RoPE(D, 8192, traditional=traditional)
    for offset in (7919, mx.array([7919, 5, 4243])):
        assert_close(rope(x, offset), expected(x, offset, 10000, traditional), dtype=mx.bfloat16)


def check_small_integers(impl, traditional):
    """Check offsets that are 8-bit integers. These end at 127 or 255, but positions go on."""
    x = Inputs(41).normal(B, L, H, D)
    rope = impl.positional_encoding.RoPE(D, 512, traditional=traditional)
    for offset in (mx.array([253, 5, 127], mx.uint8), mx.array([126, 0, 125], mx.int8)):
        assert_close(rope(x, offset), expected(x, offset, 10000, traditional))


def check_one_token_for_each_row(impl, traditional):
    """Check rows of one token, each at its own position or all at the same one. Generation will call the layer like
    this."""
    x = Inputs(39).normal(B, 1, H, D)
    rope = impl.positional_encoding.RoPE(D, SEQ_LEN, traditional=traditional)
    rows = mx.array([3, 0, SEQ_LEN - 1]), [slice(3, 4), slice(0, 1), slice(11, 12)]
    for offset in (*rows, SEQ_LEN - 1, slice(4, 5)):
        assert_close(rope(x, offset), expected(x, offset, 10000, traditional))


def check_equals_mlx(impl, traditional):
    x = Inputs(36).normal(B, L, H, D)
    theirs = mx.fast.rope(x.swapaxes(1, 2), D, traditional=traditional, base=1000000, scale=1.0, offset=3)
    rope = impl.positional_encoding.RoPE(D, SEQ_LEN, 1000000, traditional=traditional)
    assert_close(rope(x, 3), theirs.swapaxes(1, 2), tolerance=1e-4)  # MLX's Metal kernel uses fast, less exact sines


def check_remembers_nothing(impl, traditional):
    """Check that one layer handles every dtype and every kind of offset, in any order: no call may depend on an earlier
    one."""
    x = Inputs(37).normal(B, L, H, D)
    rope = impl.positional_encoding.RoPE(D, SEQ_LEN, traditional=traditional)
    mx.eval(rope(x.astype(mx.bfloat16)))
    lists = [[slice(6, 6 + L), slice(n, n + L), slice(0, L)] for n in (1, 9)]
    for offset in (7, 2, mx.array([3, 0, 11]), mx.array([3, 8, 11]), *lists):
        for given in (None, offset):
            assert_close(rope(x, given), expected(x, given, 10000, traditional))
    assert_close(rope(x), expected(x, None, 10000, traditional))
    for offset in lists:
        assert_close(rope(x, offset), expected(x, offset, 10000, traditional))


def check_queries_then_keys(impl, traditional):
    """Check one layer that, in each step, rotates the queries and then the keys, which have fewer heads."""
    inputs = Inputs(40)
    rope = impl.positional_encoding.RoPE(D, SEQ_LEN, traditional=traditional)
    for offset in (mx.array([3, 0, 11]), mx.array([4, 1, 12]), mx.array(5), mx.array(6), 7, 8):
        for heads in (2 * H, H):
            x = inputs.normal(B, 1, heads, D)
            assert_close(rope(x, offset), expected(x, offset, 10000, traditional))


def check_two_layers(impl, traditional):
    """Check that two layers with different layouts and bases share nothing."""
    x = Inputs(30).normal(B, L, H, D)
    make = impl.positional_encoding.RoPE
    other, rope = make(D, SEQ_LEN, 100, not traditional), make(D, SEQ_LEN, 10000, traditional)
    of_other, got = other(x, 3), rope(x, 3)
    assert_close(got, expected(x, 3, 10000, traditional))
    assert_close(of_other, expected(x, 3, 100, not traditional))


def check_leaves_its_inputs_alone(impl, traditional):
    x = Inputs(38).normal(B, L, H, D)
    rope = impl.positional_encoding.RoPE(D, SEQ_LEN, traditional=traditional)
    for offset in (mx.array(6), mx.array([3, 0, 11])):
        before = [array64(x), array64(offset)]
        mx.eval(rope(x, offset))
        assert_unchanged(before, x, offset)


def check_odd_dims(impl, dims, traditional):
    impl.positional_encoding.RoPE(2, SEQ_LEN, traditional=traditional)  # a stub ends here
    with pytest.raises((ValueError, AssertionError)):
        impl.positional_encoding.RoPE(dims, SEQ_LEN, traditional=traditional)


def check_more_tokens_than_positions(impl, traditional):
    rope = impl.positional_encoding.RoPE(D, SEQ_LEN, traditional=traditional)
    with pytest.raises((ValueError, AssertionError)):
        rope(mx.zeros((B, SEQ_LEN + 1, H, D)))


# Both layouts get every check: task 1 is the traditional layout, task 2 the other one.


@pytest.mark.task("w1d2.1")
@pytest.mark.parametrize("offset", OFFSETS.values(), ids=OFFSETS)
def test_task_1_offsets(impl, offset):
    check_offsets(impl, offset, traditional=True)


@pytest.mark.task("w1d2.1")
@over_dtypes
def test_task_1_dtypes(impl, dtype):
    check_dtypes(impl, dtype, traditional=True)


@pytest.mark.task("w1d2.1")
@pytest.mark.parametrize("base", [100, 10000, 1000000.0])
def test_task_1_bases(impl, base):
    check_bases(impl, base, traditional=True)


@pytest.mark.task("w1d2.1")
@pytest.mark.parametrize("shape", [(1, 1, 1, 2), (2, 1, 3, 4), (1, 7, 5, 6), (4, 4, 4, 4)], ids=str)
def test_task_1_sizes(impl, shape):
    check_sizes(impl, shape, traditional=True)


@pytest.mark.task("w1d2.1")
def test_task_1_far_positions(impl):
    check_far_positions(impl, traditional=True)


@pytest.mark.task("w1d2.1")
def test_task_1_small_integers(impl):
    check_small_integers(impl, traditional=True)


@pytest.mark.task("w1d2.1")
def test_task_1_one_token_for_each_row(impl):
    check_one_token_for_each_row(impl, traditional=True)


@pytest.mark.task("w1d2.1")
def test_task_1_equals_mlx(impl):
    check_equals_mlx(impl, traditional=True)


@pytest.mark.task("w1d2.1")
def test_task_1_remembers_nothing(impl):
    check_remembers_nothing(impl, traditional=True)


@pytest.mark.task("w1d2.1")
def test_task_1_queries_then_keys(impl):
    check_queries_then_keys(impl, traditional=True)


@pytest.mark.task("w1d2.1")
def test_task_1_leaves_its_inputs_alone(impl):
    check_leaves_its_inputs_alone(impl, traditional=True)


# Wrong shapes and wrong offsets do not depend on the layout, so one layout is enough.


@pytest.mark.task("w1d2.1")
@pytest.mark.parametrize("dims", [1, 7])
def test_task_1_odd_dims(impl, dims):
    """Odd dims raise a ValueError. Keep the stub's call of `_check_dims`."""
    check_odd_dims(impl, dims, traditional=True)


@pytest.mark.task("w1d2.1")
def test_task_1_more_tokens_than_positions(impl):
    """More than seq_len tokens raise a ValueError. Keep the stub's call of `_check_offset`."""
    check_more_tokens_than_positions(impl, traditional=True)


@pytest.mark.task("w1d2.1")
@pytest.mark.parametrize("shape", [(1, L, D), (B, L, H, 2), (B, L, H, 2 * D), (1, L, L, H, D)], ids=str)
def test_task_1_wrong_shape(impl, shape):
    """A shape other than B x L x H x D raises a ValueError. Keep the stub's call of `_check_input`."""
    rope = impl.positional_encoding.RoPE(D, SEQ_LEN, traditional=True)
    with pytest.raises((ValueError, AssertionError)):
        rope(mx.zeros(shape))


@pytest.mark.task("w1d2.1")
@pytest.mark.parametrize("offset", WRONG_OFFSETS.values(), ids=WRONG_OFFSETS)
def test_task_1_wrong_offset(impl, offset):
    """A wrong offset raises a ValueError. Keep the stub's call of `_check_offset`."""
    offset = mx.array(offset) if isinstance(offset, mx.array) else offset  # a copy, which the code may change
    rope = impl.positional_encoding.RoPE(D, SEQ_LEN, traditional=True)
    with pytest.raises((ValueError, AssertionError)):
        rope(mx.zeros((B, L, H, D)), offset)


@pytest.mark.task("w1d2.2")
@pytest.mark.parametrize("offset", OFFSETS.values(), ids=OFFSETS)
def test_task_2_offsets(impl, offset):
    check_offsets(impl, offset, traditional=False)


@pytest.mark.task("w1d2.2")
@over_dtypes
def test_task_2_dtypes(impl, dtype):
    check_dtypes(impl, dtype, traditional=False)


@pytest.mark.task("w1d2.2")
@pytest.mark.parametrize("base", [100, 10000, 1000000.0])
def test_task_2_bases(impl, base):
    check_bases(impl, base, traditional=False)


@pytest.mark.task("w1d2.2")
@pytest.mark.parametrize("shape", [(1, 1, 1, 2), (2, 1, 3, 4), (1, 7, 5, 6), (4, 4, 4, 4)], ids=str)
def test_task_2_sizes(impl, shape):
    check_sizes(impl, shape, traditional=False)


@pytest.mark.task("w1d2.2")
def test_task_2_far_positions(impl):
    check_far_positions(impl, traditional=False)


@pytest.mark.task("w1d2.2")
def test_task_2_small_integers(impl):
    check_small_integers(impl, traditional=False)


@pytest.mark.task("w1d2.2")
def test_task_2_one_token_for_each_row(impl):
    check_one_token_for_each_row(impl, traditional=False)


@pytest.mark.task("w1d2.2")
def test_task_2_equals_mlx(impl):
    check_equals_mlx(impl, traditional=False)


@pytest.mark.task("w1d2.2")
def test_task_2_remembers_nothing(impl):
    check_remembers_nothing(impl, traditional=False)


@pytest.mark.task("w1d2.2")
def test_task_2_queries_then_keys(impl):
    check_queries_then_keys(impl, traditional=False)


@pytest.mark.task("w1d2.2")
def test_task_2_two_layers(impl):
    check_two_layers(impl, traditional=False)


@pytest.mark.task("w1d2.2")
def test_task_2_leaves_its_inputs_alone(impl):
    check_leaves_its_inputs_alone(impl, traditional=False)


@pytest.mark.task("w1d2.2")
@pytest.mark.parametrize("dims", [1, 7])
def test_task_2_odd_dims(impl, dims):
    """Odd dims raise a ValueError in this layout, too. Keep the stub's call of `_check_dims`."""
    check_odd_dims(impl, dims, traditional=False)


@pytest.mark.task("w1d2.2")
def test_task_2_more_tokens_than_positions(impl):
    """More than seq_len tokens raise a ValueError. Keep the stub's call of `_check_offset`."""
    check_more_tokens_than_positions(impl, traditional=False)


@pytest.mark.task("w1d2.2")
@pytest.mark.parametrize("offset", WRONG_OFFSETS.values(), ids=WRONG_OFFSETS)
def test_task_2_wrong_offset(impl, offset):
    """A wrong offset raises a ValueError. Keep the stub's call of `_check_offset`."""
    offset = mx.array(offset) if isinstance(offset, mx.array) else offset  # a copy, which the code may change
    rope = impl.positional_encoding.RoPE(D, SEQ_LEN, traditional=False)
    rope(mx.zeros((B, L, H, D)))  # a stub ends here
    with pytest.raises((ValueError, AssertionError)):
        rope(mx.zeros((B, L, H, D)), offset)
