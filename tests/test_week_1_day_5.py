"""Week 1 Day 5: Qwen2 and Qwen3."""

import json
from pathlib import Path

import mlx.core as mx
import numpy as np
import oracles
import pytest
from activations import first_divergence, record
from helpers import Inputs, array64, assert_close, assert_unchanged, over_dtypes

from tiny_llm_models.untrained import untrained_config, write_untrained

task_1 = pytest.mark.task("w1d5.1")
task_2 = pytest.mark.task("w1d5.2")
task_3 = pytest.mark.task("w1d5.3")
task_4 = pytest.mark.task("w1d5.4")

FIXTURES = Path(__file__).parent / "fixtures"

# ---------------------------------------------------------------------------------------------- task 1: embedding


@task_1
@over_dtypes
@pytest.mark.parametrize("shape", [(), (4,), (1, 1), (2, 4), (2, 3, 4)], ids=str)
def test_task_1_embedding(impl, shape, dtype):
    inputs = Inputs(81, dtype)
    weight, tokens = inputs.normal(11, 6), inputs.tokens(*shape, vocab_size=11)
    got = impl.embedding.Embedding(11, 6, weight)(tokens)
    assert_close(got, array64(weight)[np.array(tokens)], dtype=dtype, tolerance=0)


@task_1
@over_dtypes
@pytest.mark.parametrize("shape", [(6,), (4, 6), (1, 1, 6), (2, 4, 6)], ids=str)
def test_task_1_as_linear(impl, shape, dtype):
    inputs = Inputs(82, dtype)
    weight, x = inputs.normal(11, 6), inputs.normal(*shape)
    got = impl.embedding.Embedding(11, 6, weight).as_linear(x)
    assert_close(got, array64(x) @ array64(weight).T, dtype=dtype)


@task_1
def test_task_1_as_linear_of_a_square_table(impl):
    """The table is square, so the shapes fit with and without the transpose. Only the values tell which one is
    right."""
    inputs = Inputs(83)
    weight, x = inputs.normal(6, 6), inputs.normal(2, 6)
    assert_close(impl.embedding.Embedding(6, 6, weight).as_linear(x), array64(x) @ array64(weight).T)


@task_1
def test_task_1_both_uses_share_the_table(impl):
    """Every call uses the table as it was given, and looks up its own tokens."""
    inputs = Inputs(89)
    weight = inputs.normal(6, 6)
    embedding = impl.embedding.Embedding(6, 6, weight)
    for _ in range(2):
        x, tokens = inputs.normal(2, 6), inputs.tokens(4, vocab_size=6)
        assert_close(embedding.as_linear(x), array64(x) @ array64(weight).T)
        assert_close(embedding(tokens), array64(weight)[np.array(tokens)], tolerance=0)


@task_1
@over_dtypes
def test_task_1_a_large_vocabulary(impl, dtype):
    """Real vocabularies have more than 150,000 tokens, so ids fit neither into 16-bit floats nor into 16-bit
    integers."""
    weight = Inputs(80, dtype).normal(70_000, 3)
    tokens = mx.array([0, 257, 2049, 32_768, 65_536, 69_999])
    got = impl.embedding.Embedding(70_000, 3, weight)(tokens)
    assert_close(got, array64(weight)[np.array(tokens)], dtype=dtype, tolerance=0)


# -------------------------------------------------------------------------------- tasks 2 and 4: attention layers

H_Q, H_KV, HEAD_DIM, HIDDEN, BASE, EPS = 6, 2, 4, 10, 1000.0, 0.1  # H_q * D is not E


