"""`bench --device gpu`: kernels in Metal beside MLX's own, a model beside mlx-lm, and a table to show to others.

Without a GPU nothing is measured. Each kernel is then run once, small, by metal_host, so that it is known to run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import mlx.core as mx

from .kernels import Case, Rung
from .measuring import kernel_rows, model_rows, seconds_of, share_of_limit
from .models import Stage, make_stage, mlx_lm_stage

__all__ = ["measure_gpu", "table"]

Row: TypeAlias = dict[str, Any]
Step: TypeAlias = Callable[[str, int, int], None]

STAGES = ("w2d1", "w2d3", "w2d7", "mlx-lm")
SIDE = 4096  # of a matrix whose product shows the GPU's arithmetic
ARRAY = 2**28  # numbers of bfloat16, read to see how fast memory is


class Limits(NamedTuple):
    """bandwidth: bytes per second. bfloat16: operations per second."""

    bandwidth: float
    bfloat16: float


def measure_gpu(package: str, is_small: bool, of_kernels: bool, of_model: bool, step: Step) -> dict[str, Any]:
    """The GPU's limits, as MLX's own operations reach them, and rows of kernels and of a model."""
    has_gpu = mx.is_available(mx.gpu)
    mx.set_default_device(mx.gpu if has_gpu else mx.cpu)
    limits = _limits(is_small) if has_gpu else None

    def measured(case: Case, rung: Rung) -> Row:
        if limits is None:
            mx.eval(rung.run())
            return {"runs": True}
        seconds = seconds_of(rung.run, is_small) / case.times
        return {"runs": True, "seconds": seconds, "limit": share_of_limit(case, rung, seconds, *limits)}

    make = partial(_stage, package, is_small)
    return {
        "device": str(mx.device_info()["device_name"]) if has_gpu else None,
        "limits": limits._asdict() if limits else None,
        "kernels": list(kernel_rows(package, is_small or not has_gpu, "gpu", measured, step)) if of_kernels else [],
        "model": list(model_rows(STAGES, make, is_small, step)) if of_model and has_gpu else [],
    }


def _stage(package: str, is_small: bool, name: str) -> Stage:
    if name != "mlx-lm":
        return make_stage(package, is_small, name)
    try:
        return mlx_lm_stage(is_small)
    except ImportError:
        raise NotImplementedError("mlx-lm is not installed") from None


def _limits(is_small: bool) -> Limits:
    array = mx.ones((ARRAY >> 8 * is_small,), mx.bfloat16)
    side = SIDE >> 3 * is_small
    matrix = mx.random.normal((side, side)).astype(mx.bfloat16)
    mx.eval(array, matrix)
    return Limits(
        array.nbytes / seconds_of(array.max, is_small), 2 * side**3 / seconds_of(lambda: matrix @ matrix, is_small)
    )


def table(found: dict[str, Any], machine: dict[str, Any]) -> str:
    """What was measured, in Markdown."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    lines = [f"`{machine['command']}` on {found['device'] or 'no GPU'}; {machine['machine']}; {versions}", ""]
    if limits := found["limits"]:
        memory, arithmetic = limits["bandwidth"] / 1e9, limits["bfloat16"] / 1e12
        lines += [f"MLX reads memory at {memory:,.0f} GB/s and multiplies bfloat16 at {arithmetic:,.1f} TFLOP/s.", ""]
    if found["kernels"]:
        lines += [
            "| kernel | twin, µs | MLX, µs | Metal, µs | MLX / Metal | of the limit |",
            "|---|---|---|---|---|---|",
        ]
        for name in dict.fromkeys((row["kernel"], row["sizes"]) for row in found["kernels"]):
            rows = [row for row in found["kernels"] if (row["kernel"], row["sizes"]) == name]
            lines.append(_kernel_line(", ".join(name), {row["rung"]: row for row in rows}))
    if found["model"]:
        lines += ["", "| Qwen3 with random weights | prefill, tok/s | decode, tok/s |", "|---|---|---|"]
        for row in found["model"]:
            speeds = ("" if row[of] is None else f"{row[of]:,.1f}" for of in ("prefill", "decode"))
            lines.append(f"| {row['stage']} | {' | '.join(speeds)} |")
    return "\n".join([*lines, "", *_missing(found)])


def _kernel_line(name: str, rows: dict[str, Row]) -> str:
    metal = next(row for rung, row in rows.items() if rung not in ("twin", "mlx"))
    cells = [_microseconds(rows.get(rung)) for rung in ("twin", "mlx")] + [_microseconds(metal)]
    mlx, ours = rows.get("mlx", {}).get("seconds"), metal["seconds"]
    cells.append(f"{mlx / ours:.2f}" if mlx and ours else "")
    cells.append(f"{metal['limit']:.0%}" if metal["limit"] else "")
    return f"| {name} | {' | '.join(cells)} |"


def _microseconds(row: Row | None) -> str:
    if row is None:
        return ""
    if row["seconds"]:
        return f"{row['seconds'] * 1e6:,.1f}"
    return "runs" if row.get("runs") else "to be written"


def _missing(found: dict[str, Any]) -> list[str]:
    """What was not measured, and why."""
    lines = []
    if found["limits"] is None:
        lines.append(
            "Not measured: there is no GPU that MLX can use. Kernels in Metal were run once, small, on the processor "
            "by metal_host, which says nothing of their speed; models were not run."
        )
    if any(row["stage"] == "mlx-lm" and row["prefill"] is None for row in found["model"]):
        lines.append("Not measured: mlx-lm, which is not installed (`pip install mlx-lm`).")
    return lines
