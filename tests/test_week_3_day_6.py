"""Week 3 Day 6: speculative decoding."""

import random
from contextlib import suppress
from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import pytest
from helpers import Inputs, array64, assert_close

from tiny_llm_models.untrained import untrained_config, write_untrained

task_1 = pytest.mark.task("w3d6.1")
task_2 = pytest.mark.task("w3d6.2")
task_3 = pytest.mark.task("w3d6.3")
task_4 = pytest.mark.task("w3d6.4")

VOCAB = 23
END = 2  # the end token of the stand-ins for models


def new_request(impl, id="a", prompt=(3, 1, 4), seed=0, **params):
    serving = impl.serving.request
    return serving.Request(id, list(prompt), serving.SamplingParams(seed=seed, **params))


def draft_of(impl, tokens, rows=None):
    """Return a draft. rows: the distributions that the guesses were drawn from; None means that the guesses are
    certain."""
    return impl.serving.drafters.Draft(list(tokens), None if rows is None else np.array(rows, np.float32))


def one_hot(*tokens, size=5):
    return np.eye(size, dtype=np.float32)[list(tokens)]


# ------------------------------------------------------------------------------------ task 1: accept or reject

P = [0.1, 0.4, 0.3, 0.2, 0.0]  # the model's
Q = [0.5, 0.1, 0.1, 0.2, 0.1]  # the drafter's: too high for 0 and 4, too low for 1 and 2, right for 3
AFTER = [0.0, 0.0, 0.1, 0.2, 0.7]  # the model's distribution after the guess
COUNT = 1200  # a frequency then misses its tolerance less than once in 100 million runs


def law(target, tokens, drafts=None):
    """Return the possible outcomes for these guesses and their probabilities, case by case in float64."""
    target = np.array(target, np.float64)
    drafts = one_hot(*tokens, size=target.shape[1]) if drafts is None else drafts
    found, reached = {}, 1.0
    for i, (token, q) in enumerate(zip(tokens, np.array(drafts, np.float64), strict=True)):
        accepted = min(1.0, target[i, token] / q[token])
        rest = np.maximum(target[i] - q, 0)
        for other in np.flatnonzero(rest) if accepted < 1 else ():
            found[(*tokens[:i], int(other))] = reached * (1 - accepted) * rest[other] / rest.sum()
        reached *= accepted
    for last in np.flatnonzero(target[-1]):
        found[(*tokens, int(last))] = reached * target[-1, last]
    return found


def assert_frequencies(outcomes, expected):
    """Fail unless each outcome is as frequent as expected, and no other occurs. outcomes: tuples. expected: the
    probability of each."""
    __tracebackhide__ = True
    counts = dict.fromkeys([*sorted(expected), "others"], 0)
    for outcome in outcomes:
        counts[outcome if outcome in expected else "others"] += 1
    got = mx.array([count / len(outcomes) for count in counts.values()])
    assert_close(got, [*(expected[outcome] for outcome in sorted(expected)), 0], tolerance=0.06)


def outcomes_of(impl, target, draft, seed, count=COUNT):
    """Return the results of `accept` for the same guesses, again and again."""
    target, generator = np.array(target, np.float32), new_request(impl, seed=seed).random
    return [tuple(impl.serving.speculative.accept(target, draft, generator)) for _ in range(count)]


@task_1
def test_task_1_greedy(impl):
    """The model agrees with two guesses, but not with the third."""
    generator = new_request(impl, seed=0).random
    got = impl.serving.speculative.accept(one_hot(3, 1, 4, 2), draft_of(impl, [3, 1, 0]), generator)
    assert got == [3, 1, 4], "two guesses, and the model's token in place of the third"


@task_1
@pytest.mark.parametrize(
    ("guesses", "expected"),
    [
        ([], [3]),
        ([3], [3, 1]),
        ([4], [3]),
        ([3, 1, 4, 2], [3, 1, 4, 2, 0]),
        ([3, 0, 4, 2], [3, 1]),
        ([0, 1, 4, 2], [3]),
        ([3, 1, 2, 4], [3, 1, 4]),
    ],
    ids=["none", "right", "wrong", "all right", "the second wrong", "the first wrong", "the third wrong"],
)
@pytest.mark.parametrize("are_drawn", [False, True], ids=["certain", "drawn"])
def test_task_1_all_on_one_token(impl, guesses, expected, are_drawn):
    """Guesses count up to the first wrong one, whatever comes after it. One more token comes from the model, after the
    last guess, too."""
    rows = one_hot(*guesses) if are_drawn else None
    generator = new_request(impl, seed=1).random
    target = one_hot(3, 1, 4, 2, 0)[: len(guesses) + 1]
    for _ in range(5):
        got = impl.serving.speculative.accept(target, draft_of(impl, guesses, rows), generator)
        assert got == expected, f"what comes out for the guesses {guesses}"


@task_1
@pytest.mark.parametrize("guess", [0, 1, 2, 3, 4])
def test_task_1_a_drawn_guess(impl, guess):
    """A guess is accepted with probability min(1, p / q). A rejected one is replaced by a token to which q gives too
    little probability."""
    outcomes = outcomes_of(impl, [P, AFTER], draft_of(impl, [guess], [Q]), seed=2)
    assert_frequencies(outcomes, law([P, AFTER], [guess], [Q]))


@task_1
@pytest.mark.parametrize("guess", [0, 1, 4])
def test_task_1_a_certain_guess(impl, guess):
    """A certain guess has q = 1, so it is accepted with probability p, and otherwise replaced by another token."""
    outcomes = outcomes_of(impl, [P, AFTER], draft_of(impl, [guess]), seed=3)
    assert_frequencies(outcomes, law([P, AFTER], [guess]))


@task_1
def test_task_1_no_guess(impl):
    """Without guesses, a token is drawn from the model's distribution."""
    outcomes = outcomes_of(impl, [P], draft_of(impl, []), seed=4)
    assert_frequencies(outcomes, {(token,): p for token, p in enumerate(P) if p})


THREE = [P, [0.3, 0.3, 0.1, 0.2, 0.1], [0.2, 0.05, 0.25, 0.4, 0.1], AFTER]
DRAFTS = [Q, [0.2, 0.1, 0.4, 0.2, 0.1], [0.1, 0.1, 0.5, 0.1, 0.2]]


