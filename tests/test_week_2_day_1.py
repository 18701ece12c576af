"""Week 2 Day 1: the KV cache."""

import re
from io import StringIO
from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import oracles
import pytest
import scenes
from helpers import Inputs, array64, assert_close, assert_unchanged, over_dtypes
from scenes import play
from tokenizers import Tokenizer

from tiny_llm_models import bundled
from tiny_llm_models.untrained import untrained_config, write_untrained

task_1 = pytest.mark.task("w2d1.1")
task_2 = pytest.mark.task("w2d1.2")
task_3 = pytest.mark.task("w2d1.3")
task_4 = pytest.mark.task("w2d1.4")

# ----------------------------------------------------------------------------------- task 1: storing keys and values


def new_positions(inputs, L, B=2, H_kv=3, D=5):
    """Return a key and a value, each B x H_kv x L x D."""
    return inputs.normal(B, H_kv, L, D), inputs.normal(B, H_kv, L, D)


class Stored:
    """A layer, with the keys and values that it should hold, in float64."""

    def __init__(self, impl, step, inputs, **sizes):
        self.layer = impl.kv_cache.KVCacheLayer(step=step)
        self.inputs = inputs
        self.sizes = sizes
        self.expected = None

    def store(self, L):
        """Store L positions, compare the returned arrays, and count the positions as a cache would."""
        new = new_positions(self.inputs, L, **self.sizes)
        got = self.layer.store(*new)
        assert isinstance(got, tuple), f"expected a tuple of keys and values, got {type(got).__name__}"
        old = self.expected or [array64(array)[:, :, :0] for array in new]
        self.expected = [np.concatenate([a, array64(b)], axis=2) for a, b in zip(old, new, strict=True)]
        for array, numbers in zip(got, self.expected, strict=True):
            assert_close(array, numbers, dtype=self.inputs.dtype, tolerance=0)
        self.layer.offset += L

    def forget(self, L):
        """Forget the last L positions, as `KVCache.trim` does."""
        self.layer.offset -= L
        self.expected = [array[:, :, : self.layer.offset] for array in self.expected]

    def check_arrays(self, capacity):
        """Check the length and the contents of the layer's own arrays."""
        for array, numbers in zip((self.layer.keys, self.layer.values), self.expected, strict=True):
            B, H_kv, length, D = numbers.shape
            assert array.shape == (B, H_kv, capacity, D), "capacity: offset + L, rounded up to a multiple of `step`"
            assert_close(array[:, :, :length], numbers, dtype=self.inputs.dtype, tolerance=0)


@task_1
def test_task_1_a_prompt(impl):
    stored = Stored(impl, 8, Inputs(1), B=1)
    stored.store(5)


@task_1
@over_dtypes
@pytest.mark.parametrize("lengths", [(1, 1, 1, 1, 1), (5, 1, 1), (3, 4, 2, 7), (4, 1), (4, 4, 4), (1, 11, 1)], ids=str)
def test_task_1_piece_by_piece(impl, lengths, dtype):
    """Each call returns all positions that are stored so far, in order and in their own dtype."""
    stored = Stored(impl, 4, Inputs(2, dtype))
    for L in lengths:
        stored.store(L)


@task_1
@pytest.mark.parametrize(
    ("step", "capacities"),
    [
        (1, [(1, 1), (1, 2), (5, 7), (1, 8)]),
        (4, [(1, 4), (2, 4), (1, 4), (1, 8), (3, 8), (1, 12)]),
        (4, [(4, 4), (1, 8)]),
        (4, [(9, 12), (3, 12), (13, 28)]),
        (5, [(3, 5), (9, 15), (1, 15)]),
    ],
    ids=str,
)
def test_task_1_capacity_grows_in_steps(impl, step, capacities):
    """The layer makes new arrays only when the old ones are too short. They have room for offset + L positions, rounded
    up to a multiple of `step`."""
    stored = Stored(impl, step, Inputs(3))
    for L, capacity in capacities:
        stored.store(L)
        stored.check_arrays(capacity)


@task_1
def test_task_1_nothing_is_copied_while_there_is_room(impl):
    """If there is room, only the new positions are written. Concatenating would copy all earlier ones in each call."""
    stored = Stored(impl, 64, Inputs(31))
    stored.store(5)
    mx.eval(stored.layer.keys, stored.layer.values)
    key, value = new_positions(stored.inputs, 2)
    mx.eval(key, value)
    stored.layer.store(key, value)
    graph = StringIO()
    mx.export_to_dot(graph, stored.layer.keys, stored.layer.values)
    copying = re.findall(r'"(Concatenate|Pad)"', graph.getvalue())
    assert not copying, f"expected a write into the array that is there, got {copying[0]}, which makes a new one"


@task_1
def test_task_1_no_new_array_while_there_is_room(impl):
    """If there is room, storing a token allocates no memory of the arrays' size, because MLX writes into the same
    arrays."""
    seen = play(impl, scenes.memory_of_a_token)
    assert_close(mx.array(seen["stored"]), [1.0, 2.0], tolerance=0)
    is_copied = seen["bytes"] > seen["size"] / 2
    assert not is_copied, "`store` made new arrays although the old ones had room: assign to a slice of these instead"


