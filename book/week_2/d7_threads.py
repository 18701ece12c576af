"""Show that the last bits of a result depend on the size of a block, but not on the number of threads."""

import mlx.core as mx

from tiny_llm.kernels.attention import attention_online, flash_attention
from tiny_llm_native.extension import set_threads

H_q, H_kv, D = 4, 2, 64


def attend(L: int, threads: int) -> mx.array:
    set_threads(threads)
    result = flash_attention(query[:, :, :L], key, value, None, "causal")
    mx.eval(result)
    return result


mx.random.seed(0)
query, key, value = (mx.random.normal((1, heads, 1000, D)) for heads in (H_q, H_kv, H_kv))
for L, parts in ((1, H_kv * -(-1000 // 256)), (1000, H_q * -(-1000 // 64))):
    same = [mx.array_equal(attend(L, threads), attend(L, 1)).item() for threads in (2, 3, 8)]
    print(f"L = {L:4}: {parts:2} pieces of work, with 2, 3 and 8 threads the bits of one thread: {same}")

small, large = (attention_online(query, key, value, None, "causal", block) for block in (64, 256))
difference = mx.abs(small - large).max().item()
print(f"blocks of 64 and of 256: the same bits {mx.array_equal(small, large).item()}, within 1e-6 {difference < 1e-6}")
