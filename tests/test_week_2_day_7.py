"""Week 2 Day 7: FlashAttention: online softmax in Python; a kernel for prompts; keys shared out for decoding; both in
Metal."""

import math

import mlx.core as mx
import numpy as np
import oracles
import pytest
from helpers import Inputs, array64, assert_close, assert_unchanged, over_dtypes
from parallel import assert_shared, guarded, race_injection, threads
from quantized import ROUNDED_ONCE

task_1 = pytest.mark.task("w2d7.1")
task_2 = pytest.mark.task("w2d7.2")
task_3 = pytest.mark.task("w2d7.3")
task_4 = pytest.mark.task("w2d7.4")
task_5 = pytest.mark.task("w2d7.5")

over_masks = pytest.mark.parametrize("mask", [None, "causal"])
over_threads = pytest.mark.parametrize("count", [1, 2, 3, 8])
over_halves = pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16], ids=["float16", "bfloat16"])
over_scales = pytest.mark.parametrize("scale", [1.0, 0.3, -0.7, 0.0])

HEAD_SIZES = [1, 5, 17, 32, 64, 80, 96, 128, 250, 256]
GROUPS = [(1, 1), (4, 4), (6, 3), (8, 1), (7, 1), (14, 2)]  # H_q, H_kv


def qkv(inputs, *batch, H_q=4, H_kv=2, L=5, S=7, D=8):
    return inputs.normal(*batch, H_q, L, D), inputs.normal(*batch, H_kv, S, D), inputs.normal(*batch, H_kv, S, D)


def expected_attention(query, key, value, scale=None, mask=None):
    added = oracles.causal_mask(query.shape[-2], key.shape[-2]) if isinstance(mask, str) else mask
    added = array64(added) if isinstance(added, mx.array) else added
    return oracles.grouped_attention(array64(query), array64(key), array64(value), scale, added)


def check(attend, query, key, value, scale=None, mask=None, tolerance=None, **options):
    expected = expected_attention(query, key, value, scale, mask)
    got = attend(query, key, value, scale, mask, **options)
    assert_close(got, expected, dtype=query.dtype, tolerance=tolerance)


def growing(inputs, *batch, S, by, **sizes):
    """Scores that grow from key to key by about `by`, or fall where it is negative: from 0 on, or to 0."""
    q, k, v = qkv(inputs, *batch, S=S, **sizes)
    steps = mx.arange(S) * by - (0 if by > 0 else by * (S - 1))
    one = mx.zeros(q.shape[-1])
    one[0] = math.sqrt(q.shape[-1])
    return 0.1 * q + one, k * 0.1 + steps[:, None] * one / one[0], v


def lowest(query, key):
    """Queries and keys like these, whose scores are exact, far apart, and all about -2^33: a value as low as -1e9, in
    place of -inf, would be larger."""
    S, first = key.shape[-2], (mx.arange(key.shape[-1]) == 0).astype(key.dtype)
    order = mx.array(np.random.RandomState(S).permutation(S), mx.float32)[:, None]
    return mx.broadcast_to(2**17 * first, query.shape), mx.broadcast_to((order - 2**16) * first, key.shape)


def check_rounded_once(attend, dtype, L=9, S=40, D=16):
    """Only the result is rounded to 16 bits. It shows in large scores, and in values that nearly cancel."""
    q, k, v = qkv(Inputs(725, dtype), 2, L=L, S=S, D=D)
    check(attend, q * 6, k, v, 0.3, tolerance=ROUNDED_ONCE[dtype])
    signs = mx.where(mx.arange(S) % 2, 64, -64).astype(dtype)[:, None]
    check(attend, q * 0.1, k, mx.broadcast_to(signs, v.shape), tolerance=ROUNDED_ONCE[dtype])


# Online softmax.


@task_1
def test_task_1_attention(impl):
    q, k, v = qkv(Inputs(700), 2)
    check(impl.kernels.attention.attention_online, q, k, v)


@task_1
def test_task_1_two_blocks(impl):
    """What was found in the first block is rescaled when a larger score comes, sum and values alike."""
    q, k, v = qkv(Inputs(750), 1, L=5, S=128, D=16)
    check(impl.kernels.attention.attention_online, q, k, v, block=64)


@task_1
def test_task_1_two_blocks_causal(impl):
    """Positions count from the first key of all, in later blocks, too."""
    q, k, v = qkv(Inputs(751), 1, L=128, S=128, D=16)
    check(impl.kernels.attention.attention_online, q, k, v, mask="causal", block=64)