class Projections:
    """Layers for q, k, v and o, with a bias that only their calls show, and the same layers in float64."""

    def __init__(self, inputs):
        sizes = {"q": (H_Q * HEAD_DIM, HIDDEN), "k": (H_KV * HEAD_DIM, HIDDEN), "v": (H_KV * HEAD_DIM, HIDDEN)}
        sizes["o"] = (HIDDEN, H_Q * HEAD_DIM)
        weights = {
            name: (inputs.normal(*size, scale=size[1] ** -0.5), inputs.normal(size[0])) for name, size in sizes.items()
        }
        self.layers = [lambda x, w=w, b=b: x @ w.T + b for w, b in weights.values()]
        self.oracles = {name: lambda x, w=w, b=b: x @ array64(w).T + array64(b) for name, (w, b) in weights.items()}

    def heads(self, x):
        """Return q, k and v, each B x L x H x D."""
        return [self.oracles[name](x).reshape(*x.shape[:2], -1, HEAD_DIM) for name in "qkv"]

    def attention(self, q, k, v, positions):
        """Compute the layer's output from the heads."""
        q, k = (oracles.rope(x, positions, BASE, traditional=False) for x in (q, k))
        q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
        L = q.shape[2]
        out = oracles.grouped_attention(q, k, v, mask=oracles.causal_mask(L, L))
        return self.oracles["o"](np.concatenate([out[:, h] for h in range(H_Q)], axis=-1))


def attention_config(impl, model_type):
    sizes = {"hidden_size": HIDDEN, "num_attention_heads": H_Q, "num_key_value_heads": H_KV, "head_dim": HEAD_DIM}
    return impl.given.config.ModelConfig.from_hf(untrained_config(model_type, **sizes))


def qwen2_attention(impl, inputs):
    parts = Projections(inputs)
    rope = impl.positional_encoding.RoPE(HEAD_DIM, 64, BASE)
    return impl.qwen2.Qwen2Attention(attention_config(impl, "qwen2"), *parts.layers, rope), parts


def qwen3_attention(impl, inputs):
    parts = Projections(inputs)
    rope = impl.positional_encoding.RoPE(HEAD_DIM, 64, BASE)
    norms = [inputs.normal(HEAD_DIM, shift=1) for _ in range(2)]
    q_norm, k_norm = (impl.layer_norm.RMSNorm(HEAD_DIM, weight, EPS) for weight in norms)
    layer = impl.qwen3.Qwen3Attention(attention_config(impl, "qwen3"), *parts.layers, rope, q_norm, k_norm)

    def heads(x):
        q, k, v = parts.heads(x)
        return oracles.rms_norm(q, array64(norms[0]), EPS), oracles.rms_norm(k, array64(norms[1]), EPS), v

    return layer, parts, heads


def positions(x, start=0):
    return np.broadcast_to(np.reshape(start, (-1, 1)), (x.shape[0], 1)) + np.arange(x.shape[1])


class SpyCache:
    """A cache without attention: it keeps its arguments and returns the queries.

    Queries are kept as they would be at the default scale, so code that scales them itself and passes a scale of 1 is
    right, too.
    """

    def __init__(self, offset):
        self.offset = offset
        self.calls = []

    def attend(self, query, key, value, scale=None):
        query = query if scale is None else query * (float(scale) * HEAD_DIM**0.5)
        self.calls.append((query, key, value))
        return query


def check_cache_seam(layer, parts, heads, offset, L):
    """Check that each call takes its positions from the cache and its output from what `attend` returns, and keeps
    nothing."""
    inputs = Inputs(84)
    mx.eval(layer(inputs.normal(3, L, HIDDEN), SpyCache(2)))
    x = inputs.normal(3, L, HIDDEN)
    cache = SpyCache(offset)
    out = layer(x, cache)
    assert len(cache.calls) == 1, f"layer_cache.attend is to be called once, was called {len(cache.calls)} times"
    query, key, value = cache.calls[0]
    q, k, v = heads(array64(x))
    where = positions(x, np.array(offset))
    q, k = (oracles.rope(x, where, BASE, traditional=False) for x in (q, k))
    assert_close(query, q.swapaxes(1, 2), tolerance=1e-4)
    assert_close(key, k.swapaxes(1, 2), tolerance=1e-4)
    assert_close(value, v.swapaxes(1, 2), tolerance=1e-4)
    assert_close(out, parts.oracles["o"](q.reshape(3, L, -1)), tolerance=1e-4)


