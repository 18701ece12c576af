"""Print the errors of RoPE's sines and cosines at several positions, for D = 128 and base 1,000,000."""

import mlx.core as mx
import numpy as np

from tiny_llm.kernels.rope import rope

D, BASE, L = 128, 1_000_000.0, 64
frequencies = BASE ** (-np.arange(0, D, 2) / D)
x = mx.concatenate([mx.ones((1, L, 1, D // 2)), mx.zeros((1, L, 1, D // 2))], axis=-1)  # (1, 0) rotates to (cos, sin)


def error(turned: np.ndarray, angles: np.ndarray) -> float:
    """Return the largest absolute error of all sines and cosines."""
    right = np.concatenate([np.cos(angles), np.sin(angles)], axis=-1)
    return np.abs(turned.reshape(L, D) - right).max()


print("  position   angle in float32   mx.fast.rope   kernel below 1e-6")
for position in (100, 4_000, 40_000, 1_000_000):
    positions = np.arange(position, position + L)[:, None]
    angles = positions * frequencies  # in float64
    rounded = angles.astype(np.float32).astype(np.float64)
    in_float32 = np.concatenate([np.cos(rounded), np.sin(rounded)], axis=-1)
    fast = mx.fast.rope(x.swapaxes(1, 2), D, traditional=False, base=BASE, scale=1.0, offset=position)
    kernel = rope(x, position, BASE)
    print(f"{position:10,}{error(in_float32, angles):19.0e}{error(np.array(fast), angles):15.0e}", end="")
    print(f"{error(np.array(kernel), angles) < 1e-6!s:>20}")
