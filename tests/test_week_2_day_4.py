"""Week 2 Day 4: a quantised matrix times a few vectors: one weight at a time, with vectors, with threads, in Metal."""

import mlx.core as mx
import numpy as np
import pytest
from coalesced import assert_coalesced, counted
from helpers import DTYPES, Inputs, array64, assert_close, over_dtypes
from parallel import assert_shared, guarded, threads
from quantized import Matrix, assert_product, assert_product_cancels, assert_product_in_turns, matrix, rows

task_1 = pytest.mark.task("w2d4.1")
task_2 = pytest.mark.task("w2d4.2")
task_3 = pytest.mark.task("w2d4.3")
task_4 = pytest.mark.task("w2d4.4")

over_bits = pytest.mark.parametrize("bits", [4, 2, 8])
over_threads = pytest.mark.parametrize("count", [1, 2, 3, 8])

GROUPS = [1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33]  # groups in a row: some fill whole vectors and blocks, others do not
GROUPS_IN_METAL = [1, 2, 5, 33]  # a lane has several chunks of 32 weights, one, or none
ROWS = [1, 3, 17, 65]


def check_sizes(product, bits, all_groups=GROUPS):
    for group_size in (64, 32, 128):
        for i, groups in enumerate(all_groups):
            I = groups * group_size
            w = matrix(400 + i, ROWS[i % 3], I, bits, group_size)
            assert_product(product, rows(440 + i, 1 + i % 2, I), w)


def check_dtypes(product, dtype, scales_dtypes=DTYPES, all_bits=(2, 4, 8)):
    for scales_dtype in scales_dtypes:
        for bits in all_bits:
            w = matrix(401, 17, 448, bits, 64, scales_dtype)
            assert_product(product, rows(402, 3, 448, dtype=dtype), w, dtype)


def check_long_rows(product, dtype):
    """Check sums of 3,968 products with the same sign, which a sum in 16 bits would not reach."""
    w = Matrix(matrix(403, 5, 3968).packed, mx.full((5, 62), 1 / 16, dtype), mx.ones((5, 62), dtype))
    assert_product(product, mx.full((2, 3968), 1 / 256, dtype), w, dtype)


def check_outliers(product):
    """Check rows in which one value of x or one group's scale is much larger than the others, or the scale is 0."""
    w = matrix(404, 17, 640)
    for place in (0, 300, 639):
        x = array64(rows(405, 2, 640))
        x[:, place] = [100, -100]
        assert_product(product, mx.array(x.astype(np.float32)), w, tolerance=1e-4)
    for group, scale in ((0, 100), (4, 100), (9, 100), (4, 0)):
        scales = array64(w.scales)
        scales[3, group] = scale
        large = Matrix(w.packed, mx.array(scales.astype(np.float32)), w.biases)
        assert_product(product, rows(406, 2, 640), large, tolerance=1e-4)


def check_not_finite(product):
    """Check that a row of W with an infinite or NaN scale or bias spoils only its own results."""
    others = mx.array([0, 2, 3, 4, 5, 6, 7, 8])
    for I in (64, 320, 1088):
        w, x = matrix(413, 9, I), rows(414, 2, I)
        for number in (np.inf, np.nan):
            for name in ("scales", "biases"):
                parts = {"scales": array64(w.scales).copy(), "biases": array64(w.biases).copy()}
                parts[name][1] = number
                got = product(x, w.packed, *(mx.array(part.astype(np.float32)) for part in parts.values()))
                assert_close(got[:, others], array64(x) @ w.dense[np.array(others)].T, tolerance=1e-5)


def check_shapes(product):
    w = matrix(407, 9, 192)
    for batch in [(), (1,), (5,), (2, 3), (1, 1, 4), (0,), (2, 0, 3)]:
        assert_product(product, rows(408, *batch, 192), w)
    for O, I in [(0, 64), (3, 0), (0, 0)]:
        assert_product(product, rows(409, 2, I), matrix(410, O, I))