@task_2
@over_dtypes
def test_task_2_project(impl, dtype):
    inputs = Inputs(85, dtype)
    layer, parts = qwen2_attention(impl, inputs)
    x = inputs.normal(3, 5, HIDDEN)
    for got, want in zip(layer.project(x), parts.heads(array64(x)), strict=True):
        assert_close(got, want, dtype=dtype)


@task_2
@over_dtypes
@pytest.mark.parametrize(("B", "L"), [(1, 1), (3, 1), (1, 7), (3, 5)])
def test_task_2_attention(impl, B, L, dtype):
    inputs = Inputs(86, dtype)
    layer, parts = qwen2_attention(impl, inputs)
    x = inputs.normal(B, L, HIDDEN)
    expected = parts.attention(*parts.heads(array64(x)), positions(x))
    assert_close(layer(x, impl.kv_cache.NoCache(1).layers[0]), expected, dtype=dtype)


@task_2
@pytest.mark.parametrize("L", [1, 5])
@pytest.mark.parametrize("offset", [0, 9, mx.array([4, 0, 17])], ids=["0", "9", "one for each row"])
def test_task_2_cache_seam(impl, offset, L):
    layer, parts = qwen2_attention(impl, Inputs(87))
    check_cache_seam(layer, parts, parts.heads, offset, L)


@task_2
def test_task_2_leaves_its_input_alone(impl):
    inputs = Inputs(88)
    layer, _ = qwen2_attention(impl, inputs)
    x = inputs.normal(2, 5, HIDDEN)
    before = array64(x)
    mx.eval(layer(x, impl.kv_cache.NoCache(1).layers[0]))
    assert_unchanged([before], x)


# ------------------------------------------------------------------------------------------ task 3: block and model


def shift(amount):
    """Return a layer that is easy to recognise: x -> amount * x + amount."""
    return lambda x, *_, **__: x * amount + amount


@task_3
def test_task_3_what_the_parts_of_a_block_read(impl):
    """The two norms, attention and the MLP each get the right vectors as input."""
    read = {}

    def part(name, amount):
        def call(x, *_, **__):
            read.setdefault(name, x + 0)  # a copy: x may be written into
            return x * amount + amount

        return call

    amounts = {"self_attn": 0.5, "mlp": -0.25, "input_layernorm": 2.0, "post_attention_layernorm": -3.0}
    x = Inputs(90).normal(2, 3, 4)
    mx.eval(impl.qwen2.TransformerBlock(*(part(name, amount) for name, amount in amounts.items()))(x, None))
    x = array64(x)
    normed = 2 * x + 2
    h = x + normed * 0.5 + 0.5
    expected = {
        "input_layernorm": ("the block's input", x),
        "self_attn": ("what input_layernorm gives", normed),
        "post_attention_layernorm": ("the block's input plus what self_attn gives", h),
        "mlp": ("what post_attention_layernorm gives", -3 * h - 3),
    }
    for name, (what, values) in expected.items():
        assert name in read, f"{name} should get {what}, but was not called"
        assert_close(read[name], values, what=f"{name} should get {what}")


@task_3
@over_dtypes
def test_task_3_block(impl, dtype):
    """The norms apply to the inputs of attention and MLP, not to the residual stream."""
    x = Inputs(91, dtype).normal(2, 3, 4)
    block = impl.qwen2.TransformerBlock(shift(0.5), shift(-0.25), shift(2.0), shift(-3.0))
    h = array64(x) + (2 * array64(x) + 2) * 0.5 + 0.5
    expected = h + (-3 * h - 3) * -0.25 - 0.25
    assert_close(block(x, None), expected, dtype=dtype)


@task_3
def test_task_3_block_leaves_its_input_alone(impl):
    x = Inputs(92).normal(2, 3, 4)
    before = array64(x)
    mx.eval(impl.qwen2.TransformerBlock(shift(0.5), shift(-0.25), shift(2.0), shift(-3.0))(x, None))
    assert_unchanged([before], x)


