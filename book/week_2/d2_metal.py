"""Print the bytes that softmax.metal reads and writes for rows of three lengths."""

import mlx.core as mx

from metal_host import counting
from tiny_llm.kernels.softmax import softmax_metal

print("     n  threads  bytes read of x  written  in threadgroup memory  barriers")
for n in (1000, 1024, 2000):
    x = mx.random.normal((1, n))
    with counting() as counts:
        y = softmax_metal(x)
    assert mx.allclose(y, mx.softmax(x), atol=1e-6)
    read, written = counts.buffers["x"].read, counts.buffers["out"].written
    shared = sum(variable.written for variable in counts.variables.values())
    print(f"{n:6,}{32 * -(-n // 128):9}{read:10} = {read // n} n{written:9}{shared:23}{counts.barriers:10}")
