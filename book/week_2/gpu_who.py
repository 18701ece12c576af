"""Print the threadgroup, the simdgroup and the lane of several threads among 96."""

import mlx.core as mx

from metal_host import metal_kernel

BODY = """
const uint i = thread_position_in_grid.x;
out[4 * i] = threadgroup_position_in_grid.x;
out[4 * i + 1] = thread_index_in_threadgroup;
out[4 * i + 2] = simdgroup_index_in_threadgroup;
out[4 * i + 3] = thread_index_in_simdgroup;
"""
kernel = metal_kernel("who", [], ["out"], BODY)
(out,) = kernel(inputs=[], output_shapes=[(96, 4)], output_dtypes=[mx.uint32], grid=(96, 1, 1), threadgroup=(48, 1, 1))

print("in the grid   threadgroup   in it   simdgroup   lane")
for i in (0, 1, 31, 32, 47, 48, 95):
    group, thread, simdgroup, lane = out[i].tolist()
    print(f"{i:11}{group:14}{thread:8}{simdgroup:12}{lane:7}")
