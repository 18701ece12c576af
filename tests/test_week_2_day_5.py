"""Week 2 Day 5: fused kernels: RMSNorm with the residual sum, RoPE without tables, SwiGLU; the same in Metal."""

import math

import mlx.core as mx
import numpy as np
import oracles
import pytest
from helpers import Inputs, array64, assert_close, over_dtypes
from parallel import guarded, threads
from quantized import ROUNDED_ONCE

task_1 = pytest.mark.task("w2d5.1")
task_2 = pytest.mark.task("w2d5.2")
task_3 = pytest.mark.task("w2d5.3")
task_4 = pytest.mark.task("w2d5.4")
task_5 = pytest.mark.task("w2d5.5")
task_6 = pytest.mark.task("w2d5.6")

SIZES = [*range(1, 66), 1000]  # lengths of rows, around every width of a vector
SIZES_IN_METAL = [1, 3, 4, 31, 127, 128, 129, 300]  # for a part of a simdgroup, a whole one, and several
HEAD_SIZES = [2, 6, 8, 16, 22, 32, 34, 64, 66, 80, 96, 128, 130, 256]
SUM_TOLERANCE = {mx.float32: 1e-6, mx.float16: 1e-3, mx.bfloat16: 8e-3}  # for one addition with one rounding

over_layouts = pytest.mark.parametrize("traditional", [False, True], ids=["halves", "neighbours"])
over_shapes = pytest.mark.parametrize(
    "shape", [(7,), (1,), (1, 1), (2, 3, 4, 5), (64, 1), (0, 5), (2, 0, 5), (3, 0)], ids=str
)
over_threads = pytest.mark.parametrize("count", [1, 2, 3, 8])


def on_cpu(impl):
    """Return RMSNorm alone, and RMSNorm after the residual sum."""
    return impl.kernels.rms_norm.rms_norm, impl.kernels.rms_norm.add_rms_norm


def in_metal(impl):
    return impl.kernels.rms_norm.rms_norm_metal, impl.kernels.rms_norm.add_rms_norm_metal


def check_norm(kernels, x, weight, eps=1e-5, residual=None, dtype=mx.float32, tolerance=None):
    """Check RMSNorm alone or, with a residual, after the residual sum."""
    rms_norm, add_rms_norm = kernels
    if residual is None:
        got, total = rms_norm(x, weight, eps), array64(x)
    else:
        sum_, got = add_rms_norm(x, residual, weight, eps)
        total = array64(x) + array64(residual)
        assert_close(sum_, total, dtype=dtype, tolerance=SUM_TOLERANCE[dtype])
    assert_close(got, oracles.rms_norm(total, array64(weight), eps), dtype=dtype, tolerance=tolerance)


def check_norm_sizes(kernels, dtype, sizes=SIZES):
    for E in sizes:
        inputs = Inputs(501 + E, dtype)
        x, residual = inputs.normal(3, E, scale=3), inputs.normal(3, E, shift=1)
        check_norm(kernels, x, inputs.normal(E), residual=residual, dtype=dtype)


def check_norm_alone(kernels, dtype, sizes=SIZES):
    for E in sizes:
        inputs = Inputs(502 + E, dtype)
        x, weight = inputs.normal(3, E, scale=3, shift=1), inputs.normal(E, scale=8, shift=1)
        check_norm(kernels, x, weight, dtype=dtype, tolerance=ROUNDED_ONCE[dtype])


def check_eps(kernels, eps):
    inputs = Inputs(503)
    x, residual, weight = inputs.normal(2, 50, scale=0.01), inputs.normal(2, 50, scale=0.01), inputs.normal(50)
    check_norm(kernels, x, weight, eps, residual)
    check_norm(kernels, x, weight, eps)


def check_large_halves(kernels):
    inputs = Inputs(504, mx.float16)
    x, residual, weight = inputs.normal(2, 50, scale=1000), inputs.normal(2, 50, scale=1000), inputs.normal(50)
    check_norm(kernels, x, weight, residual=residual, dtype=mx.float16)


def check_small_halves(kernels):
    inputs = Inputs(505, mx.float16)
    x, residual, weight = inputs.normal(2, 50, scale=1e-4), inputs.normal(2, 50, scale=1e-4), inputs.normal(50)
    check_norm(kernels, x, weight, 1e-9, residual, dtype=mx.float16)


