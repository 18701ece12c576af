"""Print the bytes that attention in Metal moves for 256 queries, and for one query after 999 earlier tokens."""

import mlx.core as mx

from metal_host import counting
from tiny_llm.kernels.attention import flash_attention_metal

for L, S in (256, 256), (1, 1000):
    query = mx.random.normal((2, L, 64)).astype(mx.bfloat16)
    caches = [mx.random.normal((1, 1024, 64)).astype(mx.bfloat16) for _ in range(2)]
    key, value = (cache[:, :S] for cache in caches)
    with counting() as counts:
        mx.eval(flash_attention_metal(query, key, value, mask="causal"))
    print(f"L {L}, S {S}: calls {counts.calls}, threadgroups {counts.threadgroups}, barriers {counts.barriers}")
    for name, traffic in (counts.buffers | counts.variables).items():
        if traffic.distinct_read + traffic.distinct_written > 24:  # without constants, which all threads read
            print(f"    {name:12}{traffic.read:11,} read{traffic.written:11,} written")
