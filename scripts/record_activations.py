"""Records tests/fixtures/activations_*.npz: the output of each part of the reference's models, with small checkpoints.

The tests of week 1, day 5 compare a learner's model with these outputs, part by part. The checkpoints are untrained.
After a change of their weights, run python scripts/record_activations.py. A test fails if the files are outdated.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import mlx.core as mx
import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from activations import record  # noqa: E402

from tiny_llm_given.config import ModelConfig  # noqa: E402
from tiny_llm_given.weights import expected_shapes  # noqa: E402
from tiny_llm_models.untrained import untrained_config, write_untrained  # noqa: E402
from tiny_llm_ref.kv_cache import NoCache  # noqa: E402
from tiny_llm_ref.models import load_model  # noqa: E402

SEED = 5
TOKENS = [[3, 1, 4, 1, 5], [200, 100, 50, 25, 12]]
CONFIGS = {
    "qwen2": untrained_config("qwen2", num_hidden_layers=2),
    "qwen3": untrained_config("qwen3", num_hidden_layers=2, tie_word_embeddings=True),
}


def recorded(model_type: str) -> dict[str, np.ndarray]:
    """Return arrays keyed by name: the config (as JSON), the seed and the tokens, then the output of each part of the
    model in float32, in the order of computation."""
    config = CONFIGS[model_type]
    with tempfile.TemporaryDirectory() as folder:
        write_untrained(Path(folder), config, expected_shapes(ModelConfig.from_hf(config)), SEED)
        model = load_model(Path(folder))
        seen = record(model, mx.array(TOKENS), NoCache(len(model.layers)))
    inputs = {"config": np.array(json.dumps(config)), "seed": np.array(SEED), "tokens": np.array(TOKENS)}
    return inputs | {name: array.astype(np.float32) for name, array in seen.items()}


def main() -> None:
    mx.set_default_device(mx.cpu)
    for model_type in CONFIGS:
        path = ROOT / "tests" / "fixtures" / f"activations_{model_type}.npz"
        np.savez_compressed(path, **recorded(model_type))
        print(f"wrote {path.relative_to(ROOT)} ({path.stat().st_size // 1024} KiB)")


if __name__ == "__main__":
    main()