@task_1
@over_masks
@pytest.mark.parametrize("block", [1, 2, 5, 16, 32, 33, 64])
def test_task_1_blocks_of_keys(impl, block, mask):
    """Any number of keys in a block, whether or not it divides S: the result is the same."""
    q, k, v = qkv(Inputs(701), 2, L=20, S=33)
    check(impl.kernels.attention.attention_online, q, k, v, mask=mask, block=block)


@task_1
@over_masks
@over_dtypes
def test_task_1_dtypes(impl, dtype, mask):
    q, k, v = qkv(Inputs(702, dtype), 2, L=9, S=70, D=32)
    check(impl.kernels.attention.attention_online, q, k, v, mask=mask)


@task_1
@over_dtypes
def test_task_1_arithmetic_is_float32(impl, dtype):
    """2,000 equal weights: in 16 bits their sum would stop growing."""
    q, k, v = qkv(Inputs(703, dtype), H_q=2, H_kv=1, L=2, S=2000, D=16)
    check(impl.kernels.attention.attention_online, q * 0.01, k, v + 1, block=3, tolerance=2**-7)


@task_1
@over_halves
def test_task_1_rounded_once(impl, dtype):
    """Queries, scores and weights are float32, whatever the dtype of the inputs."""
    check_rounded_once(impl.kernels.attention.attention_online, dtype)


@task_1
@over_dtypes
def test_task_1_a_query_whose_keys_are_all_equal(impl, dtype):
    """A float32 mask stays one, and a finite number hides nothing for good: where all keys get it, they share."""
    q, k, v = qkv(Inputs(715, dtype), 2, L=3, S=9)
    mask = mx.where(mx.arange(3)[:, None] == 1, -1e9, 0.0) + mx.zeros((3, 9))
    got = impl.kernels.attention.attention_online(q * 0, k, v, mask=mask, block=4)
    mean = array64(v).mean(axis=-2, keepdims=True)
    assert_close(got, np.broadcast_to(np.repeat(mean, 2, axis=-3), got.shape), dtype=dtype)


@task_1
@pytest.mark.parametrize(("H_q", "H_kv"), GROUPS)
def test_task_1_heads(impl, H_q, H_kv):
    """Query head h reads key/value head h // (H_q / H_kv)."""
    q, k, v = qkv(Inputs(704), 2, H_q=H_q, H_kv=H_kv)
    check(impl.kernels.attention.attention_online, q, k, v, mask="causal", block=3)


@task_1
@over_masks
@pytest.mark.parametrize("batch", [(), (1,), (3,), (2, 3)], ids=str)
def test_task_1_batches(impl, batch, mask):
    q, k, v = qkv(Inputs(705), *batch)
    check(impl.kernels.attention.attention_online, q, k, v, mask=mask, block=4)


@task_1
@over_scales
def test_task_1_given_scale(impl, scale):
    q, k, v = qkv(Inputs(706), 2)
    check(impl.kernels.attention.attention_online, q, k, v, scale, block=3)


@task_1
@pytest.mark.parametrize(("L", "S"), [(1, 1), (1, 9), (4, 4), (3, 9), (8, 9), (9, 9)])
def test_task_1_causal(impl, L, S):
    """The L queries are the last L of S positions."""
    for block in (2, 4, 64):
        q, k, v = qkv(Inputs(707), 2, L=L, S=S)
        check(impl.kernels.attention.attention_online, q, k, v, mask="causal", block=block)


@task_1
@pytest.mark.parametrize("shape", ["L S", "1 1 L S", "2 1 L S", "H L S", "2 H L S", "2 1 1 S", "S", "L 1"])
def test_task_1_mask_is_added(impl, shape):
    inputs = Inputs(708)
    q, k, v = qkv(inputs, 2)
    mask = inputs.normal(*[{"L": 5, "S": 7, "H": 4}.get(size) or int(size) for size in shape.split()], scale=2)
    for block in (3, 64):
        check(impl.kernels.attention.attention_online, q, k, v, mask=mask, block=block)


@task_1
@pytest.mark.parametrize("by", [40.0, -40.0])
def test_task_1_large_scores(impl, by):
    """The largest score is subtracted before each exponential, and it may change from block to block."""
    for S, block in ((12, 1), (12, 5), (12, 64), (40, 8)):
        q, k, v = growing(Inputs(709), 2, S=S, by=by)
        check(impl.kernels.attention.attention_online, q, k, v, block=block, tolerance=1e-3)


@task_1
def test_task_1_far_below_zero(impl):
    """Of scores of -1,000 the largest is what counts, too: starting from 0, all weights would be 0."""
    q, k, v = qkv(Inputs(710), 2)
    check(impl.kernels.attention.attention_online, q, k, v, mask=mx.full((7,), -1000.0), block=3, tolerance=1e-3)
    check(impl.kernels.attention.attention_online, *lowest(q, k), v, 1.0, block=3)
    mask = np.full((5, 7), -1000.0)
    mask[1:3, :3] = mask[3, 3:] = -math.inf  # blocks of which a query sees nothing
    check(impl.kernels.attention.attention_online, q, k, v, mask=mx.array(mask, mx.float32), block=3, tolerance=1e-3)


