"""Draft heads, and the number of guesses that adapts to a request."""

import hashlib
from copy import copy
from itertools import pairwise

import mlx.core as mx
import numpy as np
import pytest
from safetensors import safe_open
from speculating import model_of, random_heads

from tiny_llm_models import bundled, draft_heads
from tiny_llm_models.evaluation import held_out_stories
from tiny_llm_ref.kv_cache import KVCache
from tiny_llm_ref.models import load
from tiny_llm_ref.serving.batched_cache import BatchedKVCache
from tiny_llm_ref.serving.draft_heads import DraftHeads
from tiny_llm_ref.serving.draft_length import AdaptiveLength, DraftLength, gain
from tiny_llm_ref.serving.engine import Engine
from tiny_llm_ref.serving.head_drafter import HeadDrafter
from tiny_llm_ref.serving.request import Request, SamplingParams
from tiny_llm_ref.serving.scheduler import Scheduler, TokenBudget
from tiny_llm_ref.serving.speculative import Speculative
from tiny_llm_ref.tuned import tune

FILE = draft_heads("story")

# ------------------------------------------------------------------------------------------------- draft heads


def test_the_heads_compute_the_formula():
    """One request at a time, one head at a time, in float64."""
    heads = random_heads(8, count=3, width=5)
    hidden, embedded = np.random.default_rng(1).standard_normal((2, 4, 8)).astype(np.float32)
    found = heads(hidden, embedded)
    assert found.shape == (4, 3, 8)
    assert found.flags.c_contiguous, "MLX keeps the strides of an array, and the tuned output layer needs rows"
    for n in range(4):
        h, e = (x[n].astype(np.float64) / np.sqrt(np.mean(x[n].astype(np.float64) ** 2)) for x in (hidden, embedded))
        for i in range(3):
            inner = heads.eh_proj[5 * i : 5 * i + 5].astype(np.float64) @ np.concatenate([e, h])
            expected = (inner / (1 + np.exp(-inner))) @ heads.out_proj[i] + heads.bias[i, 0]
            np.testing.assert_allclose(found[n, i], expected, rtol=1e-4, atol=1e-4)


class Recording(DraftHeads):
    """Heads that note their input."""

    def __init__(self, heads):
        self.__dict__.update(heads.__dict__)
        self.calls = []

    def __call__(self, hidden, embedded):
        self.calls.append((hidden, embedded))
        return super().__call__(hidden, embedded)


@pytest.mark.parametrize("budget", [None, 5], ids=["whole prompts", "parts of prompts"])
def test_the_heads_read_the_vector_behind_the_newest_token(budget):
    """They read what the last norm gets for the token before the newest, when the model reads the text alone."""
    plain = model_of(1, 40, 2)
    model = copy(plain)
    recording = Recording(random_heads(model.config.hidden_size))
    drafter = HeadDrafter(model, recording)
    requests = [Request(id, prompt, SamplingParams(12)) for id, prompt in (("a", [3, 1, 4, 1, 5, 9, 2]), ("b", [2, 7]))]
    options = [] if budget is None else [TokenBudget(budget)]
    engine = Engine(model, Scheduler(BatchedKVCache(2, 4, 48), 4, *options), decoding=Speculative(drafter, 3))
    for request in requests:
        engine.add(request)
    steps = 0
    while engine.has_work:
        before = {request: list(request.tokens) for request in engine.scheduler.running if request.output}
        count = len(recording.calls)
        engine.step()
        if not before:
            continue
        steps += 1
        if len(recording.calls) == count:  # each request has one token left, which needs no guess
            continue
        hidden, embedded = recording.calls[-1]
        for row, text in zip(hidden, [before[each] for each in before if wants(each, before)], strict=True):
            np.testing.assert_allclose(row, last_vector(plain, text[:-1]), rtol=1e-3, atol=1e-4)
        newest = [before[each][-1] for each in before if wants(each, before)]
        np.testing.assert_array_equal(embedded, np.array(plain.embed_tokens(mx.array(newest))))
    assert steps > 3
    assert all(request.finish_reason == "length" for request in requests)


def wants(request, before):
    return request.params.max_tokens - (len(before[request]) - len(request.prompt)) > 1


def last_vector(model, tokens):
    seen = []
    watched = copy(model)
    watched.norm = lambda x: seen.append(x) or model.norm(x)
    watched.hidden(mx.array([tokens]), KVCache(len(model.layers)))
    return np.array(seen[0][0, -1])


def test_no_guess_before_the_first_token():
    model = copy(model_of(1))
    drafter = HeadDrafter(model, random_heads(model.config.hidden_size))
    (draft,) = drafter.propose([(Request("a", [1, 2]), 4)])
    assert list(draft.tokens) == []
    assert list(drafter.propose([])) == []


def test_a_finished_request_is_forgotten():
    model = copy(model_of(1))
    drafter = HeadDrafter(model, random_heads(model.config.hidden_size))
    engine = Engine(model, Scheduler(BatchedKVCache(1, 4, 48), 4), decoding=Speculative(drafter, 3))
    engine.add(Request("a", [1, 2, 3], SamplingParams(5)))
    for _ in engine.run():
        pass
    assert drafter._last == {}


# --------------------------------------------------------------------------------------- the heads of `story`


def test_the_file_is_small_and_of_these_weights():
    assert FILE.stat().st_size < 1_000_000
    with safe_open(FILE, "numpy") as file:
        notes = file.metadata()
    assert notes["weights"] == hashlib.sha256((bundled("story") / "model.safetensors").read_bytes()).hexdigest()
    assert notes["script"].startswith("python -m tiny_llm_models.training heads story")
    assert notes["commit"]


