"""Serving days 1 to 3: any arrivals, any cache and scheduler; bad input and failures; fast kernels.

Whatever other requests are being served, a request gets the tokens that `generate` gives it alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_fast_models import GENEROUS, TUNED, dense, error, quantised
from tokenizers import Tokenizer

from tiny_llm_given.config import ModelConfig
from tiny_llm_given.linears import named_linears
from tiny_llm_given.weights import expected_shapes
from tiny_llm_models import bundled
from tiny_llm_models.untrained import random_weights, untrained_config
from tiny_llm_ref.generate import generate, stream_text
from tiny_llm_ref.kernels.attention import flash_attention
from tiny_llm_ref.models import build_model
from tiny_llm_ref.optimise import optimise
from tiny_llm_ref.serving.batch import Chunk
from tiny_llm_ref.serving.batch_sampler import BatchSampler
from tiny_llm_ref.serving.batched_cache import BatchedKVCache
from tiny_llm_ref.serving.decoding import Decoding
from tiny_llm_ref.serving.distributions import sampler_of
from tiny_llm_ref.serving.engine import Engine
from tiny_llm_ref.serving.logprobs import note_logprobs
from tiny_llm_ref.serving.page_pool import PagePool
from tiny_llm_ref.serving.paged_cache import PagedKVCache, PagedKVCacheLayer
from tiny_llm_ref.serving.request import Request, SamplingParams, Status, TextStream
from tiny_llm_ref.serving.scheduler import PreemptNewest, Scheduler, TokenBudget
from tiny_llm_ref.tuned import tune

CAPACITY = 24  # positions of a slot, or of the fewest pages that can serve a request
MAX_RUNNING = 3
ENOUGH = MAX_RUNNING * 11  # pages of four for all that run: no request below gets longer than 44


@cache
def small_model(model_type: str = "qwen3") -> Any:
    """Return a model with dense weights in float32, whose logits are never so close that rounding decides. Any thread
    can use it."""
    config = ModelConfig.from_hf(untrained_config(model_type, num_hidden_layers=2, vocab_size=100, eos_token_id=[7, 8]))
    weights = random_weights(expected_shapes(config), seed=5)
    model = build_model(config, {name: mx.array(weight) for name, weight in weights.items()})
    mx.eval(model(mx.array([[0]])))  # RoPE's tables, too: what is not computed yet, only this thread can compute
    return model


def slots(layers: int, **options: Any) -> BatchedKVCache:
    return BatchedKVCache(layers, MAX_RUNNING, CAPACITY, **options)


def pages(layers: int, num_pages: int, page_size: int, **options: Any) -> PagedKVCache:
    make_layer = partial(PagedKVCacheLayer, **options)
    return PagedKVCache(layers, PagePool(num_pages, page_size), make_layer=make_layer)


def preempting(cache: Any, budget: int) -> Scheduler:
    return Scheduler(cache, MAX_RUNNING, TokenBudget(budget), PreemptNewest())


SYSTEMS: dict[str, Callable[..., Scheduler]] = {
    "slots": lambda layers, **options: Scheduler(slots(layers, **options), MAX_RUNNING),
    "slots, chunked": lambda layers, **options: Scheduler(slots(layers, **options), MAX_RUNNING, TokenBudget(5)),
    "slots, a budget of one each": lambda layers: Scheduler(slots(layers), MAX_RUNNING, TokenBudget(MAX_RUNNING)),
    "slots, preempting": lambda layers: Scheduler(slots(layers), MAX_RUNNING, TokenBudget(7), PreemptNewest()),
    "pages for all": lambda layers: Scheduler(pages(layers, ENOUGH, 4), MAX_RUNNING),
    "pages for all, chunked": lambda layers: Scheduler(pages(layers, ENOUGH, 4), MAX_RUNNING, TokenBudget(6)),
    "few pages": lambda layers, **options: preempting(pages(layers, 6, 4, **options), 6),
    "few pages of one": lambda layers: preempting(pages(layers, 24, 1), 64),
}


class Letters:
    """A tokenizer with tokens of one letter and tokens of two letters, so that stop strings end within tokens."""

    def decode(self, tokens: list[int], skip_special_tokens: bool) -> str:
        return "".join(chr(ord("a") + token % 26) * (1 + token // 50) for token in tokens)


class Moody:
    """A model that fails once after `fails` is set."""

    def __init__(self, model: Any):
        self.model, self.config, self.logits = model, model.config, model.logits
        self.fails = False

    def hidden(self, tokens: mx.array, cache: Any) -> mx.array:
        hidden = self.model.hidden(tokens, cache)
        if self.fails:
            self.fails = False
            raise ConnectionError("out of order")
        return hidden


# ------------------------------------------------------------------------------------- any arrivals, any system

PARAMS = st.builds(
    SamplingParams,
    max_tokens=st.integers(1, 12),
    temperature=st.sampled_from([0.0, 0.0, 0.8, 1.5]),
    top_k=st.sampled_from([0, 20]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    seed=st.integers(0, 5),
    stop=st.sampled_from([(), ("b",), ("zz", "qx")]),
    stop_token_ids=st.sampled_from([(), (11, 12, 13, 14, 15, 16)]),
    ignore_eos=st.booleans(),
)
PROMPTS = st.tuples(st.integers(1, CAPACITY - 1), st.integers(0, 3)).map(
    lambda drawn: tuple(np.random.RandomState(drawn[1]).randint(0, 100, drawn[0]).tolist())
)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("arrives"), PROMPTS, PARAMS),
        st.tuples(st.just("arrives"), PROMPTS, PARAMS),
        st.tuples(st.just("steps"), st.integers(1, 4)),
        st.tuples(st.just("leaves"), st.integers(0, 9)),
        st.tuples(st.just("the sampler fails"), st.integers(0, 9)),
        st.tuples(st.just("the model fails")),
    ),
    max_size=20,
)


@cache
def alone(model_type: str, prompt: tuple[int, ...], params: SamplingParams, room: int) -> tuple[list[int], str]:
    """Return output and text of a request that is served alone. room: how many tokens prompt and output may have."""
    model, output = small_model(model_type), []

    def tokens() -> Iterator[int]:
        ends = [*params.stop_token_ids, *(() if params.ignore_eos else model.config.eos_token_ids)]
        for token in generate(model, prompt, sampler_of(params), min(params.max_tokens, room - len(prompt)), ends):
            output.append(token)
            yield token

    text = "".join(stream_text(tokens(), Letters(), params.stop))
    return output, text


class Traffic:
    """An engine, and all requests that were added to it."""

    def __init__(self, system: str, model_type: str):
        self.model, self.model_type = Moody(small_model(model_type)), model_type
        self.engine = Engine(self.model, SYSTEMS[system](2), is_checked=True)
        self.requests: list[Request] = []

    def arrives(self, prompt: tuple[int, ...], params: SamplingParams) -> Request:
        request = Request(f"{len(self.requests)}", prompt, params, TextStream(Letters(), params.stop))
        self.requests.append(request)
        self.engine.add(request)
        return request

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.engine.step()

    def leaves(self, number: int) -> None:
        self.engine.abort(str(number))
        self.engine.check_integrity()

    def the_sampler_fails(self, number: int) -> None:
        """Let the sampler fail at the request's next token."""

        def sampler(logits: mx.array, tokens: mx.array) -> mx.array:
            raise FloatingPointError("no luck")

        for request in self.requests[number : number + 1]:
            request.sampler = sampler

    def the_model_fails(self) -> None:
        """Let the model fail in one step, which is repeated. A request that begins in this step then waits for
        nothing."""
        self.model.fails = self.engine.has_work
        before = [(list(request.output), request.finish_reason) for request in self.requests]
        if self.model.fails:
            with pytest.raises(ConnectionError):
                self.engine.step()
        assert before == [(request.output, request.finish_reason) for request in self.requests]
        self.engine.check_integrity()

    def finish(self) -> None:
        for _ in range(2000):
            if not self.engine.has_work:
                return
            self.engine.step()
        pytest.fail("there is always work, and no end of it")

    def check(self) -> None:
        """Check that each request got its own result."""
        for request in self.requests:
            room = self.engine.max_length
            output, text = alone(self.model_type, request.prompt, request.params, room)
            assert request.text is not None
            if request.finish_reason in ("abort", "error"):
                assert request.output == output[: len(request.output)]
                assert text.startswith(request.text.text)
            else:
                assert (request.output, request.text.text) == (output, text), request.id
                limit = min(request.params.max_tokens, room - len(request.prompt))
                assert request.finish_reason == ("stop" if request.text.found or len(output) < limit else "length")


