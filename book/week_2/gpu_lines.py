"""Count the cache lines that a simdgroup reads for numbers side by side, one number per row, and four per lane."""

import mlx.core as mx

from metal_host import counting, metal_kernel

SIDE_BY_SIDE = "out[thread_position_in_grid.x] = x[thread_position_in_grid.x];"
ROW_BY_ROW = "out[thread_position_in_grid.x] = x[128 * thread_position_in_grid.x];"
FOUR_AT_A_TIME = """
const uint i = thread_position_in_grid.x;
((device float4*)out)[i] = ((const device float4*)x)[i];
"""


def traffic(body: str, results: int):
    kernel = metal_kernel("load", ["x"], ["out"], body)
    sizes = {"grid": (32, 1, 1), "threadgroup": (32, 1, 1)}
    with counting() as counts:
        kernel(inputs=[mx.ones(4096)], output_shapes=[(results,)], output_dtypes=[mx.float32], **sizes)
    return counts.buffers["x"]


print("                    bytes used   lines of 64 bytes   used of them")
for name, body, results in (
    ("side by side", SIDE_BY_SIDE, 32),
    ("row by row", ROW_BY_ROW, 32),
    ("four at a time", FOUR_AT_A_TIME, 128),
):
    x = traffic(body, results)
    print(f"{name:16}{x.read:14}{x.lines:20}{x.read / (64 * x.lines):15.0%}")