@task_1
def test_task_1_steps_of_256(impl):
    """With the default step, a prompt of 255 tokens is followed by three more tokens."""
    layer = impl.kv_cache.KVCacheLayer()
    for L, end, capacity in ((255, 255, 256), (1, 256, 256), (1, 257, 512), (1, 258, 512)):
        keys, values = layer.store(*new_positions(Inputs(4), L, B=1, H_kv=1, D=2))
        expected = (1, 1, end, 2), (1, 1, capacity, 2)
        got = keys.shape, layer.keys.shape
        assert got == expected, f"shapes returned and kept: expected {expected}, got {got}"
        assert (values.shape, layer.values.shape) == expected, "values are kept as keys are"
        layer.offset += L


@task_1
def test_task_1_offset_is_not_moved(impl):
    """`store` leaves `offset` as it is, because the queries of this layer and the other layers still need it.
    `KVCache.advance` changes it later."""
    stored = Stored(impl, 4, Inputs(5))
    stored.store(3)
    layer = stored.layer
    for L in (2, 6, 1):  # each call overwrites the positions of the one before
        key, value = new_positions(stored.inputs, L)
        keys, values = layer.store(key, value)
        assert layer.offset == 3, f"offset was 3, and store made it {layer.offset}"
        assert_close(keys, np.concatenate([stored.expected[0], array64(key)], axis=2), tolerance=0)
        assert_close(values, np.concatenate([stored.expected[1], array64(value)], axis=2), tolerance=0)


@task_1
@pytest.mark.parametrize(
    ("forgotten", "then", "capacities"),
    [(1, [1, 1], [8, 8]), (3, [1, 1, 1, 1], [8, 8, 8, 8]), (5, [9, 1], [12, 12]), (7, [2, 7], [8, 12])],
    ids=["1", "3", "5", "all"],
)
def test_task_1_writes_over_what_was_forgotten(impl, forgotten, then, capacities):
    """If `offset` was moved back, the positions after it are free, and the arrays keep their length."""
    stored = Stored(impl, 4, Inputs(6))
    stored.store(7)
    stored.forget(forgotten)
    for L, capacity in zip(then, capacities, strict=True):
        stored.store(L)
        stored.check_arrays(capacity)


@task_1
@pytest.mark.parametrize(("B", "H_kv", "D"), [(1, 1, 1), (1, 2, 8), (3, 1, 2), (4, 4, 4)])
def test_task_1_sizes(impl, B, H_kv, D):
    stored = Stored(impl, 4, Inputs(7), B=B, H_kv=H_kv, D=D)
    for L in (4, 1, 4):
        stored.store(L)


@task_1
@pytest.mark.parametrize("L", [3, 4])
def test_task_1_leaves_its_inputs_alone(impl, L):
    """The layer writes into arrays of its own, never into the caller's, in later calls either."""
    inputs = Inputs(8)
    layer = impl.kv_cache.KVCacheLayer(step=4)
    arrays = new_positions(inputs, L)
    before = [array64(array) for array in arrays]
    layer.store(*arrays)
    mx.eval(layer.store(*new_positions(inputs, 2)))  # overwrites the first two positions
    assert_unchanged(before, *arrays)


@task_1
@pytest.mark.parametrize(
    ("sizes", "dtype"),
    [
        ({"B": 1}, mx.float32),
        ({"H_kv": 1}, mx.float32),
        ({"D": 1}, mx.float32),
        ({}, mx.bfloat16),
    ],
    ids=["another batch", "other heads", "another head size", "another dtype"],
)
def test_task_1_what_does_not_fit(impl, sizes, dtype):
    """Arrays of another shape or dtype raise a ValueError, even where broadcasting could store them. Keep the call to
    `_check_new`."""
    layer = impl.kv_cache.KVCacheLayer(step=4)
    layer.store(*new_positions(Inputs(9), 3))
    layer.offset += 3
    with pytest.raises((ValueError, AssertionError)):
        layer.store(*new_positions(Inputs(10, dtype), 1, **sizes))


@task_1
@pytest.mark.parametrize(("sizes", "dtype"), [({"B": 1}, mx.float32), ({}, mx.bfloat16)], ids=["batch", "dtype"])
def test_task_1_what_does_not_fit_after_all_was_forgotten(impl, sizes, dtype):
    """The arrays stay after everything was forgotten, so new positions still have to fit into them."""
    layer = impl.kv_cache.KVCacheLayer(step=4)
    layer.store(*new_positions(Inputs(9), 3))
    with pytest.raises((ValueError, AssertionError)):
        layer.store(*new_positions(Inputs(10, dtype), 1, **sizes))


@task_1
def test_task_1_one_array_for_both(impl):
    """A call may pass the same array as key and value. The layer still keeps two arrays, because the next key and value
    differ."""
    inputs = Inputs(12)
    layer = impl.kv_cache.KVCacheLayer(step=4)
    both = inputs.normal(2, 3, 3, 5)
    layer.store(both, both)
    layer.offset += 3
    new = new_positions(inputs, 1)
    for array, last in zip(layer.store(*new), new, strict=True):
        assert_close(array, np.concatenate([array64(both), array64(last)], axis=2), tolerance=0)


