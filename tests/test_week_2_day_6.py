"""Week 2 Day 6: many vectors times a quantised matrix: a tile in registers, then panels, edges and threads, then tiles
in Metal."""

import math

import mlx.core as mx
import numpy as np
import pytest
from coalesced import assert_coalesced, counted
from helpers import DTYPES, Inputs, array64, assert_close, over_dtypes
from parallel import assert_shared, guarded, parts_of, threads
from quantized import Matrix, assert_product, assert_product_cancels, assert_product_in_turns, matrix, rows

task_1 = pytest.mark.task("w2d6.1")
task_2 = pytest.mark.task("w2d6.2")
task_3 = pytest.mark.task("w2d6.3")

over_bits = pytest.mark.parametrize("bits", [4, 2, 8])
over_threads = pytest.mark.parametrize("count", [1, 2, 3, 8])
over_both_dtypes = pytest.mark.parametrize(
    ("dtype", "scales_dtype"), [(mx.float32, mx.float32), (mx.float16, mx.float32), (mx.bfloat16, mx.bfloat16)]
)


def check_tile(impl, K, seed=600, scale=1.0, shift=0.0, tolerance=1e-5):
    M_TILE, N_TILE = impl.kernels.quantized_matmul.tile_shape()
    inputs = Inputs(seed + K)
    x, w = inputs.normal(K, M_TILE, scale=scale * K**-0.5, shift=shift), inputs.normal(K, N_TILE, shift=shift)
    got = impl.kernels.quantized_matmul.matmul_tile(x, w)
    assert_close(got, array64(x).T @ array64(w), tolerance=tolerance)


@task_1
def test_task_1_tile(impl):
    check_tile(impl, 1)


@task_1
@pytest.mark.parametrize("K", [2, 3, 4, 7, 8, 31, 64, 65, 100, 1000, 4099])
def test_task_1_rows(impl, K):
    """A tile sums over all K rows, for any K."""
    check_tile(impl, K)


@task_1
def test_task_1_reads_nothing_past_the_end(impl):
    """A kernel must not read past the last row of w, even if it does not use the value, because such a read can end the
    program."""
    check_tile(impl, 5)
    with guarded(impl):
        for K in (1, 5, 64):
            check_tile(impl, K)


@task_1
def test_task_1_large_sums(impl):
    """Values of one sign add up to a sum that 16 bits cannot represent exactly."""
    check_tile(impl, 3000, shift=1.0, scale=0.0)


