"""Measures what `bench` shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import mlx.core as mx

from ..roofline import measure_speeds
from .kernels import CASES, Case, Device, Rung, cases
from .models import STAGES, Stage, make_stage
from .timing import shortest

__all__ = ["kernel_rows", "measure", "model_rows", "seconds_of", "share_of_limit"]

Row: TypeAlias = dict[str, Any]
Step: TypeAlias = Callable[[str, int, int], None]  # what is measured next, how much of how much is done

OPEN = None  # the time of a rung that is not written yet
SECONDS, SMOKE_SECONDS = 1.0, 0.02  # for each rung
PROMPT, SMOKE_PROMPT = 128, 16  # tokens


def measure(package: str, is_small: bool, of_kernels: bool, of_model: bool, step: Step) -> dict[str, Any]:
    """The machine's limits, and rows of kernels and of a model.

    Raises:
        CommandError: no kernels are built.
    """
    mx.set_default_device(mx.cpu)
    speeds = measure_speeds(package)
    peak = max(speeds.float32, speeds.bfloat16)

    def measured(case: Case, rung: Rung) -> Row:
        seconds = seconds_of(rung.run, is_small) / case.times
        return {"seconds": seconds, "limit": share_of_limit(case, rung, seconds, speeds.bandwidth, peak)}

    return {
        "threads": speeds.threads,
        "limits": speeds._asdict(),
        "kernels": list(kernel_rows(package, is_small, "cpu", measured, step)) if of_kernels else [],
        "model": list(model_rows(STAGES, partial(make_stage, package, is_small), is_small, step)) if of_model else [],
    }


def kernel_rows(
    package: str, is_small: bool, device: Device, measured: Callable[[Case, Rung], Row], step: Step
) -> Iterator[Row]:
    """A row for each rung that a device has. measured: what is to be said of one; nothing is, of a stub."""
    for done, case in enumerate(cases(package, is_small)):
        for rung in case.on(device):
            step(f"{case.kernel} {rung.name}", done, len(CASES))
            row: Row = {"kernel": case.kernel, "sizes": case.sizes, "rung": rung.name, "seconds": OPEN, "limit": None}
            with suppress(NotImplementedError):  # a stub
                row |= measured(case, rung)
            yield row


def share_of_limit(case: Case, rung: Rung, seconds: float, bandwidth: float, peak: float) -> float | None:
    """How near a rung comes to what it runs against: bytes, or operations, per second."""
    least = {"bandwidth": case.bytes / bandwidth, "arithmetic": case.operations / peak}
    return least[rung.limit] / seconds if rung.limit else None


def model_rows(stages: Sequence[str], make: Callable[[str], Stage], is_small: bool, step: Step) -> Iterator[Row]:
    """A row for each stage of a model, which `make` makes."""
    for done, name in enumerate(stages):
        step(f"model {name}", done, len(stages))
        yield {"stage": name} | _model_speeds(partial(make, name), is_small)


def _model_speeds(make: Callable[[], Stage], is_small: bool) -> Row:
    """Tokens per second that a model reads and writes; None where a stub is missing that it needs."""
    length = SMOKE_PROMPT if is_small else PROMPT
    tokens = mx.random.randint(0, 256, (1, length + 1))
    prompt, last = tokens[:, :length], tokens[:, length:]
    row: Row = {"prompt": length, "prefill": OPEN, "decode": OPEN}
    with suppress(NotImplementedError):  # a stub
        stage = make()
        logits, cache = stage.prefill(prompt)
        mx.eval(logits)  # else the first token would wait for the prompt
        decode = 1 / seconds_of(partial(stage.decode, last, cache), is_small)
        prefill = length / seconds_of(partial(_logits, stage, prompt), is_small)
        row |= {"prefill": prefill, "decode": decode}
    return row


def _logits(stage: Stage, prompt: mx.array) -> mx.array:
    return stage.prefill(prompt)[0]


def seconds_of(work: Callable[[], Any], is_small: bool) -> float:
    """The shortest of many runs."""
    return shortest(work, SMOKE_SECONDS if is_small else SECONDS)
