"""Print the key array of one cache layer after each call: stored keys, unused room, and copied positions."""

import mlx.core as mx

from tiny_llm.kv_cache import KVCacheLayer

layer = KVCacheLayer(step=4)
written = 0


def store(L: int) -> None:
    """Store the next L numbers as keys, one per position, and print the array."""
    global written
    key = mx.arange(written + 1, written + L + 1).astype(mx.float32).reshape(1, 1, L, 1)
    before = 0 if layer.keys is None else layer.keys.shape[2]
    keys, _ = layer.store(key, key)
    written += L
    layer.offset += L
    capacity = layer.keys.shape[2]
    copied = layer.offset - L if before not in (0, capacity) else 0
    cells = [f"{int(number):3}" for number in layer.keys.flatten().tolist()]
    cells[layer.offset :] = ["  ." if cell == "  0" else f"({cell.strip()})" for cell in cells[layer.offset :]]
    print(f"store {L}  offset {layer.offset:2}  returned {keys.shape[2]:2}  copied {copied}  {' '.join(cells)}")


store(3)  # a prompt
store(1)
store(1)  # no room left: longer arrays replace the old ones
store(1)
layer.offset -= 2  # what `KVCache.trim` does
print(f"trim  2  offset {layer.offset:2}")
store(1)  # overwrites the first trimmed position
store(6)
