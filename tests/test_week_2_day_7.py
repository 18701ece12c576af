"""Week 2 Day 7: FlashAttention: online softmax in Python, a kernel for prompts, a kernel for decoding that splits the
keys, and both in Metal."""

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
    """Return queries and keys whose scores change by about `by` from key to key: they rise from 0, or fall to it."""
    q, k, v = qkv(inputs, *batch, S=S, **sizes)
    steps = mx.arange(S) * by - (0 if by > 0 else by * (S - 1))
    one = mx.zeros(q.shape[-1])
    one[0] = math.sqrt(q.shape[-1])
    return 0.1 * q + one, k * 0.1 + steps[:, None] * one / one[0], v


def lowest(query, key):
    """Return queries and keys with exact scores that are far apart and all around -2^33. Code that uses -1e9 in place
    of -inf fails with them."""
    S, first = key.shape[-2], (mx.arange(key.shape[-1]) == 0).astype(key.dtype)
    order = mx.array(np.random.RandomState(S).permutation(S), mx.float32)[:, None]
    return mx.broadcast_to(2**17 * first, query.shape), mx.broadcast_to((order - 2**16) * first, key.shape)


def check_rounded_once(attend, dtype, L=9, S=40, D=16):
    """Check that only the result is rounded to 16 bits, with large scores and with values that nearly cancel."""
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
    """When a larger score arrives, both the sum and the values of the first block are rescaled."""
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
    """The result is the same for any block size, whether or not it divides S."""
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
    """2,000 weights are equal. A sum that is kept in 16 bits would stop growing."""
    q, k, v = qkv(Inputs(703, dtype), H_q=2, H_kv=1, L=2, S=2000, D=16)
    check(impl.kernels.attention.attention_online, q * 0.01, k, v + 1, block=3, tolerance=2**-7)


@task_1
@over_halves
def test_task_1_rounded_once(impl, dtype):
    """Queries, scores and weights are float32 for every dtype of the inputs."""
    check_rounded_once(impl.kernels.attention.attention_online, dtype)


@task_1
@over_dtypes
def test_task_1_a_query_whose_keys_are_all_equal(impl, dtype):
    """A float32 mask stays float32. A finite mask value hides nothing if all keys have it, because then they share the
    weight."""
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
    """The largest score so far is subtracted before each exponential, and it may change from block to block."""
    for S, block in ((12, 1), (12, 5), (12, 64), (40, 8)):
        q, k, v = growing(Inputs(709), 2, S=S, by=by)
        check(impl.kernels.attention.attention_online, q, k, v, block=block, tolerance=1e-3)


@task_1
def test_task_1_far_below_zero(impl):
    """All scores are around -1,000, and the largest of them counts. If the maximum started at 0, all weights would be
    0."""
    q, k, v = qkv(Inputs(710), 2)
    check(impl.kernels.attention.attention_online, q, k, v, mask=mx.full((7,), -1000.0), block=3, tolerance=1e-3)
    check(impl.kernels.attention.attention_online, *lowest(q, k), v, 1.0, block=3)
    mask = np.full((5, 7), -1000.0)
    mask[1:3, :3] = mask[3, 3:] = -math.inf  # hides whole blocks from a query
    check(impl.kernels.attention.attention_online, q, k, v, mask=mx.array(mask, mx.float32), block=3, tolerance=1e-3)


@task_1
@pytest.mark.parametrize("hidden", [slice(0, 3), slice(0, 6), slice(3, 6), slice(4, 7), slice(1, 7)], ids=str)
def test_task_1_hidden_blocks(impl, hidden):
    """A query may see no key of a block, even of the first one."""
    q, k, v = qkv(Inputs(711), 2)
    mask = np.zeros((5, 7))
    mask[1:4, hidden] = -math.inf
    for block in (1, 3, 64):
        check(impl.kernels.attention.attention_online, q, k, v, mask=mx.array(mask, mx.float32), block=block)


@task_1
def test_task_1_a_query_that_sees_nothing(impl):
    """A query that sees no key gets NaN, as from softmax. Other queries are unaffected."""
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
    """Memory holds the scores of one block of keys at a time, and never all L x S scores."""
    q, k, v = qkv(Inputs(713), H_q=1, H_kv=1, L=512, S=4096, D=4)
    mx.eval(q, k, v)
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    got = impl.kernels.attention.attention_online(q, k, v, block=128)
    mx.eval(got)
    is_small = mx.get_peak_memory() - before < 512 * 4096 * 4 / 2  # a message with numbers would vary from run to run
    assert_close(got, expected_attention(q, k, v))
    assert is_small, "it takes more memory than half of all L x S scores would"


