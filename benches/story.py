"""The bundled model, as a user runs it: the course's commands beside mlx-lm, after loading.

python benches/story.py              into results/story.json
python benches/story.py --smoke      a few tokens; nothing is written

Each answers the same question greedily and goes on to the same number of tokens; of several runs, which take turns, the
best counts. A run is one as in a program: the first token comes when the prompt has been read.
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
        "./course main": ours(),
        "./course main --bits 4 --layers kernels": ours(bits=4, layers="kernels"),
        "./course main --bits 4 --layers tuned": ours(bits=4, layers="tuned"),
    }
    best: dict[str, tuple[float, float]] = {}
    for _ in range(runs + 1):  # what the first one compiles and fetches is not measured again
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
    """Seconds to the first token, and tokens a second behind it."""
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
    """A configuration without an end of text: mlx-lm's loop does not stop there either."""

    eos_token_ids = ()

    def __init__(self, config: Any):
        self._config = config

    def __getattr__(self, name: str) -> Any:
        return getattr(self._config, name)


if __name__ == "__main__":
    main()
