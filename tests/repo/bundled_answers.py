"""The bundled models' answers, computed with the reference and compared with the models' cards.

This file stands alone, because the modules that it imports decide when the answers are computed again (`verdicts.py`).
"""

from __future__ import annotations

import json

import mlx.core as mx
from tokenizers import Tokenizer

from tiny_llm_models import BUNDLED, bundled
from tiny_llm_models.evaluation import exact_matches, exams
from tiny_llm_models.storyteller import LANGUAGES
from tiny_llm_ref.models import load

__all__ = ["compare_answers"]

SAMPLE = 40  # questions, the first of the 500


def compare_answers() -> None:
    """Ask each model questions in each language. The reference computes with MLX; the card's figures are PyTorch's."""
    for name in BUNDLED:
        model, _ = load(name, mx.float32)
        tokenizer = Tokenizer.from_file(str(bundled(name) / "tokenizer.json"))
        figures = json.loads((bundled(name) / "evaluation.json").read_text(encoding="utf-8"))
        for language in LANGUAGES:
            made = exams(tokenizer, language, "short", SAMPLE)
            right = exact_matches(model, tokenizer, made)
            expected = figures["answers"][f"{language} short"]["right"]
            assert abs(sum(right) / SAMPLE - expected) <= 5 * (expected * (1 - expected) / SAMPLE) ** 0.5 + 0.02
            blind = exact_matches(model, tokenizer, made, alone=True)
            assert sum(blind) / SAMPLE <= 0.15
