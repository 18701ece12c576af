"""Use three arrays as query, key and value in all six orders, then choose the roles with hand-written matrices."""

from itertools import permutations

import mlx.core as mx

from tiny_llm.attention import scaled_dot_product_attention_simple as attend
from tiny_llm.basics import linear

mx.random.seed(1)
arrays = {name: mx.random.normal((3, 4)) for name in "abc"}
print("three arrays as query, key, value, and the first number of the result:")
for roles in permutations("abc"):
    result = attend(*(arrays[name] for name in roles))
    print(f"  {' '.join(roles)}  {result[0, 0].item():6.3f}")

THINGS, COLOURS = ["key", "lamp", "cup"], ["red", "green", "blue"]
tokens = mx.concatenate([mx.eye(3), mx.eye(3)], axis=1)  # a red key, a green lamp, a blue cup
thing, colour = mx.eye(3, 6), mx.eye(3, 6, k=3)  # matrices that select the first or the last three numbers
lamp, red = mx.array([[0.0, 1, 0, 0, 0, 0]]), mx.array([[0.0, 0, 0, 1, 0, 0]])


def head(question: mx.array, w_query: mx.array, w_key: mx.array, w_value: mx.array) -> str:
    query = 10 * linear(question, w_query)
    output = attend(query, linear(tokens, w_key), linear(tokens, w_value))[0].tolist()
    names = COLOURS if w_value is colour else THINGS
    return "  ".join(f"{name} {share:.2f}" for name, share in zip(names, output, strict=True))


print("found by thing, passes on colour, asked for lamp:", head(lamp, thing, thing, colour))
print("found by colour, passes on thing, asked for red: ", head(red, colour, colour, thing))
print("found by thing, passes on thing, asked for lamp: ", head(lamp, thing, thing, thing))
