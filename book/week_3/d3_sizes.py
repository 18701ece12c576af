"""Print, for several page sizes, how many positions 200 requests leave unused and how long their tables are."""

import random

from tiny_llm.serving.page_pool import PagePool
from tiny_llm.serving.paged_cache import PagedKVCache
from tiny_llm.serving.request import Request

BYTES = 2 * 28 * 8 * 128 * 2  # per token of Qwen3-0.6B: keys and values, layers, H_kv, D, bytes of a bfloat16

rng = random.Random(3)
lengths = [int(rng.lognormvariate(5.3, 0.8)) + 1 for _ in range(200)]
print(f"200 requests of {min(lengths)} to {max(lengths):,} tokens, {sum(lengths):,} together")
print("page size   unused, a request   of the memory   entries of all tables   a page of one layer")
for page_size in (1, 4, 8, 16, 32, 64, 256, 2_048):
    pool = PagePool(100_000, page_size)
    cache = PagedKVCache(1, pool)
    for number, length in enumerate(lengths):
        cache.open(Request(str(number), [0] * length))
    held = pool.num_pages - pool.num_free
    unused = held * page_size - sum(lengths)
    row = f"{unused / len(lengths):20.1f}{unused / held / page_size:16.1%}{held:24,}"
    print(f"{page_size:9,}{row}{page_size * BYTES / 28 / 1024:18,.0f} KiB")