@pytest.mark.parametrize("system", SYSTEMS)
@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(model_type=st.sampled_from(["qwen2", "qwen3"]), events=EVENTS)
def test_any_arrivals(system, model_type, events):
    traffic = Traffic(system, model_type)
    for name, *arguments in events:
        getattr(traffic, name.replace(" ", "_"))(*arguments)
    traffic.finish()
    traffic.check()
    assert not list(traffic.engine.scheduler), "nobody is left"
    traffic.engine.scheduler.cache.check_integrity([])


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_crowd(system):
    """Forty requests come at once, and only three run at a time."""
    random = np.random.RandomState(1)
    traffic = Traffic(system, "qwen3")
    for i in range(40):
        prompt = tuple(random.randint(0, 100, random.randint(1, CAPACITY)).tolist())
        traffic.arrives(prompt, SamplingParams(max_tokens=int(random.randint(1, 20)), temperature=i % 2, seed=i))
    traffic.finish()
    traffic.check()


def test_few_pages_do_preempt():
    """The earlier tests rely on this: there are more tokens to store than there is room."""
    preempted: list[str] = []

    class Watching:
        def on_step(self, engine: Engine, batch: Any, touched: Any) -> None:
            preempted.extend(batch.preempted)

        def on_abort(self, engine: Engine, request: Request) -> None: ...

    engine = Engine(small_model(), SYSTEMS["few pages"](2), [Watching()], is_checked=True)
    for i in range(3):
        engine.add(Request(str(i), [i] * 4, SamplingParams(max_tokens=12, ignore_eos=True)))
    requests = list(engine.run())
    assert preempted
    assert all(request.output == alone("qwen3", request.prompt, request.params, CAPACITY)[0] for request in requests)


