"""Print the bytes that day 5's Metal kernels read and write for one token of Qwen3-0.6B in bfloat16."""

import mlx.core as mx

from metal_host import counting
from tiny_llm.kernels.rms_norm import add_rms_norm_metal
from tiny_llm.kernels.rope import rope_metal
from tiny_llm.kernels.swiglu import swiglu_metal


def show(kernel, *inputs):
    with counting() as counts:
        mx.eval(kernel(*inputs))
    print(f"{kernel.__name__}: threadgroups {counts.threadgroups}, barriers {counts.barriers}")
    for name, traffic in counts.buffers.items():
        if traffic.distinct_read + traffic.distinct_written > 16:  # without small inputs, which all threads read
            print(f"    {name:10}{traffic.read:6,} read{traffic.written:8,} written")


x, heads, gate = (mx.random.normal((1, 1, *shape)).astype(mx.bfloat16) for shape in ((1024,), (16, 128), (3072,)))
show(add_rms_norm_metal, x, x, x[0, 0], 1e-6)
show(rope_metal, heads, 100, 1e6)
show(swiglu_metal, gate, gate)
