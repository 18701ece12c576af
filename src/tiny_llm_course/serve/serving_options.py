"""Options of both `tiny-llm batch` and `tiny-llm serve`."""

from __future__ import annotations

from typing import Annotated

import typer

from .serving import KINDS, NGRAM

__all__ = ["Cache", "Check", "Draft", "MaxRunning", "NumDrafts", "PageSize", "Pages", "TokenBudget"]

MaxRunning = Annotated[int, typer.Option(metavar="N", help="How many requests run at the same time.")]
TokenBudget = Annotated[
    int, typer.Option(metavar="N", help="How many tokens a step computes at most, of all requests.")
]
Cache = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(kind.name for kind in KINDS),
        help="Where keys and values are kept. Default: the furthest of these that is written.",
    ),
]
Pages = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="How many pages the cache has. Default: enough for all that run, and a quarter of the memory at most.",
    ),
]
PageSize = Annotated[int, typer.Option(metavar="N", help="How many positions a page has.")]
Draft = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL", help=f"A smaller model whose guesses a step checks; or {NGRAM}: guesses from the text itself."
    ),
]
NumDrafts = Annotated[int, typer.Option(metavar="N", help="How many guesses a step checks, of each request.")]
Check = Annotated[bool, typer.Option("--check", help="Check scheduler and cache after each step.")]