@task_1
@pytest.mark.parametrize("hidden", [slice(0, 3), slice(0, 6), slice(3, 6), slice(4, 7), slice(1, 7)], ids=str)
def test_task_1_hidden_blocks(impl, hidden):
    """Of a block of keys, also of the first, a query may see none."""
    q, k, v = qkv(Inputs(711), 2)
    mask = np.zeros((5, 7))
    mask[1:4, hidden] = -math.inf
    for block in (1, 3, 64):
        check(impl.kernels.attention.attention_online, q, k, v, mask=mx.array(mask, mx.float32), block=block)


@task_1
def test_task_1_a_query_that_sees_nothing(impl):
    """NaN for it, as softmax gives; the others are what they are."""
    q, k, v = qkv(Inputs(712), 2)
    mask = np.zeros((5, 7))
    mask[2] = -math.inf
    for block in (3, 64):
        got = impl.kernels.attention.attention_online(q, k, v, None, mx.array(mask, mx.float32), block)
        others = [0, 1, 3, 4]
        assert_close(got[..., mx.array(others), :], expected_attention(q, k, v)[..., others, :])
        assert_close(mx.isnan(got[..., 2, :]).astype(mx.float32), np.ones((2, 4, 8)))


@task_1
def test_task_1_memory(impl):
    """Scores of one block of keys at a time: the array of all L x S is never there."""
    q, k, v = qkv(Inputs(713), H_q=1, H_kv=1, L=512, S=4096, D=4)
    mx.eval(q, k, v)
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    got = impl.kernels.attention.attention_online(q, k, v, block=128)
    mx.eval(got)
    is_small = mx.get_peak_memory() - before < 512 * 4096 * 4 / 2  # numbers vary, and would be in the message
    assert_close(got, expected_attention(q, k, v))
    assert is_small, "it takes more memory than half of all L x S scores would"


@task_1
def test_task_1_memory_of_keys(impl):
    """Of keys and values in 16 bits, only those of a block become float32."""
    q, k, v = qkv(Inputs(718, mx.bfloat16), H_q=1, H_kv=1, L=1, S=32768, D=16)
    mx.eval(q, k, v)
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    got = impl.kernels.attention.attention_online(q, k, v, block=1024)
    mx.eval(got)
    is_small = mx.get_peak_memory() - before < k.size * 4  # numbers vary, and would be in the message
    assert_close(got, expected_attention(q, k, v), dtype=mx.bfloat16)
    assert is_small, "it takes as much memory as all keys in float32: convert those of a block when it is their turn"


@task_1
@over_masks
def test_task_1_equals_mlx(impl, mask):
    q, k, v = qkv(Inputs(714), 2, L=30, S=50)
    theirs = mx.fast.scaled_dot_product_attention(q, k, v, scale=0.5, mask=mask)
    assert_close(impl.kernels.attention.attention_online(q, k, v, 0.5, mask, 16), theirs)


@task_1
@pytest.mark.parametrize(
    ("change", "mask"),
    [
        ({"H_q": 5}, None),
        ({"S": 4}, "causal"),
        ({"S": 0}, None),
        ({}, "diagonal"),
    ],
    ids=["heads that cannot be shared", "more queries than keys", "no key", "unknown mask"],
)
def test_task_1_wrong_input(impl, change, mask):
    """What does not fit together is a ValueError. Keep the line of the stub that calls `_check_inputs`."""
    q, k, v = qkv(Inputs(715), 2, **change)
    impl.kernels.attention.attention_online(q, q, q)  # a stub ends here
    with pytest.raises((ValueError, AssertionError)):
        impl.kernels.attention.attention_online(q, k, v, mask=mask)


@task_1
def test_task_1_leaves_its_inputs_alone(impl):
    inputs = Inputs(716)
    arrays = [*qkv(inputs, 2), inputs.normal(5, 7)]
    before = [array64(array) for array in arrays]
    mx.eval(impl.kernels.attention.attention_online(*arrays[:3], 0.5, arrays[3], 3))
    assert_unchanged(before, *arrays)


# The kernel for many queries, and the one for few: the op takes the one or the other by their number.


