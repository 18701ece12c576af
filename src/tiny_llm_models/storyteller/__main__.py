"""Commands for the authors of plots: `python -m tiny_llm_models.storyteller tell|lint LANGUAGE`."""

from __future__ import annotations

from random import Random
from typing import Annotated

import typer

from .lexicon import Lexicon, lexicon
from .lint import Report, lint_plot, lint_words
from .questions import plot_questions
from .requests import gists
from .telling import say
from .telling import tell as tell_story
from .wishes import Wish

__all__ = ["app"]

app = typer.Typer(add_completion=False, help=__doc__, pretty_exceptions_enable=False, rich_markup_mode=None)

Language = Annotated[str, typer.Argument(help="english or japanese")]
PlotName = Annotated[str, typer.Option("--plot", help="only this plot")]


@app.command()
def tell(
    language: Language,
    plot: PlotName = "",
    seed: Annotated[int, typer.Option(help="seed of the first story; each later story has the next seed")] = 0,
    count: Annotated[int, typer.Option(help="how many stories to tell", min=1)] = 1,
    short: Annotated[bool, typer.Option("--short", help="tell short stories")] = False,
    questions: Annotated[bool, typer.Option("--questions", help="also print each story's questions and gists")] = False,
) -> None:
    """Tell stories."""
    words = _lexicon(language)
    for number in range(seed, seed + count):
        try:
            story = tell_story(words, Random(number), Wish(plot=plot, short=short))
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
        typer.echo(f"# {story.plot.name}, seed {number}\n{story.text}")
        if questions:
            for question, answer in plot_questions(story):
                typer.echo(f"  {question} – {answer}")
            for gist in gists(story):
                typer.echo(f"  … {say(words, story.cast, gist)[0]}")
        typer.echo()


@app.command()
def lint(language: Language, plot: PlotName = "") -> None:
    """Check plots: their notation, roles, forms and effects, and a few hundred tellings of each plot."""
    words = _lexicon(language)
    if plot and plot not in words.plots:
        raise typer.BadParameter(f"expected a plot, one of {sorted(words.plots)}, got {plot!r}")
    found = 0 if plot else _show("words", lint_words(words))
    for name in [plot] if plot else words.plots:
        found += _show(name, lint_plot(words, words.plots[name]))
    if found:
        typer.echo(f"{found} problem{'s' * (found != 1)}")
        raise typer.Exit(1)


def _show(name: str, report: Report) -> int:
    """Print a report, and return the number of problems."""
    typer.echo(f"{name}: {report.summary}")
    for problem in report.problems:
        typer.echo(f"  {problem}")
    return len(report.problems)


def _lexicon(language: str) -> Lexicon:
    try:
        return lexicon(language)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


if __name__ == "__main__":
    app()