def check_long_norms(kernels, dtype):
    inputs = Inputs(506, dtype)
    x, residual, weight = inputs.normal(2, 5003, shift=1), inputs.normal(2, 5003, shift=1), inputs.normal(5003)
    check_norm(kernels, x, weight, residual=residual, dtype=dtype)


def check_norm_shape(kernels, shape):
    inputs = Inputs(507)
    x, residual, weight = inputs.normal(*shape), inputs.normal(*shape), inputs.normal(shape[-1])
    if x.size:
        check_norm(kernels, x, weight, residual=residual)
    else:
        for got in kernels[1](x, residual, weight, 1e-5):
            assert_close(got, np.zeros(shape))


def check_norm_views(kernels):
    rms_norm, add_rms_norm = kernels
    inputs = Inputs(508)
    big, residual, weights = inputs.normal(6, 40, 40), inputs.normal(6, 40, 40), inputs.normal(80)
    broadcast = mx.broadcast_to(big[:1], (3, 40, 40))
    for view in (big.swapaxes(1, 2), big[:, ::3], big[..., 1::2], big[::-1, :, ::-1], broadcast):
        rows, E = view.shape[1:]
        added = residual[: len(view), :rows, :E]
        x, given = array64(view), (view, added, weights[: 2 * E : 2])
        total, got = add_rms_norm(*given, 1e-5)
        assert_close(total, x + array64(added))
        assert_close(got, oracles.rms_norm(x + array64(added), array64(given[2]), 1e-5))
        assert_close(rms_norm(view, given[2], 1e-5), oracles.rms_norm(x, array64(given[2]), 1e-5))


@task_1
def test_task_1_add_rms_norm(impl):
    inputs = Inputs(500)
    check_norm(on_cpu(impl), inputs.normal(8, 64), inputs.normal(64), residual=inputs.normal(8, 64))


@task_1
@over_dtypes
def test_task_1_rows_of_every_size(impl, dtype):
    """The values after the last whole vector belong to the row, too: to the residual sum, the mean and the result."""
    check_norm_sizes(on_cpu(impl), dtype)


@task_1
@over_dtypes
def test_task_1_without_residual(impl, dtype):
    """Without a residual, x itself is normalised, and only the result is rounded to 16 bits."""
    check_norm_alone(on_cpu(impl), dtype)


@task_1
@pytest.mark.parametrize("eps", [0.0, 1e-6, 1e-2, 1.0])
def test_task_1_eps(impl, eps):
    """The values are small, so the result shows whether eps is added to the mean square, before the root."""
    check_eps(on_cpu(impl), eps)


@task_1
def test_task_1_half_precision_does_not_overflow(impl):
    """300^2 is too large for float16, so squares are float32."""
    check_large_halves(on_cpu(impl))


@task_1
def test_task_1_half_precision_does_not_underflow(impl):
    """0.0001^2 is 0 in float16, so squares are float32."""
    check_small_halves(on_cpu(impl))


@task_1
@over_dtypes
def test_task_1_long_rows(impl, dtype):
    """A row has 5,003 values. A sum of squares that is kept in 16 bits would stop growing."""
    check_long_norms(on_cpu(impl), dtype)


@task_1
@over_shapes
def test_task_1_shapes(impl, shape):
    check_norm_shape(on_cpu(impl), shape)


@task_1
def test_task_1_views(impl):
    """Rows are not contiguous in memory, and the residual has other strides than x."""
    check_norm_views(on_cpu(impl))


@task_1
@over_threads
def test_task_1_any_number_of_threads(impl, count):
    inputs = Inputs(509)
    x, residual, weight = inputs.normal(500, 200), inputs.normal(500, 200), inputs.normal(200)
    check_norm(on_cpu(impl), x[:1], weight)
    with threads(impl, count):
        check_norm(on_cpu(impl), x, weight, residual=residual)
        check_norm(on_cpu(impl), x, weight)


@task_1
def test_task_1_equals_mlx(impl):
    inputs = Inputs(510)
    x, weight = inputs.normal(2, 3, 100), inputs.normal(100)
    assert_close(impl.kernels.rms_norm.rms_norm(x, weight, 1e-3), mx.fast.rms_norm(x, weight, 1e-3))


