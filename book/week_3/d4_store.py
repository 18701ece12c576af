"""Print whether a kernel writes into an array's memory or into a copy, depending on what else refers to the array."""

import mlx.core as mx
import numpy as np

from tiny_llm.kernels.paged_attention import store_pages

P, H_kv, PAGE_SIZE, D, T = 64, 2, 16, 64, 3


def address(array: mx.array) -> int:
    return np.array(array, copy=False).ctypes.data


def fresh() -> mx.array:
    array = mx.zeros((P, H_kv, PAGE_SIZE, D))
    mx.eval(array)
    return array


rows = mx.ones((T, H_kv, D))
pages, places = mx.array([5, 0, 7], mx.int32), mx.array([1, 15, 0], mx.int32)
mx.eval(rows, pages, places)

print(f"pages of {fresh().nbytes:,} bytes, {rows.nbytes:,} bytes to be stored")
holders = {
    "nobody": lambda array: None,
    "a variable": lambda array: array,
    "a view of page 5": lambda array: array[5:6],
    "a sum of all, computed": lambda array: array.sum(),
    "a sum of all, not yet computed": lambda array: array.sum(),
}
for who, hold in holders.items():
    keys, values = fresh(), fresh()
    holder = hold(keys)
    if holder is not None and "not yet" not in who:
        mx.eval(holder)
    before = address(keys)
    keys, values = store_pages(keys, values, rows, rows, pages, places)
    mx.eval(keys, values)
    place = "in place" if address(keys) == before else "in a copy"
    seen = "" if holder is None else f", its sum is {holder.sum().item():g}"
    print(f"    held by {who:34}{place}{seen}")
print(f"what was stored has the sum {keys.sum().item():g}")
