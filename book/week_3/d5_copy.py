"""Copy on write, step by step: what is in each page, and how many hold it. Pages of four positions, one layer."""

import mlx.core as mx

from tiny_llm.serving.batch import Chunk
from tiny_llm.serving.page_pool import PagePool
from tiny_llm.serving.prefix_cache import PrefixPagedKVCache
from tiny_llm.serving.request import Request

cache = PrefixPagedKVCache(1, PagePool(num_pages=4, page_size=4), attention=lambda query, *_: query)
tokens: dict[str, list[int]] = {}


def show(what: str) -> None:
    """The key at a position is its token here. A point: never written."""
    pages = []
    for page in range(cache.pool.num_pages):
        keys = [0] * 4 if cache.layers[0].keys is None else cache.layers[0].keys[page].flatten().tolist()
        holders = cache.pool.holders(page)
        pages.append("".join(f"{int(key) or '.':>3}" for key in keys) + (f" :{holders}" if holders else "   "))
    tables = "  ".join(f"{id} {table}" for id, table in cache.tables.items())
    print(f"{what:9}|{'|'.join(pages)}| {tables}".rstrip())


def open_(id: str, prompt: list[int]) -> None:
    cache.open(id, prompt)
    tokens[id] = prompt[: cache.length(id)]
    show(f"open {id}")


def extend(id: str, *new: int) -> None:
    cache.extend(id, new)
    tokens[id] = tokens[id] + list(new)
    show(f"extend {id}")


def step(id: str, start: int) -> None:
    """Compute all positions from `start` on."""
    chunk = Chunk(Request(id, tokens[id]), tokens[id][start:], start, 1)
    rows = mx.array(chunk.tokens, mx.float32).reshape(-1, 1, 1, 1)
    cache.step([chunk]).layers[0].attend(rows, rows, rows)
    show(f"step {id}")


def close(id: str) -> None:
    cache.close(id)
    show(f"close {id}")


print("         |" + "|".join(f"    page {page}     "[:15] for page in range(4)) + "|")
open_("a", [11, 12, 13, 14, 15, 16, 17, 18])
extend("a", 11, 12, 13, 14, 15, 16, 17, 18)
step("a", 0)
extend("a", 19)
step("a", 8)
close("a")
open_("b", [11, 12, 13, 14, 15, 16, 21])
open_("c", [11, 12, 13, 14, 15, 16, 31, 32])
extend("b", 21)
step("b", 6)
extend("c", 31, 32)
step("c", 6)
