"""Measures the figures that `bench` shows, and yields each figure as soon as it is measured."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias

import mlx.core as mx

from tiny_llm_native.matmul.arithmetic import chosen

from .kernel_cases import Case, Device, Rung, cases
from .limits import MachineLimits
from .machine_speeds import measure_speeds
from .models import STAGES, Stage, bytes_per_weight, make_stage, model_config
from .quiet import Quiet
from .timing import shortest

__all__ = [
    "MODEL",
    "Events",
    "ModelShares",
    "OnStep",
    "Row",
    "before",
    "kernel_rows",
    "limited",
    "measure",
    "model_rows",
    "seconds_of",
]

Row: TypeAlias = dict[str, Any]
Events: TypeAlias = Iterator[tuple[str, Any]]  # "kernels" or MODEL with a row, or another figure's name and value
OnStep: TypeAlias = Callable[[str, str], None]  # called with a kernel's name or MODEL, and the next rung or stage

MODEL = "model"
OPEN = None  # the time of a rung that the learner has not written yet
SECONDS, SMOKE_SECONDS = 1.0, 0.02  # seconds for each rung
PROMPT, SMOKE_PROMPT = 128, 16  # tokens


def measure(package: str, is_small: bool, names: Collection[str], step: OnStep, quiet: Quiet) -> Events:
    """Yield the number of threads, the machine's limits, rows of the named kernels, and rows of a model if MODEL is
    named.

    Raises:
        CommandError: no kernels are built.
    """
    mx.set_default_device(mx.cpu)
    threads = 0

    def speeds() -> dict[str, float]:
        nonlocal threads
        machine = measure_speeds(lambda what: step("", what))
        threads = machine.threads
        used = chosen()
        unused = {"threads"} if "int8" in used else {"threads", "int8"}
        return {name: rate for name, rate in machine._asdict().items() if name not in unused}

    limits = MachineLimits(speeds, quiet)
    limits.measure()
    yield "threads", threads
    yield "limits_doubt", limits.doubt
    yield "limits", limits.best
    measured = partial(limited, limits, quiet, is_small)
    prepare = partial(before, limits, is_small)
    yield from kernel_rows(cases(package, is_small, names), "cpu", measured, prepare, step)
    yield "limits", limits.best
    if MODEL in names:
        shares = None if is_small else ModelShares(package, limits)
        yield from model_rows(STAGES, partial(make_stage, package, is_small), shares, step, quiet)


def limited(limits: MachineLimits, quiet: Quiet, is_small: bool, case: Case, rung: Rung) -> Row:
    """Return a rung's time, and its share of the limit. The share is None for small sizes, because their data stay in a
    cache, which is faster than memory."""
    is_compared = rung.limit is not None and not is_small
    seconds, doubt = quiet.measure(
        lambda: seconds_of(rung.run, is_small) / case.times,
        min,
        lambda seconds: limits.passed(case, rung, seconds) if is_compared else None,
    )
    share = limits.share(case, rung, seconds) if is_compared else None
    return {"seconds": seconds, "limit": share, "doubt": doubt or (limits.doubt if is_compared else None)}


def before(limits: MachineLimits, is_small: bool, case: Case) -> None:
    """Measure the limits again before a case whose rungs are compared with the limits."""
    if not is_small and any(rung.limit for rung in case.rungs):
        limits.measure()


def kernel_rows(
    measured_cases: Iterator[Case],
    device: Device,
    measured: Callable[[Case, Rung], Row],
    prepare: Callable[[Case], None],
    step: OnStep,
) -> Events:
    """Yield a row for each rung that a device can run. prepare: a function that is called before each case. measured: a
    function that returns a rung's figures, or raises NotImplementedError if the rung is a stub.
    """
    for case in measured_cases:
        step(case.kernel, "")
        prepare(case)
        for rung in case.on(device):
            step(case.kernel, rung.name)
            row: Row = {"kernel": case.kernel, "sizes": case.sizes, "rung": rung.name, "seconds": OPEN, "limit": None}
            with suppress(NotImplementedError):  # a stub
                row |= measured(case, rung)
            yield "kernels", row


class ModelShares:
    """The speeds of a model's stages as shares of the machine's limits, according to the package's own `model_cost`."""

    def __init__(self, package: str, limits: MachineLimits):
        self._costs, self._limits = import_module(f"{package}.costs"), limits

    def of(self, stage: str, speeds: Row) -> Row:
        """Return the shares for a prompt (prefill) and the next token (decode). Both shares are None if `model_cost` is
        a stub."""
        length, weight = speeds["prompt"], bytes_per_weight(stage)
        peak = self._limits.operations("fastest" if stage == "tuned" else "float32")
        machine = self._costs.Machine(peak, self._limits.best["bandwidth"])
        shares: Row = {"prefill_limit": None, "decode_limit": None}
        with suppress(NotImplementedError):  # a stub
            for name, L, S in (("prefill", length, length), ("decode", 1, length + 1)):
                cost = self._costs.model_cost(model_config(is_small=False), L, S, weight)
                shares[f"{name}_limit"] = speeds[name] * machine.seconds(cost) / L
        return shares


def model_rows(
    stages: Sequence[str], make: Callable[[str], Stage], shares: ModelShares | None, step: OnStep, quiet: Quiet
) -> Events:
    """Yield a row for each stage of a model. make: a function that builds a stage, given the stage's name. shares: None
    if the model is small."""
    for name in stages:
        step(MODEL, name)
        row = _model_speeds(partial(make, name), shares is None, quiet)
        if shares and row["decode"] is not None:
            row |= shares.of(name, row)
        yield MODEL, {"stage": name} | row


def _model_speeds(make: Callable[[], Stage], is_small: bool, quiet: Quiet) -> Row:
    """Return the tokens per second that a model reads and writes. Both numbers are None if code that the model needs is
    a stub."""
    length = SMOKE_PROMPT if is_small else PROMPT
    tokens = mx.random.randint(0, 256, (1, length + 1))
    prompt, last = tokens[:, :length], tokens[:, length:]
    row: Row = {"prompt": length, "prefill": OPEN, "decode": OPEN, "prefill_limit": None, "decode_limit": None}
    with suppress(NotImplementedError):  # a stub
        stage = make()
        logits, cache = stage.prefill(prompt)
        mx.eval(logits)  # otherwise the first measured token would include the prompt's time

        def speeds() -> Row:
            decode = 1 / seconds_of(partial(stage.decode, last, cache), is_small)
            return {"prefill": length / seconds_of(partial(_logits, stage, prompt), is_small), "decode": decode}

        best, doubt = quiet.measure(speeds, _faster)
        row |= best | {"doubt": doubt}
    return row


def _faster(one: Row, other: Row) -> Row:
    return {name: max(one[name], other[name]) for name in one}


def _logits(stage: Stage, prompt: mx.array) -> mx.array:
    return stage.prefill(prompt)[0]


def seconds_of(work: Callable[[], Any], is_small: bool) -> float:
    """Return the time of the shortest of many runs, in seconds."""
    return shortest(work, SMOKE_SECONDS if is_small else SECONDS)
