"""Use the same vectors as keys or as values: a vector is a key only if attention compares it with a query."""

import mlx.core as mx

from tiny_llm.foundations import dot_product_attention

NOUNS, COLOURS = ["key", "lamp", "cup"], ["red", "blue", "green"]
nouns = 5 * mx.eye(3)  # one direction per noun
colours = mx.eye(3)  # one direction per colour; colour i belongs to noun i


def ask(what: str, keys: mx.array, values: mx.array) -> None:
    lamp = mx.array([0.0, 1.0, 0.0])
    output, weights = dot_product_attention(lamp, keys, values)
    print(f"{what:35} weights {row(weights)}   output {row(output)}")


def row(x: mx.array) -> str:
    return " ".join(f"{number:.2f}" for number in x.tolist())


order = mx.array([2, 0, 1])
ask("found by noun, answered by colour:", nouns, colours)
ask("both in another order:", nouns[order], colours[order])
ask("only the keys in another order:", nouns[order], colours)
ask("found and answered by noun:", nouns, nouns)
