"""Count what quantized_matvec.metal reads of a 64 x 4,096 matrix with 4 bits per weight in groups of 64."""

import mlx.core as mx

from metal_host import counting
from tiny_llm.kernels.quantized_matvec import quantized_matvec_metal
from tiny_llm.quantize import quantize

x, parts = mx.random.normal((1, 4096)), quantize(mx.random.normal((64, 4096)).astype(mx.bfloat16))
with counting() as counts:
    mx.eval(quantized_matvec_metal(x, *parts))

print(f"{'':10}{'bytes':>9}{'read':>9}{'accesses':>10}{'of 16 bytes or more':>21}{'lines':>8}{'for a simdgroup':>17}")
for name, array in zip(("x", "packed", "scales", "biases"), (x, *parts), strict=True):
    traffic = counts.buffers[name]
    print(f"{name:10}{array.nbytes:9,}{traffic.read:9,}{traffic.reads:10,}{traffic.wide:21,}{traffic.lines:8,}", end="")
    print(f"{traffic.read // traffic.together:6} B in {traffic.lines / traffic.together:2.0f}")
print(f"barriers: {counts.barriers}")