@task_1
def test_task_1_memory_of_keys(impl):
    """If keys and values have 16 bits, only those of one block become float32 at a time."""
    q, k, v = qkv(Inputs(718, mx.bfloat16), H_q=1, H_kv=1, L=1, S=32768, D=16)
    mx.eval(q, k, v)
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    got = impl.kernels.attention.attention_online(q, k, v, block=1024)
    mx.eval(got)
    is_small = mx.get_peak_memory() - before < k.size * 4  # a message with numbers would vary from run to run
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
    """Inputs that do not fit together raise a ValueError. Keep the stub's call of `_check_inputs`."""
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


# The kernels for many queries and for few. The op chooses one of them by the number of queries.


def check_views(attend, L, S):
    """Check keys and values that are a part of a longer cache whose end holds garbage, and heads that were projected
    side by side."""
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
    """Check scores whose exponentials are infinite or 0 unless the maximum is subtracted first, wherever it is."""
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
    """Each block computes its scores anew, and the second block rescales both `total` and `out`."""
    q, k, v = qkv(Inputs(752), 1, H_q=2, H_kv=2, L=64, S=128, D=64)
    check(impl.kernels.attention.flash_attention, q, k, v)


@task_2
def test_task_2_two_blocks_causal(impl):
    """Scores that a query must not see become -inf before the softmax. Positions count from the first key of all."""
    q, k, v = qkv(Inputs(753), 1, H_q=2, H_kv=2, L=128, S=128, D=64)
    check(impl.kernels.attention.flash_attention, q, k, v, mask="causal")


@task_2
@over_masks
@pytest.mark.parametrize(
    ("L", "S"), [(33, 33), (64, 64), (65, 65), (33, 200), (64, 128), (70, 71), (100, 163), (130, 300), (200, 200)]
)
def test_task_2_sizes(impl, L, S, mask):
    """There may be any number of queries and keys, so the last block of either may be incomplete."""
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
    """Exponentials are infinite or 0 unless the maximum is subtracted first, wherever it is."""
    check_far_scores(impl.kernels.attention.flash_attention, 70, 200)


@task_2
@over_halves
def test_task_2_rounded_once(impl, dtype):
    """Queries, scores and weights are float32 for every dtype of the inputs."""
    check_rounded_once(impl.kernels.attention.flash_attention, dtype, L=40, S=130)


@task_2
def test_task_2_long(impl):
    """There are 1,000 keys of 16 bits in many blocks, and all sums are float32."""
    q, k, v = qkv(Inputs(736, mx.bfloat16), H_q=2, H_kv=1, L=70, S=1000, D=16)
    check(impl.kernels.attention.flash_attention, q, k, v + 1, mask="causal", tolerance=1e-2)


@task_2
def test_task_2_views(impl):
    """The kernel reads keys and values in place, and nothing after the last position."""
    check_views(impl.kernels.attention.flash_attention, 40, 75)


@task_2
@over_masks
def test_task_2_reads_nothing_past_the_end(impl, mask):
    """A kernel must not read past the last key, even if it does not use the value, because such a read can end the
    program."""
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
    """The op leaves masks that are arrays to MLX's own operations, as the docstring says."""
    inputs = Inputs(738)
    q, k, v = qkv(inputs, 2, L=40, S=70)
    check(impl.kernels.attention.flash_attention, q, k, v)
    check(impl.kernels.attention.flash_attention, q, k, v, mask=inputs.normal(40, 70, scale=2))


@task_2
def test_task_2_without_a_cache(impl):
    """The models of week 1 can call the kernel without a cache."""
    q, k, v = qkv(Inputs(739), 2, L=50, S=50)
    cache = impl.kv_cache.NoCache(1, impl.kernels.attention.flash_attention)
    assert_close(cache.attend(q, k, v, 0.4), expected_attention(q, k, v, 0.4, "causal"))


@task_3
def test_task_3_attention(impl):
    q, k, v = qkv(Inputs(750), 1, H_q=2, H_kv=2, L=1, S=64, D=64)
    check(impl.kernels.attention.flash_attention, q, k, v)


@task_3
def test_task_3_two_parts(impl):
    """When two parts are joined, each has its own factor, for the sum and for the values."""
    q, k, v = qkv(Inputs(754), 1, H_q=2, H_kv=2, L=1, S=512, D=64)
    check(impl.kernels.attention.flash_attention, q, k, v)


@task_3
@over_masks
@pytest.mark.parametrize("S", [1, 2, 15, 16, 17, 255, 256, 257, 300, 511, 512, 513, 770, 1100])
def test_task_3_one_query(impl, S, mask):
    """There may be any number of keys, so the last part may be incomplete."""
    q, k, v = qkv(Inputs(751), 2, L=1, S=S, D=24)
    check(impl.kernels.attention.flash_attention, q, k, v, mask=mask)


