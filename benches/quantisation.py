"""Measures how a bundled model's perplexity and share of right answers depend on bits per weight and group size.

python benches/quantisation.py            all rows that results/quantisation.json does not have yet
python benches/quantisation.py --smoke    three rows on a few texts; nothing is written

The course's `quantize` and `dequantize` round all weights except those of the norms. The model with the rounded weights
then computes in float32. Stories and questions come from `tiny_llm_models.evaluation`: the stories are told with seeds
that training does not use, and the questions are about names and things that no training text has. In the last three
rows, only one part of the model has 2 bits per weight. The other parts have 8 bits per weight, in groups of 64 weights.
"""

from __future__ import annotations

import argparse
import json
import platform
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from tokenizers import Tokenizer

from tiny_llm_given.config import ModelConfig
from tiny_llm_given.linears import named_linears
from tiny_llm_given.weights import load_weights
from tiny_llm_models import bundled, evaluation
from tiny_llm_models.storyteller import LANGUAGES
from tiny_llm_ref.basics import Linear
from tiny_llm_ref.embedding import Embedding
from tiny_llm_ref.models import build_model
from tiny_llm_ref.quantize import dequantize, quantize
from tiny_llm_ref.qwen2 import CausalLM

RESULTS = Path(__file__).parent / "results" / "quantisation.json"
PARTS = ("embed_tokens", "self_attn", "mlp")  # of the model, as they occur in the weights' names
SETTINGS = [(None, None, None), *((bits, size, None) for bits in (8, 4, 2) for size in (128, 64, 32))]
SETTINGS += [(2, 64, part) for part in PARTS]
FINE = (8, 64)  # bits per weight and group size of the parts that are not the chosen one
STORIES, QUESTIONS = 100, 200  # in each language


class Product:
    """A linear layer that multiplies with NumPy, whose float32 product is much faster on a CPU than MLX's."""

    def __init__(self, layer: Linear | Embedding):
        self.weight = np.array(layer.weight)
        self.bias = getattr(layer, "bias", None)

    def __call__(self, x: mx.array) -> mx.array:
        y = mx.array(np.array(x) @ self.weight.T)
        return y if self.bias is None else y + self.bias


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="story", help="the name of a bundled model")
    parser.add_argument("--smoke", action="store_true", help="three rows on a few texts; nothing is written")
    options = parser.parse_args()
    stories, questions = (2, 3) if options.smoke else (STORIES, QUESTIONS)
    report = heading(options.model, stories, questions)
    rows = [] if options.smoke else rows_so_far(report)
    for setting in SETTINGS[:: 6 if options.smoke else 1]:
        if not any((row["bits"], row["group_size"], row["only"]) == setting for row in rows):
            rows.append(measure(options.model, *setting, stories, questions))
            print(json.dumps(rows[-1]), flush=True)
        if not options.smoke:
            RESULTS.write_text(json.dumps(report | {"rows": rows}, indent=1) + "\n", encoding="utf-8")


def heading(model: str, stories: int, questions: int) -> dict[str, Any]:
    """Return the facts that all rows of a report share."""
    weights = (bundled(model) / "model.safetensors").read_bytes()
    return {
        "command": "python benches/quantisation.py" + ("" if model == "story" else f" --model {model}"),
        "machine": f"{platform.system()} {platform.machine()}, {mx.default_device().type.name}",
        "versions": {"python": platform.python_version(), **{name: version(name) for name in ("mlx", "numpy")}},
        "model": model,
        "weights": sha256(weights).hexdigest(),
        "stories": stories,
        "questions": questions,
    }


def rows_so_far(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of the stored report. Return [] if there is no report, or if its machine, versions, model or
    texts differ from this report's."""
    if not RESULTS.exists():
        return []
    stored = json.loads(RESULTS.read_text(encoding="utf-8"))
    rows = stored.pop("rows")
    return rows if stored == report else []


def measure(
    name: str, bits: int | None, size: int | None, only: str | None, stories: int, questions: int
) -> dict[str, Any]:
    """Round a model's weights, and return one row. bits: per weight; None: do not round. size: the group size.
    only: the part of the model to which `bits` and `size` apply; None: the whole model."""
    config = ModelConfig.from_pretrained(bundled(name))
    stored = load_weights(bundled(name), config)
    matrices = {key for key, weight in stored.items() if weight.ndim == 2}
    weights, count = {}, 0
    for key in matrices:
        setting = (bits, size) if only is None or only in key else FINE
        weights[key], bytes_ = rounded(stored[key], *setting)
        count += bytes_
    model = build_model(config, {key: weight.astype(mx.float32) for key, weight in (stored | weights).items()})
    row = {
        "bits": bits,
        "group_size": size,
        "only": only,
        "bits_per_weight": round(8 * count / sum(stored[key].size for key in matrices), 4),
        "bytes": count + sum(stored[key].nbytes for key in stored.keys() - matrices),
    }
    return row | judged(with_numpy(model), name, stories, questions)


def judged(model: CausalLM, name: str, stories: int, questions: int) -> dict[str, dict[str, float]]:
    """Return the perplexity and the share of right answers, each keyed by language. name: the bundled model's name."""
    figures: dict[str, dict[str, float]] = {"perplexity": {}, "right": {}}
    for language in LANGUAGES:
        tokenizer, texts, exams = texts_of(name, language, stories, questions)
        figures["perplexity"][language] = round(evaluation.perplexity(model, texts), 4)
        right = evaluation.exact_matches(model, tokenizer, exams)
        figures["right"][language] = round(sum(right) / len(right), 4)
    return figures


@cache
def texts_of(
    name: str, language: str, stories: int, questions: int
) -> tuple[Tokenizer, list[list[int]], list[evaluation.Exam]]:
    """Return a bundled model's tokenizer, the stories as token ids, and the questions. All rows share this result."""
    tokenizer = Tokenizer.from_file(str(bundled(name) / "tokenizer.json"))
    texts = [tokenizer.encode(story).ids for story in evaluation.held_out_stories(language, stories)]
    return tokenizer, texts, evaluation.exams(tokenizer, language, "short", questions)


def rounded(weight: mx.array, bits: int | None, size: int | None) -> tuple[mx.array, int]:
    """Quantise and dequantise a matrix. Return the result, and how many bytes the quantised matrix has."""
    if bits is None or size is None:
        return weight, weight.nbytes
    packed, scales, biases = quantize(weight, size, bits)
    dense = dequantize(packed, scales.astype(mx.float32), biases.astype(mx.float32), size, bits)
    return dense, packed.nbytes + scales.nbytes + biases.nbytes


def with_numpy(model: CausalLM) -> CausalLM:
    """Let NumPy compute all matrix products of a model, and return the model."""
    for _, owner, name in named_linears(model):
        setattr(owner, name, Product(getattr(owner, name)))
    if model.lm_head is None:
        model.lm_head = Product(model.embed_tokens)
    return model


if __name__ == "__main__":
    main()
