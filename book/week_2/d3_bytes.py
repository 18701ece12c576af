"""What a weight takes, with its share of a scale and a bias of 16 bits each; and what that makes of a model."""

MODELS = {  # weights of all matrices, numbers of norms: of Qwen3 with 0.6 and with 8 billion
    "story": (5_767_168, 4_096),
    "Qwen3 0.6B": (595_984_384, 65_536),
    "Qwen3 8B": (8_190_427_136, 308_224),
}


def bits_per_weight(bits: int, group_size: int) -> float:
    """The levels, and the group's scale and bias shared by all of it."""
    return bits + (16 + 16) / group_size


print("bits  group  bits per weight  of bfloat16" + "".join(f"{name:>14}" for name in MODELS))
for bits, size in [(16, None), *((bits, size) for bits in (8, 4, 2) for size in (128, 64, 32))]:
    each = bits_per_weight(bits, size) if size else 16
    total = [matrices * each / 8 + vectors * 2 for matrices, vectors in MODELS.values()]
    print(f"{bits:4}  {size or '':5}{each:17.2f}{each / 16:11.0%}  " + "".join(f"{n / 1e6:11,.1f} MB" for n in total))
