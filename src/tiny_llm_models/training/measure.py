"""Measures all figures of a model card, in float32 and on held-out seeds."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import mlx.core as mx
import numpy as np
import torch
from tokenizers import Tokenizer

from ..evaluation import LENGTHS, Model, agreement, exams, held_out_stories, perplexity
from ..storyteller import LANGUAGES, lexicon
from . import freedom
from .answers import answers, share, written
from .checkpoint import weights_of
from .sampling import GREEDY, LIMIT, Sampler, Settings, load_model

__all__ = ["Effort", "measure", "settings_of"]

BITS = {"bfloat16": None, "8 bit": 8, "4 bit": 4}
COPY = 60  # a story counts as copied if it shares this many tokens in a row with the training text
_SEED = 1


@dataclass(frozen=True)
class Effort:
    """The number of texts that are measured per language."""

    stories: int = 500  # free stories
    openings: int = 200  # first sentences that the model continues greedily
    requests: int = 300
    questions: int = 500  # per length of the prompt
    special: int = 200  # per length of the prompt: questions of the kind "content", and as many of the kind "unsaid"
    texts: int = 200  # held-out stories for perplexity and agreement
    samples: int = 20  # stories that the card shows
    tokens: int = LIMIT  # the most tokens that the model adds to a text


def measure(
    folder: Path, draft_of: Path | None, training: Sequence[Path], effort: Effort, report: Callable[[str], Any]
) -> dict[str, Any]:
    """Measure all figures of a checkpoint.

    draft_of: for a draft model, the checkpoint of the larger model. The agreement of the two models is measured.
    training: the shards of the training text, which are searched for copies.
    report: a function that is called with the name of each step when the step begins.
    """
    sampler, in_4_bit = Sampler(folder, most=effort.tokens), Sampler(folder, 4, effort.tokens)
    settings = settings_of(folder)
    figures: dict[str, Any] = {
        "weights": weights_of(folder),
        "parameters": sampler.model.num_parameters(),
        "machine": _machine(),
        "seed": _SEED,
        "settings": {"temperature": settings.temperature, "min_p": settings.min_p},
    }
    report("perplexity")
    figures["perplexity"] = _perplexities(folder, sampler.tokenizer, effort)
    if draft_of is not None:
        report("agreement")
        figures["agreement"] = _agreement(folder, draft_of, sampler.tokenizer, effort)
    report("questions")
    figures |= _questions(sampler, in_4_bit, effort, report)
    report("requests")
    figures["requests"] = {
        language: freedom.requests(sampler, lexicon(language), effort.requests, settings, _SEED)
        for language in LANGUAGES
    }
    report("free stories")
    figures["free stories"] = _free_stories(sampler, settings, training, effort, report)
    report("free stories, 4 bit")
    for language in LANGUAGES:
        words = lexicon(language)
        told = freedom.tell_stories(in_4_bit, words, freedom.free_prompts(words, effort.stories), settings, _SEED)
        figures["free stories"][language]["in 4 bit"] = freedom.report(told)
    return figures


def settings_of(folder: Path) -> Settings:
    """Return a checkpoint's sampling settings. Missing settings have the defaults of `Settings`."""
    stored = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))
    usual = Settings()
    return Settings(stored.get("temperature", usual.temperature), stored.get("min_p", usual.min_p))


def _questions(sampler: Sampler, in_4_bit: Sampler, effort: Effort, report: Callable[[str], Any]) -> dict[str, Any]:
    figures: dict[str, Any] = {"answers": {}, "what is there": {}, "not said": {}}
    kinds = ({"content": 1}, {"unsaid": 1})
    for language, length in product(LANGUAGES, LENGTHS):
        case = f"{language} {length}"
        report(f"questions, {case}")
        made = exams(sampler.tokenizer, language, length, effort.questions)
        rounded = [text == exam.question.answer for text, exam in zip(written(in_4_bit, made), made, strict=True)]
        figures["answers"][case] = {**answers(sampler, made), "right in 4 bit": share(rounded)}
        for name, asked in zip(("what is there", "not said"), kinds, strict=True):
            made = exams(sampler.tokenizer, language, length, effort.special, asked)
            figures[name][case] = answers(sampler, made)
    return figures


def _free_stories(
    sampler: Sampler, settings: Settings, training: Sequence[Path], effort: Effort, report: Callable[[str], Any]
) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for language in LANGUAGES:
        report(f"free stories, {language}")
        words = lexicon(language)
        told = freedom.tell_stories(sampler, words, freedom.free_prompts(words, effort.stories), settings, _SEED)
        greedy = freedom.tell_stories(sampler, words, freedom.openings(words, effort.openings), GREEDY, _SEED)
        tokens = _encoded(sampler.tokenizer, [each.text for each in told])
        held_out = _encoded(sampler.tokenizer, held_out_stories(language, effort.texts))
        figures[language] = {
            **freedom.report(told),
            "tokens": round(sum(map(len, tokens)) / len(tokens)),
            "bigrams": freedom.distinct(tokens[: effort.texts]),
            "bigrams of held-out stories": freedom.distinct(held_out),
            "copies": share(freedom.copies(tokens, training, COPY + 1)),
            "copies in held-out stories": share(freedom.copies(held_out, training, COPY + 1)),
            "greedy": freedom.report(greedy),
            "samples": [each.text for each in Random(_SEED).sample(told, min(effort.samples, len(told)))],
        }
    return figures


def _machine() -> str:
    return f"{platform.system()} {platform.machine()}, Python {platform.python_version()}, torch {version('torch')}"


def _encoded(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    return [encoding.ids for encoding in tokenizer.encode_batch(list(texts))]


def _perplexities(folder: Path, tokenizer: Tokenizer, effort: Effort) -> dict[str, dict[str, float]]:
    figures: dict[str, dict[str, float]] = {language: {} for language in LANGUAGES}
    for (precision, bits), language in product(BITS.items(), LANGUAGES):
        texts = _encoded(tokenizer, held_out_stories(language, effort.texts))
        figures[language][precision] = round(perplexity(_logits(load_model(folder, bits)), texts), 4)
    return figures


def _agreement(folder: Path, draft_of: Path, tokenizer: Tokenizer, effort: Effort) -> dict[str, float]:
    one, other, figures = _logits(load_model(folder)), _logits(load_model(draft_of)), dict[str, float]()
    for language in LANGUAGES:
        texts = _encoded(tokenizer, held_out_stories(language, effort.texts))
        figures[language] = round(agreement(one, other, texts), 4)
    return figures


def _logits(model: Any) -> Model:
    """Wrap a PyTorch model as a function of MLX arrays."""

    def logits(tokens: mx.array) -> mx.array:
        ids = torch.from_numpy(np.array(tokens)).long().to(model.device)
        with torch.no_grad():
            return mx.array(model(ids, use_cache=False).logits.float().cpu().numpy())

    return logits
