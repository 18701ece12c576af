"""Run one attention head whose matrices are so simple that you can check the result by hand."""

import mlx.core as mx

from tiny_llm.foundations import attention_head

x = mx.eye(3, 4)  # three tokens, each in a direction of its own
identity = mx.eye(4)
w_value = identity + 0.5 * mx.eye(4, k=1) + 0.5 * mx.eye(4, k=-1)  # adds half of each neighbour to each number

output, weights = attention_head(x, x, x, 2 * identity, identity, w_value)
print("weights of token 0:", " ".join(f"{weight:.4f}" for weight in weights[0].tolist()))
print("output of token 0: ", " ".join(f"{number:.4f}" for number in output[0].tolist()))
