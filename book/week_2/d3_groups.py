"""Print how one large number in a row of 1,024 increases the error of the other numbers, for several group sizes."""

import mlx.core as mx


def in_4_bits(row: mx.array, group_size: int) -> mx.array:
    """Round each number to one of 16 evenly spaced levels, from the minimum to the maximum of its group."""
    groups = mx.unflatten(row, -1, (-1, group_size))
    low = groups.min(axis=-1, keepdims=True)
    step = (groups.max(axis=-1, keepdims=True) - low) / 15
    return (mx.round((groups - low) / step) * step + low).flatten(-2)


mx.random.seed(1)
row = mx.random.normal((1024,))
spoilt = mx.where(mx.arange(1024) == 300, 20.0, row)
others = mx.arange(1024) != 300

print("group  bits per weight  error  error beside one number of 20")
for size in (1024, 128, 64, 32):
    alone, beside = (mx.sqrt(mx.mean(((in_4_bits(x, size) - x) * others) ** 2)).item() for x in (row, spoilt))
    print(f"{size:5}{4 + 32 / size:17.2f}{alone:7.1%}{beside:29.1%}")
