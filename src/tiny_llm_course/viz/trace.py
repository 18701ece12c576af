"""`tiny-llm trace`: the shapes, parameters and operations of multi-head attention, step by step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated

import typer

from ..base.packages import DEFAULT_IMPL, PACKAGES
from ..base.reporting import reporting
from ..ui import CommandError, Lang, Messages, fits, one_of, phrase, show, table, wrapped
from ..ui.wrapping import columns

__all__ = ["Sizes", "TraceStep", "steps", "trace"]

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_OPTIONS = ("--batch", "--seq", "--hidden", "--heads", "--kv-heads", "--head-dim")
UNITS = ("", "k", "M", "G", "T", "P", "E")
SOFTMAX = 5  # operations per score: maximum, difference, exp, sum, quotient


@dataclass(frozen=True)
class Sizes:
    """The sizes of an attention layer and its input.

    Raises:
        CommandError: a size is less than 1, or H_q is not a multiple of H_kv.
    """

    B: int
    L: int
    E: int
    H_q: int
    H_kv: int
    D: int

    def __post_init__(self) -> None:
        for option, size in zip(_OPTIONS, vars(self).values(), strict=True):
            if size < 1:
                raise CommandError("wrong_value", option=option, expected=phrase("at_least", least=1), got=size)
        if self.H_q % self.H_kv:
            raise CommandError(
                "wrong_value", option="--kv-heads", expected=phrase("divisor_of", number=self.H_q), got=self.H_kv
            )


@dataclass(frozen=True)
class TraceStep:
    """A step of attention: the shape of its result, and its cost."""

    name: str  # the part after "trace_" of the key in messages.toml
    shape: tuple[int, ...]
    parameters: int = 0
    flops: int = 0  # a multiplication and an addition count as two
    growth: str = ""  # the complexity, if H_q * D grows in proportion to E; "" for a step without operations

    def costs(self, dtype: str) -> tuple[int, int, int]:
        """Return how many parameters the step has, how many operations it needs, and how many bytes its result has."""
        return self.parameters, self.flops, math.prod(self.shape) * BYTES[dtype]


def steps(sizes: Sizes) -> Iterator[TraceStep]:
    """Yield the steps of self-attention on B sequences of L tokens, without biases and without a mask."""
    B, L, E, H_q, H_kv, D = vars(sizes).values()
    scores = B * H_q * L * L

    def projection(name: str, width: int, out: int, shape: tuple[int, ...]) -> TraceStep:
        return TraceStep(name, shape, width * out, 2 * B * L * width * out, "L E²")

    yield TraceStep("input", (B, L, E))
    yield projection("query", E, H_q * D, (B, L, H_q * D))
    yield projection("key", E, H_kv * D, (B, L, H_kv * D))
    yield projection("value", E, H_kv * D, (B, L, H_kv * D))
    yield TraceStep("split", (B, H_q, L, D))
    yield TraceStep("scores", (B, H_q, L, L), 0, 2 * scores * D, "L² E")
    yield TraceStep("scale", (B, H_q, L, L), 0, scores, "L²")
    yield TraceStep("softmax", (B, H_q, L, L), 0, SOFTMAX * scores, "L²")
    yield TraceStep("average", (B, H_q, L, D), 0, 2 * scores * D, "L² E")
    yield TraceStep("join", (B, L, H_q * D))
    yield projection("output", H_q * D, E, (B, L, E))


def trace(
    batch: Annotated[int, typer.Option(metavar="B", help="Number of sequences.")] = 1,
    seq: Annotated[int, typer.Option(metavar="L", help="Tokens in each sequence.")] = 100,
    hidden: Annotated[int, typer.Option(metavar="E", help="Hidden size: numbers per token.")] = 768,
    heads: Annotated[int, typer.Option(metavar="H", help="Number of heads.")] = 8,
    kv_heads: Annotated[
        int | None, typer.Option(metavar="H_KV", help="Number of key/value heads. Default: the number of heads.")
    ] = None,
    head_dim: Annotated[int | None, typer.Option(metavar="D", help="Head size. Default: hidden / heads.")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME_OR_PATH", help="Take hidden size, heads and head size from a checkpoint, such as story."
        ),
    ] = None,
    dtype: Annotated[str, typer.Option(metavar="|".join(BYTES), help="Number type of the results.")] = "float32",
    lang: Lang = None,
) -> None:
    """Follow multi-head attention: the shape, parameters, operations, bytes and complexity (big O) of each step."""
    with reporting(lang) as words:
        if dtype not in BYTES:
            raise CommandError("wrong_value", option="--dtype", expected=one_of(BYTES), got=dtype)
        sizes = _sizes(batch, seq, hidden, heads, kv_heads, head_dim) if model is None else _of(model, batch, seq)
        _show(sizes, dtype, words)


def _sizes(B: int, L: int, E: int, heads: int, kv_heads: int | None, head_dim: int | None) -> Sizes:
    if head_dim is None and (heads < 1 or E % heads):
        raise CommandError("wrong_value", option="--heads", expected=phrase("heads_of_hidden", hidden=E), got=heads)
    return Sizes(B, L, E, heads, heads if kv_heads is None else kv_heads, head_dim or E // heads)


def _of(model: str, batch: int, seq: int) -> Sizes:
    package = PACKAGES[DEFAULT_IMPL]
    try:
        path = import_module(f"{package}.models").resolve(model)
        config = import_module("tiny_llm_given.config").ModelConfig.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise CommandError("bad_model", option="--model", reason=error, exit_code=1) from None
    heads = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    return Sizes(batch, seq, config.hidden_size, *heads)


def _show(sizes: Sizes, dtype: str, words: Messages) -> None:
    done = list(steps(sizes))
    titles = [words(f"trace_{name}") for name in ("step", "shape", "parameters", "flops", "bytes", "growth")]
    rows = _rows(done, dtype, words, lambda number: f"{number:,}")
    if not fits([max(map(columns, column)) for column in zip(titles, *rows, strict=True)]):
        rows = _rows(done, dtype, words, _rounded)
    head, *lines, total = table(titles, *rows)
    show(head, bold=True)
    show("\n".join(lines))
    show(total, bold=True)
    linear, square = (sum(step.flops for step in done if step.growth.startswith(power)) for power in ("L ", "L²"))
    show()
    show(wrapped(words("trace_divisor", D=sizes.D, root=f"{math.sqrt(sizes.D):.1f}")))
    share = f"{100 * square / (linear + square):.0f}"
    show(wrapped(words("trace_summary", L=sizes.L, share=share, equal=round(sizes.L * linear / square))))


def _rows(done: list[TraceStep], dtype: str, words: Messages, written: Callable[[int], str]) -> list[list[str]]:
    """Return a row for each step, with its shape and its costs, and a row of totals.

    written: a function that writes a number as text.
    """
    rows = [[words(f"trace_{step.name}"), *_cells(step, dtype, written)] for step in done]
    totals = map(sum, zip(*(step.costs(dtype) for step in done), strict=True))
    return [*rows, [words("trace_total"), "", *map(written, totals), ""]]


def _cells(step: TraceStep, dtype: str, written: Callable[[int], str]) -> list[str]:
    costs = (written(cost) if cost else "" for cost in step.costs(dtype))
    return [" x ".join(map(str, step.shape)), *costs, f"O({step.growth})" if step.growth else ""]


def _rounded(number: int) -> str:
    """Return a number rounded to three digits, for a narrow terminal."""
    power = min(len(f"{number:,}".split(",")) - 1, len(UNITS) - 1)
    return f"{number / 1000**power:.3g} {UNITS[power]}".rstrip()
