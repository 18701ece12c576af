"""Print the contents and number of holders of each page while requests share a partly known page. One layer."""

import mlx.core as mx

from tiny_llm.serving.batch import Chunk
from tiny_llm.serving.page_pool import PagePool
from tiny_llm.serving.paged_cache import PagedKVCache, PagedKVCacheLayer
from tiny_llm.serving.prefix_cache import PrefixCache
from tiny_llm.serving.request import Request


def make_layer(num_pages: int, page_size: int) -> PagedKVCacheLayer:
    return PagedKVCacheLayer(num_pages, page_size, attention=lambda query, *_: query)


pool = PagePool(num_pages=4, page_size=4)
cache = PagedKVCache(1, pool, PrefixCache(pool), make_layer)
running: list[Request] = []


def show(what: str) -> None:
    """Print all pages. A position's key is its token; a dot marks a position that was never written."""
    pages = []
    for page in range(pool.num_pages):
        keys = [0] * 4 if cache.layers[0].keys is None else cache.layers[0].keys[page].flatten().tolist()
        holders = pool.holders(page)
        pages.append("".join(f"{int(key) or '.':>3}" for key in keys) + (f" :{holders}" if holders else "   "))
    tables = "  ".join(f"{request.id} {request.num_computed_tokens} {request.pages}" for request in running)
    print(f"{what:8}|{'|'.join(pages)}| {tables}".rstrip())


def open_(id: str, prompt: list[int]) -> Request:
    request = Request(id, prompt)
    cache.open(request)
    running.append(request)
    show(f"open {id}")
    return request


def step(request: Request) -> None:
    """Compute and commit all tokens of a request that are not computed yet."""
    start = request.num_computed_tokens
    chunk = Chunk(request, request.tokens[start:], start, 1, request.pages)
    rows = mx.array(chunk.tokens, mx.float32).reshape(-1, 1, 1, 1)
    cache.step([chunk]).layers[0].attend(rows, rows, rows)
    cache.commit(request, chunk.end)
    show(f"step {request.id}")


def close(request: Request) -> None:
    cache.close(request)
    running.remove(request)
    show(f"close {request.id}")


print("        |" + "|".join(f"    page {page}     "[:15] for page in range(4)) + "|")
a = open_("a", [11, 12, 13, 14, 15, 16, 17, 18, 19])
step(a)
close(a)
b = open_("b", [11, 12, 13, 14, 15, 16, 21])
c = open_("c", [11, 12, 13, 14, 15, 16, 31, 32])
step(b)
step(c)
close(c)