@task_1
@pytest.mark.parametrize("guesses", [(3, 2, 2), (0, 0, 3), (1, 4, 2)], ids=str)
def test_task_1_several_drawn_guesses(impl, guesses):
    """Each guess has its own row in target and draft, and its own chance to be accepted."""
    outcomes = outcomes_of(impl, THREE, draft_of(impl, guesses, DRAFTS), seed=5)
    assert_frequencies(outcomes, law(THREE, guesses, DRAFTS))


@task_1
def test_task_1_several_certain_guesses(impl):
    """Two guesses are accepted with probability 1/2 each, so both are accepted in a quarter of the runs."""
    target = [[0.5, 0.25, 0.25, 0.0, 0.0], [0.1, 0.5, 0.1, 0.1, 0.2], [0.4, 0.2, 0.1, 0.3, 0.0]]
    outcomes = outcomes_of(impl, target, draft_of(impl, [0, 1]), seed=6)
    assert_frequencies(outcomes, law(target, [0, 1]))


@task_1
def test_task_1_the_models_distribution(impl):
    """The guess is drawn from q, and still the first token has the distribution p."""
    choose, generator = np.random.default_rng(7), new_request(impl, seed=8).random
    target, first = np.array([P, AFTER], np.float32), []
    for guess in choose.choice(5, COUNT, p=Q).tolist():
        first.append(tuple(impl.serving.speculative.accept(target, draft_of(impl, [guess], [Q]), generator)[:1]))
    assert_frequencies(first, {(token,): p for token, p in enumerate(P) if p})


CHAIN = [[0.2, 0.5, 0.3], [0.6, 0.1, 0.3], [0.1, 0.1, 0.8]]  # the model's distribution after each of three tokens
GUESSED = [[0.5, 0.2, 0.3], [0.2, 0.6, 0.2], [0.4, 0.3, 0.3]]  # the draft model's distributions
FIRST, GUESSED_FIRST = [0.2, 0.3, 0.5], [0.4, 0.5, 0.1]


@task_1
@pytest.mark.parametrize("are_drawn", [True, False], ids=["drawn", "certain"])
def test_task_1_two_tokens(impl, are_drawn):
    """The first two tokens have the distribution that the model gives to pairs."""
    accept, generator = impl.serving.speculative.accept, new_request(impl, seed=9).random
    choose, pairs = np.random.default_rng(10), []
    for _ in range(COUNT):
        first = int(choose.choice(3, p=GUESSED_FIRST)) if are_drawn else 1
        second = int(choose.choice(3, p=GUESSED[first])) if are_drawn else (first + 1) % 3
        rows = [GUESSED_FIRST, GUESSED[first]] if are_drawn else None
        target = np.array([FIRST, CHAIN[first], CHAIN[second]], np.float32)
        tokens = list(accept(target, draft_of(impl, [first, second], rows), generator))
        if len(tokens) == 1:  # the next step gives the second token
            tokens += accept(np.array([CHAIN[tokens[0]]], np.float32), draft_of(impl, []), generator)
        pairs.append(tuple(tokens[:2]))
    assert_frequencies(pairs, {(i, j): FIRST[i] * CHAIN[i][j] for i in range(3) for j in range(3)})


@task_1
def test_task_1_a_drafter_that_says_what_the_model_says(impl):
    """If the draft has the model's own probabilities, all guesses are accepted."""
    choose = np.random.default_rng(11)
    rows = choose.dirichlet(np.ones(40), 5).astype(np.float32)
    generator, lengths = new_request(impl, seed=12).random, set()
    for _ in range(200):
        guesses = [int(choose.choice(40, p=row.astype(np.float64) / row.astype(np.float64).sum())) for row in rows[:4]]
        tokens = list(impl.serving.speculative.accept(rows, draft_of(impl, guesses, rows[:4]), generator))
        assert tokens[:4] == guesses, "p / q is 1 for each guess"
        lengths.add(len(tokens))
    assert lengths == {5}, "four guesses and one token more"


class Unlucky(np.random.Generator):
    """A generator whose `random` always returns the largest number below 1."""

    def __init__(self):
        super().__init__(np.random.PCG64(0))

    def random(self):
        return 1 - 2.0**-53


@task_1
@pytest.mark.parametrize("are_drawn", [True, False], ids=["drawn", "certain"])
def test_task_1_equal_but_for_rounding(impl, are_drawn):
    """p may be slightly less than q for every token, so a guess may be rejected although nothing of p - q is left. Then
    any possible token is right, but an error is not."""
    rows = np.array([[0.5, 0.5, 0.0]] if are_drawn else [[1.0, 0.0, 0.0]], np.float32)
    target = np.concatenate([np.nextafter(rows, np.float32(0)), [[0.0, 0.0, 1.0]]]).astype(np.float32)
    draft = draft_of(impl, [0], rows if are_drawn else None)
    got = impl.serving.speculative.accept(target, draft, Unlucky())
    assert list(got) in ([[0], [1], [0, 2]] if are_drawn else [[0], [0, 2]])


@task_1
@pytest.mark.parametrize("guess", [1, 2])
def test_task_1_nearly_equal(impl, guess):
    """However close p and q are, a rejected guess is replaced by a token with p > q."""
    rows, target = np.array([[0, 0.5, 0.5]], np.float32), np.array([[0, 0.5, 0.5], [0, 1, 0]], np.float32)
    target[0] += np.array([2, -1, -1], np.float32) * 2.0**-12
    got = impl.serving.speculative.accept(target, draft_of(impl, [guess], rows), Unlucky())
    assert list(got) in ([0], [guess, 1]), "only token 0 is likelier in p than in q"


@task_1
def test_task_1_nothing_but_its_own_random_numbers(impl):
    """The same seed gives the same tokens, whatever else draws random numbers."""
    runs = []
    for seed in (0, 1):
        random.seed(seed)
        np.random.seed(seed)
        mx.random.seed(seed)
        runs.append(outcomes_of(impl, THREE, draft_of(impl, [0, 0, 2], DRAFTS), seed=13, count=100))
    assert runs[0] == runs[1], "two runs with the same seed"
    assert len(set(runs[0])) > 3, "with other random numbers, other tokens"