@task_3
def test_task_3_block_hands_its_cache_to_attention(impl):
    seen = []

    def self_attn(x, layer_cache):
        seen.append(layer_cache)
        return x

    impl.qwen2.TransformerBlock(self_attn, shift(1.0), shift(1.0), shift(1.0))(mx.zeros((1, 1, 4)), "the layer's cache")
    assert seen == ["the layer's cache"]


class SpyModelCache:
    """A cache that logs its calls in order."""

    def __init__(self, log, count):
        self.layers = [f"cache of layer {i}" for i in range(count)]
        self.log = log

    def advance(self, length):
        self.log.append(f"advance({length})")


def spy_model(impl, log, lm_head=None, dtype=mx.float32):
    """Return a model whose two blocks log their caches and change the stream, and whose only weights are the
    embedding's."""

    def block(amount):
        def call(x, layer_cache):
            log.append(layer_cache if isinstance(layer_cache, str) else type(layer_cache).__name__)
            return x * amount + 1

        return call

    weight = Inputs(93, dtype).normal(11, 6)
    embedding = impl.embedding.Embedding(11, 6, weight)
    sizes = {"vocab_size": 11, "hidden_size": 6, "num_hidden_layers": 2, "tie_word_embeddings": lm_head is None}
    config = impl.given.config.ModelConfig.from_hf(untrained_config(**sizes))
    return impl.qwen2.CausalLM(config, embedding, [block(2), block(3)], shift(0.5), lm_head), weight


@task_3
@over_dtypes
def test_task_3_hidden_and_the_cache(impl, dtype):
    """`hidden` runs the embedding, all blocks and the last norm. Each block gets its own layer's cache, and `advance`
    is called once, with L, after all blocks."""
    log = []
    model, weight = spy_model(impl, log, dtype=dtype)
    tokens = mx.array([[1, 5, 3, 7], [10, 0, 0, 2]])
    got = model.hidden(tokens, SpyModelCache(log, 2))
    x = array64(weight)[np.array(tokens)]
    assert_close(got, ((2 * x + 1) * 3 + 1) * 0.5 + 0.5, dtype=dtype)
    assert log == ["cache of layer 0", "cache of layer 1", "advance(4)"]


@task_3
@over_dtypes
def test_task_3_logits_of_tied_and_own_output_layer(impl, dtype):
    model, weight = spy_model(impl, [], dtype=dtype)
    x = Inputs(94, dtype).normal(2, 3, 6)
    assert_close(model.logits(x), array64(x) @ array64(weight).T, dtype=dtype)
    model, _ = spy_model(impl, [], lm_head=shift(7.0), dtype=dtype)
    assert_close(model.logits(x), 7 * array64(x) + 7, dtype=dtype)


@task_3
@pytest.mark.parametrize(("B", "L"), [(1, 1), (1, 4), (2, 1)])
def test_task_3_one_row_or_one_token(impl, B, L):
    """An axis of size 1 stays in the shape, a single token counts, and no call depends on an earlier one."""
    inputs, log = Inputs(98), []
    model, weight = spy_model(impl, log, lm_head=shift(7.0))
    tied, _ = spy_model(impl, [])
    block = impl.qwen2.TransformerBlock(shift(0.5), shift(-0.25), shift(2.0), shift(-3.0))
    for _ in range(2):
        tokens, y = inputs.tokens(B, L, vocab_size=11), inputs.normal(B, L, 6)
        x = array64(weight)[np.array(tokens)]
        assert_close(model.hidden(tokens, SpyModelCache(log, 2)), ((2 * x + 1) * 3 + 1) * 0.5 + 0.5)
        assert log[-1] == f"advance({L})"
        log.clear()
        assert_close(model.logits(y), 7 * array64(y) + 7)
        assert_close(tied.logits(y), array64(y) @ array64(weight).T)
        h = array64(y) + (2 * array64(y) + 2) * 0.5 + 0.5
        assert_close(block(y, None), h + (-3 * h - 3) * -0.25 - 0.25)


