"""Show the limits of 16-bit numbers, the error of a norm in 16 bits, and what promotes an array to float32."""

import mlx.core as mx

from tiny_llm.layer_norm import RMSNorm


def norm_in_its_own_dtype(x: mx.array, eps: float = 1e-5) -> mx.array:
    """Compute RMSNorm with weights of 1 in the dtype of x, without a cast to float32."""
    return x * mx.rsqrt(mx.mean(x * x, axis=-1, keepdims=True) + eps)


for dtype in (mx.float16, mx.bfloat16, mx.float32):
    print(f"{dtype!s:18} largest {mx.finfo(dtype).max:10.5g}, 256 + 1 = {(mx.array(256, dtype) + 1).item():g}")
print("float16: 255.875² =", (mx.array(255.875, mx.float16) ** 2).item(), end=", ")
print("256² =", (mx.array(256, mx.float16) ** 2).item(), end=", 0.0001² = ")
print((mx.array(0.0001, mx.float16) ** 2).item())

norm = RMSNorm(1024, mx.ones(1024))
print("1,024 equal numbers, so that every result should be near 1")
for dtype in (mx.float16, mx.bfloat16):
    for size in (1.0, 10.0, 300.0):
        x = mx.full((1024,), size, dtype=dtype)
        naive, right = norm_in_its_own_dtype(x)[0].item(), norm(x)[0].item()
        print(f"  {dtype!s:18} x = {size:5g}: in its own dtype {naive:g}, in float32 and back {right:g}")

x, D = mx.ones(4, dtype=mx.bfloat16), 64
print("bfloat16 times D ** -0.5:            ", (x * D**-0.5).dtype)
print("bfloat16 times mx.rsqrt(mx.array(D)):", (x * mx.rsqrt(mx.array(D))).dtype)
