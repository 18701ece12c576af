"""Compute attention of one token to the same keys under different conditions, and compare the results bit by bit."""

import mlx.core as mx
import numpy as np

from tiny_llm.attention import scaled_dot_product_attention_grouped
from tiny_llm.kernels.paged_attention import paged_attention
from tiny_llm_native.extension import set_threads

H_q, H_kv, D, LENGTH = 4, 2, 64, 1000
rng = np.random.default_rng(0)
query = mx.array(rng.normal(size=(1, H_q, D)).astype(np.float32))
stored = [rng.normal(size=(H_kv, LENGTH, D)).astype(np.float32) for _ in range(2)]


def in_pages(page_size: int, places: list[int], num_pages: int, rest: float = 0.0) -> list[mx.array]:
    """Return keys and values. places: the pages of a pool that hold them. rest: the value of all other elements."""
    pools = [np.full((num_pages, H_kv, page_size, D), rest, np.float32) for _ in range(2)]
    for pool, x in zip(pools, stored, strict=True):
        for i, page in enumerate(places):
            part = x[:, i * page_size : (i + 1) * page_size]
            pool[page, :, : part.shape[1]] = part
    return [mx.array(pool) for pool in pools]


def attend(page_size: int = 16, places: list[int] | None = None, end: int = 0, rest: float = 0.0) -> mx.array:
    """Return the attention of one token. end: the entry of the table after the last page."""
    places = list(range(-(-LENGTH // page_size))) if places is None else places
    keys, values = in_pages(page_size, places, 1 + max(places), rest)
    table, spans = mx.array([[*places, end]], mx.int32), mx.array([[0, 1, LENGTH]], mx.int32)
    return paged_attention(query, keys, values, table, spans)


def told(name: str, got: mx.array, expected: mx.array) -> None:
    same, near = mx.array_equal(got, expected).item(), mx.abs(got - expected).max().item() < 1e-6
    print(f"    {name:44}{'the same bits' if same else 'within 1e-6' if near else 'different'}")


first = attend()
print("compared with pages of 16 in their order:")
told("pages in another order", attend(places=rng.permutation(63).tolist()), first)
told("among 200 other pages, full of NaN", attend(places=rng.permutation(263)[:63].tolist(), rest=np.nan), first)
told("a last entry that names page 1,000,000", attend(end=1_000_000), first)
for page_size in (8, 64, 7):
    told(f"pages of {page_size}", attend(page_size), first)
for threads in (1, 3):
    set_threads(threads)
    told(f"threads: {threads}", attend(), first)
places = rng.permutation(80)
keys, values = in_pages(16, places[:63].tolist(), 80)
tables = mx.array(np.stack([places[:63], places[17:]]).astype(np.int32))
others = mx.array(rng.normal(size=(5, H_q, D)).astype(np.float32))
spans = mx.array([[0, 1, LENGTH], [1, 6, 900]], mx.int32)
both = paged_attention(mx.concatenate([query, others]), keys, values, tables, spans)
told("in a step with another request", both[:1], first)
copies = [mx.array(x)[None] for x in stored]
alone = scaled_dot_product_attention_grouped(query[:, :, None], *copies)[:, :, 0]
told("copied together, week 1's attention", alone, first)
wrong = list(range(63))
wrong[20] = 21
keys, values = in_pages(16, list(range(63)), 63)
one = mx.array([[0, 1, LENGTH]], mx.int32)
told("entry 20 names page 21", paged_attention(query, keys, values, mx.array([wrong], mx.int32), one), first)
wrong[20] = 63
try:
    paged_attention(query, keys, values, mx.array([wrong], mx.int32), one)
except ValueError as error:
    print(f"    {'entry 20 names page 63':44}{error}")
