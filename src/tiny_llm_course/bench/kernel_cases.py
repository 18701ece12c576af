"""Cases to measure, and the ways to compute each: the fallback, MLX's operation, each task's kernel, and the given
kernel.

On a GPU, `bench` compares only three ways: the fallback, MLX's operation, and the kernel in Metal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, TypeAlias

import mlx.core as mx

from tiny_llm_native import fallback
from tiny_llm_native.matmul.packed import pack, packed_matmul

__all__ = ["CASES", "Case", "Device", "Limit", "Rung", "cases"]

Limit: TypeAlias = Literal["bandwidth", "float32", "fastest"]
Device: TypeAlias = Literal["cpu", "gpu"]
Size: TypeAlias = dict[str, int]

# Sizes of Qwen3-0.6B. There are so many copies of a layer's weights that no cache can hold all copies.
FULL = {"E": 1024, "I": 3072, "H_q": 16, "H_kv": 8, "D": 128, "L": 128, "S": 512, "copies": 60}
SMALL = {"E": 128, "I": 192, "H_q": 4, "H_kv": 2, "D": 32, "L": 16, "S": 64, "copies": 2}
BASE, EPS = 1e6, 1e-6


@dataclass(frozen=True)
class Rung:
    """A way to compute a case. limit: the machine's limit for this rung, which is reading memory, or the arithmetic of
    float32 or of the fastest number type. device: the device that runs the rung. None: either device."""

    name: str  # fallback, mlx, tuned, or a task's id
    run: Callable[[], Any]
    limit: Limit | None = None
    device: Device | None = "cpu"


@dataclass(frozen=True)
class Case:
    """A computation to measure. A rung repeats the computation `times` times; `bytes` and `operations` are those of a
    single computation."""

    kernel: str
    sizes: str
    rungs: list[Rung]
    times: int = 1
    bytes: float = 0
    operations: float = 0

    def on(self, device: Device) -> list[Rung]:
        """Return the rungs that this device can run."""
        return [rung for rung in self.rungs if rung.device in (None, device)]


def cases(package: str, is_small: bool, names: Collection[str]) -> Iterator[Case]:
    """Yield the cases of the named kernels, and make each case only when it is needed."""
    for name, make in CASES:
        if name in names:
            mx.random.seed(0)
            yield make(package, SMALL if is_small else FULL)


def _softmax(package: str, size: Size) -> Case:
    ops = _ops(package, "softmax")
    x = _normal(size["H_q"] * size["L"], size["S"], dtype=mx.float32)
    return Case(
        "softmax",
        f"{x.shape[0]} x {x.shape[1]}",
        [
            Rung("fallback", lambda: fallback.softmax(x), device=None),
            Rung("w2d2.2", lambda: ops.softmax_scalar(x)),
            Rung("w2d2.3", lambda: ops.softmax_vector(x)),
            Rung("w2d2.4", lambda: ops.softmax(x)),
            Rung("w2d2.5", lambda: ops.softmax_metal(x), device="gpu"),
        ],
    )


def _matvec(package: str, size: Size) -> Case:
    ops = _ops(package, "quantized_matvec")
    x, weights = _normal(1, size["E"]), [_weight(size["I"], size["E"]) for _ in range(size["copies"])]
    packed = _panels(weights)

    def each(product: Callable[..., mx.array]) -> Callable[[], Any]:
        return lambda: [product(x, *weight, 64, 4) for weight in weights]

    return Case(
        "quantized_matvec",
        f"1 x {size['E']}, {size['I']} x {size['E']}",
        [
            Rung("fallback", each(fallback.quantized_matmul), "bandwidth", device=None),
            Rung("mlx", each(_mlx_product), "bandwidth", device=None),
            Rung("w2d4.1", each(ops.quantized_matvec_scalar), "bandwidth"),
            Rung("w2d4.2", each(ops.quantized_matvec_vector), "bandwidth"),
            Rung("w2d4.3", each(ops.quantized_matvec), "bandwidth"),
            Rung("w2d4.4", each(ops.quantized_matvec_metal), "bandwidth", "gpu"),
            Rung("tuned", lambda: [packed_matmul(x, panels) for panels in packed()], "bandwidth"),
        ],
        times=len(weights),
        bytes=sum(array.nbytes for array in weights[0]),
    )


def _rms_norm(package: str, size: Size) -> Case:
    ops = _ops(package, "rms_norm")
    x, residual, weight = _normal(size["L"], size["E"]), _normal(size["L"], size["E"]), _normal(size["E"])

    def mlx() -> list[mx.array]:
        total = x + residual
        return [total, mx.fast.rms_norm(total, weight, EPS)]

    return Case(
        "rms_norm",
        f"{size['L']} x {size['E']}",
        [
            Rung("fallback", lambda: fallback.add_rms_norm(x, residual, weight, EPS), device=None),
            Rung("mlx", mlx, device=None),
            Rung("w2d5.1", lambda: ops.add_rms_norm(x, residual, weight, EPS)),
            Rung("w2d5.4", lambda: ops.add_rms_norm_metal(x, residual, weight, EPS), device="gpu"),
        ],
    )


def _rope(package: str, size: Size) -> Case:
    ops = _ops(package, "rope")
    x = _normal(1, size["L"], size["H_q"], size["D"])

    def mlx() -> mx.array:
        return mx.fast.rope(x.swapaxes(1, 2), size["D"], traditional=False, base=BASE, scale=1.0, offset=size["S"])

    return Case(
        "rope",
        " x ".join(map(str, x.shape)),
        [
            Rung("fallback", lambda: fallback.rope(x, mx.array([size["S"]]), BASE, False), device=None),
            Rung("mlx", mlx, device=None),
            Rung("w2d5.2", lambda: ops.rope(x, size["S"], BASE)),
            Rung("w2d5.5", lambda: ops.rope_metal(x, size["S"], BASE), device="gpu"),
        ],
    )


def _swiglu(package: str, size: Size) -> Case:
    ops = _ops(package, "swiglu")
    gate, up = _normal(size["L"], size["I"]), _normal(size["L"], size["I"])
    return Case(
        "swiglu",
        f"{size['L']} x {size['I']}",
        [
            Rung("fallback", lambda: fallback.swiglu(gate, up), device=None),
            Rung("mlx", lambda: gate * mx.sigmoid(gate) * up, device=None),
            Rung("w2d5.3", lambda: ops.swiglu(gate, up)),
            Rung("w2d5.6", lambda: ops.swiglu_metal(gate, up), device="gpu"),
        ],
    )


def _matmul(package: str, size: Size) -> Case:
    ops = _ops(package, "quantized_matmul")
    x, weight = _normal(size["L"], size["E"]), _weight(size["I"], size["E"])
    packed = _panels([weight])
    return Case(
        "quantized_matmul",
        f"{size['L']} x {size['E']}, {size['I']} x {size['E']}",
        [
            Rung("fallback", lambda: fallback.quantized_matmul(x, *weight, 64, 4), "float32", device=None),
            Rung("mlx", lambda: _mlx_product(x, *weight, 64, 4), "float32", device=None),
            Rung("w2d6.2", lambda: ops.quantized_matmul(x, *weight, 64, 4), "float32"),
            Rung("w2d6.3", lambda: ops.quantized_matmul_metal(x, *weight, 64, 4), "float32", "gpu"),
            Rung("tuned", lambda: packed_matmul(x, packed()[0]), "fastest"),
        ],
        operations=2 * size["L"] * size["E"] * size["I"],
    )


def _attention_of_a_prompt(package: str, size: Size) -> Case:
    ops, mlx = _ops(package, "attention"), mx.fast.scaled_dot_product_attention
    L, scale = size["L"], size["D"] ** -0.5
    q = _normal(1, size["H_q"], L, size["D"])
    k, v = (_normal(1, size["H_kv"], L, size["D"]) for _ in range(2))
    return Case(
        "attention",
        f"L = S = {L}",
        [
            Rung("fallback", lambda: fallback.attention(q, k, v, scale, "causal"), "float32", device=None),
            Rung("mlx", lambda: mlx(q, k, v, scale=scale, mask="causal"), "float32", device=None),
            Rung("w2d7.1", lambda: ops.attention_online(q, k, v, scale, "causal"), "float32"),
            Rung("w2d7.2", lambda: ops.flash_attention(q, k, v, scale, "causal"), "float32"),
            Rung("w2d7.4", lambda: ops.flash_attention_metal(q, k, v, scale, "causal"), "float32", "gpu"),
        ],
        operations=2 * size["H_q"] * L * (L + 1) * size["D"],  # two products, each for half of all pairs
    )


def _attention_of_a_token(package: str, size: Size) -> Case:
    ops, mlx = _ops(package, "attention"), mx.fast.scaled_dot_product_attention
    S, scale = size["S"], size["D"] ** -0.5
    q = _normal(1, size["H_q"], 1, size["D"])
    stored = [[_normal(1, size["H_kv"], S, size["D"]) for _ in range(2)] for _ in range(size["copies"])]

    def each(attend: Callable[..., mx.array]) -> Callable[[], Any]:
        return lambda: [attend(q, k, v) for k, v in stored]

    return Case(
        "attention",
        f"L = 1, S = {S}",
        [
            Rung("fallback", each(lambda q, k, v: fallback.attention(q, k, v, scale)), "bandwidth", device=None),
            Rung("mlx", each(lambda q, k, v: mlx(q, k, v, scale=scale)), "bandwidth", device=None),
            Rung("w2d7.1", each(lambda q, k, v: ops.attention_online(q, k, v, scale)), "bandwidth"),
            Rung("w2d7.3", each(lambda q, k, v: ops.flash_attention(q, k, v, scale)), "bandwidth"),
            Rung("w2d7.5", each(lambda q, k, v: ops.flash_attention_metal(q, k, v, scale)), "bandwidth", "gpu"),
        ],
        times=len(stored),
        bytes=2 * size["H_kv"] * S * size["D"] * 2,
    )


def _attention_in_pages(package: str, size: Size) -> Case:
    ops = _ops(package, "paged_attention")
    requests, page_size, S, scale = 16, 16, size["L"], size["D"] ** -0.5
    width = S // page_size
    q = _normal(requests, size["H_q"], size["D"])
    tables = mx.random.permutation(requests * width).reshape(requests, width).astype(mx.int32)
    spans = mx.array([[i, i + 1, S] for i in range(requests)], mx.int32)
    shape, copies = (requests * width, size["H_kv"], page_size, size["D"]), -(-size["copies"] // 4)
    stored = [[_normal(*shape), _normal(*shape)] for _ in range(copies)]
    mx.eval(tables, spans)

    def each(attend: Callable[..., mx.array]) -> Callable[[], Any]:
        return lambda: [attend(q, k, v, tables, spans, scale) for k, v in stored]

    return Case(
        "paged_attention",
        f"{requests} x L = 1, S = {S}",
        [
            Rung("fallback", each(fallback.paged_attention), "bandwidth", device=None),
            Rung("w3d4.2", each(ops.paged_attention), "bandwidth"),
            Rung("w3d4.3", each(ops.paged_attention_metal), "bandwidth", "gpu"),
        ],
        times=len(stored),
        bytes=2 * stored[0][0].nbytes,
    )


CASES: list[tuple[str, Callable[[str, Size], Case]]] = [  # the kernel's name, and the function that makes its case
    ("softmax", _softmax),
    ("quantized_matvec", _matvec),
    ("rms_norm", _rms_norm),
    ("rope", _rope),
    ("swiglu", _swiglu),
    ("quantized_matmul", _matmul),
    ("attention", _attention_of_a_prompt),
    ("attention", _attention_of_a_token),
    ("paged_attention", _attention_in_pages),
]


def _ops(package: str, kernel: str) -> Any:
    return import_module(f"{package}.kernels.{kernel}")


def _normal(*shape: int, dtype: mx.Dtype = mx.bfloat16) -> mx.array:
    x = mx.random.normal(shape).astype(dtype)
    mx.eval(x)
    return x


def _weight(rows: int, columns: int) -> tuple[mx.array, mx.array, mx.array]:
    """Return random weights as `quantize` packs them: 4 bits per weight, in groups of 64 weights."""
    packed = mx.random.randint(0, 2**31 - 1, (rows, columns // 8), mx.uint32)
    scales = mx.full((rows, columns // 64), 0.01, mx.bfloat16)
    mx.eval(packed, scales)
    return packed, scales, scales * -7.5


def _panels(weights: list[tuple[mx.array, mx.array, mx.array]]) -> Callable[[], list[mx.array]]:
    """Return a function that packs these weights for the given kernels on its first call, and keeps the result."""
    panels: list[mx.array] = []

    def get() -> list[mx.array]:
        if not panels:
            panels.extend(pack(*weight) for weight in weights)
            mx.eval(panels)
        return panels

    return get


def _mlx_product(
    x: mx.array, packed: mx.array, scales: mx.array, biases: mx.array, group_size: int, bits: int
) -> mx.array:
    return mx.quantized_matmul(x, packed, scales, biases, transpose=True, group_size=group_size, bits=bits)