@task_1
def test_task_1_leaves_its_inputs_alone(impl):
    """`accept` must not change the rows of target and draft, for example by subtracting in place."""
    target, rows = np.array(THREE, np.float32), np.array(DRAFTS, np.float32)
    draft, generator = impl.serving.drafters.Draft([0, 4, 2], rows), new_request(impl, seed=14).random
    for _ in range(20):
        impl.serving.speculative.accept(target, draft, generator)
    assert np.array_equal(target, np.array(THREE, np.float32)), "target was changed"
    assert np.array_equal(np.array(draft.probabilities), np.array(DRAFTS, np.float32)), "the draft was changed"
    assert list(draft.tokens) == [0, 4, 2], "the draft was changed"


# -------------------------------------------------------------------------- task 2: guesses from the text itself


def by_ngram(tokens, count, longest=3):
    """Find the continuation naively: of all earlier places of the longest ending that occurs there, take the last
    one."""
    text = list(tokens)
    for n in range(longest, 0, -1):
        ends = [end for end in range(n, len(text)) if text[end - n : end] == text[len(text) - n :]]
        if ends and n < len(text):
            return text[ends[-1] : ends[-1] + count]
    return []


def guess(impl, tokens, *options):
    return list(impl.serving.drafters.propose_by_ngram(tokens, *options))


@task_2
def test_task_2_a_text_that_repeats_itself(impl):
    got = guess(impl, [7, 8, 9, 5, 6, 7, 8, 9], 2)
    assert got == [5, 6], "what followed 7 8 9 the first time"


@task_2
def test_task_2_the_latest_place(impl):
    """The end of the text occurs several times before, and the latest place counts."""
    got = guess(impl, [7, 8, 9, 1, 7, 8, 9, 2, 3, 7, 8, 9], 3)
    assert got == [2, 3, 7], "what followed 7 8 9 the last time"


@task_2
def test_task_2_the_longest_end_first(impl):
    """A longer ending counts more than a shorter one, even if the shorter one occurs later."""
    got = (
        guess(impl, [7, 8, 9, 1, 1, 8, 9, 2, 9, 3, 7, 8, 9], 1),
        guess(impl, [7, 8, 9, 1, 1, 8, 9, 2, 9, 3, 6, 8, 9], 1),
    )
    assert got == ([1], [2]), "behind 7 8 9, and behind 8 9, since 6 8 9 is new"


@task_2
@pytest.mark.parametrize(
    ("tokens", "expected"),
    [([4, 5, 6, 1, 2, 6], [1, 2, 6]), ([4, 5, 6, 1, 5, 6], [1, 5, 6]), ([1, 2, 3, 4], []), ([5], [])],
    ids=["one token", "two tokens", "nothing", "a single token"],
)
def test_task_2_shorter_ends(impl, tokens, expected):
    assert guess(impl, tokens, 3) == expected


@task_2
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 9])
def test_task_2_count(impl, count):
    """At most `count` tokens are guessed, and fewer at the end of the text."""
    got = guess(impl, [7, 8, 9, 1, 7, 8, 9], count)
    assert got == [1, 7, 8, 9][:count]


@task_2
@pytest.mark.parametrize(
    ("tokens", "expected"),
    [([5, 5], [5]), ([5, 5, 5], [5]), ([5] * 6, [5]), ([1, 2] * 3, [1, 2]), ([0, 0, 1, 0, 0], [1, 0, 0])],
    ids=str,
)
def test_task_2_places_that_overlap(impl, tokens, expected):
    """An earlier place may overlap the end of the text. Token 0 is a token like any other."""
    assert guess(impl, tokens, 4) == expected


@task_2
def test_task_2_the_beginning_of_the_text(impl):
    """The beginning of the text is a place, too, and so is the whole text without its last token."""
    got = guess(impl, [9, 4, 9], 2), guess(impl, [8, 9, 8, 9], 2), guess(impl, [3, 3, 3, 3], 2, 3)
    assert got == ([4, 9], [8, 9], [3])


@task_2
@pytest.mark.parametrize(("longest", "expected"), [(1, [5]), (2, [4]), (3, [3]), (4, [2]), (5, [2])])
def test_task_2_longest(impl, longest, expected):
    """`longest` is the length of the first ending that is searched, 3 by default."""
    tokens = [6, 7, 8, 9, 2, 7, 8, 9, 3, 8, 9, 4, 9, 5, 6, 7, 8, 9]
    assert guess(impl, tokens, 1, longest) == expected
    assert guess(impl, tokens, 1) == [3]


@task_2
@pytest.mark.parametrize("seed", range(4))
def test_task_2_any_text(impl, seed):
    draw = random.Random(seed)
    for _ in range(60):
        tokens = [draw.randrange(draw.choice((2, 3, 9))) for _ in range(draw.randint(1, 30))]
        count, longest = draw.randint(0, 6), draw.randint(1, 5)
        got = guess(impl, tokens, count, longest)
        assert got == by_ngram(tokens, count, longest), f"{count} tokens behind {tokens}, longest = {longest}"


@task_2
@pytest.mark.parametrize("length", [31, 100, 500, 2000])
def test_task_2_a_long_text(impl, length):
    """The place is at the beginning of a long text, so all of the text must be searched."""
    text = list(range(1000, 1000 + length))
    assert guess(impl, [7, 8, 9, 1, 2, *text, 7, 8, 9], 3) == [1, 2, 1000]
    assert guess(impl, [7, 8, 9, *text, 8, 9, 5, *text, 3, 9], 2) == [5, 1000], "9 alone, the last time"
    assert guess(impl, text, 3) == []


@task_2
def test_task_2_leaves_the_text_alone(impl):
    tokens = [7, 8, 9, 1, 7, 8, 9]
    guess(impl, tokens, 3)
    assert tokens == [7, 8, 9, 1, 7, 8, 9]
    assert guess(impl, tuple(tokens), 3) == [1, 7, 8], "a tuple is a sequence too"


# ------------------------------------------------------------------------ task 3: guesses from a smaller model


def untrained(impl, folder, seed=3, layers=1, **changes):
    config = untrained_config(num_hidden_layers=layers, **changes)
    shapes = impl.given.weights.expected_shapes(impl.given.config.ModelConfig.from_hf(config))
    write_untrained(folder, config, shapes, seed=seed)
    return impl.models.load_model(folder)


