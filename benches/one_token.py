"""Measures how long each part of decoding one token takes: a tuned model with random weights in Qwen3-0.6B's shape.

python benches/one_token.py            into results/one_token.json
python benches/one_token.py --smoke    a small model; nothing is written

Each weight has 4 bits. As in a step, MLX evaluates a part for all layers at once. Each layer has its own weights, so
the weights are read from memory, not from the processor's cache. MLX's overhead per operation is measured as the time
of an operation that computes next to nothing. "rest" is the time of the whole step minus the time of all parts.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx

from tiny_llm_course.base.machine import about
from tiny_llm_course.bench.models import random_model
from tiny_llm_course.bench.timing import shortest
from tiny_llm_ref.generate import next_logits
from tiny_llm_ref.kernels.attention import flash_attention
from tiny_llm_ref.kernels.softmax import softmax
from tiny_llm_ref.kv_cache import KVCache
from tiny_llm_ref.tuned import tune

RESULTS = Path(__file__).parent / "results" / "one_token.json"
CONTEXT = 128  # tokens in the cache
SECONDS, RUNS = 1.0, 60  # SECONDS: how long each part is repeated


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="a small model; nothing is written")
    options = parser.parse_args()
    model = random_model("tiny_llm_ref", options.smoke)
    tune(model)
    parts = profile(model)
    for name, seconds in parts.items():
        print(f"{name:20} {seconds * 1e3:8.3f} ms")
    if not options.smoke:
        found = about("python benches/one_token.py", "mlx", "numpy") | {"context": CONTEXT, "milliseconds": {}}
        found["milliseconds"] = {name: round(seconds * 1e3, 4) for name, seconds in parts.items()}
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def profile(model: Any) -> dict[str, float]:
    """Return the seconds that each part of a step and the whole step take, keyed by name."""
    blocks, token = model.layers, mx.array([[7]])
    cache = KVCache(len(blocks), attention=flash_attention)
    mx.eval(next_logits(model, mx.arange(CONTEXT)[None], cache))
    x = model.embed_tokens(token)
    cases: dict[str, Callable[[], Any]] = {
        "embedding": lambda: model.embed_tokens(token),
        "before attention": lambda: [block.before(x, CONTEXT) for block in blocks],
    }
    q, k, v = blocks[0].before(x, CONTEXT)
    stored = [layer.store(k, v) for layer in cache.layers]
    attended = flash_attention(q, *stored[0])
    hidden = model.norm(x)
    logits = model.logits(hidden)
    tiny = mx.zeros((1, 1))
    mx.eval(q, k, v, stored, attended, hidden, logits, tiny)
    cases |= {
        "cache": lambda: [layer.store(k, v) for layer in cache.layers],
        "attention": lambda: [flash_attention(q, *pair) for pair in stored],
        "after attention": lambda: [block.after(attended, x) for block in blocks],
        "output layer": lambda: model.logits(hidden),
        "choice": lambda: mx.argmax(logits, axis=-1),
        "whole step": lambda: step(model, token, cache),
    }
    operation = shortest(lambda: [softmax(tiny) for _ in blocks], SECONDS) / len(blocks)
    found = {name: shortest(case, SECONDS) for name, case in cases.items()}
    calls = 3 * len(blocks) + 3  # of kernels: in each block two and attention; then embedding, output layer, choice
    whole = found.pop("whole step")
    building = shortest_building(lambda: step(model, token, cache))
    return found | {
        "rest": whole - sum(found.values()),
        "whole step": whole,
        "of which MLX, for its operations": calls * operation,
        "of which Python, before anything runs": building,
    }


def step(model: Any, token: mx.array, cache: KVCache) -> mx.array:
    """Decode one token, remove it from the cache, and return the token that the model chooses next."""
    chosen = mx.argmax(next_logits(model, token, cache), axis=-1)
    cache.trim(1)
    return chosen


def shortest_building(work: Callable[[], Any]) -> float:
    """Return the shortest time in seconds in which `work` builds its graph. MLX computes the graph only afterwards."""
    seconds = []
    for _ in range(RUNS):
        start = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - start)
        mx.eval(result)
    return min(seconds)


if __name__ == "__main__":
    main()
