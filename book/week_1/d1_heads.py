"""Compare multi-head attention in one call with a loop over the heads, and show two mistakes with the head axis."""

import mlx.core as mx

from tiny_llm.attention import SimpleMultiHeadAttention
from tiny_llm.attention import scaled_dot_product_attention_simple as attend
from tiny_llm.basics import linear

L, H, D = 3, 2, 2
x = mx.array([[10 * token + column for column in range(H * D)] for token in range(L)])
print("three tokens of four columns:", x.tolist())
print("head 0, split and swapped:   ", x.reshape(L, H, D).swapaxes(0, 1)[0].tolist())
print("head 0, only reshaped:       ", x.reshape(H, L, D)[0].tolist())

N, L, H, D = 2, 5, 3, 4
E = H * D
mx.random.seed(0)
x = mx.random.normal((N, L, E))
wq, wk, wv, wo = weights = [mx.random.normal((E, E)) * E**-0.5 for _ in range(4)]
together = SimpleMultiHeadAttention(E, H, *weights)(x, x, x)

heads = []
for h in range(H):
    rows = slice(h * D, (h + 1) * D)  # the rows of each weight matrix that compute head h's columns
    q, k, v = (linear(x, weight[rows]) for weight in (wq, wk, wv))  # N, L, D
    heads.append(attend(q, k, v))
one_by_one = linear(mx.concatenate(heads, axis=-1), wo)
print("\none call and head by head agree:", mx.allclose(together, one_by_one, atol=1e-5).item())


def unmoved(x: mx.array) -> mx.array:
    """Split the heads, but leave the head axis after the token axis: N, L, H, D."""
    q, k, v = (linear(x, weight).reshape(N, L, H, D) for weight in (wq, wk, wv))
    return linear(attend(q, k, v).flatten(-2), wo)


other = mx.where(mx.arange(L)[:, None] == L - 1, 2 * x, x)  # the last token is changed
layer = SimpleMultiHeadAttention(E, H, *weights)
ways = {"next to the batch axis": lambda x: layer(x, x, x), "after the token axis": unmoved}
for name, call in ways.items():
    sees = not mx.allclose(call(x)[:, 0], call(other)[:, 0]).item()
    print(f"heads {name}: token 0 sees the last token: {sees}")