def expected_rope(x, offset, base, traditional):
    starts = np.broadcast_to(np.array(offset), x.shape[0])
    return oracles.rope(array64(x), starts[:, None] + np.arange(x.shape[1]), base, traditional)


def check_rope(rope, x, offset, base=10000.0, traditional=False, dtype=mx.float32):
    assert_close(rope(x, offset, base, traditional), expected_rope(x, offset, base, traditional), dtype=dtype)


def check_turned_once(rope, dtype, traditional):
    for D in (22, 64):
        x = Inputs(529 + D, dtype).normal(2, 20, 3, D, scale=10)
        got = rope(x, 3, 10000.0, traditional)
        assert_close(got, expected_rope(x, 3, 10000.0, traditional), dtype=dtype, tolerance=ROUNDED_ONCE[dtype])


def check_one_after_another(rope, traditional):
    """Check calls for queries and keys of one token, of the next token, and of others. Each call uses only its own
    arguments."""
    for i, position in enumerate((5, 5, 6, 5, 0, 0)):
        for H, base in ((4, 10000.0), (2, 10000.0), (2, 500.0)):
            check_rope(rope, Inputs(530 + i).normal(1, 1, H, 64), position, base, traditional)


def check_offsets(rope, traditional):
    x = Inputs(523).normal(3, 4, 2, 48)
    for offset in (0, 1, 250, mx.array(17), mx.array([3, 0, 11]), mx.array([3, 0, 11], mx.int64)):
        check_rope(rope, x, offset, traditional=traditional)
    check_rope(rope, x[:, :1], mx.array([100, 2, 31], mx.uint32), traditional=traditional)


def check_far_positions(rope, offset, traditional):
    x = Inputs(524).normal(2, 3, 2, 128)
    check_rope(rope, x, offset, 1000000.0, traditional)
    check_rope(rope, x, mx.array([offset, 5]), 10000.0, traditional)


def check_rope_sizes(rope, traditional):
    for shape in [(1, 1, 1, 2), (1, 1, 14, 64), (4, 1, 3, 20), (1, 9, 1, 40), (0, 3, 2, 8), (2, 0, 2, 8), (2, 3, 0, 8)]:
        check_rope(rope, Inputs(525).normal(*shape), 11, traditional=traditional)


def check_rope_views(rope, traditional):
    inputs = Inputs(526)
    joined, by_heads = inputs.normal(2, 5, 9, 36), inputs.normal(2, 3, 5, 36)
    views = [joined[:, :, 3:6], joined[:, 1::2, ::4], by_heads.swapaxes(1, 2), joined[..., ::-2], joined[..., 4:20]]
    for x in views:
        check_rope(rope, x, mx.array([6, 60]), traditional=traditional)
        check_rope(rope, x, 0, traditional=traditional)


@task_2
def test_task_2_rope(impl):
    check_rope(impl.kernels.rope.rope, Inputs(520).normal(1, 5, 2, 64), 3)


@task_2
@over_layouts
@over_dtypes
def test_task_2_heads_of_every_size(impl, dtype, traditional):
    """Half a head need not fill whole vectors."""
    for D in HEAD_SIZES:
        x = Inputs(521 + D, dtype).normal(2, 3, 5, D)
        check_rope(impl.kernels.rope.rope, x, 7, traditional=traditional, dtype=dtype)


@task_2
@over_layouts
@over_dtypes
def test_task_2_half_precision_in_between(impl, dtype, traditional):
    """Only the result is rounded to 16 bits, not the sines or the products."""
    check_turned_once(impl.kernels.rope.rope, dtype, traditional)


@task_2
@over_layouts
def test_task_2_one_after_another(impl, traditional):
    """Decoding rotates queries, then keys at the same position. Nothing from one call may remain for the next."""
    check_one_after_another(impl.kernels.rope.rope, traditional)


@task_2
@over_layouts
@pytest.mark.parametrize("base", [100.0, 10000.0, 500000.0, 1000000.0])
def test_task_2_bases(impl, base, traditional):
    check_rope(impl.kernels.rope.rope, Inputs(522).normal(2, 4, 3, 80), 9, base, traditional)


@task_2
@over_layouts
def test_task_2_offsets(impl, traditional):
    """The offset is one position for all rows or one for each, in any integer dtype."""
    check_offsets(impl.kernels.rope.rope, traditional)