class Watched:
    """A model that notes the tokens of each of its passes, sorted."""

    def __init__(self, model):
        self.model, self.config, self.layers = model, model.config, model.layers
        self.passes = []

    def hidden(self, tokens, cache):
        assert tokens.shape[1] == 1, f"each token is a row: expected T x 1, got {tokens.shape}"
        self.passes.append(sorted(np.array(tokens)[:, 0].tolist()))
        return self.model.hidden(tokens, cache)

    def logits(self, hidden):
        return self.model.logits(hidden)


def slots(impl, num_slots=4, capacity=64, layers=1):
    return impl.serving.batched_cache.BatchedKVCache(layers, num_slots, capacity)


def pages(impl, num_pages, page_size=4, layers=1):
    return impl.serving.paged_cache.PagedKVCache(layers, impl.serving.page_pool.PagePool(num_pages, page_size))


def stored(drafter, request):
    """Return how many positions of a request the draft model's cache holds, including its guesses."""
    copy = drafter.copies.get(request)
    return 0 if copy is None else len(copy.tokens)


def drafter_of(impl, folder, cache=None, **changes):
    """Return a `ModelDrafter` with a watched model."""
    model = Watched(untrained(impl, folder, **changes))
    return impl.serving.drafters.ModelDrafter(model, slots(impl) if cache is None else cache), model


class Naive:
    """A naive drafter that computes each guess from the whole text, with each request's own random numbers."""

    def __init__(self, impl, model):
        self.impl, self.model = impl, model.model
        self.generators = {}

    def guesses(self, request, count):
        """Return tokens and rows of the guesses."""
        generator = self.generators.setdefault(request.id, new_request(self.impl, seed=request.params.seed).random)
        text, rows, given = list(request.tokens), [], self.impl.serving.distributions
        for _ in range(count):
            rows.append(given.probabilities(request.params, self.model(mx.array([text]))[:, -1], [text])[0])
            text.append(given.draw(rows[-1], generator))
        return text[len(text) - count :], rows


def assert_drafts(drafter, naive, wanted):
    """Compare the guesses for several requests, and return them."""
    drafts = list(drafter.propose(wanted))
    assert len(drafts) == len(wanted), f"drafts for {len(wanted)} requests, got {len(drafts)}"
    for draft, (request, count) in zip(drafts, wanted, strict=True):
        tokens, rows = naive.guesses(request, count)
        assert list(draft.tokens) == tokens, f"{request.id}: the guesses"
        if count:
            assert draft.probabilities is not None, f"{request.id}: the guesses were drawn, and are not certain"
            assert_close(mx.array(draft.probabilities), np.stack(rows), tolerance=1e-3)
    return [list(draft.tokens) for draft in drafts]


PARAMS = {
    "greedy": {},
    "temperature": {"temperature": 0.7, "seed": 5},
    "top-k": {"temperature": 1.3, "top_k": 6, "seed": 6},
    "top-p and min-p": {"temperature": 1.0, "top_p": 0.7, "min_p": 0.02, "seed": 7},
    "penalty": {"repetition_penalty": 4.0},
    "penalty, drawn": {"temperature": 0.6, "repetition_penalty": 3.0, "seed": 8},
}


@task_3
def test_task_3_greedy(impl, tmp_path):
    """One request gets two guesses: the smaller model's next token, and the one after it."""
    drafter, model = drafter_of(impl, tmp_path)
    request = new_request(impl)
    (draft,) = drafter.propose([(request, 2)])
    tokens, _ = Naive(impl, model).guesses(request, 2)
    assert list(draft.tokens) == tokens


@task_3
@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS)
def test_task_3_as_the_request_wants_it(impl, tmp_path, params):
    """Each guess is drawn by the request's settings and random state, from the row that the draft keeps."""
    drafter, model = drafter_of(impl, tmp_path)
    request = new_request(impl, prompt=[9, 200, 9, 31, 7], **params)
    assert_drafts(drafter, Naive(impl, model), [(request, 5)])


@task_3
def test_task_3_random_numbers_of_the_request(impl, tmp_path):
    """Each guess uses one random number of the request, and `accept` uses the next ones."""
    drafter, model = drafter_of(impl, tmp_path)
    request, naive = new_request(impl, temperature=1.0, seed=4), Naive(impl, model)
    for _ in range(2):
        assert_drafts(drafter, naive, [(request, 3)])
    got, expected = request.random.random(), naive.generators["a"].random()
    assert got == expected, "the next number of `request.random`"


@task_3
def test_task_3_all_requests_together(impl, tmp_path):
    """One pass per guess computes a row for each request that gets it. The model does not run on the last guess."""
    drafter, model = drafter_of(impl, tmp_path)
    prompts, counts = ([5, 6, 7], [8], [9, 10], [11, 12]), (3, 1, 4, 0)
    wanted = [
        (new_request(impl, id, prompt, **params), count)
        for id, prompt, params, count in zip("abcd", prompts, list(PARAMS.values()), counts, strict=False)
    ]
    a, _, c, _ = assert_drafts(drafter, Naive(impl, model), wanted)
    expected = [[5, 6, 7, 8, 9, 10], sorted([a[0], c[0]]), sorted([a[1], c[1]]), [c[2]]]
    assert model.passes == expected, "the tokens of each pass"
    assert [stored(drafter, request) for request, _ in wanted] == [5, 1, 5, 0], (
        "stored are all tokens, and all guesses but the last"
    )


@task_3
def test_task_3_each_with_its_own_random_numbers(impl, tmp_path):
    """A request's guesses depend neither on the other requests nor on their order."""
    found = []
    for order in ("abc", "cb", "b"):
        drafter, _ = drafter_of(impl, tmp_path)
        requests = [new_request(impl, id, [ord(id)], temperature=2.0, seed=ord(id)) for id in order]
        drafts = list(drafter.propose([(request, 4) for request in requests]))
        found.append(list(drafts[order.index("b")].tokens))
    assert found[0] == found[1] == found[2], "the guesses for b"


