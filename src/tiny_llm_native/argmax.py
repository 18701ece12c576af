"""The likeliest token: the index of the largest number in each row. Given."""

from pathlib import Path

import mlx.core as mx

from .extension import kernel, mlx_extension

__all__ = ["argmax"]

_FILE = Path(__file__).parent / "argmax.cpp"


def argmax(x: mx.array) -> mx.array:
    """Return the index of each row's largest number. If this number occurs several times, return its first index.

    MLX's own operation takes half a millisecond on the CPU for a vocabulary of 150,000 tokens, which is too long for so
    small a part of a step. On a GPU, or if no MLX extension is built, MLX's operation runs instead of the kernel.
    Shapes: x: N.. x V, V at least 1 -> N.., of int32.
    """
    is_built = mx.default_device().type == mx.cpu and mlx_extension() is not None
    run = kernel(_FILE, "argmax") if is_built else None
    if run is None:
        return mx.argmax(x, axis=-1).astype(mx.int32)
    return run([x], [(x.shape[:-1], mx.int32)])[0]