# --------------------------------------------------------------------------------------------------- bad input


def request(id: str = "new", prompt: Any = (1, 2, 3), text: TextStream | None = None, **params: Any) -> Request:
    return Request(id, prompt, SamplingParams(**params), text)


def test_a_request_is_shown_by_id_and_status() -> None:
    new, old = request(), served()
    assert [repr(new), repr(old)] == ["Request('new', waiting)", "Request('old', finished)"]


def served() -> Request:
    """Return a finished request."""
    engine = Engine(small_model(), SYSTEMS["slots"](2))
    old = request("old", max_tokens=1)
    engine.add(old)
    engine.step()
    return old


def aborted() -> Request:
    """Return a request that was aborted before it began."""
    engine = Engine(small_model(), SYSTEMS["slots"](2))
    engine.add(old := request("old"))
    engine.abort("old")
    return old


NO_TEXT = "expected a TextStream, in whose text stop strings are found, got none"
BAD = {
    "an id that runs": (lambda: request("running"), "id: expected one that no other request has, got 'running' again"),
    "an id that waits": (lambda: request("waits"), "got 'waits' again"),
    "served before": (served, "request 'old': expected a new one, got one that was served before"),
    "aborted before": (aborted, "request 'old': expected a new one"),
    "empty prompt": (lambda: request(prompt=()), "prompt: expected at least one token, got none"),
    "fills the cache": (lambda: request(prompt=[1] * CAPACITY), "expected fewer than 24 tokens, .* got 24"),
    "longer than the context": (lambda: request(prompt=[1] * 600), "expected fewer than 24 tokens, .* got 600"),
    "id outside of the vocabulary": (lambda: request(prompt=[1, 100]), "expected token ids from 0 to 99, got 1 to 100"),
    "negative id": (lambda: request(prompt=[5, -1]), "expected token ids from 0 to 99, got -1 to 5"),
    "no tokens": (lambda: request(max_tokens=0), "max_tokens: expected 1 or more, got 0"),
    "fewer than none": (lambda: request(max_tokens=-3), "max_tokens: expected 1 or more, got -3"),
    "stop is a string": (lambda: request(stop="end"), "stops: expected a sequence of non-empty strings, got 'end'"),
    "an empty stop string": (lambda: request(stop=["a", ""]), "expected a sequence of non-empty strings"),
    "stop strings without text": (lambda: request(stop=["a"]), NO_TEXT),
    "temperature": (lambda: request(temperature=-0.1), "temperature: expected 0 or more, got -0.1"),
    "temperature is no number": (lambda: request(temperature=math.nan), "temperature: expected 0 or more, got nan"),
    "top_p": (lambda: request(temperature=1, top_p=0), "top_p: expected more than 0"),
    "repetition_penalty": (lambda: request(repetition_penalty=0), "repetition_penalty: expected more than 0, got 0"),
}


