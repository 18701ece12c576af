"""Week 2 Day 3: quantisation."""

import mlx.core as mx
import numpy as np
import pytest
from helpers import Inputs, array64, assert_close, assert_unchanged, over_dtypes

from tiny_llm_models.untrained import random_weights, untrained_config, write_untrained

task_1 = pytest.mark.task("w2d3.1")
task_2 = pytest.mark.task("w2d3.2")
task_3 = pytest.mark.task("w2d3.3")
task_4 = pytest.mark.task("w2d3.4")

over_settings = pytest.mark.parametrize(("bits", "group_size"), [(4, 64), (4, 32), (2, 32), (8, 64), (4, 128)])

# Tolerances for scales, biases and dequantised values, which are rounded to the dtype once and not twice.
ROUNDED = {mx.float32: 2e-6, mx.float16: 5e-4, mx.bfloat16: 4e-3}

# ---------------------------------------------------------------------------------- helpers of the first two tasks


def quantized64(weight, group_size, bits):
    """Return the levels before rounding, the scales and the biases in float64, by the contract's formulas."""
    groups = weight.reshape(*weight.shape[:-1], -1, group_size)
    low, high = groups.min(axis=-1), groups.max(axis=-1)
    step = np.maximum((high - low) / (2**bits - 1), 1e-7)
    from_low = np.abs(low) > np.abs(high)
    edge, step = np.where(from_low, low, high), np.where(from_low, step, -step)
    zero = np.rint(edge / step)
    scales = np.divide(edge, zero, out=step, where=zero != 0)
    biases = np.where(zero != 0, edge, 0)
    return ((groups - biases[..., None]) / scales[..., None]).reshape(weight.shape), scales, biases


def clear_cut(inputs, *shape, group_size=64, bits=4, shift=0.0, scale=1.0):
    """Draw normal numbers that are not close to the middle between two levels, and whose groups' zeros are not either.

    Near the middle, a right solution that computes in another order may round differently.
    """
    drawn = inputs.normal(*shape, shift=shift, scale=scale)
    groups = array64(drawn).reshape(-1, group_size)
    while True:
        farthest = np.abs(groups).argmax(axis=-1)
        levels, _, biases = quantized64(groups, group_size, bits)
        step = (groups.max(axis=-1) - groups.min(axis=-1)) / (2**bits - 1)
        vague = near_half(np.abs(biases[:, 0]) / step)
        if not vague.any() and not near_half(levels).any():
            return mx.array(groups.reshape(shape)).astype(inputs.dtype)
        groups = np.where(near_half(levels), biases if shift else 0, groups)
        groups[vague, farthest[vague]] *= 1.03
        groups = array64(mx.array(groups).astype(inputs.dtype))


def near_half(numbers):
    return np.abs(numbers - np.floor(numbers) - 0.5) < 0.01


def unpacked(packed, bits):
    """Unpack the levels for comparison."""
    assert isinstance(packed, mx.array), "expected packed, scales and biases, three arrays"
    if packed.dtype != mx.uint32:
        pytest.fail(f"wrong dtype of the packed levels: expected {mx.uint32}, got {packed.dtype}")
    words = np.array(packed).astype(np.uint64)[..., None]
    levels = words >> np.arange(0, 32, bits, dtype=np.uint64) & np.uint64(2**bits - 1)
    return mx.array(levels.reshape(*packed.shape[:-1], -1).astype(np.float32))


def assert_quantized(got, weight, group_size, bits):
    """Fail unless `got` is the weight's quantisation by the contract."""
    __tracebackhide__ = True
    assert isinstance(got, tuple | list), f"expected packed, scales and biases, got {type(got).__name__}"
    packed, scales, biases = got
    levels, *others = quantized64(array64(weight), group_size, bits)
    assert_close(unpacked(packed, bits), np.clip(np.rint(levels), 0, 2**bits - 1), tolerance=0)
    for part, expected in zip((scales, biases), others, strict=True):
        assert_close(part, expected, dtype=weight.dtype, tolerance=ROUNDED[weight.dtype])


