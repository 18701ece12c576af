"""Compare the rounding error of SiLU(gate) * up in bfloat16, by three operations and by one kernel."""

import mlx.core as mx
import numpy as np

from tiny_llm.basics import silu
from tiny_llm.kernels.swiglu import swiglu


def wide(x: mx.array) -> np.ndarray:
    return np.array(x.astype(mx.float32), np.float64)


mx.random.seed(0)
gate = (2 * mx.random.normal((1024, 64))).astype(mx.bfloat16)
up = mx.random.normal((1024, 64)).astype(mx.bfloat16)
exact = wide(gate) / (1 + np.exp(-wide(gate))) * wide(up)
print("                 error   largest")
for name, result in (("three operations", silu(gate) * up), ("one kernel", swiglu(gate, up))):
    errors = np.abs(wide(result) / exact - 1)
    print(f"{name:16}{np.sqrt(np.mean(errors**2)):6.2%}{errors.max():10.2%}")

far = mx.array([-1000.0, -100.0, -1.0, 0.0, 1.0, 100.0, 1000.0])
print("\ngate:               ", far.tolist())
print("the kernel, up = 1: ", [round(y, 3) for y in swiglu(far, mx.ones(7)).tolist()])
print("g e^g / (1 + e^g):  ", [round(y, 3) for y in (far * mx.exp(far) / (1 + mx.exp(far))).tolist()])
