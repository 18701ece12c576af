"""Week 1 Day 7: sampling."""

import math

import mlx.core as mx
import numpy as np
import oracles
import pytest
from helpers import Inputs, array64, assert_close, assert_unchanged, over_dtypes

from tiny_llm_course.diagnosis.observation import record

task_1 = pytest.mark.task("w1d7.1")
task_2 = pytest.mark.task("w1d7.2")
task_3 = pytest.mark.task("w1d7.3")
task_4 = pytest.mark.task("w1d7.4")

DRAWS = 4_000


def assert_distributed(draws, probs):
    """Compare token counts with probabilities by a chi-square test. A right sampler fails for one seed in a million."""
    __tracebackhide__ = True
    counts = np.bincount(np.array(draws), minlength=len(probs))
    shares = counts / counts.sum()
    record(shares, "shares", 0.03)  # not the draws: the same mistake may use other random numbers
    possible = probs > 0
    if counts[~possible].any():
        impossible = np.nonzero(counts * ~possible)[0].tolist()
        pytest.fail(f"the values differ (shares of {counts.sum()} draws): {impossible} cannot be drawn", pytrace=False)
    expected = probs[possible] * counts.sum()
    assert expected.min() >= 5, "this test needs more draws"
    freedom = possible.sum() - 1
    chi_square = ((counts[possible] - expected) ** 2 / expected).sum()
    # Wilson-Hilferty: the cube root of chi-square / freedom is nearly normal. 4.75 deviations: one in a million.
    limit = freedom * (1 - 2 / (9 * freedom) + 4.75 * math.sqrt(2 / (9 * freedom))) ** 3 if freedom else 1e-9
    if chi_square > limit:
        told = f"drawn {shares.round(3).tolist()}, expected {probs.round(3).tolist()}"
        pytest.fail(f"the values differ (shares of {counts.sum()} draws): {told}", pytrace=False)


def repeat(row, times=DRAWS):
    """Repeat the same logits in every row, so that one call draws many times."""
    return mx.broadcast_to(row, (times, *row.shape))


LOGITS = mx.array([1.5, -0.5, 0.3, 2.0, -1.0, 0.9])

# ------------------------------------------------------------------------------------------- task 1: temperature, draw


@task_1
@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7, 0.2, 0.01, 0.001])
def test_task_1_frequencies(impl, temperature):
    logits = LOGITS * min(temperature, 0.5)  # otherwise unlikely tokens would be too rare below 0.5
    draws = impl.sampler.sample(repeat(logits), temperature, mx.random.key(1))
    assert_distributed(draws, oracles.softmax(array64(logits) / temperature))


@task_1
@pytest.mark.parametrize("temperature", [0.8, 0])
@pytest.mark.parametrize("rows", [3, 1])
def test_task_1_shape_is_one_token_a_row(impl, rows, temperature):
    got = impl.sampler.sample(Inputs(101).normal(rows, 7), temperature, mx.random.key(1))
    shape, dtype = got.shape, got.dtype
    assert shape == (rows,)
    assert mx.issubdtype(dtype, mx.integer)


@task_1
def test_task_1_each_row_by_itself(impl):
    """Each row has a different token that is almost certain."""
    best = [4, 0, 6, 2]
    logits = mx.array(np.eye(7)[best] * 50)
    assert impl.sampler.sample(logits, 1.0, mx.random.key(1)).tolist() == best


@task_1
@over_dtypes
def test_task_1_temperature_zero_is_greedy(impl, dtype):
    logits = Inputs(102, dtype).normal(5, 9)
    got = impl.sampler.sample(logits, 0, mx.random.key(1))
    shape = got.shape
    assert shape == (5,)
    assert got.tolist() == array64(logits).argmax(-1).tolist()
    assert impl.sampler.sample(logits, 0.0).tolist() == got.tolist()


@task_1
def test_task_1_minus_infinity_is_never_drawn(impl):
    logits = mx.array([-math.inf, 0.0, -math.inf, 0.4, -math.inf])
    draws = impl.sampler.sample(repeat(logits), 1.0, mx.random.key(1))
    assert_distributed(draws, oracles.softmax(np.array([-1e9, 0.0, -1e9, 0.4, -1e9])))


@task_1
@pytest.mark.parametrize("shift", [1000, 60_000])
def test_task_1_large_scores(impl, shift):
    """Logits are near 60,000, where the numbers of float16 are 32 apart."""
    logits = LOGITS + shift
    draws = impl.sampler.sample(repeat(logits), 1.0, mx.random.key(1))
    assert_distributed(draws, oracles.softmax(array64(logits)))


