"""Compare two ways in which six query heads share two key/value heads: broadcasting and copying."""

import mlx.core as mx

from tiny_llm.attention import scaled_dot_product_attention_grouped, scaled_dot_product_attention_simple

H_q, H_kv, L, S, D = 6, 2, 1, 1000, 64
mx.random.seed(0)
query = mx.random.normal((H_q, L, D)).astype(mx.bfloat16)
key, value = (mx.random.normal((H_kv, S, D)).astype(mx.bfloat16) for _ in range(2))

grouped = scaled_dot_product_attention_grouped(query, key, value)
copies = [mx.repeat(array, H_q // H_kv, axis=-3) for array in (key, value)]
repeated = scaled_dot_product_attention_simple(query, *copies)
print("query head reads key/value head:", {h: h // (H_q // H_kv) for h in range(H_q)})
print("result", grouped.shape, grouped.dtype, "as with copies:", mx.allclose(grouped, repeated, atol=1e-2).item())
print(f"keys and values: {key.nbytes + value.nbytes:,} bytes; copied first: {sum(c.nbytes for c in copies):,} bytes")

zeroed = mx.where(mx.arange(H_kv)[:, None, None] == 1, 0, value)  # the values of key/value head 1 are 0
changed = mx.any(scaled_dot_product_attention_grouped(query, key, zeroed) != grouped, axis=(-2, -1)).tolist()
print("head 1 is set to zero; the output changes in query heads", [h for h in range(H_q) if changed[h]])
