"""Week 3 Day 1: continuous batching."""

from types import SimpleNamespace
from typing import NamedTuple

import mlx.core as mx
import numpy as np
import oracles
import pytest
from helpers import Inputs, array64, assert_close, assert_unchanged, over_dtypes

from tiny_llm_models.untrained import untrained_config, write_untrained

task_1 = pytest.mark.task("w3d1.1")
task_2 = pytest.mark.task("w3d1.2")
task_3 = pytest.mark.task("w3d1.3")
task_4 = pytest.mark.task("w3d1.4")

END = 258  # not a byte; it ends a text of the untrained models, like 256


class Bytes:
    """A tokenizer whose tokens 0 to 255 are bytes. Other tokens are special and have no text."""

    def decode(self, tokens, skip_special_tokens):
        return bytes(token for token in tokens if token < 256).decode(errors="replace")


def new_request(impl, id="a", prompt=(3, 1, 4), with_text=False, tokenizer=None, **params):
    serving = impl.serving.request
    text = serving.TextStream(tokenizer or Bytes(), params.get("stop", ())) if with_text or "stop" in params else None
    return serving.Request(id, prompt, serving.SamplingParams(**params), text)


# ------------------------------------------------------------------------------- task 1: when a request is finished


def feed(request, tokens, eos_token_ids=(), max_length=1000):
    """Add tokens until the request is finished, and return how many it took, including one that only ended it."""
    assert request.finish_reason is None
    for count, token in enumerate(tokens, start=1):
        request.add(token, eos_token_ids, max_length)
        status = request.status.value
        over = request.finish_reason is not None
        assert status == ("finished" if over else "waiting"), "`finish` sets status and reason together"
        if over:
            return count
    return len(tokens)


def ending(request):
    """Return output, finish_reason and text of a request."""
    text = request.text.text if request.text is not None else None
    return list(request.output), request.finish_reason, text


@task_1
def test_task_1_max_tokens(impl):
    request = new_request(impl, max_tokens=3)
    for token, reason in ((5, None), (6, None), (7, "length")):
        request.add(token, (), 1000)
        assert request.finish_reason == reason
    assert list(request.output) == [5, 6, 7]


@task_1
@pytest.mark.parametrize("count", [1, 2, 6])
def test_task_1_exactly_max_tokens(impl, count):
    """`max_tokens` limits the output. The length of the prompt does not count."""
    for prompt in ([7], [7] * 20):
        request = new_request(impl, prompt=prompt, max_tokens=count)
        assert feed(request, range(100, 120)) == count
        assert ending(request) == (list(range(100, 100 + count)), "length", None)


@task_1
@pytest.mark.parametrize("eos_token_ids", [(END,), [256, END], {END, 9}], ids=["tuple", "list", "set"])
def test_task_1_an_end_of_the_model(impl, eos_token_ids):
    """The end-of-sequence token ends the request with "stop", and is in neither output nor text."""
    request = new_request(impl, with_text=True)
    assert feed(request, [*b"ab", END, *b"c"], eos_token_ids) == 3
    assert ending(request) == ([*b"ab"], "stop", "ab")


@task_1
def test_task_1_an_end_that_has_a_text(impl):
    """Here the end token has a text, so a test sees whether the text contains it."""
    request = new_request(impl, with_text=True)
    assert feed(request, b"abc", eos_token_ids=[*b"c"]) == 3
    assert ending(request) == ([*b"ab"], "stop", "ab")


@task_1
def test_task_1_an_end_at_once(impl):
    """An end token as the first token gives an empty answer. Token 0 can be an end token like any other."""
    request = new_request(impl, with_text=True)
    feed(request, [0, 1], eos_token_ids=(0,))
    assert ending(request) == ([], "stop", "")


@task_1
@pytest.mark.parametrize("ignore_eos", [False, True])
def test_task_1_its_own_ends(impl, ignore_eos):
    """Tokens of `stop_token_ids` end a request as the model's end tokens do, and are not in the output. `ignore_eos`
    does not affect them."""
    request = new_request(impl, with_text=True, stop_token_ids=[*b"xy"], ignore_eos=ignore_eos)
    assert feed(request, b"abyc", eos_token_ids=(END,)) == 3
    assert ending(request) == ([*b"ab"], "stop", "ab")


@task_1
def test_task_1_an_end_of_the_model_that_it_names_itself(impl):
    """`ignore_eos` ignores the model's end tokens, except for those that are also in the request's `stop_token_ids`."""
    request = new_request(impl, with_text=True, stop_token_ids=[END], ignore_eos=True)
    assert feed(request, [*b"a", 256, *b"b", END, *b"c"], eos_token_ids=(256, END)) == 4
    assert ending(request) == ([*b"a", 256, *b"b"], "stop", "ab")


@task_1
def test_task_1_ignore_eos(impl):
    """With `ignore_eos`, the model's end tokens are ordinary tokens of output and text."""
    request = new_request(impl, with_text=True, max_tokens=4, ignore_eos=True)
    assert feed(request, [*b"ab", END, *b"cd"], eos_token_ids=(END, *b"a")) == 4
    assert ending(request) == ([*b"ab", END, *b"c"], "length", "abc")


@task_1
def test_task_1_ends_in_the_prompt(impl):
    """End tokens and stop strings in the prompt end nothing. Only new tokens count."""
    request = new_request(impl, prompt=[END, *b"stop", 9], stop=["stop"], stop_token_ids=[9], max_tokens=2)
    feed(request, b"to", eos_token_ids=(END,))
    assert ending(request) == ([*b"to"], "length", "to")


@task_1
def test_task_1_a_stop_string(impl):
    """The text ends before the stop string. The output keeps the token that completed it, because the model generated
    it."""
    request = new_request(impl, stop=["never", "lo w"])
    assert feed(request, b"hello world", eos_token_ids=(END,)) == 7
    assert ending(request) == ([*b"hello w"], "stop", "hel")


@task_1
def test_task_1_a_stop_string_in_the_middle_of_a_token(impl):
    class Words:
        def decode(self, tokens, skip_special_tokens):
            return "".join(["one ", "two, ", "three"][token] for token in tokens)

    request = new_request(impl, tokenizer=Words(), stop=[","])
    assert feed(request, [0, 1, 2]) == 2
    assert ending(request) == ([0, 1], "stop", "one two")


@task_1
@pytest.mark.parametrize(("prompt_length", "count"), [(3, 7), (9, 1), (8, 2)])
def test_task_1_max_length(impl, prompt_length, count):
    """`max_length` limits prompt and output together, because the cache has no more room."""
    request = new_request(impl, prompt=[7] * prompt_length, max_tokens=100)
    assert feed(request, range(100, 120), max_length=10) == count
    assert ending(request) == (list(range(100, 100 + count)), "length", None)


@task_1
def test_task_1_stop_counts_before_length(impl):
    """If the last allowed token completes a stop string, or is an end token, the reason is "stop"."""
    for settings, max_length in (({"max_tokens": 4}, 1000), ({"max_tokens": 100}, 7)):
        completes = new_request(impl, stop=["cd"], **settings)
        assert feed(completes, b"abcd", max_length=max_length) == 4
        assert ending(completes) == ([*b"abcd"], "stop", "ab")
        ends = new_request(impl, with_text=True, **settings)
        assert feed(ends, [*b"abc", END], (END,), max_length) == 4
        assert ending(ends) == ([*b"abc"], "stop", "abc")


