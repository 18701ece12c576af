"""`bench --device gpu`: compares kernels in Metal with MLX's kernels, and a model with mlx-lm's, in a table that you
can share.

Without a GPU, `bench` measures nothing. Instead, metal_host runs each kernel once, with small inputs, to show that the
kernel works.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial
from itertools import groupby
from typing import Any, TypeAlias

import mlx.core as mx

from .kernel_cases import Case, Rung, cases
from .limits import OVER, SLOWER, Figures, MachineLimits, is_over
from .measuring import MODEL, Events, ModelShares, OnStep, before, kernel_rows, limited, model_rows, seconds_of
from .models import Stage, make_stage, mlx_lm_stage
from .quiet import BUSY, Quiet

__all__ = ["measure_gpu", "table"]

Row: TypeAlias = dict[str, Any]

STAGES = ("w2d1", "w2d3", "w2d7", "mlx-lm")
SIDE = 4096  # rows and columns of the matrices whose product shows how fast the GPU computes
ARRAY = 2**28  # elements in bfloat16, read to measure the memory's speed
MODEL_HEADS = ("of the limit", "prefill, tok/s", "of the limit", "decode, tok/s")
DOUBTS = {
    BUSY: "?: other programs kept the processor busy, also while the figure was measured again.",
    SLOWER: "?: the GPU reached less than 80 % of the limits that it had reached a minute earlier.",
    OVER: "?: faster than the limit: the limit was measured too low, or a cache held the data.",
}


def measure_gpu(package: str, is_small: bool, names: Collection[str], step: OnStep, quiet: Quiet) -> Events:
    """Yield the GPU's limits, measured with MLX's operations, then the rows of kernels and of a model."""
    has_gpu = mx.is_available(mx.gpu)
    mx.set_default_device(mx.gpu if has_gpu else mx.cpu)
    limits = MachineLimits(partial(_limits, is_small), quiet)

    is_only_run = is_small or not has_gpu

    def measured(case: Case, rung: Rung) -> Row:
        if not has_gpu:
            mx.eval(rung.run())
            return {"runs": True}
        return {"runs": True} | limited(limits, quiet, is_small, case, rung)

    yield "device", str(mx.device_info()["device_name"]) if has_gpu else None
    if has_gpu:
        limits.measure()
    yield "limits", limits.best or None
    prepare = partial(before, limits, is_only_run)
    yield from kernel_rows(cases(package, is_only_run, names), "gpu", measured, prepare, step)
    if MODEL in names and has_gpu:
        shares = None if is_small else ModelShares(package, limits)
        yield from model_rows(STAGES, partial(_stage, package, is_small), shares, step, quiet)


def _stage(package: str, is_small: bool, name: str) -> Stage:
    if name != "mlx-lm":
        return make_stage(package, is_small, name)
    try:
        return mlx_lm_stage(is_small)
    except ImportError:
        raise NotImplementedError("mlx-lm is not installed") from None


def _limits(is_small: bool) -> Figures:
    array = mx.ones((ARRAY >> 8 * is_small,), mx.bfloat16)
    side = SIDE >> 3 * is_small
    matrix = mx.random.normal((side, side)).astype(mx.bfloat16)
    mx.eval(array, matrix)
    return {
        "bandwidth": array.nbytes / seconds_of(array.max, is_small),
        "bfloat16": 2 * side**3 / seconds_of(lambda: matrix @ matrix, is_small),
    }


def table(events: Events, machine: dict[str, Any]) -> Iterator[str]:
    """Yield the measurements in Markdown, each line as soon as it is complete."""
    known: dict[str, Any] = {}
    doubts: set[str] = set()
    for name, group in groupby(_noted(events, doubts), key=_part):
        if name == "kernels":
            yield from _kernel_lines(row for _, row in group)
        elif name == MODEL:
            yield from ["", f"| Qwen3 with random weights | {' | '.join(MODEL_HEADS)} |", "|---|---|---|---|---|"]
            for _, row in group:
                yield _model_line(row)
                known[MODEL] = row
        else:
            known |= group
            yield from _heading(known, machine)
    yield from ["", *_missing(known), *(text for doubt, text in DOUBTS.items() if doubt in doubts)]


def _noted(events: Events, doubts: set[str]) -> Events:
    for name, value in events:
        if name in ("kernels", MODEL) and value.get("doubt"):
            doubts.add(value["doubt"])
        yield name, value


def _part(event: tuple[str, Any]) -> str:
    return event[0] if event[0] in ("kernels", MODEL) else "heading"


def _heading(known: dict[str, Any], machine: dict[str, Any]) -> Iterator[str]:
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    yield from [f"`{machine['command']}` on {known['device'] or 'no GPU'}; {machine['machine']}; {versions}", ""]
    if limits := known["limits"]:
        memory, arithmetic = limits["bandwidth"] / 1e9, limits["bfloat16"] / 1e12
        yield f"MLX reads memory at {memory:,.0f} GB/s and multiplies bfloat16 at {arithmetic:,.1f} TFLOP/s."
        yield ""


def _kernel_lines(rows: Iterator[Row]) -> Iterator[str]:
    yield "| kernel | of the limit | Metal, µs | MLX, µs | fallback, µs | MLX / Metal |"
    yield "|---|---|---|---|---|---|"
    for name, group in groupby(rows, key=lambda row: (row["kernel"], row["sizes"])):
        yield _kernel_line(", ".join(name), {row["rung"]: row for row in group})


def _kernel_line(name: str, rows: dict[str, Row]) -> str:
    metal = next(row for rung, row in rows.items() if rung not in ("fallback", "mlx"))
    cells = [_share(metal["limit"]), *map(_microseconds, (metal, rows.get("mlx"), rows.get("fallback")))]
    mlx, ours = rows.get("mlx", {}).get("seconds"), metal["seconds"]
    cells.append(f"{mlx / ours:.2f}" if mlx and ours else "")
    return f"| {name} | {' | '.join(cells)} |"


def _share(limit: float | None) -> str:
    if not limit:
        return ""
    return "over 100% ?" if is_over(limit) else f"{limit:.0%}"


def _model_line(row: Row) -> str:
    cells: list[str] = []
    for of in ("prefill", "decode"):
        cells += [_share(row[f"{of}_limit"]), "" if row[of] is None else f"{row[of]:,.1f}"]
    return f"| {row['stage']} | {' | '.join(cells)} |"


def _microseconds(row: Row | None) -> str:
    if row is None:
        return ""
    if row["seconds"]:
        return f"{row['seconds'] * 1e6:,.1f}" + (" ?" if row.get("doubt") else "")
    return "runs" if row.get("runs") else "to be written"


def _missing(known: dict[str, Any]) -> list[str]:
    """Return a line for each thing that was not measured, with the reason."""
    lines = []
    if known["limits"] is None:
        lines.append(
            "Not measured: there is no GPU that MLX can use. Kernels in Metal were run once, small, on the processor "
            "by metal_host, which says nothing of their speed; models were not run."
        )
    last = known.get(MODEL, {})
    if last.get("stage") == "mlx-lm" and last["prefill"] is None:
        lines.append("Not measured: mlx-lm, which is not installed (`pip install mlx-lm`).")
    return lines