@task_3
@pytest.mark.parametrize("params", [PARAMS["greedy"], PARAMS["temperature"]], ids=["greedy", "drawn"])
@pytest.mark.parametrize("where", ["slots", "pages"])
def test_task_3_after_some_were_right(impl, tmp_path, params, where):
    """Stored positions of wrong guesses are dropped, and those of right ones are not computed again."""
    drafter, model = drafter_of(impl, tmp_path, slots(impl) if where == "slots" else pages(impl, 16))
    naive, request = Naive(impl, model), new_request(impl, prompt=[5, 6, 7], **params)
    for right, count in ((2, 4), (0, 3), (4, 4), (1, 1), (0, 2), (3, 3)):
        before, length = len(model.passes), len(list(request.tokens))
        known = min(stored(drafter, request), length - 1)
        (guesses,) = assert_drafts(drafter, naive, [(request, count)])
        fed = list(request.tokens)[known:]
        assert model.passes[before] == sorted(fed), "the first pass has what is not stored: one token, or two"
        assert model.passes[before + 1 :] == [[token] for token in guesses[:-1]], "then each guess but the last"
        assert stored(drafter, request) == length + count - 1
        wrong = (guesses[right] + 1) % 256 if right < count else 77
        for token in [*guesses[:right], wrong]:
            request.add(token, (), 1000)


@task_3
def test_task_3_nobody_wants_a_guess(impl, tmp_path):
    """Without guesses, the model does not run, nothing is stored, and each request gets an empty draft."""
    drafter, model = drafter_of(impl, tmp_path)
    assert list(drafter.propose([])) == []
    drafts = drafter.propose([(new_request(impl, id), 0) for id in "ab"])
    assert [list(draft.tokens) for draft in drafts] == [[], []]
    assert model.passes == []
    drafter.cache.check_integrity([])


@task_3
def test_task_3_no_room_for_all_guesses(impl, tmp_path):
    """One request reaches the end of its slot, and another, shorter one does not."""
    drafter, model = drafter_of(impl, tmp_path, slots(impl, capacity=8))
    a, b = new_request(impl, "a", [5, 6, 7, 8, 9, 10]), new_request(impl, "b", [11, 12])
    found = [list(draft.tokens) for draft in drafter.propose([(a, 5), (b, 5)])]
    naive = Naive(impl, model)
    assert found == [naive.guesses(a, 3)[0], naive.guesses(b, 5)[0]], (
        "three guesses, since the last is not run; and five"
    )
    assert [stored(drafter, request) for request in (a, b)] == [8, 6]


@task_3
def test_task_3_no_slot(impl, tmp_path):
    """The second request has no slot, so it gets no guess. The others get theirs."""
    drafter, model = drafter_of(impl, tmp_path, slots(impl, num_slots=2, capacity=16))
    a, b, c = (new_request(impl, id, [9] * length) for id, length in zip("abc", (3, 17, 2), strict=True))
    found = [list(draft.tokens) for draft in drafter.propose([(a, 2), (b, 2), (c, 2)])]
    naive = Naive(impl, model)
    assert found == [naive.guesses(a, 2)[0], [], naive.guesses(c, 2)[0]]


@task_3
def test_task_3_no_room_for_both(impl, tmp_path):
    """Three of four pages are used. Each request alone would find room, and the first one gets it."""
    drafter, model = drafter_of(impl, tmp_path, pages(impl, 3))
    a, b = new_request(impl, "a", [5] * 6), new_request(impl, "b", [6] * 7)
    found = [list(draft.tokens) for draft in drafter.propose([(a, 3), (b, 3)])]
    assert found == [Naive(impl, model).guesses(a, 3)[0], []]


class FailsOnce(Watched):
    """A model whose first pass fails before it computes anything."""

    has_failed = False

    def hidden(self, tokens, cache):
        if not self.has_failed:
            self.has_failed = True
            raise OSError("no such weights")
        return super().hidden(tokens, cache)


@task_3
def test_task_3_a_pass_that_fails(impl, tmp_path):
    """After a failed pass, the next one computes the same tokens again."""
    drafter, model = drafter_of(impl, tmp_path)
    drafter.model = FailsOnce(model.model)
    request = new_request(impl, prompt=[5, 6, 7])
    with suppress(OSError):
        drafter.propose([(request, 2)])
    drafter.model = model
    (guesses,) = assert_drafts(drafter, Naive(impl, model), [(request, 2)])
    assert model.passes == [[5, 6, 7], [guesses[0]]], "the tokens of each pass"


@task_3
def test_task_3_the_smaller_models_context(impl, tmp_path):
    """The draft model may have a shorter context. It makes no guess beyond it."""
    drafter, model = drafter_of(impl, tmp_path, max_position_embeddings=6)
    request, longer = new_request(impl, "a", [5, 6, 7, 8]), new_request(impl, "b", [5] * 7)
    found = [list(draft.tokens) for draft in drafter.propose([(request, 4), (longer, 4)])]
    assert [len(tokens) for tokens in found] == [3, 0], "after 4, 5 and 6 tokens; none after 7"
    assert found[0] == Naive(impl, model).guesses(request, 3)[0]


# ------------------------------------------------------------------------------ task 4: several tokens in a step


class Says:
    """A drafter that gives each request the guesses that it was told, step by step, and then none."""

    def __init__(self, impl, **guesses):
        self.impl, self.guesses, self.forgotten = impl, guesses, []

    def propose(self, wanted):
        return [self.draft(request.id, count) for request, count in wanted]

    def draft(self, id, count):
        left = self.guesses.get(id, [])
        said = left.pop(0) if left else []
        return said if not isinstance(said, list) else draft_of(self.impl, said[:count])

    def observe(self, chunks, chosen):
        pass

    def forget(self, request):
        self.forgotten.append(request.id)


class Knows:
    """A drafter that knows the coming tokens, and sometimes guesses something else from some token on."""

    def __init__(self, impl, texts, wrong, seed=0):
        self.impl, self.texts, self.wrong, self.random = impl, texts, wrong, random.Random(seed)

    def propose(self, wanted):
        return [draft_of(self.impl, self.guess(request, count)) for request, count in wanted]

    def guess(self, request, count):
        text, length = self.texts[request.id], len(list(request.tokens))
        said = text[length : length + count]
        return [(token + 1) % 256 if self.random.random() < self.wrong else token for token in said]

    def observe(self, chunks, chosen):
        pass

    def forget(self, request):
        pass


def no_model(context=64):
    """Return a model that has only a configuration."""
    return SimpleNamespace(
        config=SimpleNamespace(vocab_size=VOCAB, max_position_embeddings=context, eos_token_ids=(END,))
    )