@task_1
@pytest.mark.parametrize(
    ("tokens", "reason", "count"), [(b"see st", "length", 6), ([*b"see st", END], "stop", 7)], ids=["length", "stop"]
)
def test_task_1_text_that_was_held_back(impl, tokens, reason, count):
    """Text that might have become a stop string appears at the end, whatever the reason: `finish` adds it."""
    request = new_request(impl, stop=["stop"], max_tokens=6 if reason == "length" else 100)
    assert feed(request, tokens, eos_token_ids=(END,)) == count
    assert ending(request) == ([*b"see st"], reason, "see st")


@task_1
@pytest.mark.parametrize(("count", "text"), [(1, "n"), (2, "n"), (3, "né")])
def test_task_1_half_a_character(impl, count, text):
    """Each byte of a character is a token. Without its last byte, the character is not text, even at the end."""
    request = new_request(impl, with_text=True, max_tokens=count)
    feed(request, "né".encode())
    assert ending(request) == ([*"né".encode()][:count], "length", text)


@task_1
def test_task_1_requests_have_nothing_in_common(impl):
    """Each request ends by its own settings, whatever the others do."""
    requests = [new_request(impl, id=str(i), max_tokens=i + 1, stop_token_ids=[60 + i]) for i in range(4)]
    for token in (70, 62, 71, 72):
        for request in requests:
            if request.finish_reason is None:
                request.add(token, (), 1000)
    expected = [([70], "length"), ([70, 62], "length"), ([70], "stop"), ([70, 62, 71, 72], "length")]
    assert [(list(request.output), request.finish_reason) for request in requests] == expected


# --------------------------------------------------------------------------- task 2: a slot for each request

H_Q, H_KV, HEAD_DIM = 6, 2, 4


def rows(inputs, heads, T):
    """Return random rows, T x heads x 1 x D."""
    return inputs.normal(T, heads, 1, HEAD_DIM)


def stored_of(inputs, *lengths):
    """Return keys and values of requests with these numbers of positions, each 1 x H_kv x length x D."""
    return [tuple(inputs.normal(1, H_KV, length, HEAD_DIM) for _ in range(2)) for length in lengths]


def spans_of(impl, counts, lengths):
    """Return a span for the last `count` of each request's `length` positions, with all rows in order."""
    ends = np.cumsum(counts).tolist()
    span = impl.serving.batched_cache.Span
    return [span(end - count, end, length) for end, count, length in zip(ends, counts, lengths, strict=True)]


def attended_each(query, stored, counts, scale=None):
    """Compute attention one row at a time, each with the keys and values that it may see: T x H_q x 1 x D."""
    query, found, t = array64(query), [], 0
    for count, (keys, values) in zip(counts, stored, strict=True):
        keys, values = array64(keys), array64(values)
        for end in range(keys.shape[2] - count + 1, keys.shape[2] + 1):
            found.append(oracles.grouped_attention(query[t], keys[0, :, :end], values[0, :, :end], scale))
            t += 1
    return np.stack(found)


@task_2
def test_task_2_two_requests_that_decode(impl):
    """Two requests decode, with one row each."""
    inputs = Inputs(1)
    query, stored = rows(inputs, H_Q, 2), stored_of(inputs, 5, 3)
    got = impl.serving.batched_cache.attend_each(
        impl.attention.scaled_dot_product_attention_grouped, query, stored, spans_of(impl, [1, 1], [5, 3]), None
    )
    assert_close(got, attended_each(query, stored, [1, 1]))


@task_2
@over_dtypes
@pytest.mark.parametrize(
    ("counts", "lengths"),
    [((5,), (5,)), ((2, 1), (2, 9)), ((1, 3, 4, 1), (6, 3, 7, 1)), ((3, 3), (5, 3)), ((1, 6), (1, 12))],
    ids=str,
)
def test_task_2_rows_of_several_requests(impl, counts, lengths, dtype):
    """The rows belong to prompts, parts of prompts and single tokens. Each row sees its own request, up to its own
    position."""
    inputs = Inputs(2, dtype)
    query, stored = rows(inputs, H_Q, sum(counts)), stored_of(inputs, *lengths)
    attention = impl.attention.scaled_dot_product_attention_grouped
    got = impl.serving.batched_cache.attend_each(attention, query, stored, spans_of(impl, counts, lengths), None)
    assert_close(got, attended_each(query, stored, counts), dtype=dtype)


@task_2
@pytest.mark.parametrize("scale", [1.0, 0.3, -0.7, 0.0])
def test_task_2_scale(impl, scale):
    inputs = Inputs(3)
    query, stored = rows(inputs, H_Q, 4), stored_of(inputs, 4, 6)
    attention = impl.attention.scaled_dot_product_attention_grouped
    got = impl.serving.batched_cache.attend_each(attention, query, stored, spans_of(impl, [1, 3], [4, 6]), scale)
    assert_close(got, attended_each(query, stored, [1, 3], scale))


@task_2
def test_task_2_the_attention_that_was_handed_in(impl):
    """The attention function is called once per request, with all of its rows, so that a kernel reads the keys only
    once."""
    seen, queries = [], []

    def attention(query, keys, values, scale, mask):
        seen.append((query.shape, keys.shape, values.shape, scale, mask))
        queries.append(query)
        return query * 7

    inputs = Inputs(4)
    query, stored = rows(inputs, H_Q, 5), stored_of(inputs, 9, 4, 2)
    spans = spans_of(impl, [1, 3, 1], [9, 4, 2])
    got = impl.serving.batched_cache.attend_each(attention, query, stored, spans, 0.3)
    assert_close(got, array64(query) * 7)
    shapes = [((1, H_Q, L, HEAD_DIM), *[(1, H_KV, S, HEAD_DIM)] * 2) for L, S in ((1, 9), (3, 4), (1, 2))]
    assert seen == [(*shape, 0.3, "causal") for shape in shapes]
    numbers = array64(query)[:, :, 0]  # T x H_q x D
    for got_query, (first, last) in zip(queries, ((0, 1), (1, 4), (4, 5)), strict=True):
        assert_close(got_query, numbers[first:last].transpose(1, 0, 2)[None], tolerance=0)


class Slots:
    """A layer, with the keys and values that each of its slots should hold, in float64."""

    def __init__(self, impl, inputs, num_slots=3, capacity=8):
        self.layer = impl.serving.batched_cache.BatchedKVCacheLayer(num_slots, capacity)
        self.inputs, self.sizes = inputs, (num_slots, capacity)
        self.expected = {}  # (slot, position) -> key and value, each H_kv x D

    def new(self, places):
        """Return a key and a value for each of these slots and positions."""
        return [rows(self.inputs, H_KV, len(places)) for _ in range(2)]

    def note(self, places, key, value):
        for t, place in enumerate(places):
            self.expected[place] = array64(key)[t, :, 0], array64(value)[t, :, 0]

    def store(self, *places):
        key, value = self.new(places)
        slots, positions = np.array(places).T
        self.layer.store(key, value, mx.array(slots), mx.array(positions))
        self.note(places, key, value)

    def check(self):
        """Check the arrays: their shape, their dtype, and the contents of every place that was written."""
        num_slots, capacity = self.sizes
        for which, array in enumerate((self.layer.keys, self.layer.values)):
            assert array.shape == (num_slots, H_KV, capacity, HEAD_DIM), f"keys, values: {array.shape}"
            got = mx.stack([array[slot, :, position] for slot, position in self.expected])
            assert_close(
                got, np.stack([pair[which] for pair in self.expected.values()]), dtype=self.inputs.dtype, tolerance=0
            )

    def of(self, slot, length):
        """Return the keys and values of the request in this slot, each 1 x H_kv x length x D."""
        pairs = [self.expected[slot, position] for position in range(length)]
        return tuple(np.stack(numbers, axis=1)[None] for numbers in zip(*pairs, strict=True))


