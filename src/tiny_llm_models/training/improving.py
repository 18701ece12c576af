"""Steps that use the checker: choosing sampling settings, learning from the model's own stories, and telling all plots
about equally often."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

from ..hf_format import END
from ..storyteller import LANGUAGES, Wish, lexicon, tell
from ..storyteller.documents import Document, only_story
from . import freedom
from .answers import share
from .corpus import write_shard
from .encoding import Encoder
from .sampling import LIMIT, Sampler, Settings

__all__ = ["WRITE", "best_settings", "try_settings", "write_own_stories", "write_rare_stories"]

TEMPERATURES, MIN_PS = (0.5, 0.7, 0.85, 1.0), (0.0, 0.05, 0.1, 0.2)
_AS_GOOD = 0.01  # a share of faultless stories that is at most this much below the greatest is good enough
_OFTEN = 0.25  # a plot is too frequent if more than this share of a language's free stories have it
_SEED = 2  # differs from the evaluation's seed
_WIDE = Settings(1.0, min_p=0.02)  # for stories to train on; diverse, since the checker removes faulty stories
_USUAL = Settings(0.7, min_p=0.1)
_RAREST = 0.01  # the share at which a plot counts as rare enough
_COUNTED = 500  # the most stories per language that the model tells to count its plots


def try_settings(folder: Path, stories: int, report: Callable[[str], Any], tokens: int = LIMIT) -> list[dict[str, Any]]:
    """For each setting in a grid, measure the share of faultless stories and how much the stories differ.

    stories: the number of stories to sample per language. tokens: the maximum number of new tokens per story.
    All settings are tried with the same prompts.
    """
    sampler, tried = Sampler(folder, most=tokens), list[dict[str, Any]]()
    for temperature, min_p in product(TEMPERATURES, MIN_PS):
        report(f"temperature {temperature}, min-p {min_p}")
        right, bigrams, plots = list[bool](), list[float](), list[float]()
        for language in LANGUAGES:
            words = lexicon(language)
            prompts = freedom.free_prompts(words, stories, "train")
            told = freedom.tell_stories(sampler, words, prompts, Settings(temperature, min_p), _SEED)
            right += [each.right for each in told]
            bigrams.append(freedom.distinct([sampler.tokenizer.encode(each.text).ids for each in told]))
            plots += freedom.report(told)["plots"].values()
        tried.append(
            {
                "temperature": temperature,
                "min_p": min_p,
                "stories": len(right),
                "without faults": share(right),
                "bigrams": round(sum(bigrams) / len(bigrams), 4),
                "most plot": max(plots, default=1.0),
            }
        )
    return tried


def best_settings(tried: list[dict[str, Any]]) -> dict[str, float]:
    """Return the setting whose stories differ most, among the settings whose share of faultless stories is close to the
    highest share.

    A setting whose stories follow one plot too often is considered only if there are no other settings.
    """
    varied = [each for each in tried if each["most plot"] <= _OFTEN] or tried
    best = max(each["without faults"] for each in varied)
    good = [each for each in varied if each["without faults"] >= best - _AS_GOOD]
    chosen = max(good, key=lambda each: each["bigrams"])
    return {key: chosen[key] for key in ("temperature", "min_p")}


def write_own_stories(
    folder: Path, paths: Sequence[Path], stories: int, report: Callable[[str], Any], tokens: int = LIMIT
) -> None:
    """Sample stories, and write those that the checker accepts into shards of about the same size.

    folder: the checkpoint. paths: the files of the shards. stories: the number of stories to sample per language.
    tokens: the maximum number of new tokens per story.
    """
    sampler, kept = Sampler(folder, most=tokens), list[Document]()
    for language in LANGUAGES:
        report(f"own stories, {language}")
        words = lexicon(language)
        told = freedom.tell_stories(sampler, words, freedom.free_prompts(words, stories, "train"), _WIDE, _SEED)
        kept += [Document([(each.text + END, 1)], []) for each in told if each.right]
    _write(kept, paths, sampler, "own stories")


def write_rare_stories(
    folder: Path, paths: Sequence[Path], stories: int, report: Callable[[str], Any], tokens: int = LIMIT
) -> None:
    """Write stories of the program, in which a plot is the more frequent the rarer it is in the model's stories.

    With a temperature below 1, a model tells its most probable plots even more often. The arguments are those of
    `write_own_stories`; `stories` is the number of stories to write per language.
    """
    sampler, documents = Sampler(folder, most=tokens), list[Document]()
    count = min(stories, _COUNTED)
    for language in LANGUAGES:
        report(f"plots of its stories, {language}")
        words, random = lexicon(language), Random(f"rare {language}")
        told = freedom.tell_stories(sampler, words, freedom.free_prompts(words, count, "train"), _USUAL, _SEED)
        shares = freedom.report(told)["plots"]
        weights = [1 / (shares.get(plot, 0) + _RAREST) for plot in words.plots]
        plots = random.choices(list(words.plots), weights, k=stories)
        documents += [only_story(tell(words, random, Wish(plot=plot))) for plot in plots]
    _write(documents, paths, sampler, "rare stories")


# The functions that write the stories added to the last stages, keyed by the kind of story.
WRITE = {"own": write_own_stories, "rare": write_rare_stories}


def _write(documents: list[Document], paths: Sequence[Path], sampler: Sampler, seed: str) -> None:
    """Divide documents among shards of about the same size."""
    Random(_SEED).shuffle(documents)
    for number, path in enumerate(paths):
        write_shard(path, documents[number :: len(paths)], Encoder(sampler.tokenizer, 0, 1), f"{seed} {number}")
