"""Speculative decoding over many samples: its tokens have the same distribution as tokens of the model alone."""

import math
from collections import Counter

import mlx.core as mx
import numpy as np
import pytest
from speculating import model_of, speculative

from tiny_llm_ref.sampler import make_sampler
from tiny_llm_ref.serving.batched_cache import BatchedKVCache
from tiny_llm_ref.serving.distributions import draw, probabilities
from tiny_llm_ref.serving.drafters import Draft, ModelDrafter, NGramDrafter
from tiny_llm_ref.serving.request import Request, SamplingParams
from tiny_llm_ref.serving.scheduler import Scheduler
from tiny_llm_ref.serving.speculative import accept

RIGHT, WRONG = 4.5, 8.0  # standard deviations: right code is below the one, the mistakes that are tried above the other


def deviations(outcomes, law):
    """Pearson's chi-square of these outcomes, as standard deviations of a normal variable (Wilson and Hilferty).

    Outcomes that are expected fewer than five times count together as one outcome.
    """
    law = {outcome: p for outcome, p in law.items() if p > 0}
    assert set(outcomes) <= law.keys(), "what cannot come came"
    rare = {outcome for outcome, p in law.items() if p * len(outcomes) < 5}
    counts = Counter("rare" if outcome in rare else outcome for outcome in outcomes)
    expected = {outcome: p * len(outcomes) for outcome, p in law.items() if outcome not in rare}
    if rare:
        expected["rare"] = sum(law[outcome] for outcome in rare) * len(outcomes)
    k = len(expected) - 1
    statistic = sum((counts[outcome] - n) ** 2 / n for outcome, n in expected.items())
    return ((statistic / k) ** (1 / 3) - (1 - 2 / (9 * k))) / math.sqrt(2 / (9 * k))


# ----------------------------------------------------------------------------------------------- accept

V = 4
FIRST = np.array([0.1, 0.4, 0.3, 0.2], np.float32)
AFTER = np.array([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1], [0.25, 0.25, 0.4, 0.1], [0.7, 0.1, 0.1, 0.1]], np.float32)
LAST = np.array([0.3, 0.1, 0.2, 0.4], np.float32)
GUESSED_FIRST = np.array([0.4, 0.1, 0.3, 0.2], np.float32)
GUESSED_AFTER = np.array([[0.3, 0.4, 0.2, 0.1]] * V, np.float32)
PAIRS = {(i, j): float(FIRST[i]) * float(AFTER[i, j]) for i in range(V) for j in range(V)}


def pairs(accept, are_drawn, count=12_000, seed=0):
    """Return the first two tokens of many runs, with two guesses each."""
    generator, found = np.random.default_rng(seed), []
    for _ in range(count):
        first = draw(GUESSED_FIRST, generator) if are_drawn else 1
        second = draw(GUESSED_AFTER[first], generator) if are_drawn else 3
        rows = np.stack([GUESSED_FIRST, GUESSED_AFTER[first]]) if are_drawn else None
        tokens = accept(np.stack([FIRST, AFTER[first], LAST]), Draft([first, second], rows), generator)
        if len(tokens) == 1:
            tokens += accept(AFTER[tokens[:1]], Draft([]), generator)
        found.append(tuple(tokens[:2]))
    return found


@pytest.mark.parametrize("are_drawn", [True, False], ids=["drawn", "certain"])
def test_pairs_have_the_models_distribution(are_drawn):
    assert deviations(pairs(accept, are_drawn), PAIRS) < RIGHT


def from_the_whole_row(target, draft, random):
    """Draw the token in place of a rejected guess from the model's whole row."""
    for i, token in enumerate(draft.tokens):
        if random.random() * q_of(draft, i) >= target[i, token]:
            return [*draft.tokens[:i], draw(target[i], random)]
    return [*draft.tokens, draw(target[-1], random)]


def one_number_for_all(target, draft, random):
    """Let the same random number decide on all guesses."""
    chance = random.random()
    for i, token in enumerate(draft.tokens):
        if chance * q_of(draft, i) >= target[i, token]:
            return [*draft.tokens[:i], draw(rest_of(target, draft, i), random)]
    return [*draft.tokens, draw(target[-1], random)]


def on_behind_a_rejection(target, draft, random):
    """Also use the guesses after a rejected guess."""
    tokens = list(draft.tokens)
    for i, token in enumerate(tokens):
        if random.random() * q_of(draft, i) >= target[i, token]:
            tokens[i] = draw(rest_of(target, draft, i), random)
    return [*tokens, draw(target[-1], random)]


def by_p_alone(target, draft, random):
    """Accept a drawn guess as if it were certain, but treat a rejected one as drawn."""
    for i, token in enumerate(draft.tokens):
        if random.random() >= target[i, token]:
            return [*draft.tokens[:i], draw(rest_of(target, draft, i), random)]
    return [*draft.tokens, draw(target[-1], random)]


def q_of(draft, i):
    return 1.0 if draft.probabilities is None else float(draft.probabilities[i][draft.tokens[i]])


def rest_of(target, draft, i):
    q = np.eye(V)[draft.tokens[i]] if draft.probabilities is None else draft.probabilities[i]
    return np.maximum(target[i] - q, 0)


