"""Measures what `bench` shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import mlx.core as mx

from ..roofline import measure_speeds
from .kernels import CASES, cases
from .models import STAGES, Stage, make_stage
from .timing import shortest

__all__ = ["OPEN", "measure", "model_speeds", "seconds_of"]

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
    return {
        "threads": speeds.threads,
        "limits": speeds._asdict(),
        "kernels": list(_kernels(package, is_small, speeds, step)) if of_kernels else [],
        "model": list(_models(package, is_small, step)) if of_model else [],
    }


def _kernels(package: str, is_small: bool, speeds: Any, step: Step) -> Iterator[Row]:
    for done, case in enumerate(cases(package, is_small)):
        for rung in case.on("cpu"):
            step(f"{case.kernel} {rung.name}", done, len(CASES))
            row: Row = {"kernel": case.kernel, "sizes": case.sizes, "rung": rung.name, "seconds": OPEN, "limit": None}
            with suppress(NotImplementedError):  # a stub
                row["seconds"] = seconds_of(rung.run, is_small) / case.times
                if rung.limit == "bandwidth":
                    row["limit"] = case.bytes / speeds.bandwidth / row["seconds"]
                if rung.limit == "arithmetic":
                    row["limit"] = case.operations / max(speeds.float32, speeds.bfloat16) / row["seconds"]
            yield row


def _models(package: str, is_small: bool, step: Step) -> Iterator[Row]:
    for done, name in enumerate(STAGES):
        step(f"model {name}", done, len(STAGES))
        yield {"stage": name} | model_speeds(partial(make_stage, name, package, is_small), is_small)


def model_speeds(make: Callable[[], Stage], is_small: bool) -> Row:
    """Tokens per second that a model reads and writes; None where a stub, or the package, is missing that it needs."""
    length = SMOKE_PROMPT if is_small else PROMPT
    tokens = mx.random.randint(0, 256, (1, length + 1))
    prompt, last = tokens[:, :length], tokens[:, length:]
    row: Row = {"prompt": length, "prefill": OPEN, "decode": OPEN}
    with suppress(NotImplementedError, ImportError):
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