def packed_parts(inputs, *shape, group_size=64, bits=4):
    """Return random words, scales and biases of a matrix, and the matrix in float64, with values around 1."""
    words = inputs.tokens(*shape[:-1], shape[-1] * bits // 16, vocab_size=2**16).astype(mx.uint32)
    packed = words[..., 0::2] | words[..., 1::2] << 16
    sizes = (*shape[:-1], shape[-1] // group_size)
    scales = inputs.normal(*sizes, scale=4 / 2**bits)
    biases = inputs.normal(*sizes, scale=2)
    levels = array64(unpacked(packed, bits)).reshape(*sizes, group_size)
    dense = levels * array64(scales)[..., None] + array64(biases)[..., None]
    return (packed, scales, biases), dense.reshape(shape)


# ------------------------------------------------------------------------------- task 1: quantising and packing


@task_1
def test_task_1_comes_back(impl):
    """scale * level + bias differs from the original value by at most one scale."""
    weight = Inputs(301).normal(2, 128)
    packed, scales, biases = impl.quantize.quantize(weight)
    levels = np.array(unpacked(packed, 4)).reshape(2, 2, 64)
    back = levels * np.array(scales)[..., None] + np.array(biases)[..., None]
    assert_close(mx.array(back.reshape(2, 128).astype(np.float32)), weight, tolerance=0.2)


@task_1
@over_settings
@over_dtypes
def test_task_1_levels_scales_and_biases(impl, bits, group_size, dtype):
    """The levels are unpacked from the words for comparison, the first one from the lowest bits."""
    weight = clear_cut(Inputs(302, dtype), 5, 256, group_size=group_size, bits=bits)
    assert_quantized(impl.quantize.quantize(weight, group_size, bits), weight, group_size, bits)


@task_1
@pytest.mark.parametrize("shape", [(64,), (1, 64), (2, 3, 128), (2, 1, 3, 64)], ids=str)
def test_task_1_any_number_of_axes(impl, shape):
    weight = clear_cut(Inputs(303), *shape)
    assert_quantized(impl.quantize.quantize(weight), weight, 64, 4)


@task_1
@pytest.mark.parametrize("shift", [9.0, -9.0])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_task_1_numbers_of_one_sign(impl, bits, shift):
    """All values of a group have the same sign, so no level stands for 0."""
    weight = clear_cut(Inputs(304), 3, 128, bits=bits, shift=shift)
    assert_quantized(impl.quantize.quantize(weight, bits=bits), weight, 64, bits)


@task_1
@pytest.mark.parametrize("number", [0.0, 2.5, -2.5, 1e-9, -1e-9])
def test_task_1_equal_numbers(impl, number):
    """All values of a group are equal. The step is then 1e-7 instead of 0, so nothing is divided by 0."""
    weight = mx.concatenate([mx.full((2, 32), number), clear_cut(Inputs(305), 2, 32, group_size=32)], axis=-1)
    assert_quantized(impl.quantize.quantize(weight, 32), weight, 32, 4)


@task_1
@pytest.mark.parametrize("ends", [(-8, 7), (-7, 8), (-7.5, 7.5), (-6.5, 8.5), (-8.5, 6.5)], ids=str)
def test_task_1_halves(impl, ends):
    """A level or `zero` halfway between two integers is rounded to the even one, as `mx.round` does it. If |low| and
    |high| are equal, high is the edge."""
    weight = mx.array([[*ends, *np.arange(-6.5, 6.5, 0.5), *(0.25 * np.arange(4))]])
    assert_quantized(impl.quantize.quantize(weight, 32), weight, 32, 4)


@task_1
def test_task_1_tiny_numbers(impl):
    """The step is at least 1e-7, even if the values of a group differ."""
    weight = mx.arange(32)[None] % 16 * 2e-8
    assert_quantized(impl.quantize.quantize(weight, 32), weight, 32, 4)


@task_1
@pytest.mark.parametrize("number", [0.0, 1e-9, 4e-8])
def test_task_1_zero_is_0(impl, number):
    """If `zero` is 0, the bias is 0 and the scale is the step, which is negative if levels count from high."""
    weight = mx.full((1, 32), number)
    _, scales, biases = impl.quantize.quantize(weight, 32)
    _, *expected = quantized64(array64(weight), 32, 4)
    for part, numbers in zip((scales, biases), expected, strict=True):
        assert_close(part * 1e7, numbers * 1e7, tolerance=1e-5)


@task_1
@over_settings
@over_dtypes
def test_task_1_equals_mlx(impl, bits, group_size, dtype):
    weight = clear_cut(Inputs(306, dtype), 3, 128, group_size=group_size, bits=bits, scale=0.02)
    packed, *others = impl.quantize.quantize(weight, group_size, bits)
    expected, *expected_others = mx.quantize(weight, group_size, bits, stream=mx.cpu)  # a GPU rounds halves up
    assert_close(unpacked(packed, bits), unpacked(expected, bits), tolerance=0)
    for got, want in zip(others, expected_others, strict=True):
        assert_close(got, want, dtype=dtype, tolerance=1e-4)


@task_1
@pytest.mark.parametrize(("columns", "group_size", "bits"), [(128, 64, 3), (128, 64, 16), (96, 64, 4), (128, 16, 4)])
def test_task_1_settings_that_are_not_supported(impl, columns, group_size, bits):
    """An unsupported setting raises a ValueError. Keep the stub's call of `_check_quantization`."""
    mx.eval(impl.quantize.quantize(mx.ones((2, 128))))  # a stub ends here
    with pytest.raises((ValueError, AssertionError)):
        mx.eval(impl.quantize.quantize(mx.ones((2, columns)), group_size, bits))


@task_1
def test_task_1_leaves_its_input_alone(impl):
    weight = Inputs(307).normal(2, 128)
    before = array64(weight)
    mx.eval(impl.quantize.quantize(weight))
    assert_unchanged([before], weight)


# ------------------------------------------------------------------------ task 2: unpacking and dequantising


@task_2
def test_task_2_one_group_in_a_row(impl):
    parts, expected = packed_parts(Inputs(311), 3, 64)
    assert_close(impl.quantize.dequantize(*parts), expected)


@task_2
@over_settings
@over_dtypes
def test_task_2_dequantize(impl, bits, group_size, dtype):
    """The values are computed in float32, and rounded once to the dtype of the scales."""
    parts, expected = packed_parts(Inputs(312, dtype), 5, 256, group_size=group_size, bits=bits)
    got = impl.quantize.dequantize(*parts, group_size, bits)
    assert_close(got, expected, dtype=dtype, tolerance=ROUNDED[dtype])


@task_2
@pytest.mark.parametrize("shape", [(128,), (1, 128), (2, 3, 128), (2, 1, 3, 64)], ids=str)
def test_task_2_any_number_of_axes(impl, shape):
    parts, expected = packed_parts(Inputs(313), *shape, group_size=32)
    assert_close(impl.quantize.dequantize(*parts, 32), expected)


@task_2
@over_dtypes
def test_task_2_cancelling(impl, dtype):
    """scale * level and bias nearly cancel, so the difference shows whether something was rounded too early."""
    parts, _ = packed_parts(Inputs(314, dtype), 3, 128)
    packed, scales = parts[0], mx.abs(parts[1]) + 1
    biases = -7 * scales
    levels = array64(unpacked(packed, 4)).reshape(3, 2, 64)
    expected = levels * array64(scales)[..., None] + array64(biases)[..., None]
    got = impl.quantize.dequantize(packed, scales, biases)
    assert_close(got, expected.reshape(3, 128), dtype=dtype, tolerance=ROUNDED[dtype])


@task_2
def test_task_2_a_scale_of_0(impl):
    """With a scale of 0, every value is the bias."""
    parts, _ = packed_parts(Inputs(317), 3, 128)
    packed, scales, biases = parts[0], mx.zeros_like(parts[1]), parts[2]
    assert_close(impl.quantize.dequantize(packed, scales, biases), np.repeat(array64(biases), 64, axis=-1))


@task_2
@over_settings
def test_task_2_equals_mlx(impl, bits, group_size):
    weight = Inputs(315).normal(3, 256)
    parts = mx.quantize(weight, group_size, bits)
    got = impl.quantize.dequantize(*parts, group_size, bits)
    assert_close(got, mx.dequantize(*parts, group_size, bits))


@task_2
@pytest.mark.parametrize(
    ("words", "scales", "group_size", "bits"), [(16, 2, 64, 3), (16, 2, 64, 8), (16, 4, 64, 4), (12, 1, 64, 4)]
)
def test_task_2_parts_that_do_not_fit(impl, words, scales, group_size, bits):
    """Parts that do not fit together raise a ValueError. Keep the stub's call of `_check_packed`."""
    impl.quantize.dequantize(*packed_parts(Inputs(315), 2, 128)[0])  # a stub ends here
    parts = mx.zeros((2, words), mx.uint32), mx.ones((2, scales)), mx.ones((2, scales))
    with pytest.raises((ValueError, AssertionError)):
        mx.eval(impl.quantize.dequantize(*parts, group_size, bits))


@task_2
def test_task_2_leaves_its_inputs_alone(impl):
    parts, _ = packed_parts(Inputs(316), 3, 128)
    before = [array64(part) for part in parts]
    mx.eval(impl.quantize.dequantize(*parts))
    assert_unchanged(before, *parts)


# ------------------------------------------------------------------------------------ task 3: quantised layers


def small_parts(inputs, *shape, group_size=64, bits=4):
    """Return packed parts, scaled so that products with values around 1 are around 1."""
    (packed, scales, biases), dense = packed_parts(inputs, *shape, group_size=group_size, bits=bits)
    scale = 0.5 ** round(np.log2(shape[-1]) / 2 + 1)  # a power of 2, so scaling rounds nothing
    return (packed, scales * scale, biases * scale), dense * scale


@task_3
def test_task_3_linear(impl):
    inputs = Inputs(321)
    parts, weight = small_parts(inputs, 5, 64)
    x = inputs.normal(2, 64)
    assert_close(impl.quantize.QuantizedLinear(*parts)(x), array64(x) @ weight.T)


@task_3
@over_settings
@over_dtypes
def test_task_3_linear_with_bias(impl, bits, group_size, dtype):
    inputs = Inputs(322, dtype)
    parts, weight = small_parts(inputs, 128, 128, group_size=group_size, bits=bits)  # shapes hide a transpose
    bias, x = inputs.normal(128), inputs.normal(3, 128)
    got = impl.quantize.QuantizedLinear(*parts, group_size, bits, bias)(x)
    assert_close(got, array64(x) @ weight.T + array64(bias), dtype=dtype)


@task_3
@pytest.mark.parametrize("batch", [(), (1,), (2, 3)], ids=str)
def test_task_3_linear_of_any_number_of_axes(impl, batch):
    inputs = Inputs(323)
    parts, weight = small_parts(inputs, 5, 128)
    bias, x = inputs.normal(5), inputs.normal(*batch, 128)
    got = impl.quantize.QuantizedLinear(*parts, bias=bias)(x)
    assert_close(got, array64(x) @ weight.T + array64(bias))


@task_3
@over_dtypes
def test_task_3_float32_at_the_input(impl, dtype):
    """x is float32 but scales and biases may have 16 bits. Then W and the result are float32, too."""
    parts, weight = small_parts(Inputs(324, dtype), 5, 128)
    x = Inputs(325).normal(2, 128)
    assert_close(impl.quantize.QuantizedLinear(*parts)(x), array64(x) @ weight.T)
    assert_close(impl.quantize.QuantizedEmbedding(*parts).as_linear(x), array64(x) @ weight.T)


@task_3
def test_task_3_nothing_dense_is_kept(impl):
    """Each call starts from the packed weights, so a change of scales, biases or levels changes the result."""
    inputs = Inputs(326)
    parts, weight = small_parts(inputs, 5, 128)
    x, tokens = inputs.normal(2, 128), mx.array([4, 0])
    linear, embedding = impl.quantize.QuantizedLinear(*parts), impl.quantize.QuantizedEmbedding(*parts)
    twice = parts[0], parts[1] * 2, parts[2] * 2
    ones = mx.zeros_like(parts[0]) + 0x11111111
    level_1 = np.repeat(array64(twice[1] + twice[2]), 64, axis=-1)
    for given, dense in ((parts, weight), (twice, 2 * weight), ((ones, *twice[1:]), level_1)):
        for layer in (linear, embedding):
            layer.packed, layer.scales, layer.biases = given
        assert_close(linear(x), array64(x) @ dense.T)
        assert_close(embedding(tokens), dense[[4, 0]])
        assert_close(embedding.as_linear(x), array64(x) @ dense.T)


@task_3
def test_task_3_memory_is_given_back(impl):
    """The dense matrix is freed when the result has been computed."""
    O, I = 512, 1024
    parts = mx.ones((O, I // 8), mx.uint32), mx.ones((O, I // 64)), mx.ones((O, I // 64))
    layers = impl.quantize.QuantizedLinear(*parts), impl.quantize.QuantizedEmbedding(*parts).as_linear
    x = mx.ones((1, I))
    mx.eval(parts, x)
    before = mx.get_active_memory()
    results = [layer(x) for layer in layers]
    mx.eval(results)
    is_kept = mx.get_active_memory() - before > O * I
    for got in results:
        assert_close(got, np.full((1, O), I * 9 / 8))
    assert not is_kept, "a layer keeps the dense matrix: it needs more memory after a call than before"


@task_3
@over_settings
@over_dtypes
def test_task_3_embedding(impl, bits, group_size, dtype):
    inputs = Inputs(327, dtype)
    parts, table = small_parts(inputs, 11, 128, group_size=group_size, bits=bits)
    tokens = inputs.tokens(2, 4, vocab_size=11)
    got = impl.quantize.QuantizedEmbedding(*parts, group_size, bits)(tokens)
    assert_close(got, table[np.array(tokens)], dtype=dtype, tolerance=ROUNDED[dtype])


@task_3
@pytest.mark.parametrize("shape", [(), (4,), (2, 1, 3)], ids=str)
def test_task_3_embedding_of_any_number_of_axes(impl, shape):
    inputs = Inputs(328)
    parts, table = small_parts(inputs, 11, 128)
    tokens = inputs.tokens(*shape, vocab_size=11)
    assert_close(impl.quantize.QuantizedEmbedding(*parts)(tokens), table[np.array(tokens)])


@task_3
def test_task_3_embedding_takes_its_rows_only(impl):
    """Select the packed rows first, because a dense table of a real vocabulary would need a gigabyte."""
    V, E = 16384, 1024
    parts = mx.ones((V, E // 8), mx.uint32), mx.ones((V, E // 64)), mx.ones((V, E // 64))
    mx.eval(parts)
    embedding, before = impl.quantize.QuantizedEmbedding(*parts), mx.get_active_memory()
    mx.reset_peak_memory()
    got = embedding(mx.array([[7, 3, V - 1]]))
    assert_close(got, np.tile([2.0, 1, 1, 1, 1, 1, 1, 1], (1, 3, E // 8)))
    if mx.get_peak_memory() - before > 2 * V * E:
        pytest.fail("more than the rows of these tokens was made dense")


@task_3
@over_settings
@over_dtypes
def test_task_3_as_linear(impl, bits, group_size, dtype):
    inputs = Inputs(329, dtype)
    parts, table = small_parts(inputs, 11, 128, group_size=group_size, bits=bits)
    x = inputs.normal(2, 3, 128)
    got = impl.quantize.QuantizedEmbedding(*parts, group_size, bits).as_linear(x)
    assert_close(got, array64(x) @ table.T, dtype=dtype)


@task_3
def test_task_3_one_table_for_both(impl):
    """A float32 product in the output layer does not change the table's dtype."""
    inputs = Inputs(330, mx.bfloat16)
    parts, table = small_parts(inputs, 11, 128)
    embedding = impl.quantize.QuantizedEmbedding(*parts)
    x = inputs.normal(2, 128).astype(mx.float32)
    assert_close(embedding.as_linear(x), array64(x) @ table.T)
    assert_close(embedding(mx.array([3, 7])), table[[3, 7]], dtype=mx.bfloat16, tolerance=ROUNDED[mx.bfloat16])


# ------------------------------------------------------------------------------------- task 4: a whole model

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 192,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "head_dim": 32,
    "vocab_size": 65,
}
PLACES = [f"self_attn.{part}_proj" for part in "qkvo"] + [f"mlp.{part}_proj" for part in ("gate", "up", "down")]
MODELS = {
    "qwen2": untrained_config("qwen2", **SIZES),
    "qwen3": untrained_config("qwen3", **SIZES),
    "qwen3, tied": untrained_config("qwen3", **SIZES, tie_word_embeddings=True),
}

over_models = pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)


def matrices(weights):
    """Return the names of all quantised weights. Norms and biases are vectors, so they stay as they are."""
    return [name for name, weight in weights.items() if weight.ndim == 2]


def weights_of(impl, config, group_size=64, bits=4, dtype=mx.float32):
    """Return weights with clear levels, and the same weights after MLX has quantised and dequantised them."""
    drawn = random_weights(impl.given.weights.expected_shapes(impl.given.config.ModelConfig.from_hf(config)), seed=4)
    weights = {name: mx.array(weight).astype(dtype) for name, weight in drawn.items()}
    rounded = dict(weights)
    for i, name in enumerate(matrices(weights)):
        inputs = Inputs(340 + i, dtype)
        size = 0.7 if "embed" in name else 1.5 * weights[name].shape[-1] ** -0.5
        weights[name] = clear_cut(inputs, *weights[name].shape, group_size=group_size, bits=bits, scale=size)
        parts = mx.quantize(weights[name], group_size, bits, stream=mx.cpu)
        rounded[name] = mx.dequantize(*parts, group_size, bits, stream=mx.cpu)
    return weights, rounded


def built(impl, config, weights):
    return impl.models.build_model(impl.given.config.ModelConfig.from_hf(config), weights)


def layers_of(model, config):
    """Return each layer that should be quantised, by the name of its weight."""
    layers = {"model.embed_tokens": model.embed_tokens}
    if not config["tie_word_embeddings"]:
        layers["lm_head"] = model.lm_head
    for i, block in enumerate(model.layers):
        for place in PLACES:
            part, name = place.split(".")
            layers[f"model.layers.{i}.{place}"] = getattr(getattr(block, part), name)
    return layers


def packed_of(layer, name):
    try:
        return layer.packed
    except AttributeError:
        return pytest.fail(f"{name} is not quantised")


TOKENS = mx.array([[1, 7, 64, 0, 7], [33, 2, 2, 60, 5]])


@task_4
def test_task_4_scores(impl):
    config = MODELS["qwen3, tied"]
    weights, rounded = weights_of(impl, config)
    model = built(impl, config, weights)
    impl.quantize.quantize_model(model)
    assert_close(model(TOKENS), built(impl, config, rounded)(TOKENS), tolerance=1e-4)


@task_4
@pytest.mark.parametrize(("bits", "group_size"), [(4, 64), (8, 32), (2, 32)])
@over_models
def test_task_4_every_layer(impl, config, bits, group_size):
    """Every projection of every block, the output layer and the embedding are quantised with these bits and this group
    size."""
    weights, _ = weights_of(impl, config, group_size, bits)
    model = built(impl, config, weights)
    impl.quantize.quantize_model(model, group_size, bits)
    assert (model.lm_head is None) == config["tie_word_embeddings"], (
        "lm_head: None where the table is used at both endswithout an output layer, the table takes its place"
    )
    for name, layer in layers_of(model, config).items():
        packed = packed_of(layer, name)
        assert (layer.bits, layer.group_size) == (bits, group_size), f"{name} was told other bits or groups"
        assert_quantized((packed, layer.scales, layer.biases), weights[f"{name}.weight"], group_size, bits)


@task_4
@over_models
def test_task_4_scores_of_every_model(impl, config):
    """The quantised model still adds its biases, and its norms are unchanged."""
    weights, rounded = weights_of(impl, config, 32, 8)
    model = built(impl, config, weights)
    impl.quantize.quantize_model(model, 32, 8)
    assert_close(model(TOKENS), built(impl, config, rounded)(TOKENS), tolerance=1e-4)


@task_4
@over_dtypes
def test_task_4_dtypes(impl, dtype):
    """The quantised model computes in the same dtype as before."""
    config = MODELS["qwen2"]
    weights, _ = weights_of(impl, config, 32, 8, dtype)
    model = built(impl, config, weights)
    impl.quantize.quantize_model(model, 32, 8)
    for name, layer in layers_of(model, config).items():
        packed = packed_of(layer, name)
        assert_quantized((packed, layer.scales, layer.biases), weights[f"{name}.weight"], 32, 8)
    assert model(TOKENS).dtype == dtype


@task_4
def test_task_4_quantised_layers_are_left_alone(impl):
    """A model may be quantised in steps, so a layer that has 8 bits already keeps them."""
    config = MODELS["qwen3"]
    weights, _ = weights_of(impl, config, 32, 8)
    model = built(impl, config, weights)
    model.lm_head = impl.quantize.QuantizedLinear(*mx.quantize(weights["lm_head.weight"], 32, 8), 32, 8)
    table = mx.quantize(weights["model.embed_tokens.weight"], 32, 8)
    model.embed_tokens = impl.quantize.QuantizedEmbedding(*table, 32, 8)
    for _ in range(2):
        impl.quantize.quantize_model(model, 64, 4)
    found = {name: (layer.bits, layer.group_size) for name, layer in layers_of(model, config).items()}
    assert found == {name: (8, 32) if "layers" not in name else (4, 64) for name in found}


@task_4
@over_models
def test_task_4_equals_a_checkpoint_that_mlx_quantised(impl, config, tmp_path):
    """The given `models.load_quantized_model` keeps a checkpoint packed as MLX packed it, and your layers compute with
    it."""
    weights, _ = weights_of(impl, config, 32, 4)
    write_untrained(tmp_path, config | {"quantization": {"group_size": 32, "bits": 4}}, {})
    stored = dict(weights)
    for name in matrices(weights):
        layer = name.removesuffix(".weight")
        parts = mx.quantize(weights[name], 32, 4, stream=mx.cpu)
        stored |= {f"{layer}.{part}": x for part, x in zip(("weight", "scales", "biases"), parts, strict=True)}
    mx.save_safetensors(str(tmp_path / "model.safetensors"), stored)
    loaded, model = impl.models.load_quantized_model(tmp_path), built(impl, config, weights)
    impl.quantize.quantize_model(model, 32, 4)
    expected = loaded(TOKENS)
    assert_close(model(TOKENS), expected, tolerance=1e-4)
