"""Print how large attention scores become, without and with norms on queries and keys."""

import mlx.core as mx

from tiny_llm.layer_norm import RMSNorm

D = 128
norm = RMSNorm(D, mx.ones(D), eps=1e-6)
mx.random.seed(0)
query = mx.random.normal((D,))
keys = mx.concatenate([query[None], mx.random.normal((999, D))])  # key 0 equals the query

for size in (1, 4, 16):
    plain = (keys * size) @ (query * size) * D**-0.5
    normed = norm(keys * size) @ norm(query * size) * D**-0.5
    print(f"numbers of size {size:2}: largest score {plain.max().item():6.1f}, with norms {normed.max().item():.1f}")