def check_views(product):
    """Check arrays that are not contiguous in memory."""
    w, inputs = matrix(411, 12, 512), Inputs(412)
    third = Matrix(w.packed[::-3], w.scales[::-3], w.biases[::-3])
    half = Matrix(w.packed[:, 16:48], w.scales[:, 2:6], w.biases[:, 2:6])
    x = inputs.normal(4, 1024, scale=0.05)
    for view in (x[:, ::2], x[::-1, 512:], x.T[:512, :1].T, mx.broadcast_to(x[0, :512], (3, 512))):
        assert_product(product, view, w)
        assert_product(product, view, third)
    assert_product(product, x[::2, 100:356], half)
    assert_product(product, inputs.normal(256, 3, scale=0.05).T, half)


def check_reads_nothing_past_the_end(impl, product):
    for O in (1, 9, 13):
        x, w = rows(462 + O, 2, 192), matrix(463 + O, O, 192)
        product(x, *w.arguments)
        with guarded(impl):
            assert_product(product, x, w)


@task_1
def test_task_1_product(impl):
    assert_product(impl.kernels.quantized_matvec.quantized_matvec_scalar, rows(420, 1, 64), matrix(421, 8, 64))


@task_1
@over_bits
def test_task_1_bits_and_groups(impl, bits):
    check_sizes(impl.kernels.quantized_matvec.quantized_matvec_scalar, bits)


@task_1
@over_dtypes
def test_task_1_dtypes(impl, dtype):
    """The arithmetic is float32: values of 16 bits are converted to float first."""
    check_dtypes(impl.kernels.quantized_matvec.quantized_matvec_scalar, dtype)


@task_1
@over_dtypes
def test_task_1_long_rows(impl, dtype):
    """The sum is a float, because a sum in 16 bits stops growing long before it is complete."""
    check_long_rows(impl.kernels.quantized_matvec.quantized_matvec_scalar, dtype)


@task_1
@over_dtypes
def test_task_1_weights_are_not_rounded(impl, dtype):
    """scale * level + bias is a float. Rounded to 16 bits, neighbouring large weights would become equal."""
    assert_product_cancels(impl.kernels.quantized_matvec.quantized_matvec_scalar, dtype)


@task_1
def test_task_1_outliers(impl):
    check_outliers(impl.kernels.quantized_matvec.quantized_matvec_scalar)


@task_1
def test_task_1_shapes(impl):
    check_shapes(impl.kernels.quantized_matvec.quantized_matvec_scalar)


@task_1
def test_task_1_views(impl):
    check_views(impl.kernels.quantized_matvec.quantized_matvec_scalar)


@task_1
def test_task_1_reads_nothing_past_the_end(impl):
    """A kernel must not read past the last row of W, even if it does not use the value, because such a read can end the
    program."""
    check_reads_nothing_past_the_end(impl, impl.kernels.quantized_matvec.quantized_matvec_scalar)


@task_1
@over_bits
def test_task_1_equals_mlx(impl, bits):
    """MLX quantised this matrix, and its own product is computed in float32."""
    weight, x = Inputs(422).normal(11, 320), rows(423, 3, 320)
    packed = mx.quantize(weight, 64, bits)
    got = impl.kernels.quantized_matvec.quantized_matvec_scalar(x, *packed, 64, bits)
    assert_close(got, mx.quantized_matmul(x, *packed, group_size=64, bits=bits), tolerance=1e-4)


@task_2
def test_task_2_product(impl):
    assert_product(impl.kernels.quantized_matvec.quantized_matvec_vector, rows(424, 1, 64), matrix(425, 8, 64))


@task_2
@over_bits
def test_task_2_bits_and_groups(impl, bits):
    """A block may be a part of a group or hold several groups, and a row may end in any part of a block."""
    check_sizes(impl.kernels.quantized_matvec.quantized_matvec_vector, bits)


@task_2
@over_dtypes
def test_task_2_dtypes(impl, dtype):
    check_dtypes(impl.kernels.quantized_matvec.quantized_matvec_vector, dtype)


@task_2
@over_dtypes
def test_task_2_long_rows(impl, dtype):
    check_long_rows(impl.kernels.quantized_matvec.quantized_matvec_vector, dtype)