@task_1
def test_task_1_the_key_decides(impl):
    logits = repeat(LOGITS, 50)
    draws = [impl.sampler.sample(logits, 1.0, mx.random.key(seed)).tolist() for seed in (1, 1, 2)]
    same, other_is_same = draws[0] == draws[1], draws[0] == draws[2]  # random tokens stay out of messages
    assert same, "the same key drew other tokens"
    assert not other_is_same, "another key drew the same tokens"


@task_1
def test_task_1_without_key_every_draw_is_another(impl):
    mx.random.seed(3)  # makes a mistake show the same result each time
    draws = [impl.sampler.sample(repeat(LOGITS, 50), 1.0).tolist() for _ in range(2)]
    same = draws[0] == draws[1]
    assert not same, "without a key, two draws gave the same tokens"
    mx.random.seed(3)
    again = impl.sampler.sample(repeat(LOGITS, 50), 1.0).tolist()
    same = again == draws[0]
    assert same, "without a key, the draws do not follow mx.random.seed"


@task_1
def test_task_1_leaves_its_input_alone(impl):
    logits = Inputs(103).normal(3, 7)
    before = array64(logits)
    mx.eval(impl.sampler.sample(logits, 0.5, mx.random.key(1)))
    assert_unchanged([before], logits)


# ----------------------------------------------------------------------------------------------- task 2: filters


def ranks(logits):
    """Return each token's rank in its row: 0 for the most likely one, 1 for the next, ..."""
    return np.argsort(np.argsort(-logits, axis=-1), axis=-1)


def top_k_oracle(logits, k):
    return np.where(ranks(logits) < (k or logits.shape[-1]), logits, -np.inf)


def top_p_oracle(logits, p):
    rows = []
    for row in logits:
        probs, kept, total = oracles.softmax(row), np.full_like(row, -np.inf), 0.0
        for token in np.argsort(-row):
            if total < p:
                kept[token] = row[token]
            total += probs[token]
        rows.append(kept if p < 1 else row)
    return np.stack(rows)


def min_p_oracle(logits, p):
    probs = oracles.softmax(logits)
    return np.where(probs >= p * probs.max(axis=-1, keepdims=True), logits, -np.inf)


