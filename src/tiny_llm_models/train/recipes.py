"""The bundled models: their sizes, and how each is trained."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..stories import Mix

__all__ = ["CONTEXT", "RECIPES", "SMOKE", "SMOKE_STAGES", "STAGES", "VOCAB_SIZE", "Recipe", "Stage"]

VOCAB_SIZE = 4096
CONTEXT = 1024

_FAR = Mix(long=0.6, sentences=(40, 72), questions=24)
_HARD = replace(_FAR, questions=16, gaps={"first": 12, "colour": 12}, unending=0)


@dataclass(frozen=True)
class Stage:
    """A part of the training, with documents of its own and its own rise and fall of the learning rate."""

    documents: int
    mix: Mix
    short_first: float  # the share of documents, at the beginning, none of which is about a long story
    context: int  # tokens of a document that are trained on
    batch_tokens: int
    rate: float  # the highest learning rate, in parts of the recipe's


@dataclass(frozen=True)
class Recipe:
    """A model's sizes, and its training."""

    model_type: str
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    tied: bool
    learning_rate: float
    every: int = 1  # trains on each n-th document; odd, since the languages take turns
    seed: int = 0

    def config(self) -> dict[str, Any]:
        """config.json, in Hugging Face's names."""
        sizes = {
            "vocab_size": VOCAB_SIZE,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "max_position_embeddings": CONTEXT,
            "rms_norm_eps": 1e-6,
            "rope_theta": 1000000.0,
            "tie_word_embeddings": self.tied,
        }
        if self.model_type == "qwen3":
            sizes["head_dim"] = 64
        return sizes


RECIPES = {
    "story": Recipe("qwen3", 256, 512, 5, heads=4, kv_heads=2, tied=True, learning_rate=5e-3),
    "story-draft": Recipe("qwen3", 128, 256, 3, heads=2, kv_heads=1, tied=True, learning_rate=5e-3, every=3),
    "story-qwen2": Recipe("qwen2", 128, 256, 4, heads=2, kv_heads=1, tied=False, learning_rate=5e-3, every=5),
}

# To read first; then to look far back: many questions about stories that fill the context. They follow it, beyond the
# context, since a question teaches more than a sentence, and all of a document's questions share the work on its story.
# Last, to answer what is still difficult (most often where something is now, rarely where it was first or its colour),
# and to write no more than stories that end.
STAGES = (
    Stage(115_000, Mix(long=0.35), short_first=0.5, context=CONTEXT, batch_tokens=4096, rate=1),
    Stage(20_000, _FAR, short_first=0, context=CONTEXT + 512, batch_tokens=8192, rate=0.6),
    Stage(32_000, _HARD, short_first=0, context=CONTEXT + 512, batch_tokens=8192, rate=0.6),
)

# Small enough for a few steps in a few seconds: whether the pipeline runs, not whether the models are any good.
SMOKE = {
    name: replace(recipe, hidden_size=128, intermediate_size=128, layers=2, heads=2, kv_heads=1)
    for name, recipe in RECIPES.items()
}
SMOKE_STAGES = tuple(replace(stage, documents=count) for stage, count in zip(STAGES, (80, 16, 16), strict=True))