@task_2
@over_dtypes
def test_task_2_store(impl, dtype):
    """A prompt is stored in one slot, then a token of it along with another prompt. Rows may come in any order."""
    slots = Slots(impl, Inputs(5, dtype))
    slots.store((1, 0), (1, 1), (1, 2))
    slots.check()
    slots.store((1, 3), (0, 0), (0, 1))
    slots.check()
    slots.store((2, 0), (0, 2), (1, 4))
    slots.check()


@task_2
def test_task_2_store_writes_over_what_was_there(impl):
    """A slot is not cleared for its next request, which overwrites it."""
    slots = Slots(impl, Inputs(6))
    slots.store((0, 0), (0, 1), (0, 2), (2, 0), (2, 1))
    slots.store((0, 0), (0, 1))
    slots.check()
    slots.store((2, 1), (0, 0))
    slots.check()


@task_2
def test_task_2_store_at_the_ends(impl):
    """The key goes to the last position of the last slot."""
    slots = Slots(impl, Inputs(7), num_slots=4, capacity=5)
    slots.store(*((3, position) for position in range(5)), (0, 0))
    slots.store((0, 4), (3, 0))
    slots.check()


@task_2
def test_task_2_leaves_its_inputs_alone(impl):
    inputs = Inputs(8)
    layer = impl.serving.batched_cache.BatchedKVCacheLayer(2, 4)
    arrays = [rows(inputs, H_KV, 3) for _ in range(2)]
    before = [array64(array) for array in arrays]
    layer.store(*arrays, mx.array([0, 0, 1]), mx.array([0, 1, 0]))
    layer.store(*(rows(inputs, H_KV, 2) for _ in range(2)), mx.array([0, 1]), mx.array([0, 0]))
    mx.eval(layer.keys, layer.values)
    assert_unchanged(before, *arrays)


def attend(impl, slots, chunks, scale=None):
    """Run one step of a layer, and compare it with the oracle. chunks: slot, first position and number of rows of each
    request."""
    places = [(slot, position) for slot, start, count in chunks for position in range(start, start + count)]
    key, value = slots.new(places)
    query = rows(slots.inputs, H_Q, len(places))
    counts, lengths = ([numbers[2] for numbers in chunks], [start + count for _, start, count in chunks])
    of_rows, positions = np.array(places).T
    where = impl.serving.batched_cache.SlotRows(
        mx.array(of_rows), mx.array(positions), spans_of(impl, counts, lengths), [slot for slot, _, _ in chunks]
    )
    got = slots.layer.attend(query, key, value, scale, where)
    slots.note(places, key, value)
    stored = [
        tuple(map(mx.array, slots.of(slot, length))) for (slot, _, _), length in zip(chunks, lengths, strict=True)
    ]
    assert_close(got, attended_each(query, stored, counts, scale), dtype=slots.inputs.dtype)


@task_2
@over_dtypes
def test_task_2_attend(impl, dtype):
    """Requests arrive one after the other, use slots in another order, and continue side by side."""
    slots = Slots(impl, Inputs(9, dtype))
    attend(impl, slots, [(2, 0, 3)])
    attend(impl, slots, [(2, 3, 1), (0, 0, 4)])
    attend(impl, slots, [(2, 4, 1), (0, 4, 1), (1, 0, 2)])
    attend(impl, slots, [(2, 5, 1), (0, 5, 1), (1, 2, 1)])
    slots.check()


@task_2
def test_task_2_attend_scale(impl):
    slots = Slots(impl, Inputs(10))
    for scale, chunk in ((1.0, (0, 0, 4)), (-0.6, (0, 4, 1)), (0.0, (0, 5, 2))):
        attend(impl, slots, [chunk], scale)


@task_2
def test_task_2_a_layer_keeps_its_attention(impl):
    """Each layer of a cache attends with the function that the cache was made with."""
    cache = impl.serving.batched_cache.BatchedKVCache(2, 3, 8, attention=lambda query, *others: query * 7)
    inputs = Inputs(15)
    query, key, value = rows(inputs, H_Q, 3), rows(inputs, H_KV, 3), rows(inputs, H_KV, 3)
    where = impl.serving.batched_cache.SlotRows(
        mx.array([2, 2, 0]), mx.array([0, 1, 0]), spans_of(impl, [2, 1], [2, 1]), [2, 0]
    )
    for layer in cache.layers:
        assert_close(layer.attend(query, key, value, None, where), array64(query) * 7)


@task_2
def test_task_2_a_slot_that_somebody_else_had(impl):
    """A new request does not see what a longer one left in its slot, after its own positions."""
    slots = Slots(impl, Inputs(11))
    attend(impl, slots, [(0, 0, 8), (1, 0, 5)])
    attend(impl, slots, [(0, 0, 2), (1, 5, 1)])
    attend(impl, slots, [(0, 2, 1), (1, 6, 1)])


@task_2
def test_task_2_a_prompt_in_parts(impl):
    """A part of a prompt is in a step with tokens of others, as tomorrow, and some rows are computed again."""
    slots = Slots(impl, Inputs(12))
    attend(impl, slots, [(1, 0, 3), (0, 0, 2)])
    attend(impl, slots, [(0, 2, 1), (1, 3, 4)])
    attend(impl, slots, [(1, 5, 3), (0, 3, 2)])


@task_2
def test_task_2_any_steps(impl):
    """In random steps, requests arrive, continue by one or more positions, and leave their slots to others."""
    random = np.random.RandomState(13)
    slots = Slots(impl, Inputs(13), num_slots=4, capacity=12)
    lengths = {}
    for _ in range(25):
        chunks = []
        for slot in random.permutation(4).tolist():
            start = lengths.get(slot, 0)
            count = min(int(random.choice([0, 1, 1, 3])), 12 - start)
            if count:
                chunks.append((slot, start, count))
                lengths[slot] = start + count
            elif random.rand() < 0.7:
                lengths.pop(slot, None)
        if chunks:
            attend(impl, slots, chunks)


def untrained(impl, folder, model_type="qwen3"):
    config = untrained_config(model_type)
    shapes = impl.given.weights.expected_shapes(impl.given.config.ModelConfig.from_hf(config))
    write_untrained(folder, config, shapes, seed=3)
    return impl.models.load_model(folder)


@task_2
@pytest.mark.parametrize("model_type", ["qwen2", "qwen3"])
def test_task_2_a_model(impl, tmp_path, model_type):
    """Rows of three requests give the same logits as each request's text alone, so positions and slots are right."""
    model = untrained(impl, tmp_path, model_type)
    texts = {id: np.array(Inputs(i).tokens(14, vocab_size=256)).tolist() for i, id in enumerate("abc")}
    alone = {id: array64(model(mx.array([text])))[0] for id, text in texts.items()}  # L x V
    cache = impl.serving.batched_cache.BatchedKVCache(len(model.layers), num_slots=3, capacity=16)
    requests = {id: new_request(impl, id, text) for id, text in texts.items()}
    for id in "cab":
        assert cache.open(requests[id]), "there is a slot for each"
    for step in ({"c": 5}, {"c": 1, "a": 7}, {"b": 9, "c": 1, "a": 1}, {"a": 1, "b": 3, "c": 7}):
        chunks = []
        for id, count in step.items():
            request, start = requests[id], requests[id].num_computed_tokens
            tokens = texts[id][start : start + count]
            chunks.append(impl.serving.batch.Chunk(request, tokens, start, num_logits=0, pages=request.pages))
            cache.commit(request, start + count)
        tokens = mx.array([token for chunk in chunks for token in chunk.tokens])
        got = model(tokens[:, None], cache.step(chunks))[:, 0]  # T x V
        expected = [alone[chunk.request.id][chunk.start : chunk.end] for chunk in chunks]
        assert_close(got, np.concatenate(expected), tolerance=1e-4)


