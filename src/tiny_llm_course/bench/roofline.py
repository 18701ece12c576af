"""`tiny-llm roofline`: the limits of this machine, and the speeds of prefill and decode that these limits allow."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Annotated, cast

import typer

from ..base.arguments import OUT, Out
from ..base.packages import DEFAULT_IMPL, PACKAGES, package_of
from ..base.reporting import reporting
from ..model.options import Impl
from ..native.arithmetic import choices
from ..native.compiling import compile_for
from ..native.threads import number_of_threads
from ..ui import CommandError, Lang, Messages, StatusLine, left, phrase, right, show, show_note, table_row, wrapped
from ..ui.wrapping import columns
from .machine_speeds import limit_name, measure_arithmetic, measure_speeds
from .quiet import Quiet, doubt_text
from .roofline_points import BATCH, Costs, Machine, Point, points
from .tables import show_limits

if TYPE_CHECKING:
    from tiny_llm_given.config import ModelConfig
    from tiny_llm_native.roofline import Speeds

__all__ = ["roofline"]


def roofline(
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME_OR_PATH", help="The model whose sizes are used; weights are not needed. Default: Qwen3-0.6B."
        ),
    ] = None,
    bits: Annotated[
        float, typer.Option(metavar="N", help="Bits per weight, including the weight's share of the scales.")
    ] = 4.5,
    impl: Impl = DEFAULT_IMPL,
    out: Out = OUT,
    lang: Lang = None,
) -> None:
    """Measure how fast this machine reads memory and multiplies, and show how fast a model can run on it."""
    with reporting(lang) as words:
        package = package_of(impl)
        if bits <= 0:
            raise CommandError("wrong_value", option="--bits", expected=phrase("above", least=0), got=bits)
        costs, config = cast(Costs, import_module(f"{package}.costs")), _config(package, model)
        list(points(costs, config, costs.Machine(1, 1), bits / 8))  # raises a stub's error before anything is measured
        speeds, doubt, others = _measure(PACKAGES[DEFAULT_IMPL], words)
        show_note(words("arithmetic_measuring"))
        products = measure_arithmetic()
        machine = costs.Machine(speeds.exact, speeds.bandwidth)
        passes = list(points(costs, config, machine, bits / 8))
        _print(words, words("roofline_model", model=model or "Qwen3-0.6B", bits=f"{bits:g}"), speeds, machine, passes)
        show(words("arithmetic_heading"), bold=True)
        show("\n".join(map(wrapped, choices(products, words))) + "\n")
        if doubt:
            show(wrapped(doubt_text(f"roofline_{doubt}", others, words)) + "\n", fg="yellow")

        def draw() -> bytes:
            from .roofline_drawing import draw_roofline

            return draw_roofline(speeds, passes, words)

        from ..viz.output import Output

        Output(out, words).picture("roofline.png", draw)


def _measure(package: str, words: Messages) -> tuple[Speeds, str | None, float]:
    """Return the machine's speeds, the reason to doubt them, if any, and the number of processors that other programs
    used meanwhile."""
    status = StatusLine()

    def tell(text: str) -> None:
        status.show(text)
        if not status.can_show:
            show_note(text)

    quiet = Quiet(number_of_threads(), lambda doubt, others: tell(doubt_text(f"again_{doubt}", others, words)))
    compile_for(package, ["roofline"], words)
    try:
        speeds, doubt = quiet.measure(
            lambda: measure_speeds(lambda what: tell(words("roofline_status", what=limit_name(what, words)))),
            lambda one, other: type(one)._make(map(max, one, other)),
        )
    finally:
        status.clear()
    return speeds, doubt, quiet.most


def _config(package: str, model: str | None) -> ModelConfig:
    config: type[ModelConfig] = import_module("tiny_llm_given.config").ModelConfig
    if model is None:
        from tiny_llm_models.untrained import QWEN3_0_6B  # imported here, so that other commands do not wait for NumPy

        return config.from_hf(QWEN3_0_6B)
    try:
        return config.from_pretrained(import_module(f"{package}.models").resolve(model))
    except (OSError, ValueError) as error:
        raise CommandError("bad_model", option="--model", reason=error, exit_code=1) from None


def _print(words: Messages, of_model: str, speeds: Speeds, machine: Machine, passes: list[Point]) -> None:
    show_limits(speeds._asdict(), speeds.threads, None, words)
    show(table_row(words("roofline_ridge"), right(f"{machine.ridge:.1f} FLOP/B", 16)))
    show("\n" + of_model, bold=True)
    limits = {waits: words(f"roofline_{what}") for waits, what in ((True, "memory"), (False, "arithmetic"))}
    longest = max(map(columns, limits.values()))
    for point in passes:
        name = words(f"roofline_{point.name}", L=point.L, S=point.S - point.L, batch=BATCH)
        limit = left(limits[point.waits_for_memory], longest)
        speed = right(f"{point.tokens:,.0f} tok/s", 16)
        show(table_row(name, speed, f"  {point.intensity:7.1f} FLOP/B   {limit}").rstrip())
    show("\n" + wrapped(words("roofline_meaning")) + "\n")