def check_views(attend, L, S):
    """Keys and values of a longer cache, whose end holds anything; heads that were projected side by side."""
    inputs = Inputs(720)
    q, k, v = qkv(inputs, 2, L=L, S=S + 11, D=20)
    past = mx.full((2, 2, 11, 20), math.nan)
    caches = [mx.concatenate([array[:, :, :S], past], axis=2) for array in (k, v)]
    mx.eval(caches)
    check(attend, q, *(cache[:, :, :S] for cache in caches), mask="causal")
    check(attend, q[:1], k[1:, ::-1, 3 : S + 3], v[:1, :, 11:], mask="causal")
    joined = inputs.normal(2, S, 5, 40)  # B, S, H, more than D
    views = [
        part.swapaxes(1, 2) for part in (joined[:, S - L :, 2:4, :20], joined[:, :, :1, 20:], joined[:, :, 4:, 5:25])
    ]
    check(attend, *views, mask="causal")
    check(attend, *(view[..., ::-2] for view in views))
    turned = [array.swapaxes(-1, -2) for array in (inputs.normal(2, 4, 20, L), inputs.normal(2, 2, 20, S))]
    check(attend, turned[0], turned[1], v[:, :, :S])
    check(attend, q, k[:, :, :S], mx.broadcast_to(turned[1][:, :1], (2, 2, S, 20)))


def check_far_scores(attend, L, S, **sizes):
    """Scores whose exponentials are infinite or 0, unless the largest is subtracted first, wherever it stands."""
    for by in (9.0, -9.0):
        q, k, v = growing(Inputs(721), 2, L=L, S=S, by=by, **sizes)
        for mask in (None, "causal"):
            check(attend, q, k, v, mask=mask, tolerance=2e-3)
    q, k, v = qkv(Inputs(722), 2, L=L, S=S, **sizes)
    first = mx.zeros(q.shape[-1])
    first[0] = 1
    check(attend, q + 100 * first, k - 60 * first, v, mask="causal", tolerance=2e-3)  # all are about -2,000
    check(attend, *lowest(q, k), v, 1.0, "causal")


def check_threads(impl, count, L, S):
    attend = impl.kernels.attention.flash_attention
    q, k, v = qkv(Inputs(723), 2, L=L, S=S, D=16)
    check(attend, q[:, :, :, :8], k[..., :8], v[..., :8])
    with threads(impl, count):
        for mask in (None, "causal"):
            check(attend, q, k, v, mask=mask)


@task_2
def test_task_2_attention(impl):
    q, k, v = qkv(Inputs(730), 1, H_q=2, H_kv=2, L=64, S=64, D=64)
    check(impl.kernels.attention.flash_attention, q, k, v)


@task_2
def test_task_2_two_blocks_of_keys(impl):
    """Scores begin at 0 for each block, and what was found before is rescaled, `total` and `out` alike."""
    q, k, v = qkv(Inputs(752), 1, H_q=2, H_kv=2, L=64, S=128, D=64)
    check(impl.kernels.attention.flash_attention, q, k, v)


@task_2
def test_task_2_two_blocks_causal(impl):
    """What a query must not see is -inf before the softmax. Positions count from the first key of all."""
    q, k, v = qkv(Inputs(753), 1, H_q=2, H_kv=2, L=128, S=128, D=64)
    check(impl.kernels.attention.flash_attention, q, k, v, mask="causal")


@task_2
@over_masks
@pytest.mark.parametrize(
    ("L", "S"), [(33, 33), (64, 64), (65, 65), (33, 200), (64, 128), (70, 71), (100, 163), (130, 300), (200, 200)]
)
def test_task_2_sizes(impl, L, S, mask):
    """Any number of queries and keys: the last block of either need not be full."""
    q, k, v = qkv(Inputs(731), 1, L=L, S=S, D=24)
    check(impl.kernels.attention.flash_attention, q, k, v, mask=mask)


@task_2
@over_dtypes
@pytest.mark.parametrize("D", HEAD_SIZES)
def test_task_2_head_sizes(impl, D, dtype):
    q, k, v = qkv(Inputs(732, dtype), 1, L=40, S=90, D=D)
    check(impl.kernels.attention.flash_attention, q, k, v, mask="causal")


@task_2
@over_masks
@pytest.mark.parametrize(("H_q", "H_kv"), GROUPS)
def test_task_2_heads(impl, H_q, H_kv, mask):
    """Query head h reads key/value head h // (H_q / H_kv)."""
    q, k, v = qkv(Inputs(733), 2, H_q=H_q, H_kv=H_kv, L=66, S=70)
    check(impl.kernels.attention.flash_attention, q, k, v, mask=mask)


@task_2
@over_masks
@pytest.mark.parametrize("batch", [(), (1,), (3,), (2, 3)], ids=str)
def test_task_2_batches(impl, batch, mask):
    q, k, v = qkv(Inputs(734), *batch, L=40, S=70)
    check(impl.kernels.attention.flash_attention, q, k, v, mask=mask)


