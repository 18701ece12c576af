"""Print how many bytes of keys and values a token, a page and sixteen requests take, from the sizes of real arrays."""

import random

import mlx.core as mx

from tiny_llm.models import load
from tiny_llm.serving.batched_cache import BatchedKVCache
from tiny_llm.serving.page_pool import PagePool
from tiny_llm.serving.paged_cache import PagedKVCache
from tiny_llm.serving.request import Request
from tiny_llm_given.config import ModelConfig
from tiny_llm_models.untrained import QWEN3_0_6B

CONFIGS = {"story": load("story")[0].config, "Qwen3-0.6B": ModelConfig.from_hf(QWEN3_0_6B)}


def nbytes(cache: BatchedKVCache | PagedKVCache, config: ModelConfig) -> int:
    """Return the bytes of all arrays of a cache in bfloat16 once a row is stored. The arrays are never evaluated, so
    they take no memory."""
    row = mx.zeros((1, config.num_key_value_heads, 1, config.head_dim), mx.bfloat16)
    place = mx.array([0])
    for layer in cache.layers:
        layer.store(row, row, place, place)
    return sum(array.nbytes for layer in cache.layers for array in (layer.keys, layer.values))


def slots(config: ModelConfig, num_slots: int, capacity: int) -> int:
    return nbytes(BatchedKVCache(config.num_hidden_layers, num_slots, capacity), config)


def pages(config: ModelConfig, num_pages: int, page_size: int = 16) -> int:
    return nbytes(PagedKVCache(config.num_hidden_layers, PagePool(num_pages, page_size)), config)


def needed(lengths: list[int]) -> int:
    """Return the number of pages that requests of these lengths take from a pool."""
    pool = PagePool(1_000)
    cache = PagedKVCache(0, pool)
    for number, length in enumerate(lengths):
        cache.open(Request(str(number), [0] * length))
    return pool.num_pages - pool.num_free


rng = random.Random(7)
lengths = [int(rng.lognormvariate(5, 0.9)) + 1 for _ in range(16)]
print(f"{len(lengths)} requests of {min(lengths)} to {max(lengths)} tokens, {sum(lengths):,} together")
for name, config in CONFIGS.items():
    token, longest = pages(config, 1, 1), config.max_position_embeddings
    print(f"{name}: {token:,} bytes a token, {pages(config, 1) / 2**10:,.0f} KiB a page of 16")
    ways = {
        f"slots of {longest:,}": slots(config, 16, longest),
        f"slots of {max(lengths)}": slots(config, 16, max(lengths)),
        f"{needed(lengths)} pages of 16": pages(config, needed(lengths)),
    }
    print(f"{'':20}{'all arrays':>15}{'hold tokens':>15}{'waste of a request':>21}")
    for way, size in ways.items():
        used = sum(lengths) * token
        row = f"{size / 2**20:11,.1f} MiB{used / size:14.1%}{(size - used) / len(lengths) / 2**20:17,.2f} MiB"
        print(f"  {way:18}{row}")
