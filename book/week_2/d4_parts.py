"""Print into how many parts two threads divide a product, and whether results stay the same with four rows of x."""

import mlx.core as mx

from tiny_llm.kernels.quantized_matvec import quantized_matvec
from tiny_llm.quantize import quantize
from tiny_llm_native.extension import set_threads, shared_parts

MATRICES = {
    "story: q, o": (256, 256),
    "story: k, v": (128, 256),
    "story: gate, up": (768, 256),
    "story: down": (256, 768),
    "story: output": (4096, 256),
    "Qwen3-0.6B: k, v": (1024, 1024),
}
set_threads(2)

print(f"{'':18}{'rows':>5}{'words':>7}{'parts':>7}   four rows of x: as one by one")
for name, (rows, columns) in MATRICES.items():
    weight, x = mx.random.normal((rows, columns)), mx.random.normal((4, columns))
    parts = quantize(weight)
    words = parts[0].shape[1]
    mx.eval(parts, x)
    before = shared_parts()
    mx.eval(quantized_matvec(x[0], *parts))
    shared = shared_parts() - before or 1
    each = mx.stack([quantized_matvec(row, *parts) for row in x])
    same = mx.array_equal(quantized_matvec(x, *parts), each).item()
    print(f"{name:18}{rows:5,}{words:7}{shared:7}   {same}")