@pytest.mark.parametrize(("make", "message"), BAD.values(), ids=BAD)
def test_bad_input_disturbs_no_other_request(make, message):
    traffic = Traffic("slots", "qwen3")
    engine = traffic.engine
    names = ("running", "waits", "a", "b")
    for name, seed in zip(names, range(4), strict=True):
        added = Request(name, (seed, 5), SamplingParams(max_tokens=8, temperature=1, seed=seed), TextStream(Letters()))
        engine.add(added)
        traffic.requests.append(added)
        if name == "running":
            engine.step()
    before = [(list(request.output), request.status) for request in traffic.requests]
    with pytest.raises(ValueError, match=message):
        engine.add(make())
    assert [request.id for request in engine.scheduler] == list(names)
    assert before == [(request.output, request.status) for request in traffic.requests]
    engine.check_integrity()
    traffic.finish()
    traffic.check()


def test_an_id_is_free_again_once_its_request_is_over():
    traffic = Traffic("slots", "qwen3")
    for _ in range(2):
        again = request("again", max_tokens=2, ignore_eos=True)
        traffic.engine.add(again)
        traffic.finish()
        assert again.output == alone("qwen3", again.prompt, again.params, CAPACITY)[0]


def test_abort_of_what_is_not_there():
    traffic = Traffic("slots", "qwen3")
    assert traffic.engine.abort("nobody") is None
    kept = traffic.arrives((1, 2), SamplingParams(max_tokens=3))
    assert traffic.engine.abort("0") is kept
    assert traffic.engine.abort("0") is None
    assert (kept.status, kept.finish_reason) == (Status.FINISHED, "abort")


@pytest.mark.parametrize(("num_slots", "capacity", "max_running"), [(0, 8, 1), (2, 1, 1), (2, 8, 0), (2, 8, -1)])
def test_sizes_that_cannot_serve(num_slots, capacity, max_running):
    with pytest.raises(ValueError, match="expected 1"):
        Scheduler(BatchedKVCache(2, num_slots, capacity), max_running)


# ------------------------------------------------------------------------------------------------ fast kernels


TEXTS = (
    "Mia had a red key. She hid the key in the old box.",
    "Once",
    "Tell me a short story.",
    "Tom went to the park. There he saw a",
    "One day",
    "The dog and the cat",
    "Where is the ball?",
)


class Listening(Engine):
    """An engine that keeps, for each chosen token, the tokens before it, and the logits from which it was chosen."""

    def settle(self, batch: Any, logits: Any) -> list[Request]:
        with_logits = [chunk for chunk in batch.chunks if chunk.num_logits]
        assert logits.shape == (len(with_logits), self.model.config.vocab_size) or not with_logits
        for chunk, row in zip(with_logits, logits, strict=True):
            self.heard.append((list(chunk.request.tokens), row.astype(mx.float32)))
        return super().settle(batch, logits)

    heard: list[tuple[list[int], mx.array]]


