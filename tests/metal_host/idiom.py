"""The type of idioms, and the data that they use."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np

N = 100  # elements of x; not a multiple of a simdgroup
RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal(N).astype(np.float32)
Y = RANDOM.standard_normal(N).astype(np.float32)
I = RANDOM.integers(-1000, 1000, N).astype(np.int32)
A = RANDOM.standard_normal((24, 16)).astype(np.float32)
B = RANDOM.standard_normal((16, 40)).astype(np.float32)


@dataclass
class Idiom:
    source: str
    expected: Callable[[], Any]
    inputs: dict[str, Any] = field(default_factory=lambda: {"x": X, "y": Y})
    shape: tuple[int, ...] = (N,)
    dtype: mx.Dtype = mx.float32
    grid: tuple[int, int, int] = (N, 1, 1)
    threadgroup: tuple[int, int, int] = (64, 1, 1)
    template: list[tuple[str, Any]] = field(default_factory=list)
    header: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    init_value: float | None = None
    tolerance: float = 1e-6


def each(expression: str, expected: Callable[[], Any], **more: Any) -> Idiom:
    """One thread an element."""
    return Idiom(f"uint i = thread_position_in_grid.x;\nout[i] = {expression};", expected, **more)


def lanes(body: str, expected: Callable[[], Any], **more: Any) -> Idiom:
    """Two simdgroups; `v` is the lane's value."""
    start = "uint i = thread_position_in_grid.x, lane = thread_index_in_simdgroup;\nfloat v = x[i];\n"
    more = {"shape": (64,), "grid": (64, 1, 1), "inputs": {"x": X[:64]}} | more
    return Idiom(start + body, expected, **more)


def rows(f: Callable[[Any], Any]) -> Callable[[], Any]:
    return lambda: np.stack([f(row) for row in X[:64].reshape(2, 32)]).reshape(-1)


def as_half(x: Any) -> Any:
    return np.asarray(x, np.float16)


def as_bfloat(x: Any) -> Any:
    """Rounded to bfloat16, to nearest and ties to even, as float32."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)


def groups(f: Callable[[Any], Any], size: int = 64) -> Callable[[], Any]:
    return lambda: np.concatenate([f(X[at : at + size]) for at in range(0, N, size)])
