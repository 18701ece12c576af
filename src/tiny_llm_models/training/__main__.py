"""The command that makes the bundled models: python -m tiny_llm_models.training all."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from tokenizers import Tokenizer

from .. import BUNDLED
from ..hf_format import write_json
from ..storyteller.documents import Mix, document
from .corpus import chunks, shards, write_shards
from .origin import FILE as ORIGIN
from .origin import commit_of, note_origin, script_of
from .recipes import RECIPES, SMOKE, SMOKE_STAGES, STAGES, Recipe, Stage, scaled
from .tokenizer import train_tokenizer

if TYPE_CHECKING:
    from .trainer import Figures, Trainer  # need PyTorch

app = typer.Typer(
    help="Make the bundled models: their tokenizer, training text, weights, sampling settings and figures. "
    "Each command runs the earlier steps if necessary, and continues where it was stopped.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
console = Console(stderr=True)

Work = Annotated[Path, typer.Option(help="The folder for the training text and unfinished models.")]
Out = Annotated[Path, typer.Option(help="The folder for the finished checkpoints.")]
Share = Annotated[
    float, typer.Option(min=0, max=1, help="The share of the training text to use. For a trial, use less.")
]
Smoke = Annotated[bool, typer.Option("--smoke", help="Run on a tiny scale, in a minute, and write only into WORK.")]
Name = Annotated[str, typer.Argument(metavar="|".join(BUNDLED))]
WORK = Path("build/models")
OUT = Path(__file__).parents[1]
TOKENIZER_DOCUMENTS, SMOKE_TOKENIZER_DOCUMENTS = 6000, 240
HEAD_DOCUMENTS = 20_000  # documents from which draft heads learn
SMOKE_TEXT_TOKENS = 24  # the most tokens that a model adds to a text


@app.command()
def tokenizer(work: Work = WORK, smoke: Smoke = False) -> None:
    """Train the tokenizer."""
    work = _work(work, smoke)
    path = work / "tokenizer.json"
    if not path.exists():
        count = SMOKE_TOKENIZER_DOCUMENTS if smoke else TOKENIZER_DOCUMENTS
        with _progress("tokenizer", count) as advance:
            made = train_tokenizer(list(_texts(count, advance)))
        made.save(str(path.with_suffix(".unfinished")))
        path.with_suffix(".unfinished").replace(path)
    console.print(f"tokenizer: {path}")


@app.command()
def corpus(work: Work = WORK, share: Share = 1, smoke: Smoke = False) -> None:
    """Write the training text as tokens."""
    tokenizer(work, smoke)
    work, stages = _work(work, smoke), _stages(share, smoke)
    for number, stage in enumerate(stages):
        with _progress(f"corpus {number + 1}", stage.documents) as advance:
            write_shards(work, stages, number, advance)
    console.print(f"corpus: {work}")


@app.command()
def train(name: Name, work: Work = WORK, out: Out = OUT, share: Share = 1, smoke: Smoke = False) -> None:
    """Train one model and write its checkpoint."""
    from .checkpoint import mix_in, write_checkpoint  # need PyTorch
    from .improving import WRITE
    from .trainer import Part, Trainer, joined_logs

    recipe = _recipe(name, smoke)
    corpus(work, share, smoke)
    stages, out = _stages(share, smoke), _out(out, work, smoke)
    work = _work(work, smoke)
    note_origin(work / name, script_of(sys.argv[1:]), recipe.seed, commit_of(Path(__file__).parent))
    tokenizer = Tokenizer.from_file(str(work / "tokenizer.json"))
    texts = [shards(work, stages, number) for number in range(len(stages))]
    parts = [Part(stage, chunks(paths)) for stage, paths in zip(stages, texts, strict=True)]
    before = len(parts) - len(recipe.more_stories)
    trainers = [Trainer(recipe, parts[:before], work / name, teacher=_teacher(recipe, out))]
    _run(name, trainers[-1])
    for number, (kind, count) in enumerate(recipe.more_stories.items(), before):
        trained = work / name / f"before-{kind}"
        more = [work / f"{kind}-{name}-{part}.npz" for part in range(len(parts[number].chunks))]
        write_checkpoint(trained, recipe, trainers[-1].model, tokenizer)
        if not more[-1].exists():
            with console.status(name) as status:
                WRITE[kind](trained, more, count, status.update, _text_tokens(smoke))
        part = Part(stages[number], chunks(texts[number], more))
        trainers.append(Trainer(recipe, [part], work / f"{name}-{kind}", start=trained))
        _run(f"{name}, with {kind} stories", trainers[-1])
    if recipe.kept:
        mix_in(trainers[-1].model, work / name / f"before-{[*recipe.more_stories][-1]}", recipe.kept)
    write_checkpoint(out / name, recipe, trainers[-1].model, tokenizer)
    (out / name / "training.jsonl").write_text(joined_logs(trainers), encoding="utf-8")
    shutil.copy(work / name / ORIGIN, out / name)
    console.print(f"{name}: {out / name}")


@app.command()
def heads(name: Name, work: Work = WORK, out: Out = OUT, share: Share = 1, smoke: Smoke = False) -> None:
    """Train draft heads, which guess the next tokens of a finished model."""
    from .corpus import Corpus
    from .draft_heads import HeadTrainer  # needs PyTorch

    _recipe(name, smoke)
    commit = commit_of(Path(__file__).parent)
    stages, out = _stages(share, smoke), _out(out, work, smoke)
    stages = (*stages[:-1], replace(stages[-1], documents=min(HEAD_DOCUMENTS, stages[-1].documents), batch_tokens=8192))
    work = _work(work, smoke)
    shutil.copy(out / name / "tokenizer.json", work)
    with _progress("corpus for draft heads", stages[-1].documents) as advance:
        write_shards(work, stages, len(stages) - 1, advance)
    trainer = HeadTrainer(out / name, Corpus(shards(work, stages, len(stages) - 1), stages[-1]), work / name)
    with _training_progress(f"draft heads of {name}") as show:
        trainer.run(lambda done, right: show(done, " / ".join(f"{share:.0%}" for share in right)))
    path = out / "draft_heads" / f"{name}.safetensors"
    trainer.write(path, script=script_of(sys.argv[1:]), commit=commit)
    console.print(f"draft heads of {name}: {path}")


@app.command()
def defaults(name: Name, work: Work = WORK, out: Out = OUT, stories: int = 100, smoke: Smoke = False) -> None:
    """Choose temperature and min-p with the checker, and write them into generation_config.json."""
    from .checkpoint import weights_of, write_defaults  # need PyTorch
    from .improving import best_settings, try_settings

    _recipe(name, smoke)
    folder, file = _out(out, work, smoke) / name, _work(work, smoke) / name / "settings.json"
    found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if found.get("weights") != weights_of(folder):
        with console.status(name) as status:
            tried = try_settings(
                folder,
                2 if smoke else stories,
                lambda text: status.update(f"{name}: {text}"),
                _text_tokens(smoke),
            )
        found = {"weights": weights_of(folder), "tried": tried}
        file.parent.mkdir(exist_ok=True)
        write_json(file, found)
    write_defaults(folder, best_settings(found["tried"]))
    console.print(f"{name}: {best_settings(found['tried'])}")


@app.command()
def evaluate(name: Name, work: Work = WORK, out: Out = OUT, share: Share = 1, smoke: Smoke = False) -> None:
    """Measure one model: stories, requests, questions, perplexity."""
    from .measure import Effort, measure  # needs PyTorch

    recipe = _recipe(name, smoke)
    corpus(work, share, smoke)
    stages, out = _stages(share, smoke), _out(out, work, smoke)
    paths = [path for number in range(len(stages)) for path in shards(_work(work, smoke), stages, number)]
    effort = Effort(4, 4, 4, 4, 4, 4, 4, _text_tokens(smoke)) if smoke else Effort()
    with console.status(name) as status:
        figures = measure(
            out / name, _teacher(recipe, out), paths, effort, lambda text: status.update(f"{name}: {text}")
        )
    write_json(out / name / "evaluation.json", figures)
    console.print(f"{name}: {out / name / 'evaluation.json'}")


@app.command()
def card(name: Name, work: Work = WORK, out: Out = OUT, share: Share = 1, smoke: Smoke = False) -> None:
    """Write one model's card, in both languages, from the model's figures."""
    from .card import write_card  # needs matplotlib

    folder = _out(out, work, smoke) / name
    write_card(folder, name, _recipe(name, smoke), _stages(share, smoke))
    console.print(f"{name}: {folder / 'README.md'}")


@app.command(name="all")
def everything(work: Work = WORK, out: Out = OUT, share: Share = 1, smoke: Smoke = False) -> None:
    """Run all steps, for all models."""
    from .checkpoint import weights_of  # needs PyTorch

    for name in BUNDLED:
        train(name, work, out, share, smoke)
        defaults(name, work, out, smoke=smoke)
        folder = _out(out, work, smoke) / name
        file = folder / "evaluation.json"
        if not file.exists() or json.loads(file.read_text(encoding="utf-8"))["weights"] != weights_of(folder):
            evaluate(name, work, out, share, smoke)
        card(name, work, out, share, smoke)


def _text_tokens(smoke: bool) -> int:
    """Return the number of tokens that a model may add to a text."""
    from .sampling import LIMIT  # needs PyTorch

    return SMOKE_TEXT_TOKENS if smoke else LIMIT


@contextmanager
def _training_progress(name: str) -> Iterator[Callable[[float, str], Any]]:
    """Show the progress of a training run: the share that is done, and a text."""
    with Progress(
        TextColumn(f"{name}: {{task.description}}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=console,
    ) as progress:
        task = progress.add_task("", total=1)
        yield lambda done, text: progress.update(task, completed=done, description=text)


def _run(name: str, trainer: Trainer) -> None:
    """Train to the end, and show the progress."""
    with _training_progress(name) as show:
        show(trainer.done, "")

        def report(known: Figures) -> None:
            figures = {"loss": ".3f", "answers": ".3f", "speed": ",.0f"}
            parts = [f"{name} {known[name]:{form}}" for name, form in figures.items() if known.get(name) is not None]
            show(trainer.done, ", ".join(parts))

        trainer.run(report)


def _teacher(recipe: Recipe, out: Path) -> Path | None:
    """Return the checkpoint of the recipe's teacher, from which a draft model learns. Return None if the recipe has no
    teacher.

    Raises:
        typer.BadParameter: the teacher is not trained yet.
    """
    if not recipe.teacher:
        return None
    if not (out / recipe.teacher / "model.safetensors").exists():
        raise typer.BadParameter(
            f"learns from {recipe.teacher}, which is not in {out}: train {recipe.teacher} first", param_hint="NAME"
        )
    return out / recipe.teacher


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


def _stages(share: float, smoke: bool) -> tuple[Stage, ...]:
    return SMOKE_STAGES if smoke else scaled(STAGES, share)


def _texts(count: int, advance: Callable[[int], Any]) -> Iterator[str]:
    """Yield documents without unknown words and without special tokens, because the tokenizer must learn neither."""
    for index in range(count):
        yield re.sub(r"<\|\w+\|>", "\n", document("train", index, Mix(strange=0, stopped=0)).text)
        advance(1)


@contextmanager
def _progress(description: str, total: int) -> Iterator[Callable[[int], Any]]:
    with Progress(console=console) as progress:
        task = progress.add_task(description, total=total)
        yield lambda count: progress.advance(task, count)


if __name__ == "__main__":
    app()
