"""Week 1 Day 4: RMSNorm and the gated MLP."""

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import oracles
import pytest
from helpers import Inputs, array64, assert_close, assert_unchanged, over_dtypes

task_1 = pytest.mark.task("w1d4.1")
task_2 = pytest.mark.task("w1d4.2")

over_batches = pytest.mark.parametrize("batch", [(), (3,), (1, 1), (2, 3), (2, 3, 4)], ids=str)


@task_1
@over_batches
@over_dtypes
def test_task_1_rms_norm(impl, batch, dtype):
    inputs = Inputs(61, dtype)
    x, weight = inputs.normal(*batch, 10, scale=3, shift=1), inputs.normal(10, scale=0.5, shift=1)
    got = impl.layer_norm.RMSNorm(10, weight, eps=1e-6)(x)
    assert_close(got, oracles.rms_norm(array64(x), array64(weight), 1e-6), dtype=dtype)


@task_1
@pytest.mark.parametrize("eps", [0.0, 1e-6, 1e-2, 1.0])
def test_task_1_eps(impl, eps):
    """The values are small, so the result shows whether eps is added to the mean square, before the root."""
    inputs = Inputs(62)
    x, weight = inputs.normal(2, 10, scale=0.01), inputs.normal(10)
    got = impl.layer_norm.RMSNorm(10, weight, eps)(x)
    assert_close(got, oracles.rms_norm(array64(x), array64(weight), eps))


@task_1
def test_task_1_default_eps(impl):
    inputs = Inputs(63)
    x, weight = inputs.normal(2, 10, scale=0.002), inputs.normal(10)
    assert_close(impl.layer_norm.RMSNorm(10, weight)(x), oracles.rms_norm(array64(x), array64(weight), 1e-5))


@task_1
def test_task_1_half_precision_does_not_overflow(impl):
    """300^2 is too large for float16, so the square and the mean need float32."""
    inputs = Inputs(64, mx.float16)
    x, weight = inputs.normal(2, 10, scale=1000), inputs.normal(10)
    got = impl.layer_norm.RMSNorm(10, weight)(x)
    assert_close(got, oracles.rms_norm(array64(x), array64(weight), 1e-5), dtype=mx.float16)


@task_1
@pytest.mark.parametrize(("scale", "eps"), [(1e-4, 1e-9), (1e-6, 1e-12)])
def test_task_1_half_precision_does_not_underflow(impl, scale, eps):
    """0.0001^2 is 0 in float16, so the square and the mean need float32."""
    inputs = Inputs(65, mx.float16)
    x, weight = inputs.normal(2, 10, scale=scale), inputs.normal(10)
    got = impl.layer_norm.RMSNorm(10, weight, eps)(x)
    assert_close(got, oracles.rms_norm(array64(x), array64(weight), eps), dtype=mx.float16)


@task_1
def test_task_1_mean_is_exact_in_half_precision(impl):
    """A row has 4,096 values. A sum of squares that is kept in bfloat16 stops growing at 256."""
    inputs = Inputs(66, mx.bfloat16)
    x, weight = inputs.normal(2, 4096, shift=1), inputs.normal(4096)
    got = impl.layer_norm.RMSNorm(4096, weight)(x)
    assert_close(got, oracles.rms_norm(array64(x), array64(weight), 1e-5), dtype=mx.bfloat16, tolerance=2e-2)


@task_1
def test_task_1_factor_is_exact_in_half_precision(impl):
    """Rounding the 4,096 results of a row to bfloat16 cancels out on average. Rounding the row's common factor earlier
    would make the whole row too large or too small."""
    inputs = Inputs(59, mx.bfloat16)
    x, weight = inputs.normal(16, 4096, scale=3), inputs.normal(4096)
    got = impl.layer_norm.RMSNorm(4096, weight)(x)
    expected = oracles.rms_norm(array64(x), array64(weight), 1e-5)
    assert_close(got, expected, dtype=mx.bfloat16)
    share = mx.array((array64(got) * expected).sum(axis=1) / (expected * expected).sum(axis=1)).astype(mx.float32)
    assert_close(share, np.ones(16), tolerance=7.5e-4, what="each row's size, as a share of what it should be")


@task_1
def test_task_1_zeros(impl):
    got = impl.layer_norm.RMSNorm(4, mx.array([1.0, -2.0, 3.0, 0.5]))(mx.zeros((2, 4)))
    assert_close(got, np.zeros((2, 4)))


@task_1
def test_task_1_equals_mlx(impl):
    inputs = Inputs(67)
    x, weight = inputs.normal(2, 3, 10), inputs.normal(10)
    theirs = mx.fast.rms_norm(x, weight, 1e-3)
    assert_close(impl.layer_norm.RMSNorm(10, weight, 1e-3)(x), theirs)