@task_2
@over_scales
def test_task_2_given_scale(impl, scale):
    q, k, v = qkv(Inputs(735), 2, L=40, S=130)
    check(impl.kernels.attention.flash_attention, q, k, v, scale, "causal")


@task_2
def test_task_2_far_scores(impl):
    """Scores whose exponentials are infinite or 0, unless the largest is subtracted first, wherever it stands."""
    check_far_scores(impl.kernels.attention.flash_attention, 70, 200)


@task_2
@over_halves
def test_task_2_rounded_once(impl, dtype):
    """Queries, scores and weights are float32, whatever the dtype of the inputs."""
    check_rounded_once(impl.kernels.attention.flash_attention, dtype, L=40, S=130)


@task_2
def test_task_2_long(impl):
    """1,000 keys in many blocks, in 16 bits: sums are float32 throughout."""
    q, k, v = qkv(Inputs(736, mx.bfloat16), H_q=2, H_kv=1, L=70, S=1000, D=16)
    check(impl.kernels.attention.flash_attention, q, k, v + 1, mask="causal", tolerance=1e-2)


@task_2
def test_task_2_views(impl):
    """Keys and values are read where they are, and nothing behind the last position is."""
    check_views(impl.kernels.attention.flash_attention, 40, 75)


@task_2
@over_masks
def test_task_2_reads_nothing_past_the_end(impl, mask):
    """The memory after the last key may be nobody's: then even a read whose result is not used ends the program."""
    for S in (40, 75):
        q, k, v = qkv(Inputs(739 + S), L=40, S=S, D=16)
        impl.kernels.attention.flash_attention(q, k, v, mask=mask)
        with guarded(impl):
            check(impl.kernels.attention.flash_attention, q, k, v, mask=mask)


@task_2
@over_threads
def test_task_2_any_number_of_threads(impl, count):
    check_threads(impl, count, 150, 170)


@task_2
@over_masks
def test_task_2_equals_mlx(impl, mask):
    q, k, v = qkv(Inputs(737), 2, L=80, S=100)
    theirs = mx.fast.scaled_dot_product_attention(q, k, v, scale=0.5, mask=mask)
    assert_close(impl.kernels.attention.flash_attention(q, k, v, 0.5, mask), theirs)


@task_2
def test_task_2_masks_that_are_arrays(impl):
    """These are left to MLX's own operations, as the docstring says."""
    inputs = Inputs(738)
    q, k, v = qkv(inputs, 2, L=40, S=70)
    check(impl.kernels.attention.flash_attention, q, k, v)
    check(impl.kernels.attention.flash_attention, q, k, v, mask=inputs.normal(40, 70, scale=2))


@task_2
def test_task_2_without_a_cache(impl):
    """As the models of week 1 call it."""
    q, k, v = qkv(Inputs(739), 2, L=50, S=50)
    cache = impl.kv_cache.NoCache(1, impl.kernels.attention.flash_attention)
    assert_close(cache.attend(q, k, v, 0.4), expected_attention(q, k, v, 0.4, "causal"))


@task_3
def test_task_3_attention(impl):
    q, k, v = qkv(Inputs(750), 1, H_q=2, H_kv=2, L=1, S=64, D=64)
    check(impl.kernels.attention.flash_attention, q, k, v)


@task_3
def test_task_3_two_parts(impl):
    """When parts are joined, each counts with its own factor, in the sum and in the values."""
    q, k, v = qkv(Inputs(754), 1, H_q=2, H_kv=2, L=1, S=512, D=64)
    check(impl.kernels.attention.flash_attention, q, k, v)


@task_3
@over_masks
@pytest.mark.parametrize("S", [1, 2, 15, 16, 17, 255, 256, 257, 300, 511, 512, 513, 770, 1100])
def test_task_3_one_query(impl, S, mask):
    """Any number of keys: the last part need not be full."""
    q, k, v = qkv(Inputs(751), 2, L=1, S=S, D=24)
    check(impl.kernels.attention.flash_attention, q, k, v, mask=mask)


@task_3
@over_masks
@pytest.mark.parametrize(
    ("L", "S"), [(2, 2), (2, 257), (3, 258), (4, 256), (5, 260), (8, 514), (7, 600), (32, 32), (32, 270)]
)
def test_task_3_several_queries(impl, L, S, mask):
    """Of the last part some queries may see no key at all."""
    q, k, v = qkv(Inputs(752), 2, L=L, S=S)
    check(impl.kernels.attention.flash_attention, q, k, v, mask=mask)


@task_3
@over_dtypes
@pytest.mark.parametrize("D", HEAD_SIZES)
def test_task_3_head_sizes(impl, D, dtype):
    q, k, v = qkv(Inputs(753, dtype), 1, L=2, S=290, D=D)
    check(impl.kernels.attention.flash_attention, q, k, v, mask="causal")