def distinct(B, V, dtype=mx.float32, scale=0.3):
    """Return logits in random order that all differ within a row: multiples of `scale`, which are exact in every
    dtype."""
    random = np.random.RandomState(104)
    return mx.array(np.stack([random.permutation(V) - V // 2 for _ in range(B)]) * scale).astype(dtype)


@task_2
@over_dtypes
@pytest.mark.parametrize("k", [1, 2, 5, 10, 11, 40, 0])
def test_task_2_top_k(impl, k, dtype):
    logits = distinct(4, 11, dtype)
    assert_close(impl.sampler.apply_top_k(logits, k), top_k_oracle(array64(logits), k), dtype=dtype, tolerance=0)


@task_2
@over_dtypes
@pytest.mark.parametrize("p", [1e-9, 1e-6, 0.1, 0.33, 0.6, 0.95, 0.9999, 1.0])
def test_task_2_top_p(impl, p, dtype):
    logits = distinct(4, 11, dtype)
    assert_close(impl.sampler.apply_top_p(logits, p), top_p_oracle(array64(logits), p), dtype=dtype, tolerance=0)


@task_2
@over_dtypes
@pytest.mark.parametrize("p", [0.0, 0.01, 0.2, 0.5, 0.8, 1.0])
def test_task_2_min_p(impl, p, dtype):
    logits = distinct(4, 11, dtype)
    assert_close(impl.sampler.apply_min_p(logits, p), min_p_oracle(array64(logits), p), dtype=dtype, tolerance=0)


@task_2
@pytest.mark.parametrize(("name", "value"), [("apply_top_k", 3), ("apply_top_p", 0.7), ("apply_min_p", 0.2)])
def test_task_2_each_row_by_itself(impl, name, value):
    """Rows have different spreads, so the same setting keeps different tokens in them, and different numbers of
    tokens."""
    logits = Inputs(105).normal(4, 11) * mx.array([[0.1], [1.0], [3.0], [9.0]])
    apply = getattr(impl.sampler, name)
    for row in range(4):
        assert_close(apply(logits, value)[row], apply(logits[row : row + 1], value)[0], tolerance=0)
    oracle = {"apply_top_k": top_k_oracle, "apply_top_p": top_p_oracle, "apply_min_p": min_p_oracle}[name]
    assert_close(apply(logits, value), oracle(array64(logits), value), tolerance=0)


@task_2
@over_dtypes
def test_task_2_top_p_of_one_keeps_all(impl, dtype):
    """Rounding can make the probabilities of 20,000 tokens add up to slightly more than 1. In each dtype, some rows
    here do."""
    logits = mx.array(np.random.RandomState(107).standard_normal((16, 20_000))).astype(dtype)
    assert_close(impl.sampler.apply_top_p(logits, 1.0), array64(logits), dtype=dtype, tolerance=0)


@task_2
def test_task_2_top_p_that_is_reached_exactly(impl):
    """The probabilities are 1/4, 1/2 and 1/4, so the most likely token alone reaches 0.5."""
    logits = mx.array([[0.0, math.log(2), 0.0]]) - math.log(2)
    assert_close(impl.sampler.apply_top_p(logits, 0.5), np.array([[-np.inf, 0, -np.inf]]), tolerance=0)


@task_2
def test_task_2_top_p_of_equally_likely_tokens(impl):
    """Eight tokens have a probability of 1/8 each. Any five of them reach 0.6."""
    got = mx.sort(impl.sampler.apply_top_p(mx.full((2, 8), 1.5), 0.6), axis=-1)
    assert_close(got, [[-np.inf] * 3 + [1.5] * 5] * 2, tolerance=0)


@task_2
@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16], ids=["float16", "bfloat16"])
def test_task_2_top_p_of_a_large_flat_vocabulary(impl, dtype):
    """5,000 tokens have nearly equal probabilities. In half precision, their sum stops growing long before the end."""
    random = np.random.RandomState(106)
    logits = mx.array(random.standard_normal((1, 5000)) * 0.1).astype(dtype)
    kept = np.isfinite(array64(impl.sampler.apply_top_p(logits, 0.5))).sum()
    expected = np.isfinite(top_p_oracle(array64(logits), 0.5)).sum()
    assert abs(int(kept) - int(expected)) <= 50, f"{kept} tokens were kept, about {expected} make up half"


@task_2
@pytest.mark.parametrize(("name", "value"), [("apply_top_k", 3), ("apply_top_p", 0.7), ("apply_min_p", 0.2)])
def test_task_2_after_another_filter(impl, name, value):
    """Tokens that an earlier filter removed stay removed, and do not turn the other logits into NaN."""
    logits = array64(distinct(4, 11))
    logits[:, ::3] = -np.inf
    oracle = {"apply_top_k": top_k_oracle, "apply_top_p": top_p_oracle, "apply_min_p": min_p_oracle}[name]
    got = getattr(impl.sampler, name)(mx.array(logits), value)
    assert_close(got, oracle(array64(mx.array(logits)), value), tolerance=0)


@task_2
@pytest.mark.parametrize(("name", "value"), [("apply_top_k", 3), ("apply_top_p", 0.7), ("apply_min_p", 0.2)])
def test_task_2_leaves_its_input_alone(impl, name, value):
    logits = distinct(4, 11)
    before = array64(logits)
    mx.eval(getattr(impl.sampler, name)(logits, value))
    assert_unchanged([before], logits)


# ----------------------------------------------------------------------------------------- task 3: repetition penalty


def penalty_oracle(logits, tokens, penalty):
    out = logits.copy()
    for row, seen in zip(out, tokens, strict=True):
        for token in set(seen):
            row[token] = row[token] / penalty if row[token] > 0 else row[token] * penalty
    return out


@task_3
@over_dtypes
@pytest.mark.parametrize("penalty", [1.0, 1.3, 2.0, 0.5])
def test_task_3_repetition_penalty(impl, penalty, dtype):
    """Logits may be negative, and a token that occurs several times is penalised once."""
    logits = distinct(3, 11, dtype)
    tokens = [[1, 4, 4, 4, 7], [0, 0, 0, 0, 0], [10, 9, 8, 7, 6]]
    got = impl.sampler.apply_repetition_penalty(logits, mx.array(tokens), penalty)
    assert_close(got, penalty_oracle(array64(logits), tokens, penalty), dtype=dtype)


@task_3
def test_task_3_whole_vocabulary_seen(impl):
    logits = distinct(2, 5)
    tokens = [[4, 3, 2, 1, 0, 0, 1], [0, 1, 2, 3, 4, 4, 4]]
    got = impl.sampler.apply_repetition_penalty(logits, mx.array(tokens), 1.5)
    assert_close(got, penalty_oracle(array64(logits), tokens, 1.5))


@task_3
@over_dtypes
def test_task_3_tokens_that_are_already_out(impl, dtype):
    """A logit of -inf stays -inf, whether its token occurs or not, and every other logit stays finite."""
    logits = array64(distinct(2, 8, dtype))
    logits[:, ::3] = -np.inf
    tokens = [[0, 1, 4], [2, 3, 3]]
    got = impl.sampler.apply_repetition_penalty(mx.array(logits).astype(dtype), mx.array(tokens), 1.5)
    assert_close(got, penalty_oracle(logits, tokens, 1.5), dtype=dtype)


@task_3
def test_task_3_one_row_of_one_token(impl):
    logits = distinct(1, 7)
    got = impl.sampler.apply_repetition_penalty(logits, mx.array([[2]]), 1.5)
    assert_close(got, penalty_oracle(array64(logits), [[2]], 1.5))


@task_3
def test_task_3_tokens_long_ago(impl):
    logits = distinct(2, 300)
    tokens = Inputs(108).tokens(2, 200, vocab_size=300)
    got = impl.sampler.apply_repetition_penalty(logits, tokens, 1.5)
    assert_close(got, penalty_oracle(array64(logits), tokens.tolist(), 1.5))


@task_3
def test_task_3_leaves_its_input_alone(impl):
    logits = distinct(1, 5)
    before = array64(logits)
    mx.eval(impl.sampler.apply_repetition_penalty(logits, mx.array([[1, 2]]), 1.5))
    assert_unchanged([before], logits)


# ----------------------------------------------------------------------------------------- task 4: the whole sampler

NO_TOKENS = mx.zeros((DRAWS, 1), mx.int32)


def pipeline(logits, tokens, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0):
    """Compute the probabilities of one row, with the filters in the documented order."""
    row = penalty_oracle(array64(logits)[None], [tokens], repetition_penalty) / temperature
    return oracles.softmax(min_p_oracle(top_p_oracle(top_k_oracle(row, top_k), top_p), min_p))[0]


SETTINGS = [
    {"temperature": 0.7},
    {"temperature": 1.5, "top_k": 3},
    {"temperature": 2.0, "top_p": 0.6},  # top_p comes after the temperature
    {"temperature": 0.4, "min_p": 0.2},
    {"temperature": 2.5, "min_p": 0.6},
    {"top_k": 3, "top_p": 0.8},  # top_p comes after top_k
    {"top_p": 0.8, "min_p": 0.3},
    {"temperature": 1.3, "repetition_penalty": 1.8},
    {"repetition_penalty": 0.5},
    {"temperature": 0.6, "repetition_penalty": 8.0, "top_k": 3},  # the penalty changes which three tokens top_k keeps
    {"temperature": 0.6, "repetition_penalty": 8.0, "top_p": 0.7},
    {"temperature": 0.6, "repetition_penalty": 8.0, "min_p": 0.3},
    {"temperature": 1.8, "top_k": 5, "top_p": 0.85, "min_p": 0.2, "repetition_penalty": 1.4},
]


@task_4
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: " ".join(f"{name}={value}" for name, value in s.items()))
def test_task_4_frequencies(impl, settings):
    tokens = [3, 0, 0, 4]
    sampler = impl.sampler.make_sampler(**settings, seed=7)
    draws = sampler(repeat(LOGITS), mx.array([tokens] * DRAWS))
    assert_distributed(draws, pipeline(LOGITS, tokens, **settings))


