"""Everything that a model card states of a checkpoint, measured on it, in float32 and on held-out seeds."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from itertools import product
from math import exp
from pathlib import Path
from random import Random
from typing import Any

import torch
from tokenizers import Tokenizer
from torch.nn.functional import cross_entropy

from ..hf_format import END
from ..storyteller import LANGUAGES, Lexicon, lexicon, tell
from . import freedom
from .exams import LENGTHS, answers, exams, share
from .sampling import GREEDY, Sampler, Settings, load_model

__all__ = ["Effort", "measure", "settings_of"]

BITS = {"bfloat16": None, "8 bit": 8, "4 bit": 4}
COPY = 60  # tokens in a row that a story may share with the training text
_BATCH_TOKENS = 8192
_SEED = 1


@dataclass(frozen=True)
class Effort:
    """How much is measured, of each language."""

    stories: int = 500  # free ones
    openings: int = 200  # that are continued greedily
    requests: int = 300
    questions: int = 500  # of each length
    special: int = 200  # questions what is there, and questions without an answer, of each length
    texts: int = 200  # held-out stories for perplexity and agreement
    samples: int = 20  # stories that the card shows


def measure(
    folder: Path, draft_of: Path | None, training: Sequence[Path], effort: Effort, report: Callable[[str], Any]
) -> dict[str, Any]:
    """All figures of a checkpoint.

    draft_of: the checkpoint that this one is a draft of; their agreement is measured.
    training: the shards of the training text, in which copies are looked for.
    report: is told what comes next.
    """
    sampler, settings = Sampler(folder), settings_of(folder)
    figures: dict[str, Any] = {
        "weights": sha256((folder / "model.safetensors").read_bytes()).hexdigest(),
        "parameters": sampler.model.num_parameters(),
        "machine": _machine(),
        "seed": _SEED,
        "settings": {"temperature": settings.temperature, "min_p": settings.min_p},
    }
    report("perplexity")
    figures["perplexity"] = _perplexities(folder, effort)
    if draft_of is not None:
        report("agreement")
        figures["agreement"] = _agreement(folder, draft_of, effort)
    report("questions")
    figures |= _questions(sampler, effort, report)
    report("requests")
    figures["requests"] = {
        language: freedom.requests(sampler, lexicon(language), effort.requests, settings, _SEED)
        for language in LANGUAGES
    }
    report("free stories")
    figures["free stories"] = _free_stories(sampler, settings, training, effort, report)
    report("free stories, 4 bit")
    in_4_bit = Sampler(folder, 4)
    for language in LANGUAGES:
        words = lexicon(language)
        told = freedom.tell_stories(in_4_bit, words, freedom.free_prompts(words, effort.stories), settings, _SEED)
        figures["free stories"][language]["in 4 bit"] = freedom.report(told)
    return figures


def settings_of(folder: Path) -> Settings:
    """The sampling settings of a checkpoint; those of `Settings` where it has none."""
    stored = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))
    usual = Settings()
    return Settings(stored.get("temperature", usual.temperature), stored.get("min_p", usual.min_p))


def _questions(sampler: Sampler, effort: Effort, report: Callable[[str], Any]) -> dict[str, Any]:
    figures: dict[str, Any] = {"answers": {}, "what is there": {}, "not said": {}}
    kinds = ({"content": 1}, {"unsaid": 1})
    for language, length in product(LANGUAGES, LENGTHS):
        case = f"{language} {length}"
        report(f"questions, {case}")
        figures["answers"][case] = answers(sampler, exams(sampler.tokenizer, language, length, effort.questions))
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
        held_out = _encoded(sampler.tokenizer, _held_out(words, effort.texts))
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


def _held_out(words: Lexicon, count: int) -> list[str]:
    return [tell(words, Random(f"held-out {words.language} {index}")).text for index in range(count)]


def _encoded(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    return [encoding.ids for encoding in tokenizer.encode_batch(list(texts))]


def _perplexities(folder: Path, effort: Effort) -> dict[str, dict[str, float]]:
    """exp of the mean loss, in nats, of each token of held-out stories after the first."""
    figures: dict[str, dict[str, float]] = {language: {} for language in LANGUAGES}
    for (precision, bits), language in product(BITS.items(), LANGUAGES):
        total, count, model = 0.0, 0, load_model(folder, bits)
        for ids, counted in _batches(folder, language, effort.texts, model.device):
            logits = _logits(model, ids)[:, :-1][counted]
            total += cross_entropy(logits, ids[:, 1:][counted], reduction="sum").item()
            count += len(logits)
        figures[language][precision] = round(exp(total / count), 4)
    return figures


def _agreement(folder: Path, draft_of: Path, effort: Effort) -> dict[str, float]:
    """The share of places in held-out stories at which both models choose the same next token."""
    one, other, figures = load_model(folder), load_model(draft_of), dict[str, float]()
    for language in LANGUAGES:
        same: list[bool] = []
        for ids, counted in _batches(folder, language, effort.texts, one.device):
            same += (_logits(one, ids).argmax(-1) == _logits(other, ids).argmax(-1))[:, :-1][counted].tolist()
        figures[language] = share(same)
    return figures


def _batches(folder: Path, language: str, count: int, device: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Held-out stories, each with the token that ends a text, B x L; and which tokens after the first are theirs."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    texts = sorted(_encoded(tokenizer, [text + END for text in _held_out(lexicon(language), count)]), key=len)
    while texts:
        longest = len(texts[-1])
        some = [texts.pop() for _ in range(min(len(texts), max(1, _BATCH_TOKENS // longest)))]
        ids = torch.tensor([each + [0] * (longest - len(each)) for each in some], device=device)
        lengths = torch.tensor([[len(each)] for each in some], device=device)
        yield ids, torch.arange(1, longest, device=device)[None] < lengths


@torch.no_grad()
def _logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    logits: torch.Tensor = model(ids, use_cache=False).logits
    return logits.float()
