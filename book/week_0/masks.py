"""Combine a padding mask for sentences of three and five tokens with a look-ahead mask, and show the weights."""

import math

import mlx.core as mx

from tiny_llm.foundations import additive_mask, look_ahead_mask, padding_mask, scaled_dot_product_attention

keep = padding_mask([3, 5], 5) * look_ahead_mask(5)  # 2, 1, 5, 5
print("padding", padding_mask([3, 5], 5).shape, "look ahead", look_ahead_mask(5).shape, "both", keep.shape)
print(keep[0, 0].astype(mx.int32))

zeros = mx.zeros((2, 1, 5, 8))  # all scores are equal, so the weights show only the mask
_, weights = scaled_dot_product_attention(zeros, zeros, zeros, additive_mask(keep))
print("weights of the first sentence:")
print("\n".join("  " + " ".join(f"{weight:.2f}" for weight in row) for row in weights[0, 0].tolist()))

nothing = padding_mask([0], 4)[0, 0]  # the mask of a sentence without tokens: all keys are hidden
for hidden in (-math.inf, -1e9):
    _, weights = scaled_dot_product_attention(
        zeros[0, 0, :1], zeros[0, 0, :4], zeros[0, 0, :4], additive_mask(nothing, hidden)
    )
    print(f"nothing to see, hidden by {hidden}:", weights[0].tolist())