# ----------------------------------------------------------------------------------------- task 3: who runs next


class Room:
    """A `RequestCache` that only counts positions, with a limit for all requests together.

    shared: how many positions of a request are known when it is opened, as after a prefix cache.
    """

    def __init__(self, size=1000, shared=()):
        self.capacity = size
        self.shared = dict(shared)
        self.held = {}  # the reserved number of positions of each request
        self.asked, self.opened, self.reserved = [], [], []

    def open(self, stored):
        self.asked.append(list(stored.tokens))
        if sum(self.held.values()) + len(stored.tokens) > self.capacity:
            return False
        self.opened.append((stored.id, list(stored.tokens)))
        self.held[stored.id], stored.num_computed_tokens = len(stored.tokens), self.shared.get(stored.id, 0)
        return True

    def reserve(self, stored, count):
        self.reserved.append((stored.id, count))
        self.held[stored.id] = max(self.held[stored.id], stored.num_computed_tokens + count)
        return True

    def commit(self, stored, num_computed_tokens):
        stored.num_computed_tokens = num_computed_tokens

    def close(self, stored):
        del self.held[stored.id]
        stored.num_computed_tokens = 0

    def check_integrity(self, held):
        assert set(self.held) == {stored.id for stored in held}, "the cache holds the requests that run, and no others"


def new_scheduler(impl, cache, *lengths, max_running=16, **options):
    """Return a scheduler and its waiting requests, named "a", "b" and so on, with prompts of these lengths."""
    scheduler = impl.serving.scheduler.Scheduler(cache, max_running, **options)
    requests = [new_request(impl, id, prompt_of(id, length)) for id, length in zip("abcdefgh", lengths, strict=False)]
    for request in requests:
        scheduler.add(request)
    return scheduler, requests


def prompt_of(id, length):
    return [100 * (ord(id) - ord("a")) + i for i in range(length)]


def ids(requests):
    return "".join(request.id for request in requests)


class Queues(NamedTuple):
    """The ids of the requests in both queues, with names that a failure shows."""

    running: str
    waiting: str


def queues(scheduler):
    return Queues(ids(scheduler.running), ids(scheduler.waiting))


def described(batch):
    """Describe each chunk: its request, its start, its tokens, and how many of them have logits."""
    return [(chunk.request.id, chunk.start, list(chunk.tokens), chunk.num_logits) for chunk in batch.chunks]


def generate_token(*requests, token=99):
    """Finish a step after which each of these requests has one more token."""
    for request in requests:
        request.num_computed_tokens = len(list(request.tokens))
        request.add(token, (), 1000)


@task_3
def test_task_3_one_request(impl):
    """The first step computes the request's prompt, and each later step the token from the step before."""
    scheduler, (request,) = new_scheduler(impl, Room(), 1)
    for start, token in enumerate((0, 7, 8)):
        assert described(scheduler.schedule()) == [("a", start, [token], 1)]
        generate_token(request, token=7 + start)


@task_3
def test_task_3_begin(impl):
    """The oldest waiting request leaves its queue, is opened in the cache, gets the status RUNNING, and becomes the
    last of the running ones."""
    cache = Room()
    scheduler, requests = new_scheduler(impl, cache, 3, 5)
    for count, (request, after) in enumerate(zip(requests, (("a", "b"), ("ab", "")), strict=True), start=1):
        assert scheduler.begin() is request
        assert queues(scheduler) == after
        assert [request.status.value for request in requests[:count]] == ["running"] * count
        assert cache.opened == [("a", prompt_of("a", 3)), ("b", prompt_of("b", 5))][:count]
        scheduler.check_integrity()
    assert scheduler.begin() is None, "nobody waits"
    assert queues(scheduler) == ("ab", "")
    assert cache.reserved == [], "`open` has reserved all room that is needed"


@task_3
@pytest.mark.parametrize("max_running", [1, 2, 3])
def test_task_3_max_running(impl, max_running):
    cache = Room()
    scheduler, requests = new_scheduler(impl, cache, 2, 2, 2, 2, max_running=max_running)
    begun = [scheduler.begin() for _ in range(4)]
    assert begun == [*requests[:max_running], *[None] * (4 - max_running)]
    assert queues(scheduler) == ("abcd"[:max_running], "abcd"[max_running:])
    assert [request.status.value for request in scheduler.waiting] == ["waiting"] * (4 - max_running)
    assert len(cache.opened) == max_running
    scheduler.check_integrity()


@task_3
def test_task_3_no_room(impl):
    """If the oldest waiting request does not fit, no other one overtakes it, because it might then wait forever.
    Nothing changes."""
    cache = Room(10)
    scheduler, requests = new_scheduler(impl, cache, 4, 8, 2)
    assert scheduler.begin() is requests[0]
    assert scheduler.begin() is None
    assert queues(scheduler) == ("a", "bc")
    assert [request.status.value for request in requests] == ["running", "waiting", "waiting"]
    assert [id for id, _ in cache.opened] == ["a"]
    scheduler.remove(requests[0])
    assert scheduler.begin() is requests[1]
    assert scheduler.begin() is requests[2], "now both fit"
    scheduler.check_integrity()


@task_3
def test_task_3_room_for_output_too(impl):
    """A waiting request may already have an output, if it ran before and had to leave the cache. All of its tokens need
    room."""
    cache = Room(7)
    scheduler, (request,) = new_scheduler(impl, cache, 3)
    generate_token(request, request)
    tokens = [*prompt_of("a", 3), 99, 99]
    assert scheduler.begin() is request
    assert cache.asked[-1] == tokens, "`open` is asked for room for all tokens"
    assert cache.opened == [("a", tokens)]
    assert described(scheduler.schedule()) == [("a", 0, tokens, 1)]


@task_3
def test_task_3_all_in_one_step(impl):
    """A step has prompts and single tokens, oldest request first, and a new request begins while others are running."""
    cache = Room()
    scheduler, (a, b) = new_scheduler(impl, cache, 3, 2)
    assert described(scheduler.schedule()) == [("a", 0, [0, 1, 2], 1), ("b", 0, [100, 101], 1)]
    generate_token(a, b)
    c = new_request(impl, "c", [7, 8, 9, 10])
    scheduler.add(c)
    assert described(scheduler.schedule()) == [("a", 3, [99], 1), ("b", 2, [99], 1), ("c", 0, [7, 8, 9, 10], 1)]
    generate_token(a, b, c, token=98)
    assert described(scheduler.schedule()) == [("a", 4, [98], 1), ("b", 3, [98], 1), ("c", 4, [98], 1)]
    assert cache.held == {"a": 5, "b": 4, "c": 5}, "room is reserved for each chunk"
    assert [request.num_computed_tokens for request in (a, b, c)] == [4, 3, 4], "planning computes nothing"
    scheduler.check_integrity()