@task_1
def test_task_1_key_and_value_that_differ(impl):
    """A key and a value of different lengths or dtypes raise an error."""
    inputs = Inputs(11)
    impl.kv_cache.KVCacheLayer(step=4).store(*new_positions(inputs, 1))  # a stub ends here
    for value in (inputs.normal(2, 3, 1, 5), inputs.normal(2, 3, 4, 5).astype(mx.float16)):
        with pytest.raises((ValueError, AssertionError)):
            impl.kv_cache.KVCacheLayer(step=4).store(inputs.normal(2, 3, 4, 5), value)


# -------------------------------------------------------------------- task 2: attending, counting, trimming

H_Q, H_KV, HEAD_DIM = 6, 2, 4


def qkv(inputs, L, B=2):
    return inputs.normal(B, H_Q, L, HEAD_DIM), *(inputs.normal(B, H_KV, L, HEAD_DIM) for _ in range(2))


def attended(calls, scale=None):
    """Return, in float64, what the last of several calls of `attend` gives: its queries attend to the keys and values
    of all calls."""
    q = array64(calls[-1][0])
    k, v = (np.concatenate([array64(call[i]) for call in calls], axis=2) for i in (1, 2))
    return oracles.grouped_attention(q, k, v, scale, oracles.causal_mask(q.shape[2], k.shape[2]))


def untrained(impl, folder, model_type="qwen3"):
    config = untrained_config(model_type)
    shapes = impl.given.weights.expected_shapes(impl.given.config.ModelConfig.from_hf(config))
    write_untrained(folder, config, shapes, seed=3)
    return impl.models.load_model(folder)


@task_2
def test_task_2_a_prompt(impl):
    call = qkv(Inputs(21), 5, B=1)
    assert_close(impl.kv_cache.KVCacheLayer(step=8).attend(*call), attended([call]))


@task_2
@over_dtypes
@pytest.mark.parametrize("lengths", [(5, 1, 1), (1, 1, 1, 1, 1), (3, 4, 2), (4, 3, 6)], ids=str)
def test_task_2_attends_to_all_that_is_stored(impl, lengths, dtype):
    """A new query sees the keys of all earlier tokens, and of the new tokens those up to its own."""
    inputs = Inputs(22, dtype)
    layer = impl.kv_cache.KVCacheLayer(step=4)
    calls = []
    for L in lengths:
        calls.append(qkv(inputs, L))
        assert_close(layer.attend(*calls[-1]), attended(calls), dtype=dtype)
        layer.offset += L


@task_2
@pytest.mark.parametrize("scale", [1.0, 0.3, -0.7, 0.0])
def test_task_2_scale(impl, scale):
    inputs = Inputs(23)
    layer = impl.kv_cache.KVCacheLayer(step=4)
    calls = [qkv(inputs, 3), qkv(inputs, 2)]
    for count, call in enumerate(calls, start=1):
        assert_close(layer.attend(*call, scale), attended(calls[:count], scale))
        layer.offset += call[0].shape[2]


@task_2
def test_task_2_the_attention_that_was_handed_in(impl):
    """The cache's attention function gets the query, all keys and values, the scale and "causal", and `attend` returns
    its result."""
    seen = []

    def attention(query, key, value, scale, mask):
        seen.append((query.shape, key.shape, value.shape, scale, mask))
        return query * 7

    cache = impl.kv_cache.KVCache(2, step=4, attention=attention)
    inputs = Inputs(24)
    for L, S in ((5, 5), (2, 7), (1, 8)):
        query, key, value = qkv(inputs, L)
        assert_close(cache.layers[1].attend(query, key, value, 0.3), array64(query) * 7)
        stored = (2, H_KV, S, HEAD_DIM)
        assert seen.pop() == (query.shape, stored, stored, 0.3, "causal")
        assert not seen, "one call of `attend` is one call of attention"
        cache.layers[1].offset += L


@task_2
def test_task_2_attend_does_not_move_the_offset(impl):
    layer = impl.kv_cache.KVCacheLayer(step=4)
    layer.attend(*qkv(Inputs(25), 3))
    assert layer.offset == 0, f"offset was 0, and attend made it {layer.offset}; `KVCache.advance` moves it"


@task_2
def test_task_2_advance(impl):
    """`advance` adds the same length to the offset of every layer."""
    cache = impl.kv_cache.KVCache(3, step=4)
    for length, offset in ((5, 5), (1, 6), (7, 13)):
        cache.advance(length)
        assert [layer.offset for layer in cache.layers] == [offset] * 3
        assert cache.offset == offset


@task_2
@pytest.mark.parametrize("length", [0, 1, 4, 7])
def test_task_2_trim(impl, length):
    cache = impl.kv_cache.KVCache(3, step=4)
    cache.advance(7)
    cache.trim(length)
    assert [layer.offset for layer in cache.layers] == [7 - length] * 3


@task_2
def test_task_2_trim_an_empty_cache(impl):
    cache = impl.kv_cache.KVCache(2)
    cache.trim(0)
    assert [layer.offset for layer in cache.layers] == [0, 0]


