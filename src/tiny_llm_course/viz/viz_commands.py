"""The commands of `tiny-llm viz`. Each command imports modules only when it is called, so that every command starts
fast."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..base.arguments import OUT, Out
from ..base.packages import DEFAULT_IMPL
from ..base.reporting import reporting
from ..model.options import DEFAULT_MODEL, Impl, MinP, Model, Temp, TopK, TopP
from ..ui import Lang
from ..ui.command_help import Command, Group

__all__ = ["app"]

app = typer.Typer(
    cls=Group,
    help="Draw what happens inside a model or a kernel: pictures, and a few lines of text.",
    no_args_is_help=True,
    add_completion=False,
)

Prompt = Annotated[
    str | None, typer.Option(metavar="TEXT", help="The text, without a chat template. Default: an example.")
]


@app.command(cls=Command)
def attention(
    model: Model = DEFAULT_MODEL,
    prompt: Prompt = None,
    layer: Annotated[int, typer.Option(metavar="N", help="The layer to show. The first is 0.")] = 0,
    head: Annotated[int, typer.Option(metavar="N", help="The head to show. The first is 0.")] = 0,
    draws_all: Annotated[bool, typer.Option("--all", help="Draw all heads of all layers in one picture.")] = False,
    impl: Impl = DEFAULT_IMPL,
    out: Out = OUT,
    lang: Lang = None,
) -> None:
    """Draw which tokens each token attends to: a picture of one head or all heads, and a page to explore all heads."""
    with reporting(lang) as words:
        from .attention import show_attention
        from .output import Output

        show_attention(Output(out, words), model, impl, prompt, layer, head, draws_all)


@app.command(cls=Command)
def rope(
    dims: Annotated[int, typer.Option(metavar="D", help="Head size: numbers per head, two per pair.")] = 64,
    base: Annotated[
        float, typer.Option(metavar="N", help="The larger the base, the slower the last pairs rotate.")
    ] = 1_000_000,
    positions: Annotated[int, typer.Option(metavar="N", help="How many positions to show.")] = 64,
    impl: Impl = DEFAULT_IMPL,
    out: Out = OUT,
    lang: Lang = None,
) -> None:
    """Draw how RoPE rotates pairs by position, and how the dot product of query and key falls with their distance."""
    with reporting(lang) as words:
        from .output import Output
        from .rope import show_rope

        show_rope(Output(out, words), impl, dims, base, positions)


@app.command(cls=Command)
def mask(
    queries: Annotated[int, typer.Option(metavar="L", help="Number of queries, which have the last positions.")] = 5,
    keys: Annotated[int, typer.Option(metavar="S", help="Number of keys, one per position.")] = 8,
    lengths: Annotated[
        str, typer.Option(metavar="N,N", help="For each row of a batch: how many keys are tokens, not padding.")
    ] = "3,5",
    impl: Impl = DEFAULT_IMPL,
    out: Out = OUT,
    lang: Lang = None,
) -> None:
    """Draw which keys a query sees: the causal mask, the padding mask, and both together."""
    with reporting(lang) as words:
        from .mask import show_mask
        from .output import Output

        show_mask(Output(out, words), impl, queries, keys, lengths)


@app.command(cls=Command)
def sampling(
    model: Model = DEFAULT_MODEL,
    prompt: Prompt = None,
    temp: Temp = 0.7,
    top_k: TopK = 8,
    top_p: TopP = 0.95,
    min_p: MinP = 0.1,
    tokens: Annotated[int, typer.Option(metavar="N", help="How many of the likeliest tokens to show.")] = 10,
    impl: Impl = DEFAULT_IMPL,
    out: Out = OUT,
    lang: Lang = None,
) -> None:
    """Draw the likeliest next tokens, before and after each step of the sampler."""
    with reporting(lang) as words:
        from .output import Output
        from .sampling import show_sampling

        settings = {"temperature": temp, "top_k": top_k, "top_p": top_p, "min_p": min_p}
        show_sampling(Output(out, words), model, impl, prompt, tokens, settings)


@app.command(cls=Command)
def kernel(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A Python script that runs kernels in Metal.")],
    call: Annotated[int, typer.Option(metavar="N", help="The script's kernel call to show. The first is 1.")] = 1,
    threadgroup: Annotated[str, typer.Option(metavar="X,Y,Z", help="The threadgroup to show.")] = "0,0,0",
    out: Out = OUT,
    lang: Lang = None,
) -> None:
    """Draw what each thread of a threadgroup reads and writes between barriers. Accesses that race are red."""
    with reporting(lang) as words:
        from .kernel import show_kernel
        from .output import Output

        show_kernel(Output(out, words), file, call, threadgroup)


@app.command(cls=Command)
def schedule(
    file: Annotated[Path, typer.Argument(metavar="RUN.json", help="A run that `tiny-llm batch --record` wrote.")],
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE|FOLDER",
            help="A file that ends in .png, .svg or .html, or a folder for a picture and a page.",
        ),
    ] = OUT,
    lang: Lang = None,
) -> None:
    """Draw which requests each step of an engine served, with preemptions, waiting requests, and pages."""
    with reporting(lang) as words:
        from .schedule import show_schedule

        show_schedule(file, out, words)
