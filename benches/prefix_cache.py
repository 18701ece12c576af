"""Measures a prefix cache with eight requests that share a system prompt: time to first token, computed prompt tokens.

python benches/prefix_cache.py                       the bundled model, into results/prefix_cache.json
python benches/prefix_cache.py --shape qwen3-0.6b    random weights, into results/prefix_cache_qwen3-0.6b.json
python benches/prefix_cache.py --smoke               a short prompt; nothing is written (with --shape, a small model)

Each prompt consists of the 700 tokens of the system prompt and 20 other tokens. A step computes at most 256 tokens.
"one by one": each request arrives when the previous request has finished. "at once": all eight requests arrive before
the first step. Runs without a prefix cache ("pages") and with one ("prefix") take turns, and each run starts with an
empty cache. Of several rounds, the round counts in which the eight times to the first token have the smallest sum. Each
weight has 4 bits, and the layers are tuned.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tiny_llm_course.base.machine import about
from tiny_llm_course.bench.models import bundled_model, random_model
from tiny_llm_native.extension import set_threads
from tiny_llm_ref.kernels.attention import flash_attention
from tiny_llm_ref.serving.batch import Batch
from tiny_llm_ref.serving.engine import Engine
from tiny_llm_ref.serving.latency import Recorder
from tiny_llm_ref.serving.page_pool import PagePool
from tiny_llm_ref.serving.paged_cache import PagedKVCache, PagedKVCacheLayer
from tiny_llm_ref.serving.prefix_cache import PrefixCache
from tiny_llm_ref.serving.request import Request
from tiny_llm_ref.serving.sampling_params import SamplingParams
from tiny_llm_ref.serving.scheduler import PreemptNewest, Scheduler, TokenBudget
from tiny_llm_ref.tuned import tune

RESULTS = Path(__file__).parent / "results"
STORY, SHAPE = "story", "qwen3-0.6b"
BUDGET, PAGE_SIZE = 256, 16
CACHES = ("pages", "prefix")
ARRIVALS = ("one by one", "at once")
ROUNDS, THREADS = 3, 2


@dataclass(frozen=True)
class Traffic:
    """The requests of a run. system: how many tokens all prompts share. own: how many further tokens each prompt has.
    output: how many tokens to generate per request."""

    requests: int = 8
    system: int = 700
    own: int = 20
    output: int = 8

    @property
    def pages(self) -> int:
        return self.requests * -(-(self.system + self.own + self.output) // PAGE_SIZE)


class Computed:
    """An observer that counts the prompt tokens that the engine computes."""

    def __init__(self) -> None:
        self.count = 0

    def on_step(self, engine: Engine, batch: Batch, touched: Sequence[Request]) -> None:
        for chunk in batch.chunks:
            self.count += max(min(chunk.end, len(chunk.request.prompt)) - chunk.start, 0)

    def on_abort(self, engine: Engine, request: Request) -> None:
        """Do nothing: no request is aborted."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=[SHAPE], help="random weights of this shape, instead of the bundled model")
    parser.add_argument("--smoke", action="store_true", help="a short prompt; nothing is written")
    options = parser.parse_args()
    set_threads(THREADS)
    if options.shape:
        model = random_model("tiny_llm_ref", options.smoke)
        tune(model)
    else:
        model, _ = bundled_model("tiny_llm_ref", STORY)
    small = Traffic(3, 40, 4, 2)
    traffic, rounds = (small, 1) if options.smoke else (Traffic(), ROUNDS)
    measure(model, small, "prefix", "one by one")  # so that no measured run compiles anything
    best: dict[tuple[str, str], dict[str, Any]] = {}
    for _ in range(rounds):
        for arrival in ARRIVALS:
            for cache in CACHES:
                found = measure(model, traffic, cache, arrival)
                before = best.get((arrival, cache), found)
                best[arrival, cache] = min(found, before, key=lambda row: sum(row["first_tokens"]))
    rows = [{"arrival": arrival, "cache": cache, **row} for (arrival, cache), row in best.items()]
    show(rows)
    if not options.smoke:
        write(rows, options.shape)


def measure(model: Any, traffic: Traffic, cache: str, arrival: str) -> dict[str, Any]:
    """Run once. Return how many tokens the prompts have, how many of these were computed, the number of steps, and the
    seconds to each request's first token."""
    pool = PagePool(traffic.pages, PAGE_SIZE)
    make_layer = partial(PagedKVCacheLayer, attention=flash_attention)
    kept = PagedKVCache(len(model.layers), pool, PrefixCache(pool) if cache == "prefix" else None, make_layer)
    recorder, computed = Recorder(), Computed()
    scheduler = Scheduler(kept, traffic.requests, TokenBudget(BUDGET), PreemptNewest())
    engine = Engine(model, scheduler, [recorder, computed])
    requests = [request(model, i, traffic) for i in range(traffic.requests)]
    for each in requests:
        recorder.arrive(each)
        engine.add(each)
        while engine.has_work and arrival == "one by one":
            engine.step()
    while engine.has_work:
        engine.step()
    return {
        "prompts": sum(len(each.prompt) for each in requests),
        "computed": computed.count,
        "steps": len(recorder.steps),
        "first_tokens": [recorder.of(each).first for each in requests],
    }


def request(model: Any, number: int, traffic: Traffic) -> Request:
    """Return a request whose prompt is the system prompt, followed by tokens that depend on `number`."""
    vocab_size = min(model.config.vocab_size, 250)
    parts = [np.random.RandomState(seed) for seed in (0, 1 + number)]
    counts = traffic.system, traffic.own
    tokens = [t for part, count in zip(parts, counts, strict=True) for t in part.randint(0, vocab_size, count).tolist()]
    return Request(f"r{number}", tokens, SamplingParams(traffic.output, ignore_eos=True))


def show(rows: list[dict[str, Any]]) -> None:
    print("arrival      cache    tokens of prompts   computed   steps   first token: first   median     last")
    for row in rows:
        first, *others = (1e3 * seconds for seconds in row["first_tokens"])
        counts = f"{row['arrival']:13}{row['cache']:9}{row['prompts']:17,}{row['computed']:11,}{row['steps']:8}"
        print(f"{counts}{first:17.1f} ms{median(others):7.1f} ms{others[-1]:7.1f} ms")
    print("median: of all requests except the first")


def write(rows: list[dict[str, Any]], shape: str | None) -> None:
    command = "python benches/prefix_cache.py" + (f" --shape {shape}" if shape else "")
    found = about(command, "mlx", "numpy")
    found |= {"model": shape or STORY, "measured": time.strftime("%Y-%m-%d"), "traffic": asdict(Traffic())}
    found["rows"] = [{**row, "first_tokens": [round(seconds, 6) for seconds in row["first_tokens"]]} for row in rows]
    file = RESULTS / (f"prefix_cache_{shape}.json" if shape else "prefix_cache.json")
    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