def speculative(impl, cache, drafter, *requests, model=None, num_drafts=4, scheduler=None, **options):
    """Return an engine with these requests."""
    scheduler = scheduler or impl.serving.scheduler.Scheduler(cache, 4)
    decoding = impl.serving.speculative.Speculative(drafter, num_drafts)
    engine = impl.serving.engine.Engine(model or no_model(), scheduler, decoding=decoding, **options)
    for request in requests:
        engine.add(request)
    return engine


def logits_for(*tokens, size=VOCAB):
    """Return rows of logits in which these tokens have by far the highest one."""
    return mx.array(40 * one_hot(*tokens, size=size))


def described(batch):
    """Describe each chunk: its request, its start, its tokens, and how many of them have logits."""
    return [(chunk.request.id, chunk.start, list(chunk.tokens), chunk.num_logits) for chunk in batch.chunks]


def take_step(engine, *rows):
    """Plan a step, settle it with these logits, and return the plan."""
    batch = engine.plan()
    planned = described(batch)
    engine.settle(batch, mx.concatenate(rows))
    engine.check_integrity()
    return planned


@task_4
def test_task_4_all_guesses_are_right(impl):
    """Two guesses follow a prompt and are right, so one step gives three tokens."""
    request = new_request(impl)
    engine = speculative(impl, slots(impl), Says(impl, a=[[7, 8]]), request)
    assert take_step(engine, logits_for(7, 8, 9)) == [("a", 0, [3, 1, 4, 7, 8], 3)]
    assert list(request.output) == [7, 8, 9]


@task_4
def test_task_4_guesses_behind_each_chunk(impl):
    """Guesses follow the chunks of several requests, prompts and single tokens. Each chunk has logits after its last
    token and after each guess."""
    requests = [new_request(impl, id, [5] * length) for id, length in zip("abc", (2, 3, 1), strict=True)]
    drafter = Says(impl, a=[[7], [8, 9]], b=[[], [4, 5, 6]], c=[[3, 4, 5, 6], []])
    engine = speculative(impl, slots(impl), drafter, *requests)
    planned = take_step(engine, logits_for(7, 6), logits_for(10), logits_for(3, 4, 9, 0, 0))
    assert planned == [("a", 0, [5, 5, 7], 2), ("b", 0, [5, 5, 5], 1), ("c", 0, [5, 3, 4, 5, 6], 5)]
    assert [list(request.output) for request in requests] == [[7, 6], [10], [3, 4, 9]]
    planned = take_step(engine, logits_for(8, 1, 0), logits_for(4, 5, 6, 7), logits_for(3))
    assert planned == [("a", 3, [6, 8, 9], 3), ("b", 3, [10, 4, 5, 6], 4), ("c", 3, [9], 1)]
    assert [list(request.output) for request in requests] == [[7, 6, 8, 1], [10, 4, 5, 6, 7], [3, 4, 9, 3]]


@task_4
def test_task_4_a_part_of_a_prompt_has_no_guesses(impl):
    """An unfinished prompt gets no guesses, because its next tokens are known. Its last part does."""
    cache = slots(impl)
    module = impl.serving.scheduler
    scheduler = module.Scheduler(cache, 2, module.TokenBudget(4))
    request = new_request(impl, prompt=[5, 6, 7, 8, 9, 10])
    engine = speculative(impl, cache, Says(impl, a=[[7, 8]]), request, scheduler=scheduler)
    assert take_step(engine, mx.zeros((0, VOCAB))) == [("a", 0, [5, 6, 7, 8], 0)]
    assert take_step(engine, logits_for(7, 3, 0)) == [("a", 4, [9, 10, 7, 8], 3)]


@task_4
def test_task_4_with_draft(impl):
    """The result is a new chunk. The old one and the scheduler's other data stay unchanged."""
    request, cache = new_request(impl), pages(impl, 8)
    engine = speculative(impl, cache, Says(impl), request)
    chunk = engine.scheduler.schedule().chunks[0]
    request.draft = draft_of(impl, [7, 8])
    found = engine.decoding.with_draft(chunk, cache)
    assert (list(found.tokens), found.start, found.end, found.num_logits) == ([3, 1, 4, 7, 8], 0, 5, 3)
    assert found.request.id == "a"
    assert (list(chunk.tokens), chunk.num_logits) == ([3, 1, 4], 1), "the chunk that was given"
    assert list(found.pages) == list(request.pages), "pages for tokens and guesses"
    assert len(found.pages) == 2, "5 positions, 4 in a page"
    assert (list(request.draft.tokens), request.num_computed_tokens) == ([7, 8], 0)


@task_4
def test_task_4_room_for_tokens_and_guesses(impl):
    """Room is needed for the chunk's own tokens, which are not computed yet, and for the guesses after them."""
    request, cache = new_request(impl, prompt=[5] * 7), pages(impl, 8)
    engine = speculative(impl, cache, Says(impl), request)
    chunk = engine.scheduler.schedule().chunks[0]
    request.draft = draft_of(impl, [6] * 9)
    found = engine.decoding.with_draft(chunk, cache)
    assert len(found.pages) == 4, "pages for 7 tokens and 9 guesses, 4 in a page"


@task_4
@pytest.mark.parametrize(("capacity", "has_room"), [(7, True), (6, False)], ids=["just enough", "one too few"])
def test_task_4_room_in_a_slot(impl, capacity, has_room):
    """If there is no room for all guesses, there are none."""
    request = new_request(impl, prompt=[5] * 5)
    cache = slots(impl, capacity=capacity)
    engine = speculative(impl, cache, Says(impl), request)
    chunk = engine.scheduler.schedule().chunks[0]
    request.draft = draft_of(impl, [7, 8])
    found = engine.decoding.with_draft(chunk, cache)
    expected = ([5] * 5 + [7, 8], 3, [7, 8]) if has_room else ([5] * 5, 1, [])
    got = list(found.tokens), found.num_logits, list(request.draft.tokens)
    assert got == expected, "the chunk's tokens, how many have logits, the guesses that are left"


@task_4
def test_task_4_room_in_pages(impl):
    """The last free page goes to the first request's guesses, and the second request has none."""
    requests = [new_request(impl, id, [5] * 4) for id in "ab"]
    cache = pages(impl, 3)
    engine = speculative(impl, cache, Says(impl, a=[[7, 8]], b=[[7, 8]]), *requests)
    planned = take_step(engine, logits_for(7, 9, 0), logits_for(11))
    assert planned == [("a", 0, [5, 5, 5, 5, 7, 8], 3), ("b", 0, [5, 5, 5, 5], 1)]
    assert [list(request.output) for request in requests] == [[7, 9], [11]]
    assert [(request.num_drafted, request.num_accepted) for request in requests] == [(2, 1), (0, 0)]
    assert cache.pool.num_free == 0, "one position of the third page is in use"
    assert [len(request.pages) for request in requests] == [2, 1]