def dense_model(name: str, dtype: mx.Dtype) -> Any:
    """Return the plain model in float32, with the numbers of the quantised model."""
    model = quantised(name, dtype)
    for block in model.layers:
        block.input_layernorm = dense(block.input_layernorm)
        block.post_attention_layernorm = dense(block.post_attention_layernorm)
        for name in {"q_norm", "k_norm"} & vars(block.self_attn).keys():
            setattr(block.self_attn, name, dense(getattr(block.self_attn, name)))
    for _, owner, name in named_linears(model):
        setattr(owner, name, dense(getattr(owner, name)))
    model.norm, model.embed_tokens = dense(model.norm), dense(model.embed_tokens)
    return model


@pytest.mark.parametrize("system", ["slots", "slots, chunked", "few pages"])
@pytest.mark.parametrize(
    ("make_fast", "dtype", "stated"),
    [
        (tune, mx.bfloat16, TUNED),
        (optimise, mx.bfloat16, GENEROUS[mx.bfloat16]),
        (optimise, mx.float32, GENEROUS[mx.float32]),
    ],
    ids=["tuned", "optimised, bfloat16", "optimised, float32"],
)
def test_fast_kernels(system, make_fast, dtype, stated):
    """The error of the logits is at most the kernels'. The chosen token differs from float32's only in near ties."""
    model, oracle = quantised("story-draft", dtype), dense_model("story-draft", dtype)
    make_fast(model)
    engine = Listening(model, SYSTEMS[system](len(model.layers), attention=flash_attention), is_checked=True)
    engine.heard = []
    encode = Tokenizer.from_file(str(bundled("story-draft") / "tokenizer.json")).encode
    for i, text in enumerate(TEXTS):
        engine.add(Request(str(i), encode(text).ids, SamplingParams(max_tokens=5 + i, ignore_eos=True)))
        engine.step()
    finished = list(engine.run())
    assert len(engine.heard) >= 20
    assert all(
        len(request.output) == request.params.max_tokens or len(request.tokens) == CAPACITY for request in finished
    )
    got = np.stack([np.array(scores) for _, scores in engine.heard])
    expected = np.stack([np.array(oracle(mx.array([tokens]))[0, -1]) for tokens, _ in engine.heard])
    assert error(mx.array(got), expected) < stated
    chosen = np.take_along_axis(expected, got.argmax(axis=-1)[:, None], axis=-1)[:, 0]
    behind = (expected.max(axis=-1) - chosen) / np.sqrt((expected**2).mean())
    assert (behind < 6 * stated).all(), "another token may be chosen only where both are as good, but for the error"


# ------------------------------------------------------------------------------------------- log-probabilities


@pytest.mark.parametrize("damage", [math.nan, math.inf])
def test_logits_that_are_not_finite_cost_their_own_request_only(damage: float) -> None:
    """Row by row and all rows at once, the request gets the error, and no log-probabilities, because no token was
    chosen."""
    logits = np.random.default_rng(1).normal(size=(3, 100)).astype(np.float32)
    logits[1, 5] = damage
    seen = []
    for decoding in (Decoding(), BatchSampler()):
        params = [{"temperature": 0.0}, {"temperature": 1.0, "seed": 1}, {"temperature": 1.0, "seed": 2}]
        requests = [request(f"r{i}", num_logprobs=3, **each) for i, each in enumerate(params)]
        first, failed, last = decoding.choose([Chunk(each, [1], 0, 1) for each in requests], mx.array(logits))
        assert isinstance(failed, FloatingPointError)
        assert [len(each.logprobs) for each in requests] == [1, 0, 1]
        seen.append((first, last, [each.logprobs for each in requests]))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("count", [0, 1, 3, 20, 99, 100, 101])
def test_the_likeliest_tokens_of_a_place(count: int) -> None:
    """The likeliest token comes first, and of equally likely tokens, the one with the smaller id."""
    logits = np.random.default_rng(2).integers(-9, 9, (1, 100)).astype(np.float32)
    one = request(num_logprobs=count)
    note_logprobs(logits, [one], [7])
    [noted] = one.logprobs
    expected = sorted(range(100), key=lambda token: (-logits[0, token], token))[:count]
    assert [each.token for each in noted.top] == expected
    assert all(abs(math.log(np.exp(logits).sum()) + each.logprob - logits[0, each.token]) < 1e-5 for each in noted.top)
    assert noted.chosen.token == 7
