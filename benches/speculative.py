"""Speculative decoding: tokens a second with guesses and without, and how many guesses are accepted.

python benches/speculative.py            into results/speculative.json
python benches/speculative.py --smoke    a few tokens; nothing is written

"pairs": `story` serves 1, 4 and 16 requests at the same time, with the guesses of `story-draft` or those that the text
itself gives, and without any; they take turns, and of several rounds the best counts. Stories are written on from their
first words; on "a text twice", a story and its beginning once more, the model copies itself. "steps": what a step
costs, in Qwen3-0.6B's shape with random weights, by requests and guesses, without whoever guesses: what checking costs.
All weights are of 4 bits, on the tuned kernels.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tiny_llm_course.bench.machine import about
from tiny_llm_course.bench.models import random_model
from tiny_llm_course.bench.timing import shortest
from tiny_llm_models import evaluation
from tiny_llm_ref.kernels.extension import set_threads
from tiny_llm_ref.models import load
from tiny_llm_ref.quantize import quantize_model
from tiny_llm_ref.serving.batch import Batch, Chunk
from tiny_llm_ref.serving.drafters import Drafter, ModelDrafter, NGramDrafter
from tiny_llm_ref.serving.engine import Engine, batch_logits
from tiny_llm_ref.serving.kernel_pages import KernelPagedKVCache
from tiny_llm_ref.serving.page_pool import PagePool
from tiny_llm_ref.serving.request import Request, SamplingParams
from tiny_llm_ref.serving.scheduler import Scheduler
from tiny_llm_ref.serving.speculative import SpeculativeEngine
from tiny_llm_ref.tuned import tune

RESULTS = Path(__file__).parent / "results" / "speculative.json"
THREADS, PAGE_SIZE, ROUNDS, SECONDS = 2, 16, 3, 1.0
COUNTS, GUESSES = (1, 4, 16), (0, 1, 2, 4, 8)
NEW, BEGINNING, CONTEXT = 96, 24, 128  # tokens that are generated, of a story that is there, in the cache of a step
CASES = (  # who guesses, what is written on, temperature, num_drafts
    ("story-draft", "stories", 0.0, 2),
    ("story-draft", "stories", 0.0, 4),
    ("story-draft", "stories", 0.7, 4),
    ("n-gram", "stories", 0.0, 4),
    ("n-gram", "a text twice", 0.0, 4),
    ("n-gram", "a text twice", 0.0, 8),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="a few tokens; nothing is written")
    options = parser.parse_args()
    set_threads(THREADS)
    cases, counts, new, rounds = (CASES[:5:4], (1, 3), 6, 1) if options.smoke else (CASES, COUNTS, NEW, ROUNDS)
    bench = Pairs(new, max(counts))
    pairs = []
    for case in cases:
        for count in counts:
            pairs.append(bench.row(*case, count, rounds))
            show_pair(pairs[-1])
    steps = [] if options.smoke else step_costs(random_model("tiny_llm_ref", is_small=False))
    steps = step_costs(random_model("tiny_llm_ref", is_small=True), (1, 3), (0, 2)) if options.smoke else steps
    for step in steps:
        print(f"{step['requests']:3} requests, {step['guesses']} guesses each: {step['milliseconds']:8.2f} ms a step")
    if not options.smoke:
        found = about("python benches/speculative.py", "mlx", "numpy") | {"threads": THREADS, "new": NEW}
        RESULTS.write_text(json.dumps(found | {"pairs": pairs, "steps": steps}, indent=1) + "\n", encoding="utf-8")


class Pairs:
    """`story`, and who guesses for it."""

    def __init__(self, new: int, count: int):
        self.new = new
        self.model, tokenizer = bundled("story")
        self.small, _ = bundled("story-draft")
        stories = evaluation.held_out_stories(tokenizer, "english", count)
        self.prompts = {
            "stories": [story[:BEGINNING] for story in stories],
            "a text twice": [[*story, *story[:BEGINNING]] for story in stories],
        }

    def row(
        self, drafter: str, text: str, temperature: float, num_drafts: int, count: int, rounds: int
    ) -> dict[str, Any]:
        """Both ways in turns, the best of each."""
        self.serve(None, text, temperature, num_drafts, 1)  # what is compiled once is not measured
        plain, guessed = [], []
        for _ in range(rounds):
            plain.append(self.serve(None, text, temperature, num_drafts, count))
            guessed.append(self.serve(drafter, text, temperature, num_drafts, count))
        before, found = (max(runs, key=lambda run: run["tokens_per_second"]) for runs in (plain, guessed))
        return {
            "drafter": drafter,
            "text": text,
            "temperature": temperature,
            "num_drafts": num_drafts,
            "requests": count,
            "without": before["tokens_per_second"],
            "with": found["tokens_per_second"],
            "speed_up": found["tokens_per_second"] / before["tokens_per_second"],
            "accepted": found["accepted"],
            "tokens_per_step": found["tokens_per_step"],
        }

    def serve(
        self, drafter: str | None, text: str, temperature: float, num_drafts: int, count: int
    ) -> dict[str, float]:
        """All requests from their prompts to their last tokens."""
        requests = [
            Request(str(i), prompt, SamplingParams(self.new, temperature, seed=i, ignore_eos=True))
            for i, prompt in enumerate(self.prompts[text][:count])
        ]
        scheduler = Scheduler(pages_for(self.model, requests, num_drafts), count)
        engine = Engine(self.model, scheduler)
        if drafter is not None:
            engine = SpeculativeEngine(self.model, scheduler, self.drafter(drafter, requests, num_drafts), num_drafts)
        for request in requests:
            engine.add(request)
        engine.step()  # the prompts
        before, start, steps = tokens_of(requests), time.perf_counter(), 0
        while engine.has_work:
            steps += len(engine.scheduler.running)
            engine.step()
        seconds, tokens = time.perf_counter() - start, tokens_of(requests) - before
        drafted, accepted = (sum(getattr(each, f"num_{what}") for each in requests) for what in ("drafted", "accepted"))
        return {
            "tokens_per_second": tokens / seconds,
            "accepted": accepted / max(drafted, 1),
            "tokens_per_step": tokens / steps,
        }

    def drafter(self, name: str, requests: Sequence[Request], num_drafts: int) -> Drafter:
        if name == "n-gram":
            return NGramDrafter()
        return ModelDrafter(self.small, pages_for(self.small, requests, num_drafts))


def bundled(name: str) -> tuple[Any, Any]:
    """A model that comes with the course, in 4 bits and tuned; its tokenizer."""
    model, tokenizer = load(name)
    quantize_model(model)
    tune(model)
    return model, tokenizer


def pages_for(model: Any, requests: Sequence[Request], guesses: int) -> KernelPagedKVCache:
    """A cache with room for all tokens of these requests, and guesses."""
    lengths = [len(request.prompt) + request.params.max_tokens + guesses for request in requests]
    pool = PagePool(sum(-(-length // PAGE_SIZE) for length in lengths), PAGE_SIZE)
    return KernelPagedKVCache(len(model.layers), pool)


def tokens_of(requests: Sequence[Request]) -> int:
    return sum(len(request.output) for request in requests)


def step_costs(model: Any, counts: Sequence[int] = COUNTS, guesses: Sequence[int] = GUESSES) -> list[dict[str, Any]]:
    """Milliseconds of a step that runs one token and so many guesses of each request, and scores all of them."""
    tune(model)
    return [step_cost(model, count, number) for count in counts for number in guesses]


def step_cost(model: Any, count: int, guesses: int) -> dict[str, Any]:
    choose, chunks = np.random.default_rng(0), []
    text = choose.integers(0, model.config.vocab_size, CONTEXT + 1 + guesses).tolist()
    requests = [Request(str(i), text, SamplingParams(1)) for i in range(count)]
    cache = pages_for(model, requests, 0)
    for request in requests:
        cache.open(request.id, text)
        cache.extend(request.id, text[:CONTEXT])
        chunks.append(Chunk(request, text[:CONTEXT], 0, scored=1))
    mx.eval(batch_logits(model, Batch(chunks), cache))
    for request in requests:
        cache.extend(request.id, text[CONTEXT:])
    checked = Batch([Chunk(request, text[CONTEXT:], CONTEXT, scored=1 + guesses) for request in requests])
    seconds = shortest(lambda: batch_logits(model, checked, cache), SECONDS)
    return {"requests": count, "guesses": guesses, "milliseconds": round(seconds * 1e3, 4)}


def show_pair(row: dict[str, Any]) -> None:
    print(
        f"{row['drafter']:11} {row['text']:12} temperature {row['temperature']:.1f}, {row['num_drafts']} guesses, "
        f"{row['requests']:2} requests: {row['without']:7.0f} -> {row['with']:7.0f} tok/s, x {row['speed_up']:.2f}; "
        f"{row['accepted']:4.0%} accepted, {row['tokens_per_step']:.2f} tokens a step",
        flush=True,
    )


if __name__ == "__main__":
    main()