@task_4
@pytest.mark.parametrize("where", ["slots", "pages"])
def test_task_4_what_is_stored(impl, where):
    """Exactly the accepted guesses count as computed. The newest token is always pending."""
    request = new_request(impl, prompt=[5] * 3)
    drafter = Says(impl, a=[[7, 8, 9], [7, 8, 9, 10], [], [6]])
    cache = slots(impl) if where == "slots" else pages(impl, 8, page_size=2)
    engine = speculative(impl, cache, drafter, request)
    found = []
    for rows in (logits_for(7, 1, 0, 0), logits_for(3, 0, 0, 0, 0), logits_for(4), logits_for(6, 9)):
        take_step(engine, rows)
        found.append((request.num_computed_tokens, len(request.tokens)))
    assert found == [(4, 5), (5, 6), (6, 7), (8, 9)], "positions that count, and tokens, after each step"
    if where == "pages":
        assert cache.pool.num_free == 4, "pages that not even the newest token needs are given back"


@task_4
def test_task_4_counts(impl):
    """The counts of checked and of accepted guesses cover all steps of a request."""
    requests = [new_request(impl, id) for id in "ab"]
    drafter = Says(impl, a=[[7, 8, 9], [7, 8], [], [5]], b=[[], [1], [3, 4, 5, 6], [1, 1]])
    engine = speculative(impl, slots(impl), drafter, *requests)
    found = []
    for rows in (
        (logits_for(7, 8, 1, 0), logits_for(7)),
        (logits_for(7, 8, 4), logits_for(1, 3)),
        (logits_for(4), logits_for(0, 0, 0, 0, 0)),
        (logits_for(4, 1), logits_for(1, 5, 0)),
    ):
        take_step(engine, *rows)
        found.append([(request.num_drafted, request.num_accepted) for request in requests])
    expected = [[(3, 2), (0, 0)], [(5, 4), (1, 1)], [(5, 4), (5, 1)], [(6, 4), (7, 2)]]
    assert found == expected, "guessed and accepted, of both requests, after each step"


@task_4
def test_task_4_counts_of_equal_tokens(impl):
    """Guesses are counted by position. The same token may be guessed and accepted several times, and a rejected guess
    may be the model's token elsewhere."""
    request = new_request(impl)
    engine = speculative(impl, slots(impl), Says(impl, a=[[7, 7, 7], [8, 9]]), request)
    take_step(engine, logits_for(7, 7, 7, 7))
    assert (request.num_drafted, request.num_accepted) == (3, 3)
    take_step(engine, logits_for(9, 0, 0))
    assert (request.num_drafted, request.num_accepted) == (5, 3)


@task_4
@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"max_tokens": 3}, ([7, 8, 9], "length")),
        ({"max_tokens": 2}, ([7, 8], "length")),
        ({"max_tokens": 1}, ([7], "length")),
        ({"stop_token_ids": [8]}, ([7], "stop")),
        ({}, ([7, 8, 9], "stop")),
        ({"ignore_eos": True}, ([7, 8, 9, END, 4], None)),
    ],
    ids=[
        "max_tokens",
        "max_tokens, in the middle",
        "max_tokens of one",
        "an end of its own",
        "the model's end",
        "no end",
    ],
)
def test_task_4_an_end_among_the_guesses(impl, params, expected):
    """Guesses after an end do not count, right or wrong. The request leaves, and the drafter forgets it."""
    request, drafter = new_request(impl, **params), Says(impl, a=[[7, 8, 9, END]])
    engine = speculative(impl, slots(impl), drafter, request)
    batch = engine.plan()
    rows = logits_for(7, 8, 9, END, 4)[: batch.chunks[0].num_logits]
    engine.settle(batch, rows)
    engine.check_integrity()
    assert (list(request.output), request.finish_reason) == expected
    assert engine.has_work == (expected[1] is None)
    assert drafter.forgotten == ([] if expected[1] is None else ["a"])


@task_4
def test_task_4_penalty(impl):
    """The penalty for the token after a guess includes this guess."""
    request = new_request(impl, prompt=[3, 1], repetition_penalty=2.0)
    engine = speculative(impl, slots(impl), Says(impl, a=[[7, 7], [5]]), request)
    row = np.zeros(VOCAB, np.float32)
    row[[7, 6, 5]] = 10, 8, 6
    take_step(engine, mx.array(np.stack([row] * 3)))
    assert list(request.output) == [7, 6], "7 at first; then it counts half, and 6 is likelier than a second 7"
    row[4] = 5
    take_step(engine, mx.array(np.stack([row] * 2)))
    assert list(request.output) == [7, 6, 5, 7] or list(request.output) == [7, 6, 5, 4]


@task_4
@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 0.0},
        {"temperature": 5.0, "top_k": 1},
        {"temperature": 1.0, "top_p": 0.4},
        {"temperature": 1.0, "min_p": 0.9},
    ],
    ids=["temperature", "top-k", "top-p", "min-p"],
)
def test_task_4_as_the_request_wants_it(impl, params):
    """A guess that the request's own settings rule out is always rejected."""
    row = np.zeros(VOCAB, np.float32)
    row[[7, 8]] = 4.0, 3.7
    for seed in range(10):
        request = new_request(impl, seed=seed, **params)
        engine = speculative(impl, slots(impl), Says(impl, a=[[8], [7]]), request)
        take_step(engine, mx.array(np.stack([row, row])))
        take_step(engine, mx.array(np.stack([row, row])))
        assert list(request.output) == [7, 7, 7], "only 7 is left by these parameters"


