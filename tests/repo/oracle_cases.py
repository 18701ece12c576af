"""Checkpoints and inputs with which the reference is compared with other programs."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tiny_llm_given.config import ModelConfig
from tiny_llm_given.weights import expected_shapes
from tiny_llm_models.untrained import random_weights, untrained_config, write_untrained

TOLERANCE = 1e-4  # the absolute error of a logit in float32
MARGIN = 1e-2  # between the two largest logits of each greedy step: far above any machine's rounding
GRID = [(B, L) for B in (1, 3) for L in (1, 7, 64)]
PROMPT = [7, 19, 101, 3, 250, 64, 32, 5]
TEXT = "Once upon a time\tthere was… むかしむかし、あるところに 🐢🇯🇵 1,234 <|im_end|>\n"


@dataclass(frozen=True)
class Case:
    """A seed and a configuration. With this seed, the greedy text is varied, and each step's best logit is
    clear-cut."""

    config: dict[str, Any]
    seed: int

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return expected_shapes(ModelConfig.from_hf(self.config))

    def write(self, path: Path) -> Path:
        write_untrained(path, self.config, self.shapes, self.seed)
        return path

    def fingerprint(self) -> str:
        """Return a hash of the names and numbers of all weights."""
        weights = random_weights(self.shapes, self.seed)
        return hashlib.sha256(b"".join(name.encode() + weights[name].tobytes() for name in sorted(weights))).hexdigest()


def _case(model_type: str, seed: int, **changes: Any) -> Case:
    return Case(untrained_config(model_type, rms_norm_eps=1e-2, **changes), seed)  # an eps that makes a difference


# The embedding of a tied model dominates its logits, and most seeds repeat one token. With a small E, some do not.
_TIED = {"tie_word_embeddings": True, "hidden_size": 24, "num_hidden_layers": 4, "rope_theta": 10000.0}
CASES = {
    "qwen2": _case("qwen2", 63),
    "qwen2-tied": _case("qwen2", 84, **_TIED, head_dim=4, num_key_value_heads=6),
    "qwen3": _case("qwen3", 42, num_key_value_heads=6),
    "qwen3-tied": _case("qwen3", 1, **_TIED, head_dim=16),
}


def random_tokens(B: int, L: int, vocab_size: int = 259) -> np.ndarray:
    return np.random.RandomState(100 * B + L).randint(0, vocab_size, (B, L))