@pytest.mark.parametrize(
    ("mistake", "are_drawn"),
    [
        (from_the_whole_row, True),
        (from_the_whole_row, False),
        (one_number_for_all, True),
        (one_number_for_all, False),
        (on_behind_a_rejection, True),
        (on_behind_a_rejection, False),
        (by_p_alone, True),
    ],
)
def test_pairs_of_mistakes_have_not(mistake, are_drawn):
    """The statistic is strong enough to detect these mistakes."""
    assert deviations(pairs(mistake, are_drawn), PAIRS) > WRONG


def test_drawn_guesses_may_be_taken_for_certain():
    """After any guess, the tokens have the model's distribution. But fewer guesses are accepted."""
    lengths = []

    def certain(target, draft, random):
        lengths.append([len(function(target, guesses, random)) for function, guesses in ways(draft)])
        return accept(target, Draft(draft.tokens), random)

    def ways(draft):
        return (accept, draft), (accept, Draft(draft.tokens))

    assert deviations(pairs(certain, True), PAIRS) < RIGHT
    drawn, taken_for_certain = np.mean(lengths, axis=0)
    assert drawn > taken_for_certain + 0.1


def test_rounding_rejects_what_is_equal():
    """By rounding, p is a little below q everywhere, and the random number is close to 1: no rest is left to draw
    from."""

    class AlmostOne:
        def random(self):
            return 1 - 2.0**-53

    rows = np.array([[0.5, 0.5]], np.float32)
    slightly_less = np.nextafter(rows, np.float32(0))
    tokens = accept(np.concatenate([slightly_less, rows]), Draft([0], rows), AlmostOne())
    assert tokens in ([1], [0, 1])


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 1.0},
        {"temperature": 0.6, "top_k": 5},
        {"temperature": 1.5, "top_p": 0.8},
        {"temperature": 1.2, "min_p": 0.15},
        {"temperature": 0.9, "repetition_penalty": 1.7, "top_k": 8, "top_p": 0.95, "min_p": 0.01},
        {"temperature": 0.0, "repetition_penalty": 3.0},
    ],
    ids=str,
)
def test_probabilities_are_what_the_sampler_draws_from(options):
    logits = mx.array(np.random.RandomState(3).standard_normal((1, 11)).astype(np.float32))
    text, count = [3, 1, 4, 1, 5], 40_000
    (row,) = probabilities(SamplingParams(**options), logits, [text])
    sampler = make_sampler(seed=8, **options)
    drawn = sampler(mx.repeat(logits, count, axis=0), mx.array([text] * count)).tolist()
    if options["temperature"] == 0:
        assert set(drawn) == {int(row.argmax())}
        assert row.max() == 1
    else:
        assert deviations(drawn, dict(enumerate(row.tolist()))) < RIGHT


def pairs_by_the_model(model, prompt, params):
    """Return the exact distribution of the first two tokens."""

    def row(text):
        return probabilities(params, model(mx.array([text]))[:, -1], [text])[0].astype(np.float64)

    first = row(prompt)
    return {
        (i, j): first[i] * after
        for i in np.flatnonzero(first).tolist()
        for j, after in enumerate(row([*prompt, i]).tolist())
        if after
    }


class Likeliest(ModelDrafter):
    """A drafter that guesses the likeliest token, but says that the guess was drawn."""

    def propose(self, wanted):
        drafts = super().propose(wanted)
        rows = [draft.probabilities for draft in drafts]
        return [
            draft if row is None else Draft(row.argmax(axis=-1).tolist(), row)
            for draft, row in zip(drafts, rows, strict=True)
        ]


def drafter_of(kind):
    if kind == "n-gram":
        return NGramDrafter()
    model = model_of(7)
    return (Likeliest if kind == "likeliest" else ModelDrafter)(model, BatchedKVCache(1, 64, 32))


def engine_pairs(kind, params, count):
    """Return the first two tokens of many requests with the same prompt, and the share of accepted guesses."""
    model = model_of(1)
    scheduler = Scheduler(BatchedKVCache(1, 64, 32), 64)
    engine = speculative(model, scheduler, drafter_of(kind), num_drafts=3)
    requests = [
        Request(str(seed), PROMPT, SamplingParams(max_tokens=3, seed=seed, ignore_eos=True, **params))
        for seed in range(count)
    ]
    for request in requests:
        engine.add(request)
    for _ in engine.run():
        pass
    rate = sum(request.num_accepted for request in requests) / sum(request.num_drafted for request in requests)
    return [tuple(request.output[:2]) for request in requests], rate


PROMPT = [2, 0, 3, 1, 2, 0, 3, 4, 2]  # which repeats itself
SETTINGS = {
    "plain": {"temperature": 1.0},
    "top-k and penalty": {"temperature": 0.8, "top_k": 5, "repetition_penalty": 1.4},
    "top-p and min-p": {"temperature": 1.3, "top_p": 0.9, "min_p": 0.05},
}


@pytest.mark.parametrize("kind", ["model", "n-gram"])
@pytest.mark.parametrize("params", SETTINGS.values(), ids=SETTINGS)
def test_an_engines_tokens_have_the_models_distribution(kind, params):
    law = pairs_by_the_model(model_of(1), PROMPT, SamplingParams(**params))
    found, rate = engine_pairs(kind, params, 1500)
    assert 0.05 < rate < 0.95, "some guesses are accepted, and some are not"
    assert deviations(found, law) < RIGHT


def test_an_engine_whose_drafter_says_what_is_not_true_has_not():
    law = pairs_by_the_model(model_of(1), PROMPT, SamplingParams(temperature=1.0))
    found, _ = engine_pairs("likeliest", {"temperature": 1.0}, 1500)
    assert deviations(found, law) > WRONG
