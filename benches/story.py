"""Compares the speed of the course's commands with that of mlx-lm's command, on the bundled model.

python benches/story.py              into results/story.json
python benches/story.py --smoke      a few tokens; nothing is written

Each program answers the same question greedily, and goes on until it has generated 100 tokens. The programs take turns,
and the shortest time to the first token and the highest speed of several runs count. The time to the first token
includes reading the prompt, but not loading the model.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm import load
from mlx_lm.generate import generate_step

from tiny_llm_course.base.machine import about
from tiny_llm_course.model.loaded_model import LoadedModel, Wanted
from tiny_llm_models import bundled
from tiny_llm_ref.sampler import greedy

RESULTS = Path(__file__).parent / "results" / "story.json"
PROMPT = "Mia had a red key. She hid the key in the old box. Then Mia went to the river. Where is the key?"
TOKENS, RUNS = 100, 5

Run = Callable[[list[int]], Iterable[Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="a few tokens; nothing is written")
    options = parser.parse_args()
    tokens, runs = (4, 1) if options.smoke else (TOKENS, RUNS)
    tokenizer = load(str(bundled("story")))[1]
    prompt = tokenizer.encode(PROMPT)
    ways = {
        "mlx_lm.generate --model story": mlx_lm(None),
        "mlx_lm.generate --model story, 4 bits": mlx_lm(4),
        "./course main --layers plain": ours(),
        "./course main --layers tuned": ours(layers="tuned"),
        "./course main --bits 4 --layers kernels": ours(bits=4, layers="kernels"),
        "./course main --bits 4 --layers tuned": ours(bits=4, layers="tuned"),
    }
    best: dict[str, tuple[float, float]] = {}
    for _ in range(runs + 1):  # only the first run compiles and loads, so it is never the best
        for name, way in ways.items():
            first, speed = measure(way, prompt, tokens)
            before = best.get(name, (first, speed))
            best[name] = min(first, before[0]), max(speed, before[1])
    rows = [{"command": name, "first": first, "speed": speed} for name, (first, speed) in best.items()]
    for row in rows:
        print(f"{row['command']:42} first token {1e3 * float(row['first']):6.1f} ms {row['speed']:8.1f} tok/s")
    if not options.smoke:
        found = about("python benches/story.py", "mlx", "mlx-lm", "numpy") | {"prompt": len(prompt), "rows": rows}
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def measure(way: Run, prompt: list[int], count: int) -> tuple[float, float]:
    """Return the seconds to the first token, and the tokens per second after the first token."""
    start, times = time.perf_counter(), []
    for _ in islice(way(prompt), count):
        times.append(time.perf_counter())
    return times[0] - start, (count - 1) / (times[-1] - times[0])


def mlx_lm(bits: int | None) -> Run:
    model = load(str(bundled("story")))[0]
    if bits is not None:
        nn.quantize(model, group_size=64, bits=bits)
        mx.eval(model.parameters())
    return lambda prompt: generate_step(mx.array(prompt), model, max_tokens=TOKENS)


def ours(**options: Any) -> Run:
    engine = LoadedModel(Wanted("tiny_llm_ref", "story", **options))
    engine.model.config = Endless(engine.model.config)
    return lambda prompt: engine.tokens(prompt, greedy, TOKENS)


class Endless:
    """A configuration without end-of-text tokens, so that our loop, like mlx-lm's, goes on after the end of a text."""

    eos_token_ids = ()

    def __init__(self, config: Any):
        self._config = config

    def __getattr__(self, name: str) -> Any:
        return getattr(self._config, name)


if __name__ == "__main__":
    main()
