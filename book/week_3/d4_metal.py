"""Print the bytes that paged attention in Metal moves for one token after 999 others. Two heads share their keys."""

import mlx.core as mx
import numpy as np

from metal_host import counting
from tiny_llm.kernels.paged_attention import paged_attention_metal

LENGTH, D = 1000, 64

query = mx.random.normal((1, 2, D)).astype(mx.bfloat16)
spans = mx.array([[0, 1, LENGTH]], mx.int32)
for page_size in (1, 16, 64):
    count = -(-LENGTH // page_size)
    keys, values = (mx.random.normal((count, 1, page_size, D)).astype(mx.bfloat16) for _ in range(2))
    table = mx.array(np.random.default_rng(0).permutation(count)[None].astype(np.int32))
    with counting() as counts:
        mx.eval(paged_attention_metal(query, keys, values, table, spans))
    print(f"pages of {page_size}: calls {counts.calls}, threadgroups {counts.threadgroups}, barriers {counts.barriers}")
    print(f"    {'':8}{'bytes':>12}{'different ones':>18}{'of simdgroups':>17}{'lines for each':>18}")
    for name in ("keys", "values", "tables"):
        x = counts.buffers[name]
        each = x.lines / x.together
        print(f"    {name:8}{x.read:12,}{x.distinct_read:18,}{x.together:17,}{each:18.1f}")