@task_2
@over_dtypes
def test_task_2_weights_are_not_rounded(impl, dtype):
    """scale * level + bias is a float. Rounded to 16 bits, neighbouring large weights would become equal."""
    assert_product_cancels(impl.kernels.quantized_matvec.quantized_matvec_vector, dtype)


@task_2
def test_task_2_outliers(impl):
    check_outliers(impl.kernels.quantized_matvec.quantized_matvec_vector)


@task_2
def test_task_2_not_finite(impl):
    check_not_finite(impl.kernels.quantized_matvec.quantized_matvec_vector)


@task_2
def test_task_2_shapes(impl):
    check_shapes(impl.kernels.quantized_matvec.quantized_matvec_vector)


@task_2
def test_task_2_views(impl):
    check_views(impl.kernels.quantized_matvec.quantized_matvec_vector)


@task_2
def test_task_2_reads_nothing_past_the_end(impl):
    """A kernel must not read past the last row of W, even if it does not use the value, because such a read can end the
    program."""
    check_reads_nothing_past_the_end(impl, impl.kernels.quantized_matvec.quantized_matvec_vector)


@task_3
def test_task_3_product(impl):
    assert_product(impl.kernels.quantized_matvec.quantized_matvec, rows(426, 1, 64), matrix(427, 8, 64))


@task_3
@over_bits
def test_task_3_bits_and_groups(impl, bits):
    check_sizes(impl.kernels.quantized_matvec.quantized_matvec, bits)


@task_3
def test_task_3_parts_in_turns(impl):
    """The result is the same every time. Each part allocates the memory that it writes to, so every thread has its
    own."""
    product = impl.kernels.quantized_matvec.quantized_matvec
    assert_product_in_turns(impl, product, rows(436, 3, 1024), matrix(435, 3072, 1024))


@task_3
@pytest.mark.parametrize(("O", "I"), [(3077, 1024), (8, 65536)])
def test_task_3_parts_of_any_size(impl, O, I):
    """A part may have any number of rows, even fewer than AT_ONCE, and computes no row of another part."""
    assert_product_in_turns(impl, impl.kernels.quantized_matvec.quantized_matvec, rows(436, 1, I), matrix(435, O, I))


@task_3
@over_threads
def test_task_3_any_number_of_threads_and_rows(impl, count):
    """Each row of W is computed once with each row of x, for any number of rows and threads."""
    product = impl.kernels.quantized_matvec.quantized_matvec
    w = matrix(428, 1009, 512)
    assert_product(product, rows(429, 1, 512), matrix(437, 8, 512))
    with threads(impl, count):
        for O in (1000, 1, 7, 8, 9, 100, 1001, 1009):
            part = Matrix(w.packed[:O], w.scales[:O], w.biases[:O])
            for M in (1, 2, 5, 9):
                assert_product(product, rows(430 + M, M, 512), part)


@task_3
def test_task_3_many_rows_of_x(impl):
    """The buffers of a part have room for all rows of x."""
    product = impl.kernels.quantized_matvec.quantized_matvec
    assert_product(product, rows(464, 1, 64), matrix(465, 9, 64))
    assert_product(product, rows(466, 3000, 64), matrix(465, 9, 64))


@task_3
def test_task_3_work_is_shared(impl):
    """One mebibyte of weights is enough work to wake other threads, so call the `threads` of the product."""
    w, x = matrix(431, 4096, 512), rows(432, 1, 512)
    impl.kernels.quantized_matvec.quantized_matvec(x, w.packed[:1], w.scales[:1], w.biases[:1])
    with threads(impl, 2):
        assert_shared(impl, lambda: assert_product(impl.kernels.quantized_matvec.quantized_matvec, x, w))


@task_3
def test_task_3_reads_nothing_past_the_end(impl):
    """A kernel must not read past the last row of W, even if it does not use the value, because such a read can end the
    program."""
    check_reads_nothing_past_the_end(impl, impl.kernels.quantized_matvec.quantized_matvec)