@task_2
@pytest.mark.parametrize("length", [-1, 8])
def test_task_2_trim_what_is_not_there(impl, length):
    """Trimming more positions than there are raises a ValueError and changes nothing. Keep the stub's call to
    `_check_trim`."""
    cache = impl.kv_cache.KVCache(2, step=4)
    cache.advance(7)
    with pytest.raises((ValueError, AssertionError)):
        cache.trim(length)
    assert [layer.offset for layer in cache.layers] == [7, 7]


@task_2
@pytest.mark.parametrize(("length", "lengths"), [(3, (1, 1, 4)), (2, (1, 5)), (7, (3, 2)), (0, (2,))])
def test_task_2_after_trimming_it_goes_on(impl, length, lengths):
    """After `trim`, the cache goes on as if the forgotten tokens had never been stored, in the same arrays."""
    inputs = Inputs(26)
    cache = impl.kv_cache.KVCache(2, step=4)
    first, forgotten = qkv(inputs, 7 - length), qkv(inputs, length)
    calls = [first] if length < 7 else []
    for layer in cache.layers:
        layer.attend(*(mx.concatenate(pair, axis=2) for pair in zip(first, forgotten, strict=True)))
    cache.advance(7)
    cache.trim(length)
    for layer in cache.layers:
        assert layer.keys.shape == layer.values.shape == (2, H_KV, 8, HEAD_DIM), "trim leaves the arrays as they are"
    for L in lengths:
        calls.append(qkv(inputs, L))
        for layer in cache.layers:
            assert_close(layer.attend(*calls[-1]), attended(calls))
        cache.advance(L)


@task_2
@pytest.mark.parametrize("length", [0, 3, 7])
def test_task_2_trim_keeps_what_is_in_the_arrays(impl, length):
    """`trim` changes only `offset`. Keys and values of forgotten tokens stay in the arrays until new ones overwrite
    them."""
    cache = impl.kv_cache.KVCache(2, step=4)
    query, *new = qkv(Inputs(28), 7)
    for layer in cache.layers:
        layer.attend(query, *new)
    cache.advance(7)
    cache.trim(length)
    for layer in cache.layers:
        for array, numbers in zip((layer.keys, layer.values), new, strict=True):
            assert_close(array[:, :, :7], numbers, tolerance=0)


@task_2
@pytest.mark.parametrize("lengths", [(9,), (4, 3, 2), (1,) * 9, (8, 1)], ids=str)
@pytest.mark.parametrize("model_type", ["qwen2", "qwen3"])
def test_task_2_a_model_in_pieces(impl, tmp_path, model_type, lengths):
    """A model that gets a text in pieces gives the same logits as for the whole text, so positions, masks and layers
    fit together."""
    model = untrained(impl, tmp_path, model_type)
    tokens = Inputs(27).tokens(2, 9, vocab_size=259)
    expected = model(tokens)
    cache = impl.kv_cache.KVCache(len(model.layers), step=4)
    start = 0
    for L in lengths:
        got = model(tokens[:, start : start + L], cache)
        assert_close(got, array64(expected)[:, start : start + L], tolerance=1e-4)
        start += L
    assert cache.offset == 9


# ------------------------------------------------------------------------------------ task 3: prefill and decode

VOCAB = 23


class SummingModel:
    """A model that gives the highest logit to one more than the sum of all tokens so far, modulo VOCAB.

    It computes the sum from its cache: a query of zeros gets the mean of the values, which are the tokens.
    """

    def __init__(self, impl, context=64):
        self.config = SimpleNamespace(max_position_embeddings=context, vocab_size=VOCAB, num_hidden_layers=1)
        self.layers = [None]
        self.impl = impl
        self.inputs = []
        self.scored = []  # the shapes of the arguments of `logits`

    def __call__(self, tokens, cache=None):
        return self.logits(self.hidden(tokens, cache or self.impl.kv_cache.NoCache(1)))

    def hidden(self, tokens, cache):
        self.inputs.append(np.array(tokens).tolist())
        B, L = tokens.shape
        layer = cache.layers[0]
        value = tokens.astype(mx.float32).reshape(B, 1, L, 1)
        mean = layer.attend(mx.zeros_like(value), value, value)
        count = layer.offset + 1 + mx.arange(L)[:, None]
        cache.advance(L)
        return mx.round((mean * count)[:, 0])  # B, L, 1

    def logits(self, hidden):
        self.scored.append(hidden.shape)
        best = (np.array(hidden[..., 0]).astype(int) + 1) % VOCAB
        return mx.array(np.eye(VOCAB, dtype=np.float32)[best])  # B, L, V


def continuation(prompt, count):
    tokens = list(prompt)
    for _ in range(count):
        tokens.append((sum(tokens) + 1) % VOCAB)
    return tokens[len(prompt) :]


def greedy(logits, tokens):
    return mx.argmax(logits, axis=-1)


# checks for both `generate` (task 3) and `generate_ahead` (task 4)