@task_4
@pytest.mark.parametrize("are_drawn", [False, True], ids=["certain", "drawn"])
def test_task_4_one_generator_for_all_steps(impl, are_drawn):
    """All steps use the request's own generator, one after the other. `accept` gets the draft unchanged."""
    request, again = (new_request(impl, temperature=1.0, seed=3, max_tokens=100, ignore_eos=True) for _ in range(2))
    given, accept = impl.serving.distributions.probabilities, impl.serving.speculative.accept
    rows, likelier = Inputs(5).normal(3, VOCAB), Inputs(6).normal(2, VOCAB)
    draft = draft_of(impl, [7, 8], given(again.params, likelier, [[0]] * 2) if are_drawn else None)
    engine = speculative(impl, slots(impl), Says(impl, a=[draft] * 8), request)
    expected = []
    for _ in range(8):
        take_step(engine, rows)
        text = [*request.prompt, *expected]
        expected += accept(given(again.params, rows, [text] * 3), draft, again.random)
    assert list(request.output) == expected


def alone(impl, model, request):
    """Return what `generate` gives for a request alone."""
    params = request.params
    ends = [*params.stop_token_ids, *(() if params.ignore_eos else model.config.eos_token_ids)]
    return list(
        impl.generate.generate(
            model, list(request.prompt), impl.serving.distributions.sampler_of(params), params.max_tokens, ends
        )
    )


def serve(impl, engine, requests, abort=()):
    """Serve requests that arrive one after the other, abort some of them, and return the number of steps."""
    for step in range(400):
        if step < len(requests):
            engine.add(requests[step])
        engine.step()
        if step in abort:
            engine.abort(abort[step])
            engine.check_integrity()
        if step >= len(requests) and not engine.has_work:
            return step + 1
    raise AssertionError("requests are left after 400 steps")


def some_requests(impl, stops=3):
    """Return greedy requests of different lengths, with and without a penalty and own end tokens."""
    draw = random.Random(4)
    return [
        new_request(
            impl,
            f"r{i}",
            [draw.randrange(256) for _ in range(draw.randint(1, 9))],
            max_tokens=draw.choice((1, 2, 9, 14, 18)),
            repetition_penalty=draw.choice((1.0, 1.3)),
            stop_token_ids=draw.sample(range(256), stops),
        )
        for i in range(9)
    ]


@task_4
@pytest.mark.parametrize("where", ["slots", "pages", "few pages"])
@pytest.mark.parametrize("drafter", ["knows", "n-gram"])
def test_task_4_token_for_token(impl, tmp_path, where, drafter):
    """With any guesses, each request gets what week 2's `generate` gives it alone."""
    model = untrained(impl, tmp_path)
    requests = some_requests(impl)
    expected = [alone(impl, model, request) for request in requests]
    texts = {request.id: [*request.prompt, *output] for request, output in zip(requests, expected, strict=True)}
    guesses = impl.serving.drafters.NGramDrafter() if drafter == "n-gram" else Knows(impl, texts, wrong=0.3)
    if where == "slots":
        scheduler = impl.serving.scheduler.Scheduler(slots(impl, 3, 32), 3)
    else:
        cache = pages(impl, 40 if where == "pages" else 8)
        module = impl.serving.scheduler
        scheduler = module.Scheduler(cache, 4, module.TokenBudget(16), module.PreemptNewest())
    engine = speculative(impl, None, guesses, model=model, num_drafts=3, scheduler=scheduler, is_checked=True)
    serve(impl, engine, requests, abort={9: "r5", 12: "r7"})
    for request, output in zip(requests, expected, strict=True):
        got = list(request.output)
        assert got == output[: len(got)], f"{request.id}: what `generate` gives it alone"
        assert len(got) == len(output) or request.finish_reason == "abort", f"{request.id}: all of it"


@task_4
@pytest.mark.parametrize(("wrong", "steps"), [(0.0, 4), (1.0, 16)], ids=["always right", "never right"])
def test_task_4_steps(impl, tmp_path, wrong, steps):
    """Sixteen tokens with three guesses per step take four steps at best, and never more than without guesses."""
    model = Watched(untrained(impl, tmp_path))
    request = new_request(impl, max_tokens=16, ignore_eos=True)
    texts = {"a": [*request.prompt, *alone(impl, model.model, request)]}
    engine = speculative(impl, slots(impl), Knows(impl, texts, wrong), request, model=model, num_drafts=3)
    for _ in engine.run():
        pass
    assert [*request.prompt, *request.output] == texts["a"]
    assert len(model.passes) == steps, "passes of the model"
    assert len(model.passes[-1]) == (4 if wrong == 0 else 1), "rows of the last one: no guess beyond max_tokens"


@task_4
@pytest.mark.parametrize("where", ["slots", "pages"])
def test_task_4_two_models(impl, tmp_path, where):
    """The draft model is the model itself, or another, wrong one. The requests are served together and alone."""
    model = untrained(impl, tmp_path / "large", layers=1)
    for seed in (3, 4):  # seeds of the draft model's weights: the larger model's own, and another one
        drafter, _ = drafter_of(impl, tmp_path / f"small {seed}", seed=seed)
        requests = some_requests(impl, stops=0)[:4]
        expected = [alone(impl, model, request) for request in requests]
        cache = slots(impl) if where == "slots" else pages(impl, 40)
        engine = speculative(impl, cache, drafter, model=model, num_drafts=3, is_checked=True)
        serve(impl, engine, requests)
        assert [list(request.output) for request in requests] == expected
        drafted, accepted = (sum(getattr(r, f"num_{kind}") for r in requests) for kind in ("drafted", "accepted"))
        assert drafted > 10
        assert (accepted == drafted) == (seed == 3), "all guesses of the same model are right"
        drafter.cache.check_integrity([])


@task_4
def test_task_4_keys_and_values_of_accepted_guesses(impl, tmp_path):
    """After each step, the cache holds the same keys and values as for the text alone."""
    model = untrained(impl, tmp_path)
    request = new_request(impl, max_tokens=20, ignore_eos=True)
    texts = {"a": [*request.prompt, *alone(impl, model, request)]}
    cache = slots(impl, 2, 32)
    engine = speculative(impl, cache, Knows(impl, texts, wrong=0.4), request, model=model)
    for _ in range(4):
        engine.step()
        length = request.num_computed_tokens
        assert length == len(list(request.tokens)) - 1
        plain = impl.kv_cache.KVCache(1)
        mx.eval(impl.generate.next_logits(model, mx.array([texts["a"][:length]]), plain))
        for stored, expected in (
            (cache.layers[0].keys, plain.layers[0].keys),
            (cache.layers[0].values, plain.layers[0].values),
        ):
            assert_close(stored[request.pages[0], :, :length], array64(expected)[0, :, :length], tolerance=1e-4)
