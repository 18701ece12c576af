"""Print causal masks of three shapes, and which outputs change when the key and value of one token change."""

import mlx.core as mx

from tiny_llm.attention import causal_mask, scaled_dot_product_attention_simple

for L, S in ((6, 6), (2, 6), (1, 6)):
    print(f"L = {L}, S = {S}")
    for row in causal_mask(L, S).tolist():
        print("   ", " ".join(f"{number:4.0f}" for number in row))

mx.random.seed(0)
q, k, v = (mx.random.normal((6, 8)) for _ in range(3))
token_3 = mx.arange(6)[:, None] == 3
for name, mask in (("no mask", None), ("causal", causal_mask(6, 6))):
    before = scaled_dot_product_attention_simple(q, k, v, mask=mask)
    after = scaled_dot_product_attention_simple(q, mx.where(token_3, -k, k), mx.where(token_3, -v, v), mask=mask)
    changed = mx.any(before != after, axis=-1).tolist()
    print(f"{name}: key and value of token 3 change, and so do outputs", [i for i in range(6) if changed[i]])

whole = scaled_dot_product_attention_simple(q, k, v, mask=causal_mask(6, 6))
chunk = scaled_dot_product_attention_simple(q[-2:], k, v, mask=causal_mask(2, 6))
print("two queries alone give the last two outputs of six:", mx.allclose(chunk, whole[-2:]).item())