def test_only_story_has_heads():
    assert draft_heads("story-draft") is None
    assert draft_heads("../story") is None


@pytest.mark.parametrize("layers", ["plain", "tuned"])
def test_the_guesses_of_story_are_often_right(layers):
    """In new stories, half of the first guesses are the model's own choice, with both forms of the model."""
    model, tokenizer = load("story", mx.float32)
    if layers == "tuned":
        tune(model)
    drafter = HeadDrafter(model, DraftHeads(mx.load(str(FILE))))
    seen = []
    inner = model.norm
    model.norm = lambda x: seen.append(x) or inner(x)
    rates = []
    for language in ("english", "japanese"):
        right, count = np.zeros(drafter.heads.count), 0
        for story in held_out_stories(language, 4):
            tokens = tokenizer.encode(story)
            chosen = np.array(mx.argmax(model(mx.array([tokens])), axis=-1))[0]
            vectors = np.array(seen.pop().astype(mx.float32))[0]
            places = np.flatnonzero(chosen[:-4] == np.array(tokens)[1:-3])  # where the text is what the model chooses
            guesses = drafter.heads(vectors[places], drafter._table[chosen[places]])
            logits = model.logits(drafter._norm(mx.array(guesses)))
            seen.clear()
            agree = np.array(mx.argmax(logits, axis=-1)) == np.stack([chosen[places + 1 + i] for i in range(3)], axis=1)
            right += agree.sum(axis=0)
            count += len(places)
        rates.append(right / count)
    assert all(rate[0] > 0.5 for rate in rates), rates
    assert all((rate[1:] > 0.2).all() for rate in rates), rates


# ------------------------------------------------------------------------------- how many guesses a step checks


@pytest.mark.parametrize("requests", [1, 4, 16])
@pytest.mark.parametrize("chance", [0, 0.3, 0.8, 1])
def test_gain_is_tokens_per_time(chance, requests):
    """Compare with the average over many steps, and with the time counted row by row."""
    cost, guesses, random = 0.3, 3, np.random.default_rng(2)
    right = (random.random((200_000, guesses)) < chance).cumprod(axis=1).sum(axis=1)
    seconds = [1 + cost * sum(1 for _ in range(requests * (k + 1) - 1)) for k in (0, guesses)]
    expected = (1 + right.mean()) / (seconds[1] / seconds[0])
    assert gain(chance, guesses, requests, cost) == pytest.approx(expected, rel=0.01)
    assert gain(chance, 0, requests, cost) == 1


def lengths(length, request, most, rights):
    """Return the number of guesses in each step, if the first `right` guesses of each step are right."""
    found = []
    for right in rights:
        found.append(length.choose(request, most, 1))
        if found[-1]:
            length.note(request, found[-1], min(right, found[-1]))
    return found


def test_right_guesses_lead_to_more_and_wrong_ones_to_none():
    found = lengths(AdaptiveLength(0.3), Request("a", [1]), 8, [8] * 20 + [0] * 60)
    assert found[19] == 8
    assert all(later >= earlier for earlier, later in pairwise(found[:20]))
    assert all(later <= earlier for earlier, later in pairwise(found[20:35]))
    assert found[-15:].count(0) >= 14


def test_after_a_pause_one_guess_is_tried():
    """The pauses get longer. When the text can be guessed again, guesses come back."""
    length, request = AdaptiveLength(0.3), Request("a", [1])
    wrong = lengths(length, request, 4, [0] * 150)
    tries = [place for place, count in enumerate(wrong) if count]
    gaps = [later - earlier for earlier, later in pairwise(tries)]
    assert gaps == sorted(gaps)
    assert gaps[-1] == 17
    assert {3, 5, 9} < set(gaps)
    assert {wrong[place] for place in tries[5:]} == {1}
    assert lengths(length, request, 4, [4] * 200)[-1] == 4


def test_many_requests_get_fewer_guesses():
    counts = [AdaptiveLength(0.25).choose(Request("a", [1]), 4, requests) for requests in (1, 2, 4, 16)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] >= 2
    assert AdaptiveLength(0.25).choose(Request("a", [1]), 4, 16) <= 1


def test_each_request_has_its_own_length():
    length, good, bad = AdaptiveLength(0.1), Request("a", [1]), Request("b", [1])
    for _ in range(20):
        length.note(good, 4, 4)
        length.note(bad, 4, 0)
    assert length.choose(good, 4, 1) == 4
    assert length.choose(bad, 4, 1) == 0
    length.forget(bad)
    assert length.choose(bad, 4, 1) > 0


def test_an_engine_adapts():
    """Random heads are wrong most of the time, so that steps soon have no guesses, and the text stays the same."""
    requests = []
    for length in (DraftLength(), AdaptiveLength(0.25)):
        model = copy(model_of(1, 40, 2))
        drafter = HeadDrafter(model, random_heads(model.config.hidden_size))
        decoding = Speculative(drafter, 3, length=length)
        engine = Engine(model, Scheduler(BatchedKVCache(2, 4, 64), 4), decoding=decoding)
        requests.append(Request("a", [1, 2, 3], SamplingParams(50)))
        engine.add(requests[-1])
        for _ in engine.run():
            pass
    fixed, adapted = requests
    assert fixed.output == adapted.output
    assert adapted.num_drafted < fixed.num_drafted / 2
