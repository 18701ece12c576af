"""The bundled models' sizes and training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..storyteller.documents import Mix

__all__ = ["CONTEXT", "RECIPES", "SMOKE", "SMOKE_STAGES", "STAGES", "VOCAB_SIZE", "Recipe", "Stage", "scaled"]

VOCAB_SIZE = 4096
CONTEXT = 1024


@dataclass(frozen=True)
class Stage:
    """A part of the training, with its own documents, and with a learning rate that rises and falls once."""

    documents: int
    passes: float  # how often the documents are used
    stories: float  # the share of documents that are only a story
    mix: Mix  # the mixture of all other documents
    respelled: float  # of the documents with questions, the share in which names and things are spelled at random
    context: int  # the most tokens of a document that are used
    batch_tokens: int
    rate: float  # the highest learning rate, relative to the recipe's learning rate
    named: int = 6  # the weight of words for persons and things, in stories that the model learns to tell


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
    every: int = 1  # the model is trained on one in this many documents
    teacher: str = ""  # the model whose predictions this model learns along with the text
    more_stories: Mapping[str, int] = field(default_factory=dict)  # stories per language that are made just before the
    # last stages and added to them, one kind per stage. The kinds are the keys of `improving.WRITE`.
    kept: float = 0  # the share of the weights from before the last stage in the finished weights
    seed: int = 0

    def config(self) -> dict[str, Any]:
        """Return the sizes, keyed by their names in Hugging Face's config.json."""
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


# `story` is about as large as a budget of 6 million parameters allows. All sizes are multiples of 128, so that each
# matrix can be quantised in groups of 32, 64 and 128.
RECIPES = {
    "story": Recipe(
        "qwen3",
        256,
        768,
        6,
        heads=4,
        kv_heads=2,
        tied=True,
        learning_rate=5e-3,
        more_stories={"own": 3000, "rare": 60_000},
        kept=0.1,
    ),
    "story-draft": Recipe(
        "qwen3", 128, 256, 3, heads=2, kv_heads=1, tied=True, learning_rate=5e-3, every=19, teacher="story"
    ),
    "story-qwen2": Recipe("qwen2", 128, 256, 4, heads=2, kv_heads=1, tied=False, learning_rate=5e-3, every=14),
}

# The model learns two things at the same time. From stories and from requests for stories, which are always spelled
# correctly, the model learns to tell stories. From answers about stories that have no weight in the loss (told=0), the
# model learns to copy and to keep track. Those stories may have invented names and unknown things, because the model
# never learns to write such stories.
# The first stage has single stories. In the second stage, many documents fill the context with up to six stories, which
# are read once for all of the document's questions. The third stage has the largest share of requests. In these three
# stages, words for persons and things weigh more than other words. So the model learns the difficult words first, but
# gives them too much probability. In the last stage, all words of a story weigh the same.
_NEAR = Mix(long=0, told=0, scenes=0.3, questions=10)
_BOTH = Mix(
    long=0.4,
    stories=6,
    told=0,
    scenes=0.2,
    questions=24,
    gaps={"where": 1, "content": 1, "unsaid": 3, "colour": 3},
)
_ASKED = replace(_BOTH, long=0.2, shares={"story": 0, "request": 0.65, "talk": 0.01})
_PLAIN = replace(_ASKED, long=0.1, strange=0.8, shares={"story": 0, "request": 0.65, "talk": 0.03})
STAGES = (
    Stage(160_000, 1, 0.3, _NEAR, respelled=0.5, context=CONTEXT, batch_tokens=16384, rate=1),
    Stage(480_000, 1.5, 0.4, _BOTH, respelled=0.3, context=CONTEXT + 512, batch_tokens=32768, rate=0.8),
    Stage(120_000, 1.8, 0.15, _ASKED, respelled=0.6, context=CONTEXT + 512, batch_tokens=32768, rate=0.4),
    Stage(600_000, 1.8, 0.25, _PLAIN, respelled=0.3, context=CONTEXT + 512, batch_tokens=32768, rate=0.4, named=1),
)


def scaled(stages: tuple[Stage, ...], share: float) -> tuple[Stage, ...]:
    """Return these stages with only this share of their documents, but at least 16 documents in each stage."""
    return tuple(replace(stage, documents=max(16, round(share * stage.documents))) for stage in stages)


# Models so small that a few steps take a few seconds. They show that the pipeline works, but are useless as models.
SMOKE = {
    name: replace(
        recipe,
        hidden_size=128,
        intermediate_size=128,
        layers=2,
        heads=2,
        kv_heads=1,
        every=min(recipe.every, 2),
        more_stories={kind: min(count, 8) for kind, count in recipe.more_stories.items()},
    )
    for name, recipe in RECIPES.items()
}
SMOKE_STAGES = tuple(
    replace(stage, documents=count, batch_tokens=4096) for stage, count in zip(STAGES, (80, 16, 16, 16), strict=True)
)
