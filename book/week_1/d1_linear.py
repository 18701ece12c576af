"""Compute a linear layer in two ways, and list the linear layers of `story`."""

import mlx.core as mx

from tiny_llm.basics import linear
from tiny_llm_ref.models import load  # your own version is complete on day 5

weight = mx.array([[1.0, 0.0, 2.0], [0.5, -1.0, 0.0]])  # one row per output
bias = mx.array([10.0, 20.0])
x = mx.array([1.0, 2.0, 3.0])
print("one product:", linear(x, weight, bias).tolist())
print("row by row: ", [(weight[i] * x).sum().item() + bias[i].item() for i in range(2)])
for shape in ((3,), (7, 3), (2, 7, 3)):
    print(f"x {shape!s:9} -> y {linear(mx.ones(shape), weight, bias).shape}")

model, _ = load("story")
print("\nstory, layer 0:")
count = 0
for part in (model.layers[0].self_attn, model.layers[0].mlp):
    for name, layer in vars(part).items():
        if name.endswith("_proj"):
            O, I = layer.weight.shape
            count += layer.weight.size
            print(f"  {name:9} {I} -> {O}   {layer.weight.size:7,} weights   bias {layer.bias}")
print(f"{len(model.layers)} layers: {len(model.layers) * count:,} weights in linear layers")