@task_3
def test_task_3_who_leaves_makes_room_in_the_next_step(impl):
    """When a finished request leaves, the next one begins in the following step, while the others go on."""
    scheduler, (a, b, c, _) = new_scheduler(impl, Room(), 3, 2, 4, 1, max_running=2)
    scheduler.schedule()
    generate_token(a, b)
    scheduler.remove(a)
    assert described(scheduler.schedule()) == [("b", 2, [99], 1), ("c", 0, [200, 201, 202, 203], 1)]
    assert queues(scheduler) == ("bc", "d")
    generate_token(b, c)
    scheduler.remove(c)
    assert described(scheduler.schedule()) == [("b", 3, [99], 1), ("d", 0, [300], 1)]
    scheduler.check_integrity()


@task_3
def test_task_3_what_the_cache_has_already(impl):
    """If the cache knows the first tokens of a request, the step computes only the others."""
    scheduler, _ = new_scheduler(impl, Room(shared={"a": 2, "b": 3}), 5, 4)
    assert described(scheduler.schedule()) == [("a", 2, [2, 3, 4], 1), ("b", 3, [103], 1)]


class Backwards:
    """A budget that gives tokens to the newest request first."""

    def __init__(self, num_tokens):
        self.num_tokens = num_tokens

    def order(self, running):
        return list(reversed(running))


class Refusing:
    """A replacement for preemption that has no room for some requests. It notes which request asked for how much room,
    and which chunks existed then."""

    def __init__(self, refused=(), preempts=False):
        self.refused, self.preempts, self.asked = refused, preempts, []

    def make_room(self, scheduler, request, count, batch):
        self.asked.append((request.id, count, [chunk.request.id for chunk in batch.chunks]))
        if request.id in self.refused and self.preempts:
            batch.preempted = [*batch.preempted, request.id]  # in grading, reading a list gives a copy
        return request.id not in self.refused


@task_3
def test_task_3_a_budget(impl):
    """With tomorrow's budget, `order` decides which request comes first, and all chunks together have at most
    num_tokens tokens."""
    scheduler, (a, b, _, _) = new_scheduler(impl, Room(), 2, 1, 3, 4, max_running=4, budget=Backwards(5))
    batch = scheduler.schedule()
    num_tokens = sum(len(list(chunk.tokens)) for chunk in batch.chunks)
    assert batch.num_tokens == num_tokens, "`Batch.add` counts the tokens of a chunk"
    chunks = [("a", 0, [0, 1], 1), ("b", 0, [100], 1), ("c", 0, [200, 201], 0)]
    assert described(batch) == chunks, "who waits begins in the order of the queue"
    assert queues(scheduler) == ("abc", "d"), "nothing is left of the budget for d, so it does not begin"
    generate_token(a, b)
    scheduler.running[2].num_computed_tokens = 2
    chunks = [("c", 2, [202], 1), ("b", 1, [99], 1), ("a", 2, [99], 1), ("d", 0, [300, 301], 0)]
    assert described(scheduler.schedule()) == chunks


@task_3
def test_task_3_the_last_token_of_the_budget(impl):
    """A running request or a new one uses even the last token of the budget."""
    scheduler, (a, _, _) = new_scheduler(impl, Room(), 4, 3, 2, max_running=3, budget=Backwards(5))
    assert described(scheduler.schedule()) == [("a", 0, [0, 1, 2, 3], 1), ("b", 0, [100], 0)]
    generate_token(a)
    scheduler.running[1].num_computed_tokens = 1
    chunks = [("b", 1, [101, 102], 1), ("a", 4, [99], 1), ("c", 0, [200, 201], 1)]
    assert described(scheduler.schedule()) == chunks
    scheduler.running[0].num_computed_tokens = 0  # makes five tokens pending again
    chunks = [("c", 0, [200, 201], 1), ("b", 1, [101, 102], 1), ("a", 0, [0], 0)]
    assert described(scheduler.schedule()) == chunks


@task_3
def test_task_3_whoever_gets_no_token_needs_no_room(impl):
    """A running request without a share of the budget gets no chunk and asks for no room. Other requests ask for room
    for the tokens of their chunks only."""
    room = Refusing()
    scheduler, _ = new_scheduler(impl, Room(), 5, 4, 3, max_running=3, budget=Backwards(5), preemption=room)
    for _ in "abc":
        scheduler.begin()
    assert described(scheduler.schedule()) == [("c", 0, [200, 201, 202], 1), ("b", 0, [100, 101], 0)]
    asked = [("c", 3, []), ("b", 2, ["c"])]
    assert room.asked == asked, "who asked for room, for how many tokens, after whose chunks"
    assert queues(scheduler) == ("abc", "")


@task_3
def test_task_3_no_room_no_chunk(impl):
    """A running request without room gets no chunk. The others do, and share its part of the budget."""
    room = Refusing(refused="b")
    scheduler, requests = new_scheduler(impl, Room(), 2, 4, 3, 1, budget=Backwards(20), preemption=room)
    for _ in "abc":
        scheduler.begin()
    chunks = [("c", 0, [200, 201, 202], 1), ("a", 0, [0, 1], 1), ("d", 0, [300], 1)]
    assert described(scheduler.schedule()) == chunks, "d begins: nobody was preempted"
    assert room.asked == [("c", 3, []), ("b", 4, ["c"]), ("a", 2, ["c"])]
    assert requests[1].status.value == "running"


@task_3
def test_task_3_nobody_begins_in_a_step_that_preempts(impl):
    """No request begins in a step that preempts. It would take the freed room, and might be the preempted request
    itself."""
    scheduler, _ = new_scheduler(impl, Room(), 2, 4, 3, preemption=Refusing(refused="b", preempts=True))
    for _ in "ab":
        scheduler.begin()
    assert described(scheduler.schedule()) == [("a", 0, [0, 1], 1)]
    assert queues(scheduler).waiting == "c"


class Withdrawing:
    """A replacement for preemption that withdraws one request's chunk to make room for another."""

    def __init__(self, whose, by):
        self.whose, self.by = whose, by

    def make_room(self, scheduler, request, count, batch):
        if request.id == self.by:
            batch.withdraw(scheduler.find(self.whose))
            batch.preempted = [*batch.preempted, self.whose]
        return True


@task_3
def test_task_3_what_a_withdrawn_chunk_leaves(impl):
    """The tokens of a withdrawn chunk return to the budget for later requests of the step. The request that asked for
    room gets just what it asked for."""
    room = Withdrawing("c", by="b")
    scheduler, _ = new_scheduler(impl, Room(), 3, 4, 3, 1, max_running=4, budget=Backwards(5), preemption=room)
    for _ in "abc":
        scheduler.begin()
    batch = scheduler.schedule()
    assert described(batch) == [("b", 0, [100, 101], 0), ("a", 0, [0, 1, 2], 1)], "c had 3 of 5 tokens"
    assert batch.num_tokens == 5
    assert list(batch.preempted) == ["c"]


@task_3
def test_task_3_nothing_to_do(impl):
    scheduler, requests = new_scheduler(impl, Room(), 3)
    for request in requests:
        scheduler.remove(request)
    assert described(scheduler.schedule()) == []


