"""Print the bits per weight, including the group's scale and bias, and the resulting size of three models."""

MODELS = {  # number of weights: in all matrices, in all norms
    "story": (5_767_168, 4_096),
    "Qwen3 0.6B": (595_984_384, 65_536),
    "Qwen3 8B": (8_190_427_136, 308_224),
}


def bits_per_weight(bits: int, group_size: int) -> float:
    """Return the bits of a level, plus one weight's share of its group's scale and bias."""
    return bits + (16 + 16) / group_size


print("bits  group  bits per weight  of bfloat16" + "".join(f"{name:>14}" for name in MODELS))
for bits, size in [(16, None), *((bits, size) for bits in (8, 4, 2) for size in (128, 64, 32))]:
    each = bits_per_weight(bits, size) if size else 16
    total = [matrices * each / 8 + vectors * 2 for matrices, vectors in MODELS.values()]
    print(f"{bits:4}  {size or '':5}{each:17.2f}{each / 16:11.0%}  " + "".join(f"{n / 1e6:11,.1f} MB" for n in total))
