"""Options of both `tiny-llm batch` and `tiny-llm serve`."""

from __future__ import annotations

from typing import Annotated

import typer

from .serving import HEADS, KINDS, NGRAM

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
        help="What guesses tokens for a step to check: a smaller model, "
        f"{NGRAM} for the text itself, or {HEADS} for the model's own draft heads, which only `story` has.",
    ),
]
NumDrafts = Annotated[
    int,
    typer.Option(
        metavar="N", help="The maximum number of guesses per request and step. Requests with wrong guesses get fewer."
    ),
]
Check = Annotated[bool, typer.Option("--check", help="Check the scheduler and the cache after each step.")]