def assert_tokens(impl, loop, prompt):
    """Fail unless the loop yields the model's tokens as Python ints."""
    got = list(loop(SummingModel(impl), list(prompt), greedy, max_tokens=9))
    assert got == continuation(prompt, 9)
    assert all(isinstance(token, int) for token in got), "tokens are Python ints, as a tokenizer expects them"


def assert_runs_once(impl, loop):
    """Fail unless the loop runs the model on each token once."""
    model = SummingModel(impl)
    new = list(loop(model, [3, 1, 4], greedy, max_tokens=4))
    assert new == continuation([3, 1, 4], 4)
    assert model.inputs == [[[3, 1, 4]], *([[token]] for token in new[:-1])]
    assert model.scored == [(1, 1, 1)] * 4


def assert_max_tokens(impl, loop, max_tokens):
    """Fail unless the loop yields `max_tokens` tokens and runs one step for each."""
    model = SummingModel(impl)
    assert list(loop(model, [5], greedy, max_tokens=max_tokens)) == continuation([5], max_tokens)
    assert len(model.inputs) == max_tokens, "one step of the model for each token"


def assert_only_new_ends_count(impl, loop):
    """Fail if token 0 or a token of the prompt ends the text."""
    assert list(loop(SummingModel(impl), [22], greedy, 3)) == [0, 0, 0]
    tokens = continuation([3, 1, 4], 5)
    assert list(loop(SummingModel(impl), [3, 1, 4], greedy, 5, {1} - set(tokens))) == tokens


def assert_fills_the_cache(impl, loop):
    """Fail unless the loop fills the cache that it is given, and otherwise a new one."""
    cache = impl.kv_cache.KVCache(1, step=4)
    model = SummingModel(impl)
    assert list(loop(model, [3, 1, 4], greedy, 4, cache=cache)) == continuation([3, 1, 4], 4)
    assert cache.offset == 6
    stored = [3, 1, 4, *continuation([3, 1, 4], 3)]
    assert_close(cache.layers[0].values[:, :, :6], np.reshape(stored, (1, 1, 6, 1)), tolerance=0)
    for _ in range(2):
        assert list(loop(model, [3, 1, 4], greedy, 4)) == continuation([3, 1, 4], 4)
    assert cache.offset == 6


def assert_leaves_the_prompt_alone(impl, loop):
    """Fail unless the loop accepts a tuple and changes no prompt."""
    prompt = [3, 1, 4]
    list(loop(SummingModel(impl), prompt, greedy, 4))
    assert prompt == [3, 1, 4]
    got = list(loop(SummingModel(impl), tuple(prompt), greedy, 4))
    assert got == continuation(prompt, 4), "a tuple is a sequence too"


def assert_refuses(impl, loop, prompt, max_tokens):
    """Fail unless the loop raises a ValueError when its first token is requested."""

    def first_token(prompt, max_tokens):
        return next(loop(SummingModel(impl, context=8), list(prompt), greedy, max_tokens), None)

    first_token([3, 1], 4)  # a stub ends here
    with pytest.raises((ValueError, AssertionError)):
        first_token(prompt, max_tokens)


def assert_same_tokens(impl, loop, model, settings, length, count):
    """Fail unless the loop yields the tokens of `generate_simple`."""
    prompt = np.array(Inputs(33).tokens(length, vocab_size=256)).tolist()
    loops = (loop, impl.generate.generate_simple)
    got, expected = (list(loop(model, prompt, impl.sampler.make_sampler(**settings), count)) for loop in loops)
    assert got == expected
    assert len(got) == count


def assert_same_tokens_of_story(impl, loop):
    """Fail unless the loop yields the tokens of `generate_simple` with the bundled model."""
    path = bundled("story")
    model = impl.models.load_model(path, mx.float32)
    prompt = Tokenizer.from_file(str(path / "tokenizer.json")).encode("Mia had a red key. One day").ids
    got, expected = (
        list(loop(model, prompt, impl.sampler.greedy, 10)) for loop in (loop, impl.generate.generate_simple)
    )
    assert got == expected


WRONG_ARGUMENTS = {
    "context full": ([1] * 8, 4),
    "longer than the context": ([1] * 9, 4),
    "id too large": ([3, VOCAB], 4),
    "negative id": ([3, -1], 4),
    "negative max_tokens": ([3, 1], -1),
    "empty": ([], 4),
}
SETTINGS = {  # the sampler's settings, and the lengths of prompt and output
    "greedy, beyond 256 positions": ({"temperature": 0}, 253, 6),
    "drawn": ({"temperature": 1.0, "repetition_penalty": 1.3, "seed": 4}, 20, 12),
}


class Counting:
    """A cache that only counts. It has no name, no `trim` and no arrays."""

    def __init__(self):
        self.layers = [self]
        self.offset = self.total = 0

    def attend(self, query, key, value, scale=None):
        sums = self.total + mx.cumsum(value, axis=2)
        self.total = sums[:, :, -1:]
        return sums / (self.offset + 1 + mx.arange(value.shape[2])[:, None])

    def advance(self, length):
        self.offset += length


@task_3
@pytest.mark.parametrize("prompt", [[7], [3, 1, 4], [0, 0, 0, 0, 22]], ids=str)
def test_task_3_tokens(impl, prompt):
    assert_tokens(impl, impl.generate.generate, prompt)


