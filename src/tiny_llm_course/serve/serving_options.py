"""Options of both `tiny-llm batch` and `tiny-llm serve`."""

from __future__ import annotations

from typing import Annotated

import typer

from .serving import KINDS, NGRAM

__all__ = ["Cache", "Check", "Draft", "MaxRunning", "NumDrafts", "PageSize", "Pages", "TokenBudget"]

MaxRunning = Annotated[int, typer.Option(metavar="N", help="How many requests may run at the same time.")]
TokenBudget = Annotated[
    int, typer.Option(metavar="N", help="How many tokens a step may compute, for all requests together.")
]
Cache = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(kind.name for kind in KINDS),
        help="Which cache stores keys and values. Default: the last of these that is written.",
    ),
]
Pages = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="How many pages the cache has. Default: enough for all running requests, within a quarter of the memory.",
    ),
]
PageSize = Annotated[int, typer.Option(metavar="N", help="How many positions a page has.")]
Draft = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help=f"A smaller model that guesses tokens for a step to check, or {NGRAM} to guess from the text itself.",
    ),
]
NumDrafts = Annotated[int, typer.Option(metavar="N", help="How many guesses a step checks per request.")]
Check = Annotated[bool, typer.Option("--check", help="Check the scheduler and the cache after each step.")]