@task_1
def test_task_1_remembers_nothing(impl):
    inputs = Inputs(69)
    weight = inputs.normal(10)
    norm = impl.layer_norm.RMSNorm(10, weight)
    for scale in (1, 5):
        x = inputs.normal(2, 10, scale=scale)
        assert_close(norm(x), oracles.rms_norm(array64(x), array64(weight), 1e-5))


@task_1
def test_task_1_leaves_its_inputs_alone(impl):
    inputs = Inputs(68)
    arrays = [inputs.normal(2, 10), inputs.normal(10)]
    before = [array64(array) for array in arrays]
    mx.eval(impl.layer_norm.RMSNorm(10, arrays[1])(arrays[0]))
    assert_unchanged(before, *arrays)


@task_2
@over_batches
@over_dtypes
def test_task_2_silu(impl, batch, dtype):
    x = Inputs(71, dtype).normal(*batch, 10, scale=3)
    assert_close(impl.basics.silu(x), oracles.silu(array64(x)), dtype=dtype)


@task_2
@over_dtypes
def test_task_2_silu_far_out(impl, dtype):
    x = mx.array([-200.0, -20.0, -12.0, -10.5, -1.0, 0.0, 1.0, 20.0, 200.0]).astype(dtype)
    assert_close(impl.basics.silu(x), oracles.silu(array64(x)), dtype=dtype)


@task_2
def test_task_2_silu_equals_mlx(impl):
    x = Inputs(72).normal(2, 10, scale=3)
    theirs = nn.silu(x)
    assert_close(impl.basics.silu(x), theirs)


def projection(inputs, rows, columns):
    """Return a layer with a bias, and its oracle. Only a call of the layer shows the bias, as with the weights of a
    quantised layer."""
    weight, bias = inputs.normal(rows, columns, scale=columns**-0.5), inputs.normal(rows)
    return lambda x: x @ weight.T + bias, lambda x: x @ array64(weight).T + array64(bias)


def swiglu(impl, inputs, E, I):
    """Return a SwiGLU layer and its oracle."""
    layers = [projection(inputs, I, E), projection(inputs, I, E), projection(inputs, E, I)]
    (gate, gate64), (up, up64), (down, down64) = layers
    return impl.mlp.SwiGLU(E, I, gate, up, down), lambda x: down64(oracles.silu(gate64(x)) * up64(x))


@task_2
@over_batches
@over_dtypes
def test_task_2_swiglu(impl, batch, dtype):
    inputs = Inputs(73, dtype)
    layer, oracle = swiglu(impl, inputs, 6, 10)
    x = inputs.normal(*batch, 6)
    assert_close(layer(x), oracle(array64(x)), dtype=dtype)


@task_2
def test_task_2_swiglu_with_equal_sizes(impl):
    """All three projections have the same shape, so only the values show whether two of them are swapped."""
    inputs = Inputs(74)
    layer, oracle = swiglu(impl, inputs, 6, 6)
    x = inputs.normal(2, 6)
    assert_close(layer(x), oracle(array64(x)))


@task_2
def test_task_2_swiglu_far_out(impl):
    """Gates are beyond +-10, and the code must not clip them."""
    inputs = Inputs(77)
    layer, oracle = swiglu(impl, inputs, 6, 10)
    x = inputs.normal(2, 6, scale=20)
    assert_close(layer(x), oracle(array64(x)), tolerance=1e-3)


@task_2
def test_task_2_swiglu_remembers_nothing(impl):
    inputs = Inputs(78)
    layer, oracle = swiglu(impl, inputs, 6, 10)
    for _ in range(2):
        x = inputs.normal(2, 6)
        assert_close(layer(x), oracle(array64(x)))


@task_2
def test_task_2_swiglu_on_the_courses_own_layers(impl):
    inputs = Inputs(75)
    gate, up, down = inputs.normal(10, 6), inputs.normal(10, 6), inputs.normal(6, 10)
    x = inputs.normal(2, 3, 6)
    layer = impl.mlp.SwiGLU(6, 10, *map(impl.basics.Linear, (gate, up, down)))
    hidden = oracles.silu(array64(x) @ array64(gate).T) * (array64(x) @ array64(up).T)
    assert_close(layer(x), hidden @ array64(down).T, tolerance=1e-4)


@task_2
def test_task_2_swiglu_of_layers_that_return_x(impl):
    """A layer may return x itself, so `*=` on its result would change the caller's x."""
    x = Inputs(79).normal(2, 6)
    layer = impl.mlp.SwiGLU(6, 6, *[lambda x: x] * 3)
    assert_close(layer(x), oracles.silu(array64(x)) * array64(x))
    assert_unchanged([array64(x)], x)


@task_2
def test_task_2_leaves_its_input_alone(impl):
    inputs = Inputs(76)
    layer, _ = swiglu(impl, inputs, 6, 10)
    x = inputs.normal(2, 6)
    before = array64(x)
    mx.eval(layer(x), impl.basics.silu(x))
    assert_unchanged([before], x)
