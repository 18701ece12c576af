"""Print the positions that each kind of offset gives to the tokens of a batch."""

import math

import mlx.core as mx

from tiny_llm.positional_encoding import RoPE

rope = RoPE(2, 16, traditional=True)  # one pair, which turns by 1 radian per position
ahead = mx.broadcast_to(mx.array([1.0, 0.0]), (2, 3, 1, 2))  # B = 2 rows of L = 3 tokens


def positions(offset) -> list[list[int]]:
    """Return the position of each token, computed from its angle."""
    turned = rope(ahead, offset)
    angles = mx.arctan2(turned[..., 1], turned[..., 0]) % (2 * math.pi)
    return mx.round(angles[..., 0]).astype(mx.int32).tolist()


for offset in (None, 2, slice(2, 5), [slice(0, 3), slice(2, 5)], mx.array([0, 2])):
    print(f"{offset!s:38} {positions(offset)}")

x = mx.random.normal((1, 10, 4, 64))  # ten tokens; the tenth is also passed alone, at position 9
rope = RoPE(64, 1024, base=1000000, traditional=True)
together, alone = rope(x)[:, 9:], rope(x[:, 9:], 9)
print("the tenth token, with the others and alone:", mx.allclose(together, alone).item())
