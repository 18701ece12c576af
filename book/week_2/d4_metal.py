"""What quantized_matvec.metal reads, of a matrix of 64 x 1,024 with 4 bits in groups of 64."""

import mlx.core as mx

from metal_host import counting
from tiny_llm.kernels.quantized_matvec import quantized_matvec_metal
from tiny_llm.quantize import quantize

x, parts = mx.random.normal((1, 1024)), quantize(mx.random.normal((64, 1024)).astype(mx.bfloat16))
with counting() as counts:
    quantized_matvec_metal(x, *parts)

print(f"{'':10}{'bytes':>9}{'read':>9}{'accesses':>10}{'of 16 bytes or more':>21}{'lines':>7}")
for name, array in zip(("x", "packed", "scales", "biases"), (x, *parts), strict=True):
    traffic = counts.buffers[name]
    print(f"{name:10}{array.nbytes:9,}{traffic.read:9,}{traffic.reads:10,}{traffic.wide:21,}{traffic.lines:7,}")
print(f"barriers: {counts.barriers}")