@task_3
@pytest.mark.parametrize("model_type", ["qwen2", "qwen3"])
@pytest.mark.parametrize(("B", "L"), [(1, 5), (3, 4), (2, 1)])
def test_task_3_next_logits(impl, tmp_path, model_type, B, L):
    """The result is the last row of the whole text's logits, for each sequence of the batch, and the tokens are
    stored."""
    model = untrained(impl, tmp_path, model_type)
    tokens = Inputs(31).tokens(B, L + 6, vocab_size=259)
    cache = impl.kv_cache.KVCache(len(model.layers), step=4)
    for start, end in ((0, L), (L, L + 1), (L + 1, L + 6)):
        got = impl.generate.next_logits(model, tokens[:, start:end], cache)
        assert_close(got, array64(model(tokens[:, :end]))[:, -1], tolerance=1e-4)
        assert cache.offset == end, f"{end} tokens are stored, and the cache counts {cache.offset}"


@task_3
@pytest.mark.parametrize(("B", "L"), [(1, 5), (3, 4), (2, 1)])
def test_task_3_scores_the_last_position_only(impl, B, L):
    """`model.logits` gets only the last position, B x 1 x E, because the logits of the other positions would not be
    used."""
    model = SummingModel(impl)
    tokens = Inputs(32).tokens(B, L, vocab_size=VOCAB)
    got = impl.generate.next_logits(model, tokens, impl.kv_cache.KVCache(1))
    assert model.scored == [(B, 1, 1)]
    assert_close(got, np.eye(VOCAB)[(np.array(tokens).sum(axis=1) + 1) % VOCAB])


@task_3
def test_task_3_runs_the_model_on_each_token_once(impl):
    """Prefill runs the model on the whole prompt (1 x L), and each decode step on one new token (1 x 1). The last token
    is never an input."""
    assert_runs_once(impl, impl.generate.generate)


@task_3
def test_task_3_yields_each_token_before_the_next_step(impl):
    model = SummingModel(impl)
    tokens = impl.generate.generate(model, [3, 1, 4], greedy, max_tokens=4)
    next(tokens)
    assert len(model.inputs) == 1, "the first token is to be yielded before the model's second step"


@task_3
@pytest.mark.parametrize("max_tokens", [0, 1, 5])
def test_task_3_max_tokens(impl, max_tokens):
    assert_max_tokens(impl, impl.generate.generate, max_tokens)


@task_3
@pytest.mark.parametrize("position", [0, 2, 7])
def test_task_3_end_of_sequence(impl, position):
    """Each of the end-of-sequence tokens ends the text. It is not part of the text, and the model is not run on it."""
    tokens = continuation([3, 1], 8)
    eos = tokens[position]
    others = sorted(set(range(VOCAB)) - set(tokens))
    for eos_token_ids in ((*others, eos), [eos, *others], {eos}):
        model = SummingModel(impl)
        got = list(impl.generate.generate(model, [3, 1], greedy, 20, eos_token_ids))
        assert got == tokens[: tokens.index(eos)]
        assert len(model.inputs) == len(got) + 1, "there is no step after the end of the text"


@task_3
def test_task_3_zero_and_the_prompt_end_nothing(impl):
    """Token 0 is a token like any other. An end token in the prompt, such as the end of a turn, does not end the new
    text."""
    assert_only_new_ends_count(impl, impl.generate.generate)


@task_3
def test_task_3_stops_at_the_end_of_the_context(impl):
    tokens = continuation([3, 1, 4], 5)
    assert list(impl.generate.generate(SummingModel(impl, context=8), [3, 1, 4], greedy, 100)) == tokens


@task_3
def test_task_3_what_the_sampler_gets(impl):
    """The sampler gets the logits after the last token (1 x V) and all tokens so far (1 x L), although the model runs
    only on the newest."""
    seen = []

    def sampler(logits, tokens):
        seen.append((np.array(logits).tolist(), np.array(tokens).tolist()))
        return mx.array([2])

    assert list(impl.generate.generate(SummingModel(impl), [3, 1], sampler, 3)) == [2, 2, 2]
    scores = np.eye(VOCAB)
    assert seen == [
        ([scores[5].tolist()], [[3, 1]]),
        ([scores[7].tolist()], [[3, 1, 2]]),
        ([scores[9].tolist()], [[3, 1, 2, 2]]),
    ]


@task_3
def test_task_3_fills_the_cache_that_is_given(impl):
    """A given cache holds the prompt and all new tokens but the last one. Without a given cache, each text has a new
    one."""
    assert_fills_the_cache(impl, impl.generate.generate)


@task_3
def test_task_3_any_cache_will_do(impl):
    """`generate` uses only `layers`, `offset` and `advance` of a cache, so a cache that just counts works, too."""
    cache = Counting()
    got = list(impl.generate.generate(SummingModel(impl), [3, 1, 4], greedy, 5, cache=cache))
    assert got == continuation([3, 1, 4], 5)
    assert cache.offset == 7


