"""Count the bytes moved between the products of a layer of Qwen3-0.6B in bfloat16, without and with fused kernels."""

from collections.abc import Callable
from math import prod
from typing import Any

import mlx.core as mx

from tiny_llm.basics import silu
from tiny_llm.layer_norm import RMSNorm
from tiny_llm.positional_encoding import RoPE

E, I, H_q, H_kv, D = 1024, 3072, 16, 8, 128
WEIGHTS = 2 * E * D * (H_q + H_kv) + 3 * E * I  # number of weights in a layer's matrices
VIEWS = {"Broadcast", "ExpandDims", "Flatten", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unflatten"}


class Traffic:
    """Counts of a function's MLX operations and of the bytes that these operations read and write."""

    def __init__(self, function: Callable[..., Any], *inputs: mx.array):
        self.operations = self.bytes = 0
        self.sizes: dict[str, int] = {}  # bytes in memory, keyed by array name; a broadcast array counts once
        mx.export_function(self.listen, function, *inputs)

    def listen(self, event: dict[str, Any]) -> None:
        if event["type"] != "primitive":
            return
        reads = [self.sizes.get(name, prod(shape) * dtype.size) for name, shape, dtype in event["inputs"]]
        writes = [prod(shape) * dtype.size for _, shape, dtype in event["outputs"]]
        if event["name"] in VIEWS:
            writes = [min(size, reads[0]) for size in writes]
        else:
            if event["name"] == "Gather":
                reads[0] = writes[0]  # only the gathered rows of the table are read
            self.operations += 1
            self.bytes += sum(reads) + sum(writes)
        self.sizes |= {name: size for (name, _, _), size in zip(event["outputs"], writes, strict=True)}


def numbers(*shape: int) -> mx.array:
    return mx.zeros(shape, mx.bfloat16)


norm, head_norm, rope = RMSNorm(E, numbers(E)), RMSNorm(D, numbers(D)), RoPE(D, 1024)
for layer, x in ((norm, numbers(E)), (head_norm, numbers(D)), (lambda x: rope(x, 0), numbers(1, 1, 1, D))):
    mx.eval(layer(x))  # evaluates weights and tables now, so that no trace counts their computation


def add_rms_norm(x: mx.array, residual: mx.array) -> tuple[mx.array, mx.array]:
    total = x + residual
    return total, norm(total)


for L in (1, 512):
    x, q, k, gate = numbers(1, L, E), numbers(1, L, H_q, D), numbers(1, L, H_kv, D), numbers(1, L, I)
    parts = [  # name, times per layer, week 1's layer, inputs, numbers that the fused kernel reads and writes
        ("sum, RMSNorm", 2, add_rms_norm, (x, x), 4 * x.size + E),
        ("RMSNorm of queries", 1, head_norm, (q,), 2 * q.size + D),
        ("RMSNorm of keys", 1, head_norm, (k,), 2 * k.size + D),
        ("RoPE of queries", 1, lambda x: rope(x, 0), (q,), 2 * q.size),
        ("RoPE of keys", 1, lambda x: rope(x, 0), (k,), 2 * k.size),
        ("silu(gate) * up", 1, lambda gate, up: silu(gate) * up, (gate, gate), 3 * gate.size),
    ]
    print(f"L = {L:<21}operations        bytes   in one pass")
    all_parts = [0, 0, 0]
    for name, times, layer, inputs, fused in parts:
        separate = Traffic(layer, *inputs)
        row = [separate.operations, separate.bytes, 2 * fused]
        all_parts = [total + times * number for total, number in zip(all_parts, row, strict=True)]
        print(f"{times} x {name:21}{row[0]:11}{row[1]:13,}{row[2]:14,}")
    print(f"{'a layer':25}{all_parts[0]:11}{all_parts[1]:13,}{all_parts[2]:14,}")
    print(f"{'its weights, 4.5 bits':36}{WEIGHTS * 9 // 16:13,}\n")
