"""Everything that a model card states of a checkpoint, measured on it.

PyTorch does the arithmetic, in float32: MLX's own on x86 CPUs is slow in float32 and inexact in bfloat16.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from itertools import islice, product
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import torch
from mlx_lm.tokenizer_utils import load as load_tokenizer
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from .. import evaluation, free_stories
from ..stories import LANGUAGES
from .data import training_documents
from .recipes import STAGES, Stage

__all__ = ["Effort", "measure"]

BITS = {"bfloat16": None, "8 bit": 8, "4 bit": 4}
COPY = 60  # tokens in a row that a story may share with a training story


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    questions: int = 500  # of each language and length
    texts: int = 200  # held-out stories of each language
    stories: int = 100  # free ones of each language
    stages: Sequence[Stage] = STAGES  # of the training text, which copies are looked for in
    samples: int = 3  # stories of each language that the card shows


def measure(folder: Path, draft_of: Path | None, effort: Effort, report: Callable[[str], Any]) -> dict[str, Any]:
    """All figures of a checkpoint, in float32 arithmetic.

    draft_of: the checkpoint that this one is a draft of; their agreement is measured.
    report: is told what comes next.
    """
    models, tokenizer = {name: _load(folder, bits) for name, bits in BITS.items()}, load_tokenizer(folder)
    model = models["bfloat16"]
    texts = {language: evaluation.held_out_stories(tokenizer, language, effort.texts) for language in LANGUAGES}
    report("perplexity")
    figures: dict[str, Any] = {
        "weights": sha256((folder / "model.safetensors").read_bytes()).hexdigest(),
        "parameters": model.num_parameters(),
        "machine": _machine(),
        "perplexity": {
            language: {name: round(evaluation.perplexity(_scores(m), held_out), 4) for name, m in models.items()}
            for language, held_out in texts.items()
        },
        "answers": {},
    }
    for language, length in product(LANGUAGES, evaluation.LENGTHS):
        report(f"questions, {language}, {length}")
        exams = evaluation.exam(tokenizer, language, length, effort.questions)
        figures["answers"][f"{language} {length}"] = _answers(model, models["4 bit"], exams)
    if draft_of is not None:
        report("agreement")
        other = _scores(_load(draft_of))
        figures["agreement"] = {
            language: round(evaluation.agreement(_scores(model), other, held_out), 4)
            for language, held_out in texts.items()
        }
    report("free stories")
    figures["free stories"] = _free_stories(folder, model, tokenizer, texts, effort)
    return figures


def _load(folder: Path, bits: int | None = None, group_size: int = 64) -> Any:
    """The model in float32; bits: with its matrices rounded as MLX's affine quantisation rounds them."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    matrices = {name: weight for name, weight in model.named_parameters() if weight.dim() == 2}
    for weight in matrices.values() if bits else ():
        packed = mx.quantize(mx.array(weight.detach().numpy()).astype(mx.bfloat16), group_size, bits)
        scales, biases = (part.astype(mx.float32) for part in packed[1:])
        rounded = mx.dequantize(packed[0], scales, biases, group_size, bits)
        weight.data = torch.from_numpy(np.array(rounded))
    return model.eval()


def _scores(model: Any) -> evaluation.Model:
    """The model as evaluation wants it, from array to array."""

    def scores(tokens: mx.array) -> mx.array:
        with torch.no_grad():
            return mx.array(model(torch.from_numpy(np.array(tokens, dtype=np.int64))).logits.numpy())

    return scores


def _answers(model: Any, in_4_bit: Any, exams: list[evaluation.Exam]) -> dict[str, Any]:
    right = evaluation.exact_matches(_scores(model), exams)
    kinds = {made.question.kind for made in exams}
    return {
        "questions": len(exams),
        "tokens": round(sum(len(made.prompt) for made in exams) / len(exams)),
        "right": _share(right),
        "by kind": {
            kind: _share([ok for ok, made in zip(right, exams, strict=True) if made.question.kind == kind])
            for kind in sorted(kinds)
        },
        "without the story": _share(evaluation.exact_matches(_scores(model), exams, alone=True)),
        "most frequent answer": round(evaluation.majority_score(exams), 4),
        "last place": round(evaluation.last_mentioned_score(exams), 4),
        "right in 4 bit": _share(evaluation.exact_matches(_scores(in_4_bit), exams)),
    }


def _free_stories(
    folder: Path, model: Any, tokenizer: Any, texts: dict[str, list[list[int]]], effort: Effort
) -> dict[str, Any]:
    copies = free_stories.Copies(_training_text(folder, effort.stages), COPY + 1)
    figures: dict[str, Any] = {}
    for language in LANGUAGES:
        prompts = [tokenizer.encode(start) for start in free_stories.starts(language, effort.stories)]
        stories = _tell(model, tokenizer, prompts, temperature=0.7, limit=400)
        figures[language] = {
            "stories": len(stories),
            "tokens": round(sum(map(len, stories)) / len(stories)),
            "ended": _share([len(s) < len(p) + 400 for s, p in zip(stories, prompts, strict=True)]),
            "distinct-2 between stories": round(free_stories.distinct_between(stories), 4),
            "the same, of held-out stories": round(free_stories.distinct_between(texts[language]), 4),
            "distinct-2 of all": round(free_stories.distinct_pooled(stories), 4),
            "the same of all, of held-out stories": round(free_stories.distinct_pooled(texts[language]), 4),
            "no copy": _share([not copies.found(story) for story in stories]),
            "samples": [tokenizer.decode(story) for story in stories[: effort.samples]],
        }
    return figures


def _training_text(folder: Path, stages: Sequence[Stage]) -> Iterator[list[int]]:
    """The tokens of the training documents; a thousand are encoded at once, which is much quicker."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    texts = (document.text for number in range(len(stages)) for document in training_documents(stages, number))
    while some := list(islice(texts, 1000)):
        yield from (encoding.ids for encoding in tokenizer.encode_batch_fast(some))


def _tell(model: Any, tokenizer: Any, prompts: list[list[int]], temperature: float, limit: int) -> list[list[int]]:
    """Sample a story for each prompt: the tokens with the prompt's, without the one that ends a text."""
    torch.manual_seed(0)
    stories = []
    for prompt in prompts:
        [story] = model.generate(
            torch.tensor([prompt]), do_sample=True, temperature=temperature, top_k=0, max_new_tokens=limit
        ).tolist()
        stories.append(story[:-1] if story[-1] in tokenizer.all_special_ids else story)
    return stories


def _machine() -> str:
    return f"{platform.system()} {platform.machine()}, Python {platform.python_version()}, torch {version('torch')}"


def _share(outcomes: list[bool]) -> float:
    return round(sum(outcomes) / len(outcomes), 4)
