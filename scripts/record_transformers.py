"""Compare the reference with Hugging Face Transformers, and record the results of Transformers.

This script is for maintainers, and needs torch and transformers, in a virtual environment of its own:

    python3 -m venv ../hf
    ../hf/bin/pip install torch==2.13.0 transformers "mlx[cpu]" mlx-lm
    PYTHONPATH=src:tests/repo ../hf/bin/python scripts/record_transformers.py

It writes tests/fixtures/transformers_qwen2.npz and transformers_qwen3.npz, with these keys:

    config          config.json, as a JSON string
    seed            the seed of the weights: `untrained.random_weights(weights.expected_shapes(config), seed)`
    fingerprint     the `oracle_cases.Case.fingerprint` of these weights
    tokens, logits  a batch of token ids, B x L, and the logits after each token, B x L x V, float32
    prompt, greedy  a prompt's token ids, and the 64 token ids that `generate(do_sample=False)` adds to them
    margin          the smallest difference between the two largest logits of a step, over these 64 steps
    text, ids       a text and its token ids, from AutoTokenizer
    versions, command   the versions of torch and transformers; the command that was run
"""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlx.core as mx
import numpy as np
import torch
import transformers
from oracle_cases import CASES, GRID, MARGIN, PROMPT, TEXT, TOLERANCE, Case, random_tokens

from tiny_llm_ref.generate import generate_simple
from tiny_llm_ref.models import load
from tiny_llm_ref.sampler import greedy

FIXTURES = {"qwen2": "transformers_qwen2.npz", "qwen3-tied": "transformers_qwen3.npz"}
SHAPE = (3, 32)  # of the recorded tokens; their logits take 100 KB
COMMAND = f"PYTHONPATH=src:tests/repo python scripts/{Path(__file__).name}"


def main() -> None:
    for name, case in CASES.items():
        with TemporaryDirectory() as folder:
            record = compare(name, case, case.write(Path(folder)))
        if name in FIXTURES:
            path = Path(__file__).parents[1] / "tests" / "fixtures" / FIXTURES[name]
            np.savez_compressed(path, **record)
            print(f"  wrote {path.name}, {path.stat().st_size / 1000:.0f} KB")


def compare(name: str, case: Case, path: Path) -> dict[str, Any]:
    """Compare the reference with Transformers, and return the results of Transformers to record."""
    model, tokenizer = load(path)
    theirs, their_tokenizer = load_theirs(path)
    for shape in GRID:
        tokens = random_tokens(*shape)
        error = np.abs(np.array(model(mx.array(tokens))) - scores(theirs, tokens)).max()
        print(f"{name:10}  B={shape[0]} L={shape[1]:2}  max abs error {error:.1e}")
        check(error < TOLERANCE, f"the logits differ by {error}, more than {TOLERANCE}")

    continuation, margin = continue_greedily(theirs)
    print(f"{name:10}  greedy: {len(set(continuation))} distinct tokens of {len(continuation)}, margin {margin:.1e}")
    check(list(generate_simple(model, PROMPT, greedy, 64)) == continuation, "the greedy tokens differ")
    check(len(continuation) == 64 and len(set(continuation)) >= 16 and margin > MARGIN, "choose another seed")
    ids = their_tokenizer(TEXT)["input_ids"]
    check(tokenizer.encode(TEXT) == ids and their_tokenizer.decode(ids) == TEXT, "the tokenizers differ")

    tokens = random_tokens(*SHAPE)
    return {
        "config": json.dumps(case.config),
        "seed": case.seed,
        "fingerprint": case.fingerprint(),
        "tokens": tokens.astype(np.int32),
        "logits": scores(theirs, tokens),
        "prompt": np.array(PROMPT, np.int32),
        "greedy": np.array(continuation, np.int32),
        "margin": margin,
        "text": TEXT,
        "ids": np.array(ids, np.int32),
        "versions": f"torch {torch.__version__}, transformers {transformers.__version__}",
        "command": COMMAND,
    }


def load_theirs(path: Path) -> tuple[Any, Any]:
    """Return Transformers' model and tokenizer, loaded from the folder without any change."""
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    check(not any(report.values()), f"Transformers' model does not fit the folder's weights: {report}")
    return model.eval(), transformers.AutoTokenizer.from_pretrained(path)


@torch.no_grad()
def scores(model: Any, tokens: np.ndarray) -> np.ndarray:
    return model(torch.from_numpy(tokens)).logits.numpy()


def continue_greedily(model: Any) -> tuple[list[int], float]:
    """Return 64 tokens from Transformers' own loop and cache, and the least margin between the two largest logits."""
    output = model.generate(
        torch.tensor([PROMPT]), do_sample=False, max_new_tokens=64, output_logits=True, return_dict_in_generate=True
    )
    best = torch.cat(output.logits).topk(2).values
    return output.sequences[0, len(PROMPT) :].tolist(), (best[:, 0] - best[:, 1]).min().item()


def check(holds: bool, problem: str) -> None:
    if not holds:
        sys.exit(problem)


if __name__ == "__main__":
    main()