@task_4
def test_task_4_defaults_filter_nothing(impl):
    draws = impl.sampler.make_sampler(seed=8)(repeat(LOGITS), NO_TOKENS)
    assert_distributed(draws, oracles.softmax(array64(LOGITS)))


@task_4
@pytest.mark.parametrize(
    "settings", [{"temperature": 0}, {"temperature": 0.0, "top_p": 0.5}, {"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1.0}]
)
def test_task_4_greedy_in_several_ways(impl, settings):
    logits = distinct(6, 11)
    got = impl.sampler.make_sampler(**settings, seed=1)(logits, mx.zeros((6, 1), mx.int32))
    assert got.tolist() == array64(logits).argmax(-1).tolist()


@task_4
@pytest.mark.parametrize("temperature", [0.8, 0])
@pytest.mark.parametrize("rows", [3, 1])
def test_task_4_shape_is_one_token_a_row(impl, rows, temperature):
    sampler = impl.sampler.make_sampler(temperature, top_k=3, seed=17)
    shape = sampler(distinct(rows, 7), mx.zeros((rows, 2), mx.int32)).shape
    assert shape == (rows,)


@task_4
def test_task_4_greedy_after_the_penalty(impl):
    logits = mx.array([[2.0, 1.9, -1.0], [2.0, 1.9, -1.0]])
    sampler = impl.sampler.make_sampler(temperature=0, repetition_penalty=1.5)
    assert sampler(logits, mx.array([[0, 0], [1, 2]])).tolist() == [1, 0]


@task_4
def test_task_4_more_than_the_vocabulary(impl):
    draws = impl.sampler.make_sampler(top_k=100, top_p=1.0, seed=9)(repeat(LOGITS), NO_TOKENS)
    assert_distributed(draws, oracles.softmax(array64(LOGITS)))


@task_4
def test_task_4_each_row_by_itself(impl):
    """A row's penalty depends on its own tokens, and its filters on its own logits."""
    logits = mx.concatenate([repeat(LOGITS, DRAWS), repeat(-LOGITS, DRAWS)])
    tokens = mx.array([[3, 3]] * DRAWS + [[4, 1]] * DRAWS)
    draws = impl.sampler.make_sampler(top_k=3, repetition_penalty=2.0, seed=10)(logits, tokens)
    assert_distributed(draws[:DRAWS], pipeline(LOGITS, [3, 3], top_k=3, repetition_penalty=2.0))
    assert_distributed(draws[DRAWS:], pipeline(-LOGITS, [4, 1], top_k=3, repetition_penalty=2.0))


def series(sampler, steps=30):
    return [sampler(LOGITS[None], mx.array([[0]])).item() for _ in range(steps)]


@task_4
def test_task_4_the_seed_decides(impl):
    make = impl.sampler.make_sampler
    draws = [series(make(temperature=1.5, seed=seed)) for seed in (11, 11, 12, 0, 0)]
    same, other_is_same, zero_is_same = (draws[i] == draws[j] for i, j in [(0, 1), (0, 2), (3, 4)])
    assert same, "the same seed drew other tokens"
    assert not other_is_same, "another seed drew the same tokens"
    assert zero_is_same, "0 is a seed: the same seed drew other tokens"


@task_4
def test_task_4_every_step_draws_anew(impl):
    kinds = len(set(series(impl.sampler.make_sampler(temperature=1.5, seed=13))))
    assert kinds > 1, "every step drew the same token"


@task_4
def test_task_4_without_seed_every_sampler_is_another(impl):
    draws = [series(impl.sampler.make_sampler(temperature=1.5)) for _ in range(2)]
    same = draws[0] == draws[1]
    assert not same, "two samplers without seed drew the same tokens"


@task_4
def test_task_4_samplers_do_not_disturb_each_other(impl):
    """A sampler with a seed has its own random state, so other random draws do not change its tokens."""
    alone = series(impl.sampler.make_sampler(temperature=1.5, seed=14))
    one, two = (impl.sampler.make_sampler(temperature=1.5, seed=seed) for seed in (14, 15))
    together = []
    for _ in alone:
        together += series(one, 1)
        series(two, 1)
        mx.random.seed(99)
    same = together == alone
    assert same, "a seeded sampler drew other tokens because something else drew, too"


@task_4
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", -1.3),
    ],
)
def test_task_4_setting_out_of_range(impl, name, value):
    """A setting out of range raises a ValueError when the sampler is made. Keep the stub's call of
    `_check_sampling`."""
    impl.sampler.make_sampler()  # a stub ends here
    with pytest.raises((ValueError, AssertionError)):
        impl.sampler.make_sampler(**{name: value})
    if name != "temperature":  # both with and without sampling
        with pytest.raises((ValueError, AssertionError)):
            impl.sampler.make_sampler(**{"temperature": 0, name: value})


@task_4
def test_task_4_leaves_its_inputs_alone(impl):
    logits, tokens = distinct(2, 11), mx.array([[1, 2], [3, 3]])
    before = [array64(logits), array64(tokens)]
    for settings in ({"temperature": 0.7}, {"top_k": 5, "top_p": 0.9}, {"min_p": 0.05, "repetition_penalty": 1.2}):
        mx.eval(impl.sampler.make_sampler(**settings, seed=16)(logits, tokens))
        assert_unchanged(before, logits, tokens)


@task_4
def test_task_4_the_penalty_looks_at_the_tokens_of_each_step(impl):
    """In each call, the penalty depends only on the tokens of that call. The call before may belong to another text."""
    logits = mx.array([[2.0, 1.9, 1.8]])
    sampler = impl.sampler.make_sampler(temperature=0, repetition_penalty=1.5)
    steps = [sampler(logits, mx.array([tokens])).item() for tokens in ([2], [2, 0], [2, 0, 1], [0])]
    assert steps == [0, 1, 0, 1]