@task_3
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_task_3_any_order(impl, seed):
    """Requests arrive and leave at random. After each step, the oldest requests run, and none waits without a
    reason."""
    random = np.random.RandomState(seed)
    cache = Room(40)
    scheduler, max_running = impl.serving.scheduler.Scheduler(cache, 4), 4
    tokens, computed, arrived = {}, {}, []
    for step in range(40):
        for _ in range(random.randint(3)):
            request = new_request(impl, f"{step}.{len(arrived)}", [step] * random.randint(1, 20), max_tokens=100)
            arrived.append(request)
            tokens[request.id], computed[request.id] = list(request.prompt), 0
            scheduler.add(request)
        chunks = described(scheduler.schedule())
        scheduler.check_integrity()
        running, waiting = ([request.id for request in queue] for queue in (scheduler.running, scheduler.waiting))
        order = [request.id for request in arrived]
        assert running + waiting == order, "the oldest run, in the order in which they came; the others wait"
        assert [id for id, *_ in chunks] == running, "each that runs has one chunk, the oldest first"
        assert len(running) <= max_running
        fits = waiting and sum(cache.held.values()) + len(tokens[waiting[0]]) <= cache.capacity
        assert not fits or len(running) == max_running, "the oldest could have begun in this step"
        for id, start, new, num_logits in chunks:
            assert (start, new, num_logits) == (computed[id], tokens[id][start:], 1), "all that is pending"
            computed[id] += len(new)
        for request in list(scheduler.running):
            generate_token(request, token=step)
            tokens[request.id].append(step)
        for request in [request for request in arrived if random.rand() < 0.3 or len(tokens[request.id]) > 25]:
            scheduler.remove(request)
            arrived.remove(request)


# -------------------------------------------------------------------------------------- task 4: a step of the engine

VOCAB = 23


class Counting:
    """A model that keeps its arguments. After a token, the logit of entry v is the token times v."""

    def __init__(self):
        self.config = SimpleNamespace(vocab_size=VOCAB, max_position_embeddings=64, eos_token_ids=(2,))
        self.tokens, self.caches, self.rows = [], [], []

    def hidden(self, tokens, cache):
        self.tokens.append(np.array(tokens).tolist())
        self.caches.append(cache)
        return mx.stack([tokens, tokens], axis=-1).astype(mx.float32)  # T x 1 x E

    def logits(self, hidden):
        self.rows.append(hidden.shape)
        return hidden[..., :1] * mx.arange(VOCAB)


class StepOnly:
    """A cache that has only `step`, which keeps the chunks and returns an object for the model."""

    def __init__(self):
        self.given = SimpleNamespace(layers=[])
        self.chunks = []

    def step(self, chunks):
        self.chunks.append([(chunk.request.id, chunk.start, list(chunk.tokens)) for chunk in chunks])
        return self.given


def batch_of(impl, *chunks):
    """Return a batch with chunks of requests "a", "b" and so on. chunks: tokens, and how many of them need logits."""
    batch = impl.serving.batch
    made = [
        batch.Chunk(new_request(impl, id), tokens, start=5, num_logits=num_logits)
        for id, (tokens, num_logits) in zip("abcdefgh", chunks, strict=False)
    ]
    return batch.Batch(made)


@task_4
def test_task_4_logits_of_one_request(impl):
    """One request gives one row of logits, after its last token."""
    model = Counting()
    got = impl.serving.engine.batch_logits(model, batch_of(impl, ([3, 4, 5], 1)), StepOnly())
    assert_close(got, 5 * np.arange(VOCAB)[None])


@task_4
@pytest.mark.parametrize(
    "chunks",
    [
        [([3], 1), ([4], 1), ([5], 1)],
        [([3, 4, 5], 1), ([6], 1), ([7, 8], 1)],
        [([3, 4], 0), ([6], 1), ([7, 8, 9], 0), ([1, 2], 1)],
        [([3, 4, 5, 6], 3), ([7], 1), ([8, 9], 0), ([1, 2], 2)],
        [([3, 4], 0), ([5], 0), ([6, 7, 8], 1)],
    ],
    ids=["decode", "prompts and tokens", "parts of prompts", "several rows", "the last only"],
)
def test_task_4_logits_of_a_batch(impl, chunks):
    """The model runs once, on T rows of one token. Logits are computed in one call, only for rows that need them."""
    model, cache = Counting(), StepOnly()
    got = impl.serving.engine.batch_logits(model, batch_of(impl, *chunks), cache)
    tokens = [token for chunk, _ in chunks for token in chunk]
    assert model.tokens == [[[token] for token in tokens]], "model.hidden: one call, each token a row: T x 1"
    assert cache.chunks == [[(id, 5, chunk) for id, (chunk, _) in zip("abcd", chunks, strict=False)]]
    assert model.caches[0] is cache.given, "the model gets the cache that `step` made"
    last = [token for chunk, count in chunks for token in chunk[len(chunk) - count :]]
    assert_close(got, np.array(last).reshape(-1, 1) * np.arange(VOCAB))
    assert model.rows == [(len(last), 1, 2)], "model.logits: one call, N x 1 x E"


@task_4
def test_task_4_no_logits(impl):
    """All chunks are parts of prompts, so no row needs logits."""
    got = impl.serving.engine.batch_logits(Counting(), batch_of(impl, ([3, 4], 0), ([5], 0)), StepOnly())
    assert got.shape == (0, VOCAB)


def serving(impl, *lengths, model=None, **params):
    """Return an engine with four slots, and its requests "a", "b" and so on, with prompts of these lengths."""
    model = model or Counting()
    cache = impl.serving.batched_cache.BatchedKVCache(1, 4, 32)
    engine = impl.serving.engine.Engine(model, impl.serving.scheduler.Scheduler(cache, 4))
    requests = [
        new_request(impl, id, [5] * length, with_text=True, **params)
        for id, length in zip("abcdefgh", lengths, strict=False)
    ]
    for request in requests:
        engine.add(request)
    return engine, requests


def logits_for(*tokens):
    """Return rows of logits in which these tokens have the highest one."""
    return mx.array(3 * np.eye(VOCAB, dtype=np.float32)[list(tokens)])


def with_tokens(impl, chunk, tokens, num_logits):
    """Return the chunk with other tokens."""
    return impl.serving.batch.Chunk(chunk.request, list(tokens), chunk.start, num_logits, list(chunk.pages))


def parts(impl, batch, which):
    """Return the batch with only a part of these requests' prompts: their last two tokens are left out, and they need
    no logits."""
    return impl.serving.batch.Batch(
        [
            with_tokens(impl, chunk, chunk.tokens[:-2], 0) if chunk.request.id in which else chunk
            for chunk in batch.chunks
        ]
    )


class Told:
    """A `Decoding` that returns given tokens, or raises a given exception, for each request."""

    def __init__(self, given):
        self.given, self.forgotten, self.calls = given, [], 0

    def draft(self, batch, cache, max_length):
        return batch

    def choose(self, chunks, logits):
        self.calls += 1
        return [self.given[chunk.request.id] if chunk.num_logits else [] for chunk in chunks]

    def forget(self, request):
        self.forgotten.append(request.id)


def with_guesses(impl, batch, **counts):
    """Return the batch with this many guesses after each request's chunk."""
    chunks = []
    for chunk in batch.chunks:
        count = counts[chunk.request.id]
        chunks.append(with_tokens(impl, chunk, [*chunk.tokens, *[7] * count], 1 + count))
    return impl.serving.batch.Batch(chunks)


@task_4
def test_task_4_settle(impl):
    """Each request gets its token."""
    engine, requests = serving(impl, 3, 2)
    touched = engine.settle(engine.plan(), logits_for(7, 9))
    assert ids(touched) == "ab"
    assert [list(request.output) for request in requests] == [[7], [9]]
    assert [request.finish_reason for request in requests] == [None, None]


