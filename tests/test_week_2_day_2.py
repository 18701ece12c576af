"""Week 2 Day 2: what a step costs; softmax in C++, with vectors, with threads."""

import math

import mlx.core as mx
import numpy as np
import oracles
import pytest
from helpers import DTYPES, TOLERANCE, Inputs, array64, assert_close, over_dtypes

task_2 = pytest.mark.task("w2d2.2")
task_3 = pytest.mark.task("w2d2.3")
task_4 = pytest.mark.task("w2d2.4")

SIZES = [*range(1, 66), 1000]  # of rows: below, at and above every width of a vector
UNEVEN = [33, 5, 97, 16]


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
    x = np.random.RandomState(S).standard_normal((8, S))
    rows = [x[0] + 1e4, x[1] - 1e4, x[2] * 1e3, x[3] * 1e30, x[4] * 0 - 90, x[5] * 0 + 90, x[6], x[7]]
    rows[6][S // 2] = -300  # the largest of its amount, and not the largest
    rows[7][-1] = 300
    return mx.array(np.stack(rows).astype(np.float32))


def check_sizes(softmax, dtype):
    for S in SIZES:
        x = rows_of(S, dtype)
        assert_softmax(softmax(x), x, dtype)


def check_extremes(softmax):
    for S in UNEVEN:
        x = extremes(S)
        assert_softmax(softmax(x), x)


def check_hidden(softmax):
    """-inf, as a mask adds it."""
    for S in UNEVEN:
        x = array64(Inputs(210 + S).normal(5, S))
        x[0, 1:] = -math.inf  # one is left, at the start
        x[1, :-1] = -math.inf  # at the end
        x[2, S // 2 :] = -math.inf
        x[3, ::2] = -math.inf
        x[4, : S // 2] = -math.inf
        x = mx.array(x.astype(np.float32))
        assert_softmax(softmax(x), x)


def check_nan(softmax):
    for S in UNEVEN:
        for place in (0, S // 2, S - 1):
            x = array64(Inputs(220 + S).normal(3, S))
            x[1, place] = math.nan
            got = softmax(mx.array(x.astype(np.float32)))
            assert_close(mx.isnan(got).astype(mx.float32), np.isnan(x).any(axis=-1, keepdims=True) * np.ones(x.shape))
            assert_close(got[::2], oracles.softmax(x[::2]))


def check_equal_numbers(softmax, dtype):
    """Each is 1 / S. In 16 bits a sum of ones stays at 256 or 2048, so it is kept in float32."""
    for S in (257, 5000):
        x = mx.full((2, S), 1.5, dtype)
        assert_softmax(softmax(x), x, dtype)


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
def test_task_4_any_number_of_threads_and_rows(impl, threads, count):
    """Every row is computed once, whether or not the threads' number divides that of the rows."""
    x = Inputs(253).normal(1009, 333)
    impl.kernels.softmax.softmax(x[:1])
    threads(count)
    for rows in (1, 2, 7, 100, 1009):
        assert_softmax(impl.kernels.softmax.softmax(x[:rows]), x[:rows])


@task_4
def test_task_4_work_is_shared(impl, threads):
    """4,096 rows are worth waking other threads for: call `threads`, which was given to the function."""
    x = Inputs(254).normal(4096, 256)
    impl.kernels.softmax.softmax(x[:1])
    threads(2)
    before = impl.kernels.extension.shared_parts()
    assert_softmax(impl.kernels.softmax.softmax(x), x)
    parts = impl.kernels.extension.shared_parts() - before
    assert parts >= 2, "the work was not shared: one thread did all of it"


@task_4
@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float16", "bfloat16"])
def test_task_4_dtypes(impl, threads, dtype):
    x = Inputs(255, dtype).normal(700, 77, scale=3)
    impl.kernels.softmax.softmax(x[:1])
    threads(3)
    assert_softmax(impl.kernels.softmax.softmax(x), x, dtype)


@task_4
def test_task_4_long_rows(impl, threads):
    x = Inputs(256).normal(5, 20001)
    impl.kernels.softmax.softmax(x[:1])
    threads(3)
    assert_softmax(impl.kernels.softmax.softmax(x), x)


@task_4
def test_task_4_again_and_again(impl, threads):
    """The same result each time, however the threads happen to run."""
    x = Inputs(257).normal(300, 200)
    impl.kernels.softmax.softmax(x[:1])
    threads(4)
    for _ in range(30):
        assert_softmax(impl.kernels.softmax.softmax(x), x)


@task_4
def test_task_4_shapes(impl):
    check_shapes(impl.kernels.softmax.softmax)