@task_3
@over_dtypes
def test_task_3_dtypes(impl, dtype):
    check_dtypes(impl.kernels.quantized_matvec.quantized_matvec, dtype)
    with threads(impl, 3):
        w = matrix(433, 700, 384, dtype=mx.bfloat16)
        assert_product(impl.kernels.quantized_matvec.quantized_matvec, rows(434, 2, 384, dtype=dtype), w, dtype)


@task_3
@over_dtypes
def test_task_3_weights_are_not_rounded(impl, dtype):
    """scale * level + bias is a float. Rounded to 16 bits, neighbouring large weights would become equal."""
    assert_product_cancels(impl.kernels.quantized_matvec.quantized_matvec, dtype)


@task_3
def test_task_3_not_finite(impl):
    check_not_finite(impl.kernels.quantized_matvec.quantized_matvec)


@task_3
def test_task_3_shapes(impl):
    check_shapes(impl.kernels.quantized_matvec.quantized_matvec)


@task_3
def test_task_3_views(impl):
    check_views(impl.kernels.quantized_matvec.quantized_matvec)


@task_4
def test_task_4_product(impl):
    assert_product(impl.kernels.quantized_matvec.quantized_matvec_metal, rows(437, 1, 64), matrix(438, 8, 64))


@task_4
@over_bits
def test_task_4_bits_and_groups(impl, bits):
    """A row may be too short for all lanes, or so long that lanes take several chunks. A group has one to four
    chunks."""
    check_sizes(impl.kernels.quantized_matvec.quantized_matvec_metal, bits, GROUPS_IN_METAL)


@task_4
@over_dtypes
def test_task_4_dtypes(impl, dtype):
    """The arithmetic is float32: values of 16 bits are converted to float first."""
    check_dtypes(impl.kernels.quantized_matvec.quantized_matvec_metal, dtype, [dtype], [4])


@task_4
def test_task_4_scales_of_another_dtype(impl):
    check_dtypes(impl.kernels.quantized_matvec.quantized_matvec_metal, mx.float32, [mx.float16], [4])


@task_4
@over_dtypes
def test_task_4_long_rows(impl, dtype):
    """The sum is a float, because a sum in 16 bits loses digits with each addition."""
    check_long_rows(impl.kernels.quantized_matvec.quantized_matvec_metal, dtype)


@task_4
def test_task_4_any_number_of_rows(impl):
    """The last simdgroup may have fewer than four rows of W, or none. Each row of x is multiplied by all rows of W."""
    for O in (1, 2, 4, 5, 7, 8, 9, 13, 33):
        for M in (1, 3):
            x, w = rows(439 + O, M, 96), matrix(450 + O, O, 96, group_size=32)
            assert_product(impl.kernels.quantized_matvec.quantized_matvec_metal, x, w)


@task_4
@over_dtypes
def test_task_4_weights_are_not_rounded(impl, dtype):
    """scale * level + bias is a float. Rounded to 16 bits, neighbouring large weights would become equal."""
    assert_product_cancels(impl.kernels.quantized_matvec.quantized_matvec_metal, dtype)


@task_4
def test_task_4_outliers(impl):
    check_outliers(impl.kernels.quantized_matvec.quantized_matvec_metal)


@task_4
def test_task_4_not_finite(impl):
    check_not_finite(impl.kernels.quantized_matvec.quantized_matvec_metal)


@task_4
def test_task_4_shapes(impl):
    check_shapes(impl.kernels.quantized_matvec.quantized_matvec_metal)


@task_4
def test_task_4_views(impl):
    check_views(impl.kernels.quantized_matvec.quantized_matvec_metal)


@task_4
def test_task_4_neighbours_read_neighbours(impl):
    """Reads of W are coalesced: neighbouring lanes of a simdgroup load neighbouring memory."""
    x, w = rows(460, 1, 4096), matrix(461, 8, 4096)
    with counted() as counts:
        assert_product(impl.kernels.quantized_matvec.quantized_matvec_metal, x, w)
    advice = "Let all lanes share a row of W: lane l takes the chunks l, l + 32, l + 64 and so on."
    assert_coalesced(counts, "packed", advice)
