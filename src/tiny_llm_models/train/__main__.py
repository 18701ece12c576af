"""Makes the bundled models: python -m tiny_llm_models.train all."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from tokenizers import Tokenizer

from .. import BUNDLED
from ..hf_format import write_json
from ..stories import Mix, document
from .data import training_documents, write_corpus
from .recipes import RECIPES, SMOKE, SMOKE_STAGES, STAGES, Recipe, Stage
from .tokenizer import train_tokenizer

app = typer.Typer(
    help="Make the bundled models: their training text, tokenizer, weights, figures and cards. Training goes on where "
    "it was stopped.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
console = Console(stderr=True)

Work = Annotated[Path, typer.Option(help="Where the training text and unfinished models are kept.")]
Out = Annotated[Path, typer.Option(help="Where the finished checkpoints go.")]
Smoke = Annotated[bool, typer.Option("--smoke", help="Everything on a small scale, in a minute, into WORK alone.")]
Name = Annotated[str, typer.Argument(metavar="|".join(BUNDLED))]
WORK = Path("build/models")
OUT = Path(__file__).parents[1]
TOKENIZER_DOCUMENTS = 20_000


@app.command()
def tokenizer(work: Work = WORK, smoke: Smoke = False) -> None:
    """Train the tokenizer."""
    work = _work(work, smoke)
    path = work / "tokenizer.json"
    if not path.exists():
        count = SMOKE_STAGES[0].documents if smoke else TOKENIZER_DOCUMENTS
        with _progress("tokenizer", count) as advance:
            train_tokenizer(_texts(count, advance)).save(str(path))
    console.print(f"tokenizer: {path}")


@app.command()
def corpus(work: Work = WORK, smoke: Smoke = False) -> None:
    """Write the training text, encoded."""
    tokenizer(work, smoke)
    work = _work(work, smoke)
    stages = _stages(smoke)
    for number, path in enumerate(_corpora(work, smoke)):
        if not path.exists():
            with _progress(path.stem, stages[number].documents) as advance:
                documents = training_documents(stages, number)
                write_corpus(path, Tokenizer.from_file(str(work / "tokenizer.json")), documents, advance)
        console.print(f"corpus: {path}")


@app.command()
def train(name: Name, work: Work = WORK, out: Out = OUT, smoke: Smoke = False) -> None:
    """Train one model and write its checkpoint."""
    from .checkpoint import write_checkpoint  # these need PyTorch
    from .training import Trainer

    recipe = _recipe(name, smoke)
    corpus(work, smoke)
    work, out = _work(work, smoke), _out(out, work, smoke)
    trainer = Trainer(recipe, _stages(smoke), _corpora(work, smoke), work / name)
    with Progress(
        TextColumn(f"{name}: {{task.description}}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=console,
    ) as progress:
        task = progress.add_task("", total=trainer.steps, completed=trainer.step)

        def report(step: dict[str, float]) -> None:
            text = f"loss {step['loss']:.3f}, answers {step['answers']:.3f}, {step['speed']:,.0f} tokens/s"
            progress.update(task, completed=step["step"], description=text)

        trainer.run(report)
    write_checkpoint(out / name, recipe, trainer.model, Tokenizer.from_file(str(work / "tokenizer.json")))
    shutil.copy(work / name / "log.jsonl", out / name / "training.jsonl")
    console.print(f"{name}: {out / name}")


@app.command()
def evaluate(name: Name, work: Work = WORK, out: Out = OUT, smoke: Smoke = False) -> None:
    """Measure one model: questions, perplexity, free stories."""
    from .measure import Effort, measure  # needs PyTorch

    _recipe(name, smoke)
    out = _out(out, work, smoke)
    effort = Effort(questions=8, texts=4, stories=4, stages=SMOKE_STAGES, samples=1) if smoke else Effort()
    with console.status(name) as status:
        figures = measure(
            out / name,
            out / "story" if name == "story-draft" else None,
            effort,
            lambda text: status.update(f"{name}: {text}"),
        )
    path = out / name / "evaluation.json"
    write_json(path, figures)
    console.print(f"{name}: {path}")


@app.command()
def card(name: Name, work: Work = WORK, out: Out = OUT, smoke: Smoke = False) -> None:
    """Write one model's card and the picture of its training."""
    from .card import write_card

    out = _out(out, work, smoke)
    write_card(out / name, name, _recipe(name, smoke))
    console.print(f"{name}: {out / name / 'README.md'}")


@app.command(name="all")
def everything(work: Work = WORK, out: Out = OUT, smoke: Smoke = False) -> None:
    """All of it, for all models."""
    for name in BUNDLED:
        train(name, work, out, smoke)
    for name in BUNDLED:
        evaluate(name, work, out, smoke)
        card(name, work, out, smoke)


def _work(work: Path, smoke: bool) -> Path:
    work = work / "smoke" if smoke else work
    work.mkdir(parents=True, exist_ok=True)
    return work


def _out(out: Path, work: Path, smoke: bool) -> Path:
    return _work(work, smoke) / "checkpoints" if smoke else out


def _recipe(name: str, smoke: bool) -> Recipe:
    if name not in RECIPES:
        raise typer.BadParameter(f"expected one of {', '.join(BUNDLED)}, got {name!r}", param_hint="NAME")
    return SMOKE[name] if smoke else RECIPES[name]


def _stages(smoke: bool) -> tuple[Stage, ...]:
    return SMOKE_STAGES if smoke else STAGES


def _corpora(work: Path, smoke: bool) -> list[Path]:
    return [work / f"corpus-{number}.npz" for number in range(1, len(_stages(smoke)) + 1)]


def _texts(count: int, advance: Any) -> Iterator[str]:
    """The documents without special tokens, which are not the tokenizer's to learn."""
    for index in range(count):
        yield re.sub(r"<\|\w+\|>", "\n", document("train", index, Mix(long=0)).text)
        advance(1)


@contextmanager
def _progress(description: str, total: int) -> Iterator[Any]:
    with Progress(console=console) as progress:
        task = progress.add_task(description, total=total)
        yield lambda count: progress.advance(task, count)


if __name__ == "__main__":
    app()