@task_1
def test_task_1_outliers(impl):
    """One large value affects only its own row and column of the tile."""
    M_TILE, N_TILE = impl.kernels.quantized_matmul.tile_shape()
    inputs = Inputs(610)
    for k, m, n in [(0, 0, 0), (5, M_TILE - 1, N_TILE - 1), (9, 1, N_TILE // 2), (3, 2, 1)]:
        x, w = array64(inputs.normal(10, M_TILE)), array64(inputs.normal(10, N_TILE))
        x[k, m], w[k, n] = 1000, -1000
        got = impl.kernels.quantized_matmul.matmul_tile(mx.array(x, mx.float32), mx.array(w, mx.float32))
        assert_close(got, x.T @ w, tolerance=1e-3)


@task_1
@pytest.mark.parametrize("number", [math.inf, math.nan], ids=str)
def test_task_1_not_finite(impl, number):
    """A zero in x still takes part: 0 * inf and 0 * NaN are NaN, so an earlier error stays visible."""
    M_TILE, N_TILE = impl.kernels.quantized_matmul.tile_shape()
    inputs = Inputs(611)
    x, w = array64(inputs.normal(10, M_TILE)), array64(inputs.normal(10, N_TILE))
    x[5, 1], w[5, 3] = 0, number
    got = impl.kernels.quantized_matmul.matmul_tile(mx.array(x, mx.float32), mx.array(w, mx.float32))
    with np.errstate(invalid="ignore"):
        expected = x.T @ w
    assert_close(mx.isnan(got).astype(mx.float32), np.isnan(expected))
    finite = np.arange(N_TILE) != 3
    assert_close(got[:, mx.array(np.flatnonzero(finite))], expected[:, finite], tolerance=1e-5)


@task_1
def test_task_1_which_number_is_where(impl):
    """The result's values tell which row and which column of the tile they belong to."""
    M_TILE, N_TILE = impl.kernels.quantized_matmul.tile_shape()
    x, w = np.arange(3.0 * M_TILE).reshape(3, M_TILE), np.arange(3.0 * N_TILE).reshape(3, N_TILE)
    tile = impl.kernels.quantized_matmul.matmul_tile
    assert_close(tile(mx.array(x, mx.float32), mx.ones((3, N_TILE))), x.T @ np.ones((3, N_TILE)))
    assert_close(tile(mx.ones((3, M_TILE)), mx.array(w, mx.float32)), np.ones((M_TILE, 3)) @ w)


@task_1
def test_task_1_no_rows(impl):
    """With K = 0, the sum is 0."""
    M_TILE, N_TILE = impl.kernels.quantized_matmul.tile_shape()
    got = impl.kernels.quantized_matmul.matmul_tile(mx.zeros((0, M_TILE)), mx.zeros((0, N_TILE)))
    assert_close(got, np.zeros((M_TILE, N_TILE)))


@task_2
def test_task_2_product(impl):
    """24 and 32 are whole numbers of tiles on every processor."""
    assert_product(impl.kernels.quantized_matmul.quantized_matmul, rows(620, 24, 64), matrix(621, 32, 64))


@task_2
@over_bits
def test_task_2_bits_and_groups(impl, bits):
    for group_size in (64, 32, 128):
        for i, groups in enumerate([1, 2, 3, 5, 9]):
            I = groups * group_size
            w = matrix(622 + i, [40, 3, 65][i % 3], I, bits, group_size)
            assert_product(impl.kernels.quantized_matmul.quantized_matmul, rows(628 + i, [13, 24, 7][i % 3], I), w)


@task_2
@pytest.mark.parametrize("O", [1, 3, 8, 17, 31, 33, 48, 65, 130])
def test_task_2_edges(impl, O):
    """The last rows of x may fill only a part of a tile, and so may the last rows of W."""
    w = matrix(635, O, 128)
    for M in (1, 2, 5, 6, 7, 8, 9, 13, 16, 30, 33, 65):
        assert_product(impl.kernels.quantized_matmul.quantized_matmul, rows(636 + M, M, 128), w)


@task_2
@over_dtypes
def test_task_2_dtypes(impl, dtype):
    """The arithmetic is float32, and only the result is rounded to the dtype of x."""
    for scales_dtype in DTYPES:
        w = matrix(640, 70, 448, dtype=scales_dtype)
        assert_product(impl.kernels.quantized_matmul.quantized_matmul, rows(641, 19, 448, dtype=dtype), w, dtype)


@task_2
@over_dtypes
def test_task_2_long_rows(impl, dtype):
    """All products have the same sign, so a sum that is kept in 16 bits stops growing before it is complete."""
    w = Matrix(matrix(642, 40, 3968).packed, mx.full((40, 62), 1 / 16, dtype), mx.ones((40, 62), dtype))
    assert_product(impl.kernels.quantized_matmul.quantized_matmul, mx.full((9, 3968), 1 / 256, dtype), w, dtype)


@task_2
@over_dtypes
def test_task_2_weights_are_not_rounded(impl, dtype):
    """scale * level + bias is a float. Rounded to 16 bits, neighbouring large weights would become equal."""
    assert_product_cancels(impl.kernels.quantized_matmul.quantized_matmul, dtype)


@task_2
def test_task_2_outliers(impl):
    """One row of x and one row of W are much larger than the others."""
    w, x = matrix(643, 70, 192), array64(rows(644, 20, 192))
    x[17] *= 1000
    scales = array64(w.scales)
    scales[66] *= 100
    large = Matrix(w.packed, mx.array(scales.astype(np.float32)), w.biases)
    assert_product(
        impl.kernels.quantized_matmul.quantized_matmul, mx.array(x.astype(np.float32)), large, tolerance=1e-4
    )


@task_2
def test_task_2_parts_in_turns(impl):
    """The result is the same every time, and one part computes each tile. A part allocates the memory that it writes
    to."""
    product = impl.kernels.quantized_matmul.quantized_matmul
    assert_product_in_turns(impl, product, rows(653, 37, 512), matrix(652, 2055, 512))
    two_panels = impl.kernels.quantized_matmul.tile_shape()[1] + 7
    assert_product_in_turns(impl, product, rows(653, 37, 512), matrix(652, two_panels, 512))


@task_2
@over_threads
def test_task_2_any_number_of_threads(impl, count):
    """Each tile is computed once, however the panels are shared among the threads."""
    product = impl.kernels.quantized_matmul.quantized_matmul
    w = matrix(645, 1009, 128)
    assert_product(product, rows(646, 1, 128), w)
    with threads(impl, count):
        for O in (1, 33, 64, 300, 1009):
            part = Matrix(w.packed[:O], w.scales[:O], w.biases[:O])
            for M in (1, 24, 37):
                assert_product(product, rows(647 + M, M, 128), part)


@task_2
def test_task_2_work_is_shared(impl):
    """Dozens of panels of W are enough work to wake other threads, so share them with the `threads` of the product."""
    product = impl.kernels.quantized_matmul.quantized_matmul
    w, x = matrix(650, 2048, 256), rows(651, 32, 256)
    row = Matrix(w.packed[:1], w.scales[:1], w.biases[:1])
    product(x, *row.arguments)
    with threads(impl, 2):
        product(x[:1], *row.arguments)
        panels = parts_of(impl, lambda: assert_product(product, x[:1], w))  # x is one tile
        tiles = -(-32 // impl.kernels.quantized_matmul.tile_shape()[0])  # given code shares them among threads
        if panels < 2 and parts_of(impl, lambda: assert_product(product, x, row)) > tiles:
            pytest.fail(
                "`threads` shares out tiles of x. While text is generated, x is one row, which is one tile: share out "
                "the panels of W"
            )
        assert_shared(impl, lambda: assert_product(product, x[:1], w))
        assert_product(product, x, w)


@task_2
def test_task_2_shapes(impl):
    w = matrix(654, 9, 192)
    for batch in [(), (1,), (5,), (2, 3), (1, 1, 4), (3, 11), (0,), (2, 0, 3)]:
        assert_product(impl.kernels.quantized_matmul.quantized_matmul, rows(655, *batch, 192), w)
    for O, I in [(0, 64), (3, 0), (0, 0)]:
        assert_product(impl.kernels.quantized_matmul.quantized_matmul, rows(656, 2, I), matrix(657, O, I))


@task_2
def test_task_2_views(impl):
    """Arrays are not contiguous in memory."""
    product = impl.kernels.quantized_matmul.quantized_matmul
    w, inputs = matrix(658, 36, 512), Inputs(659)
    third = Matrix(w.packed[::-3], w.scales[::-3], w.biases[::-3])
    half = Matrix(w.packed[:, 16:48], w.scales[:, 2:6], w.biases[:, 2:6])
    x = inputs.normal(20, 1024, scale=0.05)
    for view in (x[:, ::2], x[::-1, 512:], x[::3, :512], mx.broadcast_to(x[0, :512], (17, 512))):
        assert_product(product, view, w)
        assert_product(product, view, third)
    assert_product(product, inputs.normal(256, 30, scale=0.05).T, half)


@task_2
@over_bits
def test_task_2_equals_mlx(impl, bits):
    """MLX quantised this matrix, and its own product is computed in float32."""
    weight, x = Inputs(660).normal(50, 320), rows(661, 21, 320)
    packed = mx.quantize(weight, 64, bits)
    got = impl.kernels.quantized_matmul.quantized_matmul(x, *packed, 64, bits)
    assert_close(got, mx.quantized_matmul(x, *packed, group_size=64, bits=bits), tolerance=1e-4)


@task_3
def test_task_3_product(impl):
    """One load of x and of W gives a whole tile of the result."""
    assert_product(impl.kernels.quantized_matmul.quantized_matmul_metal, rows(670, 32, 32), matrix(671, 32, 32, 4, 32))


@task_3
@over_bits
def test_task_3_bits_and_groups(impl, bits):
    """A group has one, two or four tiles of 32 values, and a row has one group or several."""
    for i, (group_size, groups) in enumerate([(64, 1), (64, 3), (32, 2), (32, 5), (128, 2)]):
        I = group_size * groups
        w = matrix(672 + i, [9, 40][i % 2], I, bits, group_size)
        assert_product(impl.kernels.quantized_matmul.quantized_matmul_metal, rows(677 + i, 9, I), w)


@task_3
@pytest.mark.parametrize("O", [1, 7, 31, 33, 64, 65])
def test_task_3_edges(impl, O):
    """The last tile of a row or column may be incomplete. The kernel neither reads nor writes past its end."""
    for M in (1, 9, 31, 32, 33, 65):
        w = matrix(682, O, 64)
        assert_product(impl.kernels.quantized_matmul.quantized_matmul_metal, rows(683 + M, M, 64), w)


@task_3
@over_both_dtypes
def test_task_3_dtypes(impl, dtype, scales_dtype):
    """The arithmetic is float32, and only the result is rounded to the dtype of x."""
    w = matrix(684, 40, 448, dtype=scales_dtype)
    assert_product(impl.kernels.quantized_matmul.quantized_matmul_metal, rows(685, 19, 448, dtype=dtype), w, dtype)


@task_3
@over_both_dtypes
def test_task_3_long_rows(impl, dtype, scales_dtype):
    """All products have the same sign, so a sum that is kept in 16 bits stops growing before it is complete."""
    scales, biases = mx.full((9, 31), 1 / 16, scales_dtype), mx.ones((9, 31), scales_dtype)
    w = Matrix(matrix(688, 9, 1984).packed, scales, biases)
    assert_product(impl.kernels.quantized_matmul.quantized_matmul_metal, mx.full((9, 1984), 1 / 128, dtype), w, dtype)


@task_3
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=["float32", "bfloat16"])
def test_task_3_weights_are_not_rounded(impl, dtype):
    """scale * level + bias is a float. Rounded to 16 bits, neighbouring large weights would become equal."""
    assert_product_cancels(impl.kernels.quantized_matmul.quantized_matmul_metal, dtype)


@task_3
def test_task_3_outliers(impl):
    """One row of x, one row of W and one group of it are much larger than the others."""
    w, x = matrix(689, 36, 192), array64(rows(690, 35, 192))
    x[17] *= 1000
    scales = array64(w.scales)
    scales[19] *= 100
    scales[33, 1] = 300
    large = Matrix(w.packed, mx.array(scales.astype(np.float32)), w.biases)
    got = impl.kernels.quantized_matmul.quantized_matmul_metal
    assert_product(got, mx.array(x.astype(np.float32)), large, tolerance=1e-4)


@task_3
def test_task_3_shapes(impl):
    w = matrix(691, 9, 192)
    for batch in [(), (1,), (2, 3), (3, 11), (0,), (2, 0, 3)]:
        assert_product(impl.kernels.quantized_matmul.quantized_matmul_metal, rows(692, *batch, 192), w)
    for O, I in [(0, 64), (3, 0), (0, 0)]:
        assert_product(impl.kernels.quantized_matmul.quantized_matmul_metal, rows(693, 2, I), matrix(694, O, I))


@task_3
def test_task_3_views(impl):
    """Arrays are not contiguous in memory."""
    product, w, x = impl.kernels.quantized_matmul.quantized_matmul_metal, matrix(695, 36, 256), rows(696, 20, 512)
    third = Matrix(w.packed[::-3], w.scales[::-3], w.biases[::-3])
    half = Matrix(w.packed[:, 8:24], w.scales[:, 1:3], w.biases[:, 1:3])
    for view in (x[:, ::2], x[::-3, 256:], mx.broadcast_to(x[0, :256], (17, 256))):
        assert_product(product, view, third)
    assert_product(product, x[:, 100:228], half)


@task_3
def test_task_3_neighbours_read_neighbours(impl):
    """Accesses are coalesced: neighbouring lanes of a simdgroup load and store neighbouring memory."""
    x, w = rows(697, 32, 256, dtype=mx.float16), matrix(698, 32, 256)
    with counted() as counts:
        assert_product(impl.kernels.quantized_matmul.quantized_matmul_metal, x, w, mx.float16)
    assert_coalesced(counts, "x", "Give a simdgroup a row of x, and each of its lanes a number of it.")
    assert_coalesced(counts, "packed", "Let a few lanes share a row of W: `row` and `first` give four of them to each.")
    assert_coalesced(counts, "out", "Give a simdgroup a row of the tile, and each of its lanes a number of it.")