@task_3
@over_masks
@pytest.mark.parametrize(
    ("L", "S"), [(2, 2), (2, 257), (3, 258), (4, 256), (5, 260), (8, 514), (7, 600), (32, 32), (32, 270)]
)
def test_task_3_several_queries(impl, L, S, mask):
    """Some queries may see no key of the last part."""
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
    """Exponentials are infinite or 0 unless the maximum is subtracted first, whichever part it is in. Some queries may
    see no key of the last part."""
    check_far_scores(impl.kernels.attention.flash_attention, L, S)


@task_3
@over_halves
def test_task_3_rounded_once(impl, dtype):
    """Queries, scores and weights are float32 for every dtype of the inputs."""
    check_rounded_once(impl.kernels.attention.flash_attention, dtype, L=3, S=300)


@task_3
def test_task_3_long(impl):
    """There are 3,000 keys of 16 bits, and all sums are float32."""
    q, k, v = qkv(Inputs(757, mx.bfloat16), H_q=2, H_kv=1, L=1, S=3000, D=16)
    check(impl.kernels.attention.flash_attention, q, k, v + 1, mask="causal", tolerance=1e-2)


@task_3
@pytest.mark.parametrize("L", [1, 6])
def test_task_3_views(impl, L):
    """The kernel reads keys and values in place, and nothing after the last position."""
    check_views(impl.kernels.attention.flash_attention, L, 290)


@task_3
def test_task_3_parts_in_turns(impl):
    """The result is the same every time. Each part allocates the memory that it writes to, so every thread has its
    own."""
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
    """The keys of a single head are enough work for two threads, so call `threads`, which the function gets."""
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
    """The op leaves masks that are arrays to MLX's own operations, as the docstring says."""
    inputs = Inputs(763)
    q, k, v = qkv(inputs, 2, L=2, S=300)
    check(impl.kernels.attention.flash_attention, q, k, v)
    check(impl.kernels.attention.flash_attention, q, k, v, mask=inputs.normal(2, 300, scale=2))


@task_3
def test_task_3_behind_a_cache(impl):
    """A model with a KV cache calls the op: a prompt comes in chunks, and then single tokens."""
    q, k, v = qkv(Inputs(764), 2, L=300, S=300)
    expected = expected_attention(q, k, v, 0.4, "causal")
    cache = impl.kv_cache.KVCache(1, attention=impl.kernels.attention.flash_attention)
    for length in (20, 30, 1, 1, 30, 30, 30, 30, 30, 30, 30, 1, 7, 30):
        part = slice(cache.offset, cache.offset + length)
        got = cache.layers[0].attend(q[:, :, part], k[:, :, part], v[:, :, part], 0.4)
        assert_close(got, expected[:, :, part])
        cache.advance(length)


# The same two kernels in Metal. Most tests have heads of size 20, because a kernel is compiled for each size.

HEADS_IN_METAL = [(1, 1), (4, 4), (6, 2), (5, 1)]


@task_4
def test_task_4_attention(impl):
    """There is one block of 32 queries and one of 16 keys, and every query sees every key."""
    q, k, v = qkv(Inputs(770), 1, H_q=2, H_kv=2, L=32, S=16, D=32)
    check(impl.kernels.attention.flash_attention_metal, q, k, v)


@task_4
@over_masks
@pytest.mark.parametrize(("L", "S"), [(9, 9), (32, 32), (33, 33), (31, 47), (20, 100), (65, 70)])
def test_task_4_sizes(impl, L, S, mask):
    """There may be any number of queries and keys, so the last block of either may be incomplete."""
    q, k, v = qkv(Inputs(771), 1, H_q=2, H_kv=1, L=L, S=S, D=20)
    check(impl.kernels.attention.flash_attention_metal, q, k, v, mask=mask)


@task_4
@pytest.mark.parametrize(("D", "dtype"), [(5, mx.float16), (64, mx.bfloat16), (136, mx.float32)], ids=str)
def test_task_4_head_sizes(impl, D, dtype):
    """Head sizes need not be multiples of 8. From size 129 on, a block has 8 keys."""
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
    """Exponentials are infinite or 0 unless the maximum is subtracted first, wherever it is."""
    check_far_scores(impl.kernels.attention.flash_attention_metal, 33, 50, D=20)


@task_4
def test_task_4_rounded_once(impl):
    """Queries, scores and weights are float32 for every dtype of the inputs."""
    check_rounded_once(impl.kernels.attention.flash_attention_metal, mx.bfloat16, L=20, D=64)


