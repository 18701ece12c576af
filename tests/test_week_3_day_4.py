"""Week 3 Day 4: paged attention: where a key is, a part of a request's keys, and both in Metal."""

import math

import mlx.core as mx
import numpy as np
import oracles
import pytest
from coalesced import assert_coalesced, counted
from helpers import Inputs, array64, assert_close, over_dtypes
from parallel import race_injection, threads

from tiny_llm_models.untrained import untrained_config, write_untrained

task_1 = pytest.mark.task("w3d4.1")
task_2 = pytest.mark.task("w3d4.2")
task_3 = pytest.mark.task("w3d4.3")

over_threads = pytest.mark.parametrize("count", [1, 2, 3, 8])
over_scales = pytest.mark.parametrize("scale", [0.3, -0.7, 0.0])

PAGE_SIZES = [1, 2, 5, 7, 16, 33, 64]
HEAD_SIZES = [1, 5, 17, 64, 80, 128, 250, 256]
GROUPS = [(1, 1), (4, 4), (6, 3), (8, 1), (7, 1), (14, 2)]  # H_q, H_kv
WIDTH = 96  # of a table, most of which the kernel must not read


class Pool:
    """Requests whose keys and values are anywhere in the pages of a pool.

    All other memory is NaN: pages of no request, and places after a request's last position. Tables continue with a
    page that does not exist.
    lengths: how many positions of each request are stored. rows: how many of these, the last ones, are in the step.
    in_order: begin with page 0 and leave out no page.
    """

    def __init__(
        self, seed, lengths, rows, *, H_q=4, H_kv=2, D=8, page_size=16, dtype=mx.float32, in_order=False, width=WIDTH
    ):
        inputs = Inputs(seed, dtype)
        needed = [-(-length // page_size) for length in lengths]
        num_pages = sum(needed) + (0 if in_order else 3)
        places = np.arange(num_pages) if in_order else np.random.RandomState(seed).permutation(num_pages)
        tables = np.full((len(lengths), width), num_pages, np.int32)
        self.query = inputs.normal(sum(rows), H_q, D)
        self.page_size, self.rows, self.lengths = page_size, rows, lengths
        self.stored = []  # keys and values of each request, H_kv x length x D
        pools = [np.full((num_pages, H_kv, page_size, D), math.nan) for _ in range(2)]
        for table, length, count in zip(tables, lengths, needed, strict=True):
            table[:count], places = places[:count], places[count:]
            stored = [inputs.normal(H_kv, length, D) for _ in range(2)]
            self.stored.append([array64(x) for x in stored])
            for pool, x in zip(pools, self.stored[-1], strict=True):
                for i, page in enumerate(table[:count]):
                    part = x[:, i * page_size : (i + 1) * page_size]
                    pool[page, :, : part.shape[1]] = part
        self.keys, self.values = (mx.array(pool).astype(dtype) for pool in pools)
        ends = np.cumsum([0, *rows])
        self.tables = mx.array(tables)
        self.spans = mx.array(np.stack([ends[:-1], ends[1:], lengths], axis=1).astype(np.int32))
        mx.eval(self.query, self.keys, self.values, self.tables, self.spans)

    @property
    def arrays(self):
        return self.query, self.keys, self.values, self.tables, self.spans

    def expected(self, scale=None):
        """Compute attention for each request by itself, without pages."""
        query, found, first = array64(self.query), [], 0
        for (keys, values), length, count in zip(self.stored, self.lengths, self.rows, strict=True):
            rows = query[first : first + count].swapaxes(0, 1)  # H_q, L, D
            mask = oracles.causal_mask(count, length)
            found.append(oracles.grouped_attention(rows, keys, values, scale, mask).swapaxes(0, 1))
            first += count
        return np.concatenate(found)


def check(attend, pool, scale=None, tolerance=None):
    assert_close(attend(*pool.arrays, scale), pool.expected(scale), dtype=pool.query.dtype, tolerance=tolerance)


def check_growing(attend, by, lengths, rows, **sizes):
    """Check scores that rise or fall by this much from key to key, and so much more from part to part."""
    pool = Pool(40, lengths, rows, H_q=2, H_kv=1, D=16, **sizes)
    query = array64(pool.query) * 0.1
    query[..., 0] += 4
    keys = array64(pool.keys)
    for table, (stored, _), length in zip(np.array(pool.tables), pool.stored, pool.lengths, strict=True):
        stored *= 0.1
        stored[..., 0] = (np.arange(length) - (0 if by > 0 else length)) * by
        for i, page in enumerate(table[: -(-length // pool.page_size)]):
            part = stored[:, i * pool.page_size : (i + 1) * pool.page_size]
            keys[page, :, : part.shape[1]] = part
    pool.query, pool.keys = mx.array(query.astype(np.float32)), mx.array(keys.astype(np.float32))
    check(attend, pool, tolerance=2e-3)


def refused(attend, pool, **changes):
    """Fail unless these arrays, one of them changed, raise a ValueError or an AssertionError."""
    names = ("query", "keys", "values", "tables", "spans")
    with pytest.raises((ValueError, AssertionError)):
        attend(*(changes.get(name, array) for name, array in zip(names, pool.arrays, strict=True)))


def table_with(pool, request, place, page):
    tables = np.array(pool.tables)
    tables[request, place] = page
    return mx.array(tables)


# -------------------------------------------------------------------- task 1: finding a key through the page table
#
# Requests with more than 32 rows are computed in blocks, as in week 2's attention. Only the place of a key differs.


@task_1
def test_task_1_prompt(impl):
    """There is one head of keys, and pages of 16 positions are in order."""
    check(impl.kernels.paged_attention.paged_attention, Pool(1, [64], [64], H_kv=1, in_order=True))


@task_1
def test_task_1_pages_anywhere(impl):
    """The table names the page that comes next."""
    check(impl.kernels.paged_attention.paged_attention, Pool(2, [128], [128], H_kv=1))


@task_1
def test_task_1_two_heads(impl):
    """A page has page_size rows for the first head of keys, and then page_size rows for the second."""
    check(impl.kernels.paged_attention.paged_attention, Pool(3, [96], [96], H_q=2, in_order=True))


@task_1
@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_task_1_page_sizes(impl, page_size):
    """A page may have any number of positions, whether or not blocks of 64 keys begin where pages do."""
    check(impl.kernels.paged_attention.paged_attention, Pool(4, [90], [90], page_size=page_size))


@task_1
@pytest.mark.parametrize("length", [40, 63, 64, 65, 100, 150, 151])
def test_task_1_chunk(impl, length):
    """A chunk has 40 rows after earlier positions. Its last page need not be full, and its first row need not begin a
    page."""
    check(impl.kernels.paged_attention.paged_attention, Pool(5, [length], [40], page_size=10))


@task_1
@pytest.mark.parametrize(("H_q", "H_kv"), GROUPS)
def test_task_1_heads(impl, H_q, H_kv):
    """Query head h reads key/value head h // (H_q / H_kv)."""
    check(impl.kernels.paged_attention.paged_attention, Pool(6, [70], [66], H_q=H_q, H_kv=H_kv, page_size=12))


@task_1
def test_task_1_several_requests(impl):
    """Each request has its own table and its own rows."""
    pool = Pool(7, [50, 33, 200, 64], [50, 33, 70, 34], page_size=9)
    check(impl.kernels.paged_attention.paged_attention, pool)


@task_1
@over_dtypes
@pytest.mark.parametrize("D", HEAD_SIZES)
def test_task_1_head_sizes(impl, D, dtype):
    check(impl.kernels.paged_attention.paged_attention, Pool(8, [50], [40], D=D, dtype=dtype))


@task_1
@over_scales
def test_task_1_given_scale(impl, scale):
    check(impl.kernels.paged_attention.paged_attention, Pool(9, [50], [40]), scale)


@task_1
def test_task_1_table_without_more_room(impl):
    """The kernel reads nothing past the end of a table."""
    check(impl.kernels.paged_attention.paged_attention, Pool(10, [45, 60], [45, 60], page_size=15, width=4))


@task_1
def test_task_1_pages_may_be_shared(impl):
    """Two requests have the same first page."""
    pool = Pool(11, [48, 48], [48, 48])
    first = int(np.array(pool.tables)[0, 0])
    pool.tables = table_with(pool, 1, 0, first)
    for mine, other in zip(pool.stored[1], pool.stored[0], strict=True):
        mine[:, :16] = other[:, :16]
    check(impl.kernels.paged_attention.paged_attention, pool)


@task_1
@over_threads
def test_task_1_any_number_of_threads(impl, count):
    check(impl.kernels.paged_attention.paged_attention, Pool(12, [40], [40]))
    with threads(impl, count):
        check(impl.kernels.paged_attention.paged_attention, Pool(13, [150, 40, 70], [150, 40, 70], page_size=11))


@task_1
def test_task_1_equals_flash_attention(impl):
    """The result does not depend on where the keys are."""
    pool = Pool(14, [80], [50], D=32)
    query = pool.query.swapaxes(0, 1)
    keys, values = (mx.array(x.astype(np.float32)) for x in pool.stored[0])
    expected = impl.kernels.attention.flash_attention(query, keys, values, 0.4, "causal").swapaxes(0, 1)
    assert_close(impl.kernels.paged_attention.paged_attention(*pool.arrays, 0.4), expected)


@task_1
def test_task_1_wrong_input(impl):
    """Inputs that do not fit together raise a ValueError, because the op checks them before the kernel runs."""
    attend, pool = impl.kernels.paged_attention.paged_attention, Pool(15, [50], [40], width=4)
    check(attend, pool)
    refused(attend, pool, query=pool.query[:, :3])  # heads that cannot be shared
    refused(attend, pool, keys=pool.keys[..., :7])
    refused(attend, pool, values=pool.values[1:])
    refused(attend, pool, keys=pool.keys.astype(mx.float16))
    refused(attend, pool, tables=pool.tables[:, :3])  # too narrow
    refused(attend, pool, tables=table_with(pool, 0, 3, len(pool.keys)))  # no such page
    refused(attend, pool, tables=table_with(pool, 0, 0, -1))
    refused(attend, pool, spans=mx.array([[0, 39, 50]], mx.int32))  # a row of no request
    refused(attend, pool, spans=mx.array([[0, 40, 39]], mx.int32))  # more rows than positions
    refused(attend, pool, spans=pool.spans.astype(mx.float32))


# ------------------------------------------------------------------------ task 2: a part of a request's keys


@task_2
def test_task_2_token(impl):
    """There is one token, one page and one head."""
    check(impl.kernels.paged_attention.paged_attention, Pool(20, [16], [1], H_q=1, H_kv=1, in_order=True))


@task_2
def test_task_2_two_pages(impl):
    check(impl.kernels.paged_attention.paged_attention, Pool(21, [32], [1]))


@task_2
@pytest.mark.parametrize("length", [1, 2, 15, 17, 31, 33, 255, 256, 257, 300, 511, 512, 513, 770])
def test_task_2_one_row(impl, length):
    """A request may have any number of positions, so its last page and its last part of 256 keys may be incomplete."""
    check(impl.kernels.paged_attention.paged_attention, Pool(22, [length], [1]))


@task_2
@pytest.mark.parametrize("page_size", [*PAGE_SIZES, 300])
def test_task_2_page_sizes(impl, page_size):
    """A page may have any number of positions, whether or not parts begin where pages do."""
    check(impl.kernels.paged_attention.paged_attention, Pool(23, [400], [1], page_size=page_size, width=400))


@task_2
@pytest.mark.parametrize(("rows", "length"), [(2, 2), (2, 257), (5, 260), (8, 514), (7, 600), (32, 32), (32, 270)])
def test_task_2_several_rows(impl, rows, length):
    """Some rows may see no key of the last part."""
    check(impl.kernels.paged_attention.paged_attention, Pool(24, [length], [rows], page_size=24))


@task_2
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(("H_q", "H_kv"), GROUPS)
def test_task_2_heads(impl, H_q, H_kv, rows):
    """Query head h reads key/value head h // (H_q / H_kv)."""
    check(impl.kernels.paged_attention.paged_attention, Pool(25, [270], [rows], H_q=H_q, H_kv=H_kv))


@task_2
@over_dtypes
@pytest.mark.parametrize("D", HEAD_SIZES)
def test_task_2_head_sizes(impl, D, dtype):
    check(impl.kernels.paged_attention.paged_attention, Pool(26, [290], [2], D=D, dtype=dtype))


@task_2
@over_scales
def test_task_2_given_scale(impl, scale):
    check(impl.kernels.paged_attention.paged_attention, Pool(27, [290], [2]), scale)


@task_2
@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("by", [9.0, -9.0])
def test_task_2_far_scores(impl, by, rows):
    """Exponentials are infinite or 0 unless the maximum is subtracted first, whichever page it is in."""
    check_growing(impl.kernels.paged_attention.paged_attention, by, [600], [rows])


@task_2
def test_task_2_many_requests(impl):
    """One operation computes all requests."""
    lengths = [1, 40, 16, 300, 255, 17, 700, 90]
    check(impl.kernels.paged_attention.paged_attention, Pool(28, lengths, [1] * len(lengths), page_size=8))


@task_2
def test_task_2_mixed_step(impl):
    """A step mixes prompts, a chunk of a prompt, single tokens and a few tokens, in any order."""
    pool = Pool(29, [300, 90, 20, 64, 150, 40], [1, 90, 3, 64, 33, 2], page_size=20)
    check(impl.kernels.paged_attention.paged_attention, pool)


@task_2
def test_task_2_table_without_more_room(impl):
    """The kernel reads nothing past the end of a table."""
    check(impl.kernels.paged_attention.paged_attention, Pool(30, [45, 52], [1, 2], page_size=13, width=4))


@task_2
def test_task_2_nothing_to_do(impl):
    attend, pool = impl.kernels.paged_attention.paged_attention, Pool(31, [16], [1])
    check(attend, pool)
    got = attend(pool.query[:0], pool.keys, pool.values, pool.tables[:0], pool.spans[:0])
    assert_close(got, np.zeros((0, 4, 8)))


@task_2
@over_threads
def test_task_2_any_number_of_threads(impl, count):
    """The result is the same to the last bit, because parts do not depend on the number of threads."""
    attend, pool = impl.kernels.paged_attention.paged_attention, Pool(32, [1300, 20, 300], [1, 5, 2], page_size=32)
    first = attend(*pool.arrays)
    assert_close(first, pool.expected())
    with threads(impl, count):
        assert_close(attend(*pool.arrays), first, tolerance=0)


@task_2
def test_task_2_parts_in_turns(impl):
    """The result is the same every time. A part writes only into memory of its own, the `rows` and `found` that it
    gets."""
    attend, pool = impl.kernels.paged_attention.paged_attention, Pool(33, [2048], [1], D=64, page_size=32)
    check(attend, Pool(34, [16], [1]))
    with race_injection(impl):
        for _ in range(8):
            check(attend, pool)


@task_2
def test_task_2_behind_a_cache(impl):
    """A cache stores rows in place, step by step, and the kernel reads them through the table."""
    attend, store = impl.kernels.paged_attention.paged_attention, impl.kernels.paged_attention.store_pages
    inputs = Inputs(35)
    query, key, value = inputs.normal(90, 4, 8), inputs.normal(90, 2, 8), inputs.normal(90, 2, 8)
    q, k, v = (array64(x).swapaxes(0, 1) for x in (query, key, value))
    expected = oracles.grouped_attention(q, k, v, None, oracles.causal_mask(90, 90)).swapaxes(0, 1)
    keys = values = mx.full((9, 2, 10, 8), math.nan)
    table = np.array([[4, 0, 8, 2, 7, 1, 5, 3, 6]], np.int32)
    start = 0
    for count in (40, 1, 1, 5, 33, 10):
        rows = slice(start, start + count)
        positions = np.arange(start, start + count)
        pages, places = mx.array(table[0, positions // 10]), mx.array((positions % 10).astype(np.int32))
        keys, values = store(keys, values, key[rows], value[rows], pages, places)
        start += count
        spans = mx.array([[0, count, start]], mx.int32)
        assert_close(attend(query[rows], keys, values, mx.array(table), spans), expected[rows])


# Called by a model.


def untrained(impl, folder):
    """Return a small model with random weights in float32."""
    config = untrained_config("qwen3", num_hidden_layers=2)
    shapes = impl.given.weights.expected_shapes(impl.given.config.ModelConfig.from_hf(config))
    write_untrained(folder, config, shapes, seed=3)
    return impl.models.load_model(folder)


def texts(impl, model, cache, prompts, max_running, token_budget):
    """Return what an engine generates with this cache, by request."""
    serving = impl.serving
    module = serving.scheduler
    scheduler = module.Scheduler(cache, max_running, module.TokenBudget(token_budget), module.PreemptNewest())
    engine = serving.engine.Engine(model, scheduler, is_checked=True)
    for id, prompt in prompts.items():
        params = serving.request.SamplingParams(max_tokens=6, ignore_eos=True)
        engine.add(serving.request.Request(id, prompt, params))
    return {request.id: request.output for request in engine.run()}


@task_2
def test_task_2_under_a_model(impl, tmp_path):
    """An engine whose cache uses the kernels generates what week 1's attention gives each request alone."""
    pool, module = impl.serving.page_pool.PagePool(20, 8), impl.serving.paged_cache
    cache = module.PagedKVCache(2, pool, make_layer=module.KernelPagedKVCacheLayer)
    check(impl.kernels.paged_attention.paged_attention, Pool(36, [20], [1]))
    model = untrained(impl, tmp_path)
    random = np.random.RandomState(3)
    prompts = {str(i): random.randint(0, 256, length).tolist() for i, length in enumerate([3, 40, 9, 70, 21])}
    got = texts(impl, model, cache, prompts, max_running=4, token_budget=48)
    for id, prompt in prompts.items():
        tokens = list(prompt)
        for _ in range(6):
            logits = model(mx.array([tokens]))[0, -1]
            tokens.append(int(mx.argmax(logits)))
        assert got[id] == tokens[len(prompt) :], f"request {id}, of {len(prompt)} tokens"


# ------------------------------------------------------------------------------------------ task 3: the same in Metal
#
# Most tests have heads of size 20, because a kernel is compiled for each size.


@task_3
def test_task_3_token(impl):
    """There is one token, and fewer keys than a part has, all in page 0."""
    pool = Pool(50, [32], [1], H_q=1, H_kv=1, D=32, page_size=32, in_order=True)
    check(impl.kernels.paged_attention.paged_attention_metal, pool)


@task_3
@pytest.mark.parametrize("length", [1, 2, 31, 33, 64, 65, 96, 150])
def test_task_3_one_row(impl, length):
    """A request may have any number of positions, so its last page, its last part and the part's last 32 keys may be
    incomplete."""
    check(impl.kernels.paged_attention.paged_attention_metal, Pool(51, [length], [1], D=20))


@task_3
@pytest.mark.parametrize("page_size", [1, 5, 33, 100])
def test_task_3_page_sizes(impl, page_size):
    """A page may have any number of positions, so 32 keys may be in up to 32 pages."""
    check(impl.kernels.paged_attention.paged_attention_metal, Pool(52, [80], [2], D=20, page_size=page_size))


@task_3
@pytest.mark.parametrize(("rows", "length"), [(2, 65), (4, 64), (8, 8), (40, 70)])
def test_task_3_several_rows(impl, rows, length):
    """Some rows may see no key of the last part."""
    check(impl.kernels.paged_attention.paged_attention_metal, Pool(53, [length], [rows], H_q=2, H_kv=1, D=20))


@task_3
@pytest.mark.parametrize(("H_q", "H_kv"), [(4, 4), (6, 2), (5, 1), (9, 3)])
def test_task_3_heads(impl, H_q, H_kv):
    """Query head h reads key/value head h // (H_q / H_kv)."""
    check(impl.kernels.paged_attention.paged_attention_metal, Pool(54, [40], [2], H_q=H_q, H_kv=H_kv, D=20))


@task_3
@pytest.mark.parametrize(("D", "dtype"), [(5, mx.float16), (64, mx.bfloat16), (136, mx.float32)], ids=str)
def test_task_3_head_sizes(impl, D, dtype):
    """A lane has several neighbouring elements of a row, one, or none."""
    check(impl.kernels.paged_attention.paged_attention_metal, Pool(55, [80], [2], D=D, dtype=dtype))


@task_3
@over_scales
def test_task_3_given_scale(impl, scale):
    check(impl.kernels.paged_attention.paged_attention_metal, Pool(56, [70], [2], D=20), scale)


@task_3
@pytest.mark.parametrize("by", [9.0, -9.0])
def test_task_3_far_scores(impl, by):
    """Exponentials are infinite or 0 unless the maximum is subtracted first, whichever page it is in."""
    check_growing(impl.kernels.paged_attention.paged_attention_metal, by, [100], [2])


@task_3
def test_task_3_mixed_step(impl):
    """One dispatch computes prompts and single tokens. Each row has its request's table and its own number of keys."""
    pool = Pool(57, [100, 12, 3, 33], [1, 12, 1, 4], D=20, page_size=6)
    check(impl.kernels.paged_attention.paged_attention_metal, pool)


@task_3
def test_task_3_long(impl):
    """There are 1,000 equal weights of 16 bits, and sums are float32. From 8 on, bfloat16 cannot add values such as 1 +
    1/128."""
    pool = Pool(58, [1000], [1], H_q=2, H_kv=1, D=64, dtype=mx.bfloat16)
    row = 1 + np.arange(64) / 128
    pool.query = pool.query * 0
    pool.values = mx.contiguous(mx.broadcast_to(mx.array(row), pool.values.shape).astype(mx.bfloat16))
    got = impl.kernels.paged_attention.paged_attention_metal(*pool.arrays)
    assert_close(got, np.broadcast_to(row, (1, 2, 64)), dtype=mx.bfloat16, tolerance=5e-3)


@task_3
def test_task_3_scores_in_float32(impl):
    """Scores are float32, because bfloat16 cannot represent 257: from 256 on, it has only even numbers."""
    pool = Pool(65, [2], [1], H_q=1, H_kv=1, D=64, page_size=2, dtype=mx.bfloat16, in_order=True)
    keys, signs = np.full(pool.keys.shape, 4.0), np.array([1.0, -1.0])
    keys[0, 0, 0, 63] = 5
    pool.query, pool.keys = mx.ones_like(pool.query), mx.array(keys).astype(mx.bfloat16)
    pool.values = mx.array(np.broadcast_to(signs[:, None], pool.values.shape)).astype(mx.bfloat16)
    got = impl.kernels.paged_attention.paged_attention_metal(*pool.arrays, 1.0)
    expected = np.full((1, 1, 64), (math.exp(257 - 256) - 1) / (math.exp(257 - 256) + 1))
    assert_close(got, expected, dtype=mx.bfloat16, tolerance=5e-3)


@task_3
def test_task_3_weights_in_float32(impl):
    """64 weights of slightly more than 1/64 oppose one weight of 1. In bfloat16, each would be 1/64, and the sum 0."""
    pool = Pool(66, [65], [1], H_q=1, H_kv=1, D=64, page_size=65, dtype=mx.bfloat16, in_order=True)
    score = -4.15625
    keys, values = np.zeros(pool.keys.shape), np.ones(pool.values.shape)
    keys[0, 0, 1:, 0], values[0, 0, 0] = score, -1
    pool.query = mx.ones_like(pool.query)
    pool.keys, pool.values = (mx.array(x).astype(mx.bfloat16) for x in (keys, values))
    got = impl.kernels.paged_attention.paged_attention_metal(*pool.arrays, 1.0)
    others = 64 * math.exp(score)
    assert_close(got, np.full((1, 1, 64), (others - 1) / (others + 1)), dtype=mx.bfloat16, tolerance=2e-4)


@task_3
def test_task_3_far_below_zero(impl):
    """All scores are far below zero. A lane without a key must have a still lower score, so that it changes neither
    maximum nor sum."""
    pool = Pool(67, [40], [1], D=20)
    query, keys = np.zeros(pool.query.shape), array64(pool.keys)
    query[..., 0], keys[..., 0] = -100, 1000
    pool.query, pool.keys = (mx.array(x.astype(np.float32)) for x in (query, keys))
    means = pool.stored[0][1].mean(axis=1)  # of all values, H_kv x D, because all scores are equal
    assert_close(impl.kernels.paged_attention.paged_attention_metal(*pool.arrays), means.repeat(2, axis=0)[None])


@task_3
def test_task_3_table_without_more_room(impl):
    """The kernel reads nothing past the end of a table, not even in lanes without a key."""
    pool = Pool(59, [7, 45], [1, 2], D=20, page_size=1, width=45)
    check(impl.kernels.paged_attention.paged_attention_metal, pool)


@task_3
@pytest.mark.parametrize("D", [64, 128])
def test_task_3_neighbouring_lanes_read_neighbouring_numbers(impl, D):
    """The lanes of a simdgroup share a row of keys or values, so the simdgroup reads few lines of memory at a time."""
    pool = Pool(60, [70], [1], D=D, page_size=8)
    with counted() as counts:
        check(impl.kernels.paged_attention.paged_attention_metal, pool)
    for name in ("keys", "values"):
        assert_coalesced(
            counts, name, "In a page, rows lie one behind the other: let the 32 lanes share each of them, and add up."
        )


@task_3
def test_task_3_nothing_to_do(impl):
    attend, pool = impl.kernels.paged_attention.paged_attention_metal, Pool(61, [16], [1], D=20)
    check(attend, pool)
    got = attend(pool.query[:0], pool.keys, pool.values, pool.tables[:0], pool.spans[:0])
    assert_close(got, np.zeros((0, 4, 20)))


@task_3
def test_task_3_left_to_mlx(impl):
    """The op leaves heads larger than 256 to MLX, as the docstring says."""
    attend = impl.kernels.paged_attention.paged_attention_metal
    check(attend, Pool(62, [16], [1], D=20))
    check(attend, Pool(63, [40], [2], D=260))


@task_3
def test_task_3_wrong_input(impl):
    """Inputs that do not fit together raise a ValueError, because the op checks them before the kernel runs."""
    attend, pool = impl.kernels.paged_attention.paged_attention_metal, Pool(64, [20], [1], D=20)
    check(attend, pool)
    refused(attend, pool, tables=table_with(pool, 0, 1, len(pool.keys)))
    refused(attend, pool, spans=mx.array([[0, 1, 2000]], mx.int32))