@task_3
@pytest.mark.parametrize("L", [1, 3])
@pytest.mark.parametrize(("H_q", "H_kv"), GROUPS)
def test_task_3_heads(impl, H_q, H_kv, L):
    """Query head h reads key/value head h // (H_q / H_kv)."""
    q, k, v = qkv(Inputs(754), 2, H_q=H_q, H_kv=H_kv, L=L, S=270)
    check(impl.kernels.attention.flash_attention, q, k, v, mask="causal")


@task_3
@over_masks
@pytest.mark.parametrize("batch", [(), (1,), (3,), (2, 3)], ids=str)
def test_task_3_batches(impl, batch, mask):
    q, k, v = qkv(Inputs(755), *batch, L=2, S=300)
    check(impl.kernels.attention.flash_attention, q, k, v, mask=mask)


@task_3
@over_scales
def test_task_3_given_scale(impl, scale):
    q, k, v = qkv(Inputs(756), 2, L=2, S=300)
    check(impl.kernels.attention.flash_attention, q, k, v, scale, "causal")


@task_3
@pytest.mark.parametrize(("L", "S"), [(1, 600), (4, 600), (4, 514)])
def test_task_3_far_scores(impl, L, S):
    """Scores whose exponentials are infinite or 0, unless the largest is subtracted first, in whatever part it is.
    Of the last part some queries may see no key at all."""
    check_far_scores(impl.kernels.attention.flash_attention, L, S)


@task_3
@over_halves
def test_task_3_rounded_once(impl, dtype):
    """Queries, scores and weights are float32, whatever the dtype of the inputs."""
    check_rounded_once(impl.kernels.attention.flash_attention, dtype, L=3, S=300)


@task_3
def test_task_3_long(impl):
    """3,000 keys in 16 bits: sums are float32 throughout."""
    q, k, v = qkv(Inputs(757, mx.bfloat16), H_q=2, H_kv=1, L=1, S=3000, D=16)
    check(impl.kernels.attention.flash_attention, q, k, v + 1, mask="causal", tolerance=1e-2)


@task_3
@pytest.mark.parametrize("L", [1, 6])
def test_task_3_views(impl, L):
    """Keys and values are read where they are, and nothing behind the last position is."""
    check_views(impl.kernels.attention.flash_attention, L, 290)


@task_3
def test_task_3_parts_in_turns(impl):
    """The same result each time. Memory that is written to is made inside of the part: each thread has its own."""
    q, k, v = qkv(Inputs(759), L=1, S=2048, D=64)
    check(impl.kernels.attention.flash_attention, q, k[:, :9], v[:, :9])
    with race_injection(impl):
        for _ in range(16):
            check(impl.kernels.attention.flash_attention, q, k, v)


@task_3
@over_threads
def test_task_3_any_number_of_threads(impl, count):
    for L in (1, 5):
        check_threads(impl, count, L, 1300)


@task_3
def test_task_3_work_is_shared(impl):
    """The keys of one head are enough for two threads: call `threads`, which was given to the function."""
    q, k, v = qkv(Inputs(758), H_q=1, H_kv=1, L=1, S=4096, D=64)
    check(impl.kernels.attention.flash_attention, q, k[:, :9], v[:, :9])
    with threads(impl, 2):
        assert_shared(impl, lambda: check(impl.kernels.attention.flash_attention, q, k, v))


@task_3
def test_task_3_nothing_to_do(impl):
    attend = impl.kernels.attention.flash_attention
    for q, k, v in (qkv(Inputs(759), 2, L=0, S=0), qkv(Inputs(760), 0), qkv(Inputs(761), 2, L=0, S=5)):
        assert_close(attend(q, k, v, None, "causal"), np.zeros(q.shape))


@task_3
@over_masks
def test_task_3_equals_mlx(impl, mask):
    q, k, v = qkv(Inputs(762), 2, L=2, S=300)
    theirs = mx.fast.scaled_dot_product_attention(q, k, v, scale=0.5, mask=mask)
    assert_close(impl.kernels.attention.flash_attention(q, k, v, 0.5, mask), theirs)


@task_3
def test_task_3_masks_that_are_arrays(impl):
    """These are left to MLX's own operations, as the docstring says."""
    inputs = Inputs(763)
    q, k, v = qkv(inputs, 2, L=2, S=300)
    check(impl.kernels.attention.flash_attention, q, k, v)
    check(impl.kernels.attention.flash_attention, q, k, v, mask=inputs.normal(2, 300, scale=2))