@task_3
def test_task_3_a_cache_that_is_false_while_empty(impl):
    """A cache may have a length, so an empty one may be false. Only None asks for a new cache."""

    class Sized:  # a class without a base, because in grading the course's classes are in another process
        def __init__(self, cache):
            self.cache = cache

        def __getattr__(self, name):
            return getattr(self.cache, name)

        def __len__(self):
            return self.cache.offset

    cache = Sized(impl.kv_cache.KVCache(1, step=4))
    got = list(impl.generate.generate(SummingModel(impl), [3, 1, 4], greedy, 4, cache=cache))
    assert got == continuation([3, 1, 4], 4)
    assert cache.offset == 6, f"the cache that was given holds {cache.offset} tokens instead of 6"


@task_3
def test_task_3_leaves_the_prompt_alone(impl):
    assert_leaves_the_prompt_alone(impl, impl.generate.generate)


@task_3
@pytest.mark.parametrize(("prompt", "max_tokens"), WRONG_ARGUMENTS.values(), ids=WRONG_ARGUMENTS)
def test_task_3_wrong_arguments(impl, prompt, max_tokens):
    """Wrong arguments raise a ValueError when the first token is requested. Keep the stub's call to `_check_prompt`."""
    assert_refuses(impl, impl.generate.generate, prompt, max_tokens)


@task_3
@pytest.mark.parametrize("model_type", ["qwen2", "qwen3"])
@pytest.mark.parametrize(("settings", "length", "count"), SETTINGS.values(), ids=SETTINGS)
def test_task_3_token_for_token(impl, tmp_path, model_type, settings, length, count):
    """The tokens are the same as without a cache."""
    assert_same_tokens(impl, impl.generate.generate, untrained(impl, tmp_path, model_type), settings, length, count)


@task_3
def test_task_3_token_for_token_of_story(impl):
    """The bundled model gives the same tokens, as in `./course main`."""
    assert_same_tokens_of_story(impl, impl.generate.generate)


# -------------------------------------------------------------------------------------- task 4: asynchronous decoding


@task_4
@pytest.mark.parametrize("prompt", [[7], [3, 1, 4], [0, 0, 0, 0, 22]], ids=str)
def test_task_4_tokens(impl, prompt):
    assert_tokens(impl, impl.generate.generate_ahead, prompt)


@task_4
def test_task_4_one_step_ahead(impl):
    """When token t arrives, the model has run t + 1 steps, but never more steps than there are tokens."""
    model = SummingModel(impl)
    tokens = impl.generate.generate_ahead(model, [3, 1, 4], greedy, max_tokens=4)
    for number, steps in enumerate((2, 3, 4, 4), 1):
        next(tokens)
        called = len(model.inputs)
        assert called == steps, f"calls of the model when token {number} of 4 comes: expected {steps}, got {called}"
    assert next(tokens, None) is None
    assert len(model.inputs) == 4, "the model is not called for a token that nobody gets"


@task_4
def test_task_4_waits_for_nothing_too_early(impl):
    """Each step of this model stalls until the next one begins, so waiting for a step too early would block. Token t
    needs only step t."""
    tokens, calls, in_vain = play(impl, scenes.steps_ahead, 3)
    assert in_vain != [1], (
        "step 1 was waited for before step 2 was submitted: `mx.async_eval` submits a step and returns, "
        "and its token is read after the next step was submitted"
    )
    assert not in_vain, (
        "token 1 came only after step 2 was computed: submit step 1, and read the array that was submitted, as it is"
    )
    assert tokens == [4, 5, 6]
    assert calls == [2, 3, 3], f"calls of the model when each token came: expected [2, 3, 3], got {calls}"


@task_4
def test_task_4_the_last_step_is_submitted_too(impl):
    """MLX computes each step, the last one too, before the loop reads its token."""
    computed = play(impl, scenes.steps_submitted, 3)
    assert computed == [2, 3, 3], f"steps that MLX computed by token 1, 2 and 3: expected [2, 3, 3], got {computed}"


@task_4
def test_task_4_nothing_happens_before_the_first_token_is_asked_for(impl):
    model = SummingModel(impl)
    cache = impl.kv_cache.KVCache(1)
    tokens = impl.generate.generate_ahead(model, [3, 1, 4], greedy, 4, cache=cache)
    called = len(model.inputs)
    assert called == 0, f"the model was called {called} times before a token was asked for"
    assert next(tokens) == continuation([3, 1, 4], 1)[0]


@task_4
def test_task_4_runs_the_model_on_each_token_once(impl):
    """Prefill runs the model on the whole prompt (1 x L), and each decode step on one new token (1 x 1). The last token
    is never an input."""
    assert_runs_once(impl, impl.generate.generate_ahead)


@task_4
@pytest.mark.parametrize("max_tokens", [0, 1, 2, 5])
def test_task_4_max_tokens(impl, max_tokens):
    assert_max_tokens(impl, impl.generate.generate_ahead, max_tokens)


