"""Add 64 numbers with 64 threads in six steps, with and without the barrier in the loop."""

import os

import mlx.core as mx

os.environ.setdefault("METAL_HOST", "check")

from metal_host import MetalKernelError, metal_kernel

BODY = """
threadgroup float part[64];
const uint t = thread_index_in_threadgroup;
part[t] = x[t];
threadgroup_barrier(mem_flags::mem_threadgroup);
for (uint half_ = 32; half_ > 0; half_ /= 2) {
    if (t < half_) part[t] += part[t + half_];
    threadgroup_barrier(mem_flags::mem_threadgroup);
}
if (t == 0) out[0] = part[0];
"""


def total(body: str) -> mx.array:
    kernel = metal_kernel("total", ["x"], ["out"], body)
    sizes = {"grid": (64, 1, 1), "threadgroup": (64, 1, 1)}
    return kernel(inputs=[mx.arange(64.0)], output_shapes=[(1,)], output_dtypes=[mx.float32], **sizes)[0]


print(total(BODY).item())
without = BODY.replace("    threadgroup_barrier(mem_flags::mem_threadgroup);\n}", "}")
try:
    print(total(without).item())
except MetalKernelError as error:
    print(error)