@task_2
@over_layouts
@pytest.mark.parametrize("offset", [4242, 40000, 1000000])
def test_task_2_far_positions(impl, offset, traditional):
    """After thousands of turns, a float has too few digits left for the angle. Subtract whole turns before the angle
    becomes a float."""
    check_far_positions(impl.kernels.rope.rope, offset, traditional)


@task_2
@over_layouts
def test_task_2_sizes(impl, traditional):
    check_rope_sizes(impl.kernels.rope.rope, traditional)


@task_2
@over_layouts
def test_task_2_views(impl, traditional):
    """Heads may be a part of a longer row, or stored one head after the other with all positions."""
    check_rope_views(impl.kernels.rope.rope, traditional)


@task_2
@over_threads
def test_task_2_any_number_of_threads(impl, count):
    x = Inputs(527).normal(2, 150, 4, 32)
    check_rope(impl.kernels.rope.rope, x[:, :1], 4)
    with threads(impl, count):
        check_rope(impl.kernels.rope.rope, x, mx.array([1000, 3]))
        check_rope(impl.kernels.rope.rope, x, 77, traditional=True)


@task_2
@over_layouts
def test_task_2_equals_mlx(impl, traditional):
    x = Inputs(528).normal(2, 6, 3, 64)
    theirs = mx.fast.rope(x.swapaxes(1, 2), 64, traditional=traditional, base=1000000, scale=1.0, offset=3)
    assert_close(impl.kernels.rope.rope(x, 3, 1000000.0, traditional), theirs.swapaxes(1, 2), tolerance=1e-4)


def check_swiglu(swiglu, gate, up, dtype=mx.float32, tolerance=None):
    expected = oracles.silu(array64(gate)) * array64(up)
    assert_close(swiglu(gate, up), expected, dtype=dtype, tolerance=tolerance)


def check_swiglu_sizes(swiglu, dtype, sizes=SIZES):
    for I in sizes:
        inputs = Inputs(541 + I, dtype)
        check_swiglu(swiglu, inputs.normal(3, I, scale=3), inputs.normal(3, I), dtype)


def check_far_out(swiglu, dtype):
    numbers = np.array([-600, -200, -100, -89, -88, -20, -12, -1, 0, 1, 12, 20, 87, 88, 89, 100, 200, 600])
    gate = mx.array(np.repeat(numbers, 5)).astype(dtype)
    up = Inputs(542, dtype).normal(gate.size)
    for size in range(gate.size, 0, -7):  # each value is once in a whole vector, and once after the last one
        check_swiglu(swiglu, gate[-size:], up[-size:], dtype)
        check_swiglu(swiglu, gate[:size], up[:size], dtype)


def check_nan(swiglu):
    inputs = Inputs(543)
    for place in (0, 20, 36):
        for spoilt in (0, 1):
            numbers = [array64(inputs.normal(2, 37)) for _ in range(2)]
            numbers[spoilt][1, place] = math.nan
            got = swiglu(*(mx.array(x, mx.float32) for x in numbers))
            assert_close(mx.isnan(got).astype(mx.float32), np.isnan(numbers[spoilt]))
            assert_close(got[:1], oracles.silu(numbers[0][:1]) * numbers[1][:1])


def check_rounded_once(swiglu, dtype):
    inputs = Inputs(544, dtype)
    shape = 256, 31  # whole vectors, and many values after the last one, whether a vector has 4, 8 or 16
    gate, up = inputs.normal(*shape, scale=5), inputs.normal(*shape, scale=5)
    check_swiglu(swiglu, gate, up, dtype, ROUNDED_ONCE[dtype])


def check_swiglu_views(swiglu):
    inputs = Inputs(546)
    joined, other = inputs.normal(2, 5, 74), inputs.normal(5, 2, 37)
    gate, up = joined[..., :37], joined[..., 37:]
    check_swiglu(swiglu, gate, up)
    check_swiglu(swiglu, gate, other.swapaxes(0, 1))
    check_swiglu(swiglu, other[:, ::-1, ::-1], other)
    check_swiglu(swiglu, joined[..., ::2], mx.broadcast_to(up[:1, :1], gate.shape))


