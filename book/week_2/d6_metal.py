"""Print the bytes that day 4's and day 6's Metal kernels move for x and W, both of shape 64 x 1,024."""

import mlx.core as mx

from metal_host import counting
from tiny_llm.kernels.quantized_matmul import quantized_matmul_metal
from tiny_llm.kernels.quantized_matvec import quantized_matvec_metal
from tiny_llm.quantize import quantize

x, w = (mx.random.normal((64, 1024)).astype(mx.bfloat16) for _ in range(2))
parts = quantize(w)
for kernel in quantized_matvec_metal, quantized_matmul_metal:
    with counting() as counts:
        mx.eval(kernel(x, *parts))
    print(f"{kernel.__name__}: threadgroups {counts.threadgroups}, barriers {counts.barriers}")
    for name, traffic in counts.buffers.items():
        if not name.endswith(("O", "_shape")):
            print(f"    {name:8}{traffic.read:12,} read{traffic.written:12,} written", end="")
            print(f"{traffic.lines / traffic.together:6.1f} lines an access")
    for name, traffic in counts.variables.items():
        print(f"    {name:8}{traffic.read:12,} read{traffic.written:12,} written", end="")
        print(f"{traffic.cycles:8,} cycles, {traffic.conflicts:,} of them conflicts")
