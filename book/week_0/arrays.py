"""Print the MLX expressions that the course uses, each with its value."""

import mlx.core as mx

LINES = """
x
x.shape
x.T
x @ x.T
x + mx.array([10, 20, 30])
x.sum(axis=-1)
x / x.max(axis=-1, keepdims=True)
x[1]
x[:, 1]
x[..., 0::2]
x[:, None].shape
x[None].swapaxes(-2, -1).shape
x[mx.array([1, 0])]
x.reshape(3, 2)
x.flatten()
mx.where(x > 2, x, 0)
mx.concatenate([x, x], axis=-1).shape
mx.stack([x, x]).shape
mx.broadcast_to(x[0], (4, 3)).shape
mx.arange(2, 5)
mx.exp(x).max().item()
x.dtype
(x.astype(mx.bfloat16) * 0.5).dtype
(x.astype(mx.bfloat16) * mx.array(0.5)).dtype
"""

x = mx.array([[1.0, 2.0, 4.0], [4.0, 6.0, 8.0]])
for line in LINES.split("\n")[1:-1]:
    result = eval(line)
    print(f"{line:45} {result.tolist() if isinstance(result, mx.array) else result}")