@task_3
def test_task_3_behind_a_cache(impl):
    """A prompt in chunks, and tokens one by one, as a model with a KV cache calls it."""
    q, k, v = qkv(Inputs(764), 2, L=300, S=300)
    expected = expected_attention(q, k, v, 0.4, "causal")
    cache = impl.kv_cache.KVCache(1, attention=impl.kernels.attention.flash_attention)
    for length in (20, 30, 1, 1, 30, 30, 30, 30, 30, 30, 30, 1, 7, 30):
        part = slice(cache.offset, cache.offset + length)
        got = cache.layers[0].attend(q[:, :, part], k[:, :, part], v[:, :, part], 0.4)
        assert_close(got, expected[:, :, part])
        cache.advance(length)


# The same two in Metal. Most tests have heads of 20 numbers, since a kernel is compiled for each size.

HEADS_IN_METAL = [(1, 1), (4, 4), (6, 2), (5, 1)]


@task_4
def test_task_4_attention(impl):
    """A block of 32 queries, one of 16 keys, all of which they see."""
    q, k, v = qkv(Inputs(770), 1, H_q=2, H_kv=2, L=32, S=16, D=32)
    check(impl.kernels.attention.flash_attention_metal, q, k, v)


@task_4
@over_masks
@pytest.mark.parametrize(("L", "S"), [(9, 9), (32, 32), (33, 33), (31, 47), (20, 100), (65, 70)])
def test_task_4_sizes(impl, L, S, mask):
    """Any number of queries and keys: the last block of either need not be full."""
    q, k, v = qkv(Inputs(771), 1, H_q=2, H_kv=1, L=L, S=S, D=20)
    check(impl.kernels.attention.flash_attention_metal, q, k, v, mask=mask)


@task_4
@pytest.mark.parametrize(("D", "dtype"), [(5, mx.float16), (64, mx.bfloat16), (136, mx.float32)], ids=str)
def test_task_4_head_sizes(impl, D, dtype):
    """Also such as no 8 divides. From 129 numbers on, a block has 8 keys."""
    q, k, v = qkv(Inputs(772, dtype), 1, L=20, S=50, D=D)
    check(impl.kernels.attention.flash_attention_metal, q, k, v, mask="causal")


@task_4
@pytest.mark.parametrize(("H_q", "H_kv"), HEADS_IN_METAL)
def test_task_4_heads(impl, H_q, H_kv):
    """Query head h reads key/value head h // (H_q / H_kv)."""
    q, k, v = qkv(Inputs(773), 2, H_q=H_q, H_kv=H_kv, L=10, S=20, D=20)
    check(impl.kernels.attention.flash_attention_metal, q, k, v, mask="causal")


@task_4
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)], ids=str)
def test_task_4_batches(impl, batch):
    q, k, v = qkv(Inputs(774), *batch, L=10, S=20, D=20)
    check(impl.kernels.attention.flash_attention_metal, q, k, v, mask="causal")


@task_4
@over_scales
def test_task_4_given_scale(impl, scale):
    q, k, v = qkv(Inputs(775), 1, L=10, S=30, D=20)
    check(impl.kernels.attention.flash_attention_metal, q, k, v, scale, "causal")


@task_4
def test_task_4_far_scores(impl):
    """Scores whose exponentials are infinite or 0, unless the largest is subtracted first, wherever it stands."""
    check_far_scores(impl.kernels.attention.flash_attention_metal, 33, 50, D=20)


@task_4
def test_task_4_rounded_once(impl):
    """Queries, scores and weights are float32, whatever the dtype of the inputs."""
    check_rounded_once(impl.kernels.attention.flash_attention_metal, mx.bfloat16, L=20, D=64)


@task_4
def test_task_4_long(impl):
    """500 keys in 16 bits: sums are float32 throughout."""
    q, k, v = qkv(Inputs(776, mx.bfloat16), H_q=2, H_kv=1, L=40, S=500, D=64)
    check(impl.kernels.attention.flash_attention_metal, q * 0.1, k, v + 1, mask="causal", tolerance=5e-3)


@task_4
def test_task_4_views(impl):
    """Arrays whose numbers do not lie one behind the other in memory; nothing behind the last position is read."""
    check_views(impl.kernels.attention.flash_attention_metal, 12, 35)


@task_4
def test_task_4_nothing_to_do(impl):
    attend = impl.kernels.attention.flash_attention_metal
    check(attend, *qkv(Inputs(777), L=9, S=9, D=20))
    assert_close(attend(*qkv(Inputs(778), 0, L=9, S=9)), np.zeros((0, 4, 9, 8)))