@task_4
def test_task_4_a_part_of_a_prompt(impl):
    """A request whose prompt continues gets no token and is not returned, but its computed part counts."""
    engine, requests = serving(impl, 3, 5, 1)
    touched = engine.settle(parts(impl, engine.plan(), "b"), logits_for(7, 9))
    assert ids(touched) == "ac"
    assert [list(request.output) for request in requests] == [[7], [], [9]]
    assert queues(engine.scheduler) == ("abc", "")
    assert [request.num_computed_tokens for request in requests] == [3, 3, 1]
    engine.check_integrity()


@task_4
def test_task_4_what_is_computed(impl):
    """`plan` only reserves, and `settle` commits all tokens of the chunk, but never the newest one."""
    engine, requests = serving(impl, 3, 2, max_tokens=9)
    for step in range(4):
        batch = engine.plan()
        assert [request.num_pending for request in requests] == ([3, 2] if step == 0 else [1, 1])
        engine.settle(batch, logits_for(7, 9))
        assert [request.num_computed_tokens for request in requests] == [3 + step, 2 + step]
        engine.check_integrity()


class Ledger(Room):
    """A cache that notes, for each request, how many tokens were committed and when it was closed."""

    def __init__(self):
        super().__init__()
        self.told = {id: [] for id in "abc"}

    def commit(self, stored, num_computed_tokens):
        super().commit(stored, num_computed_tokens)
        self.told[stored.id].append(num_computed_tokens)

    def close(self, stored):
        super().close(stored)
        self.told[stored.id].append("closed")


@task_4
def test_task_4_what_the_cache_is_told(impl):
    """`commit` is called once per request and step, before the request leaves, because others may use its computed
    tokens (day 5)."""
    ledger = Ledger()
    engine = impl.serving.engine.Engine(Counting(), impl.serving.scheduler.Scheduler(ledger, 4))
    for id, length in zip("abc", (3, 4, 6), strict=True):
        engine.add(new_request(impl, id, [5] * length, max_tokens=1 if id == "b" else 9))
    engine.decoding = Told({"a": [7], "b": [8], "c": [2]})
    engine.settle(engine.plan(), mx.zeros((3, VOCAB)))
    told = {"a": [3], "b": [4, "closed"]}
    assert {id: ledger.told[id] for id in told} == told, "what `commit` got, and whether it was closed then"
    assert len(ledger.told["c"]) == 2, f"`commit` of a request whose end came, before it is closed: {ledger.told['c']}"
    assert ledger.told["c"][-1] == "closed", f"`commit` comes before a request leaves: {ledger.told['c']}"


@task_4
def test_task_4_what_the_cache_is_told_of_a_last_step(impl):
    """`commit` counts all tokens but the newest, even if the request ends before its last token. A request that fails
    is also committed before it leaves."""
    ledger = Ledger()
    engine = impl.serving.engine.Engine(Counting(), impl.serving.scheduler.Scheduler(ledger, 4))
    for id, length in zip("abc", (3, 4, 6), strict=True):
        engine.add(new_request(impl, id, [5] * length, max_tokens=2))
    engine.decoding = Told({"a": [7, 2, 9], "b": [7, 8, 9], "c": LookupError("no token")})
    batch = with_guesses(impl, engine.plan(), a=4, b=3, c=0)
    engine.settle(batch, mx.zeros((10, VOCAB)))
    assert ledger.told["a"] == [3, "closed"], "its prompt of 3 and one token, after which its end came"
    assert ledger.told["b"] == [5, "closed"], "its prompt of 4 and two tokens, which is all that it may have"
    assert len(ledger.told["c"]) == 2, f"`commit` of a request that failed, before it is closed: {ledger.told['c']}"
    assert ledger.told["c"][-1] == "closed", f"`commit` comes before a request leaves: {ledger.told['c']}"


@task_4
def test_task_4_a_plan_that_comes_to_nothing(impl):
    """If a step fails before `settle`, the next plan is the same, and nothing has to be undone."""
    engine, requests = serving(impl, 3, 2)
    plans = [described(engine.plan()) for _ in range(3)]
    assert plans == [[("a", 0, [5] * 3, 1), ("b", 0, [5] * 2, 1)]] * 3
    engine.check_integrity()
    engine.settle(engine.plan(), logits_for(7, 9))
    plans = [described(engine.plan()) for _ in range(2)]
    assert plans == [[("a", 3, [7], 1), ("b", 2, [9], 1)]] * 2
    assert [request.num_computed_tokens for request in requests] == [3, 2]


@task_4
def test_task_4_who_is_over_leaves(impl):
    """A finished request leaves scheduler and cache at once, whether by an end token, by its length, or for lack of
    room."""
    engine, (a, b, c, d) = serving(impl, 3, 31, 1, 2, max_tokens=2)
    assert ids(engine.settle(engine.plan(), logits_for(7, 9, 2, 8))) == "abcd", "`settle` returns who has logits"
    assert [request.finish_reason for request in (a, b, c, d)] == [None, "length", "stop", None]
    assert list(c.output) == [], "the model's own end is no output"
    assert queues(engine.scheduler) == ("ad", "")
    engine.check_integrity()
    assert ids(engine.settle(engine.plan(), logits_for(1, 3))) == "ad"
    assert [a.finish_reason, d.finish_reason] == ["length", "length"]
    assert not engine.has_work
    engine.check_integrity()


@task_4
def test_task_4_the_models_context_ends_a_request(impl):
    """The model's context limits a request as its room in the cache does: `max_length` is the smaller of both."""
    model = Counting()
    model.config.max_position_embeddings = 4
    engine, (request,) = serving(impl, 3, model=model)
    engine.settle(engine.plan(), logits_for(7))
    assert (list(request.output), request.finish_reason) == ([7], "length")


@task_4
def test_task_4_each_has_its_own_sampler(impl):
    """Each request's sampler gets the logits after its own tokens (1 x V) and these tokens (1 x L), and chooses its
    token."""
    engine, requests = serving(impl, 2, 3, 1)
    seen = []

    def sampler_of(choice):
        def sampler(logits, tokens):
            seen.append((np.array(logits).argmax(axis=-1).tolist(), np.array(tokens).tolist()))
            return mx.array([choice])

        return sampler

    for request, choice in zip(requests, (11, 12, 13), strict=True):
        request.sampler = sampler_of(choice)
    engine.settle(engine.plan(), logits_for(7, 8, 9))
    assert seen == [([7], [[5, 5]]), ([8], [[5, 5, 5]]), ([9], [[5]])]
    engine.settle(engine.plan(), logits_for(4, 5, 6))
    assert seen[3:] == [([4], [[5, 5, 11]]), ([5], [[5, 5, 5, 12]]), ([6], [[5, 13]])]
    assert [list(request.output) for request in requests] == [[11, 11], [12, 12], [13, 13]]


@task_4
def test_task_4_several_tokens(impl):
    """`choose` may return several tokens (day 6). `add` takes them in order, and none after an end. Rejected guesses do
    not count as computed."""
    engine, requests = serving(impl, 3, 2, 1, 4, max_tokens=5)
    given = {"a": [7, 8, 9], "b": [7, 2, 9], "c": [7], "d": [1, 3, 4, 5, 6, 7]}
    engine.decoding = Told(given)
    batch = with_guesses(impl, engine.plan(), a=4, b=2, c=3, d=5)
    assert ids(engine.settle(batch, mx.zeros((18, VOCAB)))) == "abcd"
    assert [list(request.output) for request in requests] == [[7, 8, 9], [7], [7], [1, 3, 4, 5, 6]]
    assert [request.finish_reason for request in requests] == [None, "stop", None, "length"]
    assert queues(engine.scheduler) == ("ac", "")
    assert [request.num_computed_tokens for request in (requests[0], requests[2])] == [5, 1], "all but the newest"
    assert engine.decoding.forgotten == ["b", "d"], "`leave` tells who is over"
    assert engine.decoding.calls == 1, "`choose` gets all chunks and all logits at once"
    engine.check_integrity()


