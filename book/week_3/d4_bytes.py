"""Print the bytes that attention to pages moves in a step, with copies by `gather` and through the table."""

import mlx.core as mx
import numpy as np

from tiny_llm.serving.page_pool import PagePool
from tiny_llm.serving.paged_cache import PagedKVCache
from tiny_llm_given.config import ModelConfig
from tiny_llm_models.untrained import QWEN3_0_6B

PAGE_SIZE, REQUESTS, LENGTH = 16, 16, 500


def address(array: mx.array) -> int:
    """Return the memory address of an array's elements."""
    return np.array(array.view(mx.uint16), copy=False).ctypes.data


config = ModelConfig.from_hf(QWEN3_0_6B)
H_kv, D = config.num_key_value_heads, config.head_dim
pool = PagePool(-(-LENGTH // PAGE_SIZE))
(layer,) = PagedKVCache(1, pool).layers
table = pool.allocate(pool.num_pages)
layer.keys = layer.values = mx.zeros((pool.num_pages, H_kv, PAGE_SIZE, D), mx.bfloat16)

print("`gather`, for the keys of one request in one layer:")
pages = layer.keys[mx.array(table)]
turned = pages.swapaxes(0, 1)
joined = turned.flatten(1, 2)
cut = joined[None, :, :LENGTH]
before = layer.keys
for name, array in (
    ("stored[pages]", pages),
    ("swapaxes(0, 1)", turned),
    ("flatten(1, 2)", joined),
    ("[:length]", cut),
):
    mx.eval(array)
    kind = "a view" if address(array) == address(before) else f"a copy of {array.nbytes:,} bytes"
    print(f"    {name:16}{kind}")
    before = array

times = 2 * config.num_hidden_layers * REQUESTS  # gathered arrays: keys and values of each layer and request
copied, kept = pages.nbytes + joined.nbytes, H_kv * LENGTH * D * layer.keys.itemsize
tables = 4 * len(table) * REQUESTS * config.num_hidden_layers
print(f"\na step of {REQUESTS} tokens, in requests of {LENGTH}: MB{'read':>12}{'written':>12}{'together':>12}")
for name, read, written in (
    ("gather", copied * times, copied * times),
    ("attention to the copies", kept * times, 0),
    ("attention through the table", kept * times + tables, 0),
):
    print(f"    {name:42}{read / 1e6:12,.1f}{written / 1e6:12,.1f}{(read + written) / 1e6:12,.1f}")
print(f"of which tables: {tables / 1e6:.2f} MB")