@task_3
def test_task_3_swiglu(impl):
    inputs = Inputs(540)
    check_swiglu(impl.kernels.swiglu.swiglu, inputs.normal(8, 64), inputs.normal(8, 64))


@task_3
@over_dtypes
def test_task_3_rows_of_every_size(impl, dtype):
    """The values after the last whole vector belong to the row, too."""
    check_swiglu_sizes(impl.kernels.swiglu.swiglu, dtype)


@task_3
@over_dtypes
def test_task_3_far_out(impl, dtype):
    """Where e^x is infinite or 0, silu(x) is nearly x or 0."""
    check_far_out(impl.kernels.swiglu.swiglu, dtype)


@task_3
def test_task_3_nan_stays_where_it_is(impl):
    check_nan(impl.kernels.swiglu.swiglu)


@task_3
def test_task_3_reads_nothing_past_the_end(impl):
    """A kernel must not read past the last row, even if it does not use the value, because such a read can end the
    program."""
    inputs = Inputs(546)
    for n in (1, 9, 37):
        gate, up = inputs.normal(3, n), inputs.normal(3, n)
        check_swiglu(impl.kernels.swiglu.swiglu, gate, up)
        with guarded(impl):
            check_swiglu(impl.kernels.swiglu.swiglu, gate, up)


@task_3
@over_dtypes
def test_task_3_half_precision_in_between(impl, dtype):
    """Only the result is rounded to 16 bits, and no intermediate value."""
    check_rounded_once(impl.kernels.swiglu.swiglu, dtype)


@task_3
@over_shapes
def test_task_3_shapes(impl, shape):
    inputs = Inputs(545)
    check_swiglu(impl.kernels.swiglu.swiglu, inputs.normal(*shape), inputs.normal(*shape))


@task_3
def test_task_3_views(impl):
    """The inputs are the two halves of one product, or rows that are not contiguous in memory."""
    check_swiglu_views(impl.kernels.swiglu.swiglu)


@task_3
@over_threads
def test_task_3_any_number_of_threads(impl, count):
    inputs = Inputs(547)
    gate, up = inputs.normal(300, 333), inputs.normal(300, 333)
    check_swiglu(impl.kernels.swiglu.swiglu, gate[:1], up[:1])
    with threads(impl, count):
        check_swiglu(impl.kernels.swiglu.swiglu, gate, up)


@task_4
def test_task_4_add_rms_norm(impl):
    inputs = Inputs(550)
    check_norm(in_metal(impl), inputs.normal(4, 128), inputs.normal(128), residual=inputs.normal(4, 128))


@task_4
@over_dtypes
def test_task_4_rows_of_every_size(impl, dtype):
    """Each thread has four values, the last few of a row, or none. A row has one simdgroup or several."""
    check_norm_sizes(in_metal(impl), dtype, SIZES_IN_METAL)


@task_4
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=["float32", "bfloat16"])
def test_task_4_without_residual(impl, dtype):
    """Without a residual, x itself is normalised, and only the result is rounded to 16 bits."""
    check_norm_alone(in_metal(impl), dtype, SIZES_IN_METAL)


@task_4
@pytest.mark.parametrize("eps", [0.0, 1e-2, 1.0])
def test_task_4_eps(impl, eps):
    """The values are small, so the result shows whether eps is added to the mean square, before the root."""
    check_eps(in_metal(impl), eps)


@task_4
def test_task_4_half_precision_does_not_overflow(impl):
    """300^2 is too large for float16, so squares and their sum are float32."""
    check_large_halves(in_metal(impl))


@task_4
def test_task_4_half_precision_does_not_underflow(impl):
    """0.0001^2 is 0 in float16, so squares are float32."""
    check_small_halves(in_metal(impl))


@task_4
@over_dtypes
def test_task_4_long_rows(impl, dtype):
    """1,024 threads read 4,096 values at a time, so for a longer row some threads have to go on."""
    check_long_norms(in_metal(impl), dtype)


@task_4
def test_task_4_shapes(impl):
    for shape in [(7,), (1, 1), (2, 3, 4, 5), (0, 5), (3, 0)]:
        check_norm_shape(in_metal(impl), shape)


@task_4
def test_task_4_views(impl):
    check_norm_views(in_metal(impl))


@task_5
def test_task_5_rope(impl):
    check_rope(impl.kernels.rope.rope_metal, Inputs(551).normal(1, 5, 4, 64), 3)