@task_4
@pytest.mark.parametrize("position", [0, 2, 7])
def test_task_4_end_of_sequence(impl, position):
    """An end token ends the text and is not part of it. When the loop reads it, exactly one further step has been
    submitted in vain."""
    tokens = continuation([3, 1], 8)
    eos = tokens[position]
    others = sorted(set(range(VOCAB)) - set(tokens))
    for eos_token_ids in ((*others, eos), [eos, *others], {eos}):
        model = SummingModel(impl)
        got = list(impl.generate.generate_ahead(model, [3, 1], greedy, 20, eos_token_ids))
        assert got == tokens[: tokens.index(eos)]
        assert len(model.inputs) == len(got) + 2, "one step for each token, one for the end, and the one after it"


@task_4
@pytest.mark.parametrize("count", [1, 4])
def test_task_4_the_last_token_ends_the_text(impl, count):
    """If the last allowed token is an end token, no step is submitted in vain."""
    tokens = continuation([3, 1], count)
    model = SummingModel(impl)
    assert list(impl.generate.generate_ahead(model, [3, 1], greedy, count, tokens[-1:])) == tokens[:-1]
    assert len(model.inputs) == count


@task_4
def test_task_4_zero_and_the_prompt_end_nothing(impl):
    """Token 0 is a token like any other. An end token in the prompt, such as the end of a turn, does not end the new
    text."""
    assert_only_new_ends_count(impl, impl.generate.generate_ahead)


@task_4
def test_task_4_stops_at_the_end_of_the_context(impl):
    """No step is submitted beyond the end of the model's context."""
    model = SummingModel(impl, context=8)
    assert list(impl.generate.generate_ahead(model, [3, 1, 4], greedy, 100)) == continuation([3, 1, 4], 5)
    assert len(model.inputs) == 5


@task_4
def test_task_4_what_the_sampler_gets(impl):
    """The sampler gets the same arguments as from `generate`: arrays with the logits (1 x V) and all tokens so far (1 x
    L)."""
    seen, kinds = [], set()

    def sampler(logits, tokens):
        kinds.update({type(logits).__name__, type(tokens).__name__})
        seen.append((np.array(logits).tolist(), np.array(tokens).tolist()))
        return mx.array([2])

    assert list(impl.generate.generate_ahead(SummingModel(impl), [3, 1], sampler, 3)) == [2, 2, 2]
    assert kinds == {"array"}
    logits = np.eye(VOCAB)
    assert seen == [
        ([logits[5].tolist()], [[3, 1]]),
        ([logits[7].tolist()], [[3, 1, 2]]),
        ([logits[9].tolist()], [[3, 1, 2, 2]]),
    ]


@task_4
def test_task_4_fills_the_cache_that_is_given(impl):
    """A given cache holds the prompt and all new tokens but the last one. Without a given cache, each text has a new
    one."""
    assert_fills_the_cache(impl, impl.generate.generate_ahead)


@task_4
def test_task_4_what_the_cache_holds_after_an_end(impl):
    """After an end token, the cache holds the prompt, the text and the end token, because the step on it was already
    submitted."""
    cache = impl.kv_cache.KVCache(1, step=4)
    tokens = continuation([3, 1, 4], 3)
    assert list(impl.generate.generate_ahead(SummingModel(impl), [3, 1, 4], greedy, 9, tokens[2:], cache)) == tokens[:2]
    assert cache.offset == 6
    assert_close(cache.layers[0].values[:, :, :6], np.reshape([3, 1, 4, *tokens], (1, 1, 6, 1)), tolerance=0)


@task_4
def test_task_4_any_cache_will_do(impl):
    """A cache that only counts works, even if it is false while it is empty. Only None asks for a new cache."""

    class CountingAndSized(Counting):
        def __len__(self):
            return self.offset

    cache = CountingAndSized()
    got = list(impl.generate.generate_ahead(SummingModel(impl), [3, 1, 4], greedy, 5, cache=cache))
    assert got == continuation([3, 1, 4], 5)
    assert cache.offset == 7, f"the cache that was given holds {cache.offset} tokens instead of 7"


@task_4
def test_task_4_leaves_the_prompt_alone(impl):
    assert_leaves_the_prompt_alone(impl, impl.generate.generate_ahead)


@task_4
@pytest.mark.parametrize(("prompt", "max_tokens"), WRONG_ARGUMENTS.values(), ids=WRONG_ARGUMENTS)
def test_task_4_wrong_arguments(impl, prompt, max_tokens):
    """Wrong arguments raise a ValueError when the first token is requested. Keep the stub's call to `_check_prompt`."""
    assert_refuses(impl, impl.generate.generate_ahead, prompt, max_tokens)


@task_4
@pytest.mark.parametrize("model_type", ["qwen2", "qwen3"])
@pytest.mark.parametrize(("settings", "length", "count"), SETTINGS.values(), ids=SETTINGS)
def test_task_4_token_for_token(impl, tmp_path, model_type, settings, length, count):
    """The tokens are the same as without a cache: the sampler's penalties see every token, and its draws come in the
    same order."""
    assert_same_tokens(
        impl, impl.generate.generate_ahead, untrained(impl, tmp_path, model_type), settings, length, count
    )


@task_4
def test_task_4_token_for_token_of_story(impl):
    """The bundled model gives the same tokens, as in `./course main`."""
    assert_same_tokens_of_story(impl, impl.generate.generate_ahead)