@task_4
def test_task_4_left_to_mlx(impl):
    """Masks that are arrays and heads of more than 256 numbers, as the docstring says."""
    inputs = Inputs(779)
    q, k, v = qkv(inputs, L=9, S=12, D=20)
    check(impl.kernels.attention.flash_attention_metal, q, k, v)
    check(impl.kernels.attention.flash_attention_metal, q, k, v, mask=inputs.normal(9, 12, scale=2))
    check(impl.kernels.attention.flash_attention_metal, *qkv(inputs, L=9, S=12, D=260), mask="causal")


@task_5
def test_task_5_attention(impl):
    """One token, and fewer keys than a part has."""
    q, k, v = qkv(Inputs(780), 1, H_q=2, H_kv=2, L=1, S=32, D=32)
    check(impl.kernels.attention.flash_attention_metal, q, k, v)


@task_5
@pytest.mark.parametrize("S", [1, 2, 31, 33, 64, 65, 96, 150])
def test_task_5_one_query(impl, S):
    """Any number of keys: the last part need not be full, nor its last 32 keys."""
    q, k, v = qkv(Inputs(781), H_q=2, H_kv=1, L=1, S=S, D=20)
    check(impl.kernels.attention.flash_attention_metal, q, k, v)


@task_5
@over_masks
@pytest.mark.parametrize(("L", "S"), [(2, 65), (4, 64), (8, 8), (7, 130)])
def test_task_5_several_queries(impl, L, S, mask):
    """Of the last part some queries may see no key at all."""
    q, k, v = qkv(Inputs(782), H_q=2, H_kv=1, L=L, S=S, D=20)
    check(impl.kernels.attention.flash_attention_metal, q, k, v, mask=mask)


@task_5
@pytest.mark.parametrize(("D", "dtype"), [(5, mx.float16), (64, mx.bfloat16), (136, mx.float32)], ids=str)
def test_task_5_head_sizes(impl, D, dtype):
    """A lane has several neighbouring numbers of a row, or one, or none."""
    q, k, v = qkv(Inputs(783, dtype), 1, L=2, S=80, D=D)
    check(impl.kernels.attention.flash_attention_metal, q, k, v, mask="causal")


@task_5
@pytest.mark.parametrize("L", [1, 3])
@pytest.mark.parametrize(("H_q", "H_kv"), HEADS_IN_METAL)
def test_task_5_heads(impl, H_q, H_kv, L):
    """Query head h reads key/value head h // (H_q / H_kv)."""
    q, k, v = qkv(Inputs(784), 2, H_q=H_q, H_kv=H_kv, L=L, S=40, D=20)
    check(impl.kernels.attention.flash_attention_metal, q, k, v, mask="causal")


@task_5
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)], ids=str)
def test_task_5_batches(impl, batch):
    q, k, v = qkv(Inputs(785), *batch, L=2, S=70, D=20)
    check(impl.kernels.attention.flash_attention_metal, q, k, v, mask="causal")


@task_5
@over_scales
def test_task_5_given_scale(impl, scale):
    q, k, v = qkv(Inputs(786), 2, L=2, S=70, D=20)
    check(impl.kernels.attention.flash_attention_metal, q, k, v, scale, "causal")


@task_5
@pytest.mark.parametrize("S", [100, 65])
def test_task_5_far_scores(impl, S):
    """Scores whose exponentials are infinite or 0, unless the largest is subtracted first, in whatever part it is.
    Of the last part some queries may see no key at all."""
    check_far_scores(impl.kernels.attention.flash_attention_metal, 2, S, D=20)


@task_5
def test_task_5_rounded_once(impl):
    """Queries, scores and weights are float32, whatever the dtype of the inputs."""
    check_rounded_once(impl.kernels.attention.flash_attention_metal, mx.bfloat16, L=2, S=100, D=64)


@task_5
def test_task_5_long(impl):
    """1,000 equal weights in 16 bits: sums are float32. From 8 on, bfloat16 cannot add numbers like 1 + 1/128."""
    q, k, v = qkv(Inputs(787, mx.bfloat16), H_q=2, H_kv=1, L=1, S=1000, D=64)
    v = mx.broadcast_to(1 + mx.arange(64) / 128, v.shape).astype(v.dtype)
    check(impl.kernels.attention.flash_attention_metal, q * 0, k, v, mask="causal", tolerance=5e-3)


@task_5
def test_task_5_views(impl):
    """Arrays whose numbers do not lie one behind the other in memory; nothing behind the last position is read."""
    check_views(impl.kernels.attention.flash_attention_metal, 3, 40)


@task_5
def test_task_5_nothing_to_do(impl):
    attend = impl.kernels.attention.flash_attention_metal
    for q, k, v in (qkv(Inputs(788), 2, L=0, S=0), qkv(Inputs(789), 0, L=1), qkv(Inputs(790), 2, L=0, S=5)):
        assert_close(attend(q, k, v, None, "causal"), np.zeros(q.shape))