@task_5
@over_layouts
@over_dtypes
def test_task_5_heads_of_every_size(impl, dtype, traditional):
    """A thread has four heads, or the few that are left."""
    for D in (6, 64, 130):
        for H in (1, 4, 6):
            x = Inputs(552 + D + H, dtype).normal(2, 3, H, D)
            check_rope(impl.kernels.rope.rope_metal, x, 7, traditional=traditional, dtype=dtype)


@task_5
@over_layouts
@over_dtypes
def test_task_5_half_precision_in_between(impl, dtype, traditional):
    """Only the result is rounded to 16 bits, not the sines or the products."""
    check_turned_once(impl.kernels.rope.rope_metal, dtype, traditional)


@task_5
@over_layouts
@pytest.mark.parametrize("base", [100.0, 1000000.0])
def test_task_5_bases(impl, base, traditional):
    check_rope(impl.kernels.rope.rope_metal, Inputs(553).normal(2, 4, 3, 80), 9, base, traditional)


@task_5
@over_layouts
def test_task_5_offsets(impl, traditional):
    """The offset is one position for all rows or one for each, in any integer dtype."""
    check_offsets(impl.kernels.rope.rope_metal, traditional)


@task_5
@over_layouts
@pytest.mark.parametrize("offset", [4242, 40000, 1000000])
def test_task_5_far_positions(impl, offset, traditional):
    """After thousands of turns, a float has too few digits left for the angle. Let whole turns overflow before the
    angle becomes a float."""
    check_far_positions(impl.kernels.rope.rope_metal, offset, traditional)


@task_5
@pytest.mark.parametrize("position", [0, 1, 999, 40959, 2**20 - 1])
def test_task_5_sines_and_cosines(impl, position):
    """The vector (1, 0) becomes the cosine and sine of its angle, with an error below 1e-6."""
    x = np.zeros((1, 1, 1, 128), np.float32)
    x[..., :64] = 1
    got = impl.kernels.rope.rope_metal(mx.array(x), position, 10000.0)
    assert_close(got, oracles.rope(x.astype(np.float64), np.array([[position]]), 10000.0, False), tolerance=1e-6)


@task_5
@over_layouts
def test_task_5_sizes(impl, traditional):
    check_rope_sizes(impl.kernels.rope.rope_metal, traditional)


@task_5
@over_layouts
def test_task_5_views(impl, traditional):
    """Heads may be a part of a longer row, or stored one head after the other with all positions."""
    check_rope_views(impl.kernels.rope.rope_metal, traditional)


@task_6
def test_task_6_swiglu(impl):
    inputs = Inputs(560)
    check_swiglu(impl.kernels.swiglu.swiglu_metal, inputs.normal(2, 64), inputs.normal(2, 64))


@task_6
@over_dtypes
def test_task_6_sizes(impl, dtype):
    """The last thread may have fewer than four values, and a grid has many threadgroups."""
    check_swiglu_sizes(impl.kernels.swiglu.swiglu_metal, dtype, [1, 2, 3, 4, 5, 43, 1000])


@task_6
@over_dtypes
def test_task_6_far_out(impl, dtype):
    """Where e^x is infinite or 0, silu(x) is nearly x or 0."""
    check_far_out(impl.kernels.swiglu.swiglu_metal, dtype)


@task_6
def test_task_6_nan_stays_where_it_is(impl):
    check_nan(impl.kernels.swiglu.swiglu_metal)


@task_6
@over_dtypes
def test_task_6_half_precision_in_between(impl, dtype):
    """Only the result is rounded to 16 bits, and no intermediate value."""
    check_rounded_once(impl.kernels.swiglu.swiglu_metal, dtype)


@task_6
def test_task_6_shapes(impl):
    for shape in [(7,), (1, 1), (2, 3, 4, 5), (0, 5), (2, 0, 5), (3, 0)]:
        inputs = Inputs(561)
        check_swiglu(impl.kernels.swiglu.swiglu_metal, inputs.normal(*shape), inputs.normal(*shape))


@task_6
def test_task_6_views(impl):
    """The inputs are the two halves of one product, or rows that are not contiguous in memory."""
    check_swiglu_views(impl.kernels.swiglu.swiglu_metal)