@task_4
def test_task_4_long(impl):
    """There are 500 keys of 16 bits, and all sums are float32."""
    q, k, v = qkv(Inputs(776, mx.bfloat16), H_q=2, H_kv=1, L=40, S=500, D=64)
    check(impl.kernels.attention.flash_attention_metal, q * 0.1, k, v + 1, mask="causal", tolerance=5e-3)


@task_4
def test_task_4_views(impl):
    """Arrays are not contiguous in memory, and the kernel reads nothing after the last position."""
    check_views(impl.kernels.attention.flash_attention_metal, 12, 35)


@task_4
def test_task_4_nothing_to_do(impl):
    attend = impl.kernels.attention.flash_attention_metal
    check(attend, *qkv(Inputs(777), L=9, S=9, D=20))
    assert_close(attend(*qkv(Inputs(778), 0, L=9, S=9)), np.zeros((0, 4, 9, 8)))


@task_4
def test_task_4_left_to_mlx(impl):
    """The op leaves masks that are arrays, and heads larger than 256, to MLX, as the docstring says."""
    inputs = Inputs(779)
    q, k, v = qkv(inputs, L=9, S=12, D=20)
    check(impl.kernels.attention.flash_attention_metal, q, k, v)
    check(impl.kernels.attention.flash_attention_metal, q, k, v, mask=inputs.normal(9, 12, scale=2))
    check(impl.kernels.attention.flash_attention_metal, *qkv(inputs, L=9, S=12, D=260), mask="causal")


@task_5
def test_task_5_attention(impl):
    """There is one token, and fewer keys than a part has."""
    q, k, v = qkv(Inputs(780), 1, H_q=2, H_kv=2, L=1, S=32, D=32)
    check(impl.kernels.attention.flash_attention_metal, q, k, v)


@task_5
@pytest.mark.parametrize("S", [1, 2, 31, 33, 64, 65, 96, 150])
def test_task_5_one_query(impl, S):
    """There may be any number of keys, so the last part, and its last 32 keys, may be incomplete."""
    q, k, v = qkv(Inputs(781), H_q=2, H_kv=1, L=1, S=S, D=20)
    check(impl.kernels.attention.flash_attention_metal, q, k, v)


@task_5
@over_masks
@pytest.mark.parametrize(("L", "S"), [(2, 65), (4, 64), (8, 8), (7, 130)])
def test_task_5_several_queries(impl, L, S, mask):
    """Some queries may see no key of the last part."""
    q, k, v = qkv(Inputs(782), H_q=2, H_kv=1, L=L, S=S, D=20)
    check(impl.kernels.attention.flash_attention_metal, q, k, v, mask=mask)


@task_5
@pytest.mark.parametrize(("D", "dtype"), [(5, mx.float16), (64, mx.bfloat16), (136, mx.float32)], ids=str)
def test_task_5_head_sizes(impl, D, dtype):
    """A lane has several neighbouring elements of a row, one, or none."""
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
    """Exponentials are infinite or 0 unless the maximum is subtracted first, whichever part it is in. Some queries may
    see no key of the last part."""
    check_far_scores(impl.kernels.attention.flash_attention_metal, 2, S, D=20)


@task_5
def test_task_5_rounded_once(impl):
    """Queries, scores and weights are float32 for every dtype of the inputs."""
    check_rounded_once(impl.kernels.attention.flash_attention_metal, mx.bfloat16, L=2, S=100, D=64)


@task_5
def test_task_5_long(impl):
    """There are 1,000 equal weights of 16 bits, and sums are float32. From 8 on, bfloat16 cannot add values such as 1 +
    1/128."""
    q, k, v = qkv(Inputs(787, mx.bfloat16), H_q=2, H_kv=1, L=1, S=1000, D=64)
    v = mx.broadcast_to(1 + mx.arange(64) / 128, v.shape).astype(v.dtype)
    check(impl.kernels.attention.flash_attention_metal, q * 0, k, v, mask="causal", tolerance=5e-3)


@task_5
def test_task_5_views(impl):
    """Arrays are not contiguous in memory, and the kernel reads nothing after the last position."""
    check_views(impl.kernels.attention.flash_attention_metal, 3, 40)


@task_5
def test_task_5_nothing_to_do(impl):
    attend = impl.kernels.attention.flash_attention_metal
    for q, k, v in (qkv(Inputs(788), 2, L=0, S=0), qkv(Inputs(789), 0, L=1), qkv(Inputs(790), 2, L=0, S=5)):
        assert_close(attend(q, k, v, None, "causal"), np.zeros(q.shape))