def load_recorded(impl, path, folder):
    """Load the learner's model from a recorded checkpoint, in the usual way."""
    recording = np.load(path)
    config = json.loads(str(recording["config"]))
    shapes = impl.given.weights.expected_shapes(impl.given.config.ModelConfig.from_hf(config))
    write_untrained(folder, config, shapes, int(recording["seed"]))
    return impl.models.load_model(folder), recording


def check_part_by_part(impl, model_type, folder):
    model, recording = load_recorded(impl, FIXTURES / f"activations_{model_type}.npz", folder)
    inputs = ("config", "seed", "tokens")
    expected = {name: recording[name] for name in recording.files if name not in inputs}
    got = record(model, mx.array(recording["tokens"]), impl.kv_cache.NoCache(len(model.layers)))
    if where := first_divergence(expected, got, tolerance=1e-3):
        pytest.fail(f"the first part of the model that goes wrong is {where}")


def check_against_transformers(impl, model_type, folder):
    model, recording = load_recorded(impl, FIXTURES / f"transformers_{model_type}.npz", folder)
    assert_close(model(mx.array(recording["tokens"])), recording["logits"], tolerance=1e-3)


@task_3
def test_task_3_qwen2_part_by_part(impl, tmp_path):
    check_part_by_part(impl, "qwen2", tmp_path)


@task_3
def test_task_3_qwen2_equals_transformers(impl, tmp_path):
    check_against_transformers(impl, "qwen2", tmp_path)


# -------------------------------------------------------------------------------------------------- task 4: Qwen3


@task_4
def test_task_4_has_a_method_of_its_own(impl):
    """If `project` has another name, Python never calls it and uses the `project` of Qwen2Attention instead."""
    inputs = Inputs(79)
    mx.eval(qwen3_attention(impl, inputs)[0].project(inputs.normal(1, 2, HIDDEN)))
    inherited = impl.qwen3.Qwen3Attention.project is impl.qwen2.Qwen2Attention.project
    if inherited:
        pytest.fail("Qwen3Attention has no method `project` of its own: is its name misspelt?", pytrace=False)


@task_4
@over_dtypes
def test_task_4_project(impl, dtype):
    inputs = Inputs(95, dtype)
    layer, _, heads = qwen3_attention(impl, inputs)
    x = inputs.normal(3, 5, HIDDEN)
    for got, want in zip(layer.project(x), heads(array64(x)), strict=True):
        assert_close(got, want, dtype=dtype)


@task_4
def test_task_4_project_of_large_vectors(impl):
    """300^2 is infinity in float16, so the norms compute in float32, as day 4's norms do."""
    inputs = Inputs(98, mx.float16)
    layer, _, heads = qwen3_attention(impl, inputs)
    x = inputs.normal(3, 5, HIDDEN, scale=1000)
    for got, want in zip(layer.project(x)[:2], heads(array64(x))[:2], strict=True):  # queries and keys
        assert_close(got, want, dtype=mx.float16)


@task_4
@over_dtypes
@pytest.mark.parametrize(("B", "L"), [(1, 1), (3, 5), (2, HEAD_DIM)])
def test_task_4_attention(impl, B, L, dtype):
    inputs = Inputs(96, dtype)
    layer, parts, heads = qwen3_attention(impl, inputs)
    x = inputs.normal(B, L, HIDDEN)
    expected = parts.attention(*heads(array64(x)), positions(x))
    assert_close(layer(x, impl.kv_cache.NoCache(1).layers[0]), expected, dtype=dtype)


@task_4
@pytest.mark.parametrize("L", [1, 5])
@pytest.mark.parametrize("offset", [0, 9, mx.array([4, 0, 17])], ids=["0", "9", "one for each row"])
def test_task_4_cache_seam(impl, offset, L):
    check_cache_seam(*qwen3_attention(impl, Inputs(97)), offset, L)


@task_4
def test_task_4_qwen3_part_by_part(impl, tmp_path):
    check_part_by_part(impl, "qwen3", tmp_path)


@task_4
def test_task_4_qwen3_equals_transformers(impl, tmp_path):
    check_against_transformers(impl, "qwen3", tmp_path)