@task_4
@pytest.mark.parametrize("which", [0, 1, 2])
def test_task_4_an_error_is_one_requests_own(impl, which):
    """If a request's sampler fails, the request ends with the error and leaves, and the others are unaffected."""
    engine, requests = serving(impl, 3, 2, 1)

    def failing(logits, tokens):
        raise ZeroDivisionError("nothing to divide by")

    requests[which].sampler = failing
    touched = engine.settle(engine.plan(), logits_for(7, 8, 9))
    assert ids(touched) == "abc", "who failed is returned too: its client waits for an answer"
    failed, others = requests[which], [request for request in requests if request is not requests[which]]
    assert (failed.status.value, failed.finish_reason, list(failed.output)) == ("finished", "error", [])
    assert tuple(failed.error.args) == ("nothing to divide by",)
    expected = [[token] for i, token in enumerate((7, 8, 9)) if i != which]
    assert [list(request.output) for request in others] == expected
    assert [request.finish_reason for request in others] == [None, None]
    assert queues(engine.scheduler) == (ids(others), "")
    engine.check_integrity()
    assert ids(engine.settle(engine.plan(), logits_for(1, 1))) == ids(others), "they go on in the next step"


@task_4
def test_task_4_an_error_of_the_text(impl):
    """`Request.add` may fail, too, if the tokenizer cannot decode a token."""

    class Failing(Bytes):
        def decode(self, tokens, skip_special_tokens):
            if 9 in tokens:
                raise LookupError("no token 9")
            return super().decode(tokens, skip_special_tokens)

    engine, requests = serving(impl, 3, 2, 1, tokenizer=Failing())
    assert ids(engine.settle(engine.plan(), logits_for(7, 9, 8))) == "abc"
    assert [request.finish_reason for request in requests] == [None, "error", None]
    assert tuple(requests[1].error.args) == ("no token 9",)
    assert queues(engine.scheduler) == ("ac", "")
    engine.check_integrity()


@task_4
@pytest.mark.parametrize("model_type", ["qwen2", "qwen3"])
def test_task_4_a_model(impl, tmp_path, model_type):
    """The logits of each request in a step are those of its text alone."""
    model = untrained(impl, tmp_path, model_type)
    engine = serving_model(impl, model)
    texts = [np.array(Inputs(i).tokens(length, vocab_size=256)).tolist() for i, length in enumerate((9, 1, 4))]
    for id, text in zip("abc", texts, strict=True):
        engine.add(new_request(impl, id, text))
    for _ in range(3):
        batch = engine.plan()
        got = impl.serving.engine.batch_logits(model, batch, engine.scheduler.cache)
        expected = [array64(model(mx.array([text]))[0, -1]) for text in texts]
        assert_close(got, np.stack(expected), tolerance=1e-4)
        for chunk, text, row in zip(batch.chunks, texts, np.array(got), strict=True):
            engine.scheduler.cache.commit(chunk.request, chunk.end)
            text.append(int(row.argmax()))
            chunk.request.add(text[-1], (), 1000)


def serving_model(impl, model, num_slots=3, capacity=24):
    cache = impl.serving.batched_cache.BatchedKVCache(len(model.layers), num_slots, capacity)
    scheduler = impl.serving.scheduler.Scheduler(cache, num_slots)
    return impl.serving.engine.Engine(model, scheduler, is_checked=True)


def any_request(impl, random, id, eos_token_ids):
    """Return a random request: of any length, greedy or sampled, with or without its own end tokens."""
    drawn = {"temperature": 1.5, "top_p": 0.9, "repetition_penalty": 1.2, "seed": int(random.randint(1000))}
    letters = [chr(letter) for letter in range(ord("A"), ord("z"), 3)]
    ends = {"stop_token_ids": random.randint(0, 256, 12).tolist(), "stop": letters}
    params = {"max_tokens": int(random.randint(1, 16)), "ignore_eos": bool(random.randint(2))}
    params |= drawn if random.rand() < 0.6 else {}
    params |= ends if random.rand() < 0.5 else {}
    return new_request(impl, id, random.randint(0, 256, random.randint(1, 16)).tolist(), with_text=True, **params)


def alone(impl, model, request, capacity):
    """Return output, finish_reason and text that `generate` gives for a request alone."""
    params, room = request.params, capacity - len(request.prompt)
    ends = [*params.stop_token_ids, *(() if params.ignore_eos else model.config.eos_token_ids)]
    count, output = min(params.max_tokens, room), []

    def tokens():
        for token in impl.generate.generate(
            model, request.prompt, impl.serving.distributions.sampler_of(params), count, ends
        ):
            output.append(token)
            yield token

    text = "".join(impl.generate.stream_text(tokens(), Bytes(), params.stop))
    whole = Bytes().decode(output, True)
    is_full = len(output) == count and not any(stop in whole for stop in params.stop)
    return output, "length" if is_full else "stop", text


@task_4
@pytest.mark.parametrize(("model_type", "seed"), [("qwen3", 0), ("qwen2", 2)])
def test_task_4_any_requests_at_any_time(impl, tmp_path, model_type, seed):
    """Requests arrive, end and are aborted at any time. Each gets, token for token, what `generate` gives it alone."""
    random = np.random.RandomState(seed)
    model = untrained(impl, tmp_path, model_type)
    engine, requests = serving_model(impl, model), []
    for step in range(200):
        if step < 24 and random.rand() < 0.5:
            requests.append(any_request(impl, random, f"request {len(requests)}", model.config.eos_token_ids))
            engine.add(requests[-1])
        if step > 24 and not engine.has_work:
            break
        engine.step()
        unfinished = [request for request in requests if request.finish_reason is None]
        if unfinished and random.rand() < 0.15:
            engine.abort(unfinished[random.randint(len(unfinished))].id)
            engine.check_integrity()
    assert not engine.has_work, "all requests are over after 200 steps"
    for request in requests:
        output, reason, text = alone(impl, model, request, 24)
        if request.finish_reason == "abort":
            assert list(request.output) == output[: len(request.output)], f"{request.id}, aborted"
            assert text.startswith(request.text.text)
        else:
            assert ending(request) == (output, reason, text), f"{request.id}: what `generate` gives it alone"


@task_4
def test_task_4_drawn_tokens_do_not_depend_on_the_others(impl, tmp_path):
    """The same request with the same seed gets the same tokens, alone and among others that draw as well."""
    model = untrained(impl, tmp_path)
    settings = {"prompt": [3, 1, 4], "temperature": 1.0, "seed": 7, "max_tokens": 10}
    outputs = []
    for others in (0, 2):
        engine = serving_model(impl, model)
        request = new_request(impl, "the one", **settings)
        for i in range(others):
            engine.add(new_request(impl, f"another {i}", [i, 5], temperature=1.0, seed=7 + i, max_tokens=20))
        engine.add(request)
        for _ in range(12):
            engine.step()
        outputs.append((list(request.output), request.finish_reason))
    assert outputs[0] == outputs[1]
    assert len(outputs[0][0]) == 10 or outputs[0][1] == "stop"
