"""Measures speculative decoding: tokens per second with and without guesses, and the share of guesses accepted.

python benches/speculative.py            into results/speculative.json
python benches/speculative.py --smoke    a few tokens; nothing is written

"pairs": `story` serves 1, 4 and 16 requests at the same time: with guesses by `story-draft`, with guesses found in the
text itself (n-grams), and without guesses. Runs with and without guesses take turns, and the fastest run of each kind
counts. In "stories", each prompt is the beginning of a story. In "a text twice", each prompt is a whole story followed
by its own beginning, so the model copies the story.

"chances": guesses that are right with a given probability and cost no time show how much speed guessing can gain. The
model has random weights in Qwen3-0.6B's shape. It makes the guesses itself, in time that is not counted, and some
guesses are then replaced by wrong ones.

"steps": the time of a step in Qwen3-0.6B's shape, for several numbers of requests and of guesses per request.

Each weight has 4 bits, and the layers are tuned.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tiny_llm_course.base.machine import about
from tiny_llm_course.bench.models import bundled_model, random_model
from tiny_llm_course.bench.timing import shortest
from tiny_llm_models import evaluation
from tiny_llm_native.extension import set_threads
from tiny_llm_ref.serving.batch import Batch, Chunk
from tiny_llm_ref.serving.drafters import Drafter, ModelDrafter, NGramDrafter
from tiny_llm_ref.serving.engine import Engine, batch_logits
from tiny_llm_ref.serving.page_pool import PagePool
from tiny_llm_ref.serving.paged_cache import KernelPagedKVCacheLayer, PagedKVCache
from tiny_llm_ref.serving.request import Draft, Request
from tiny_llm_ref.serving.sampling_params import SamplingParams
from tiny_llm_ref.serving.scheduler import Scheduler
from tiny_llm_ref.serving.speculative import Speculative
from tiny_llm_ref.tuned import tune

RESULTS = Path(__file__).parent / "results" / "speculative.json"
THREADS, PAGE_SIZE, ROUNDS, SECONDS = 2, 16, 3, 1.0
COUNTS, GUESSES = (1, 4, 16), (0, 1, 2, 4, 8)
NEW, BEGINNING, CONTEXT = 96, 24, 128  # in tokens: the output, a story's beginning, the cache of a step
CASES = (  # drafter, text to continue, temperature, num_drafts
    ("story-draft", "stories", 0.0, 2),
    ("story-draft", "stories", 0.0, 4),
    ("story-draft", "stories", 0.7, 4),
    ("n-gram", "stories", 0.0, 4),
    ("n-gram", "a text twice", 0.0, 4),
    ("n-gram", "a text twice", 0.0, 8),
)
CHANCES = (0.5, 0.7, 0.9)  # the probability that a guess is right, with NUM_DRAFTS guesses per step
NUM_DRAFTS = 4


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
            show(pairs[-1], "{drafter:11} {text:12} temperature {temperature:.1f}, {num_drafts} guesses")
    model = random_model("tiny_llm_ref", is_small=options.smoke)
    tune(model)
    chances = []
    for count in counts:
        for chance in CHANCES:
            chances.append(chance_row(model, count, chance, new, rounds))
            show(chances[-1], "Qwen3-0.6B, {num_drafts} free guesses, each right with chance {chance:.1f}")
    steps = step_costs(model, *(((1, 3), (0, 2)) if options.smoke else (COUNTS, GUESSES)))
    for step in steps:
        print(f"{step['requests']:3} requests, {step['guesses']} guesses each: {step['milliseconds']:8.2f} ms a step")
    if not options.smoke:
        found = about("python benches/speculative.py", "mlx", "numpy") | {"threads": THREADS, "new": NEW}
        found |= {"pairs": pairs, "chances": chances, "steps": steps}
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


class Pairs:
    """The model `story`, the drafters for it, and the prompts."""

    def __init__(self, new: int, count: int):
        self.new = new
        self.model, tokenizer = bundled_model("tiny_llm_ref", "story")
        self.small, _ = bundled_model("tiny_llm_ref", "story-draft")
        stories = [tokenizer.encode(story) for story in evaluation.held_out_stories("english", count)]
        self.prompts = {
            "stories": [story[:BEGINNING] for story in stories],
            "a text twice": [[*story, *story[:BEGINNING]] for story in stories],
        }

    def row(
        self, drafter: str, text: str, temperature: float, num_drafts: int, count: int, rounds: int
    ) -> dict[str, Any]:
        self.serve(None, text, temperature, num_drafts, 1)  # so that no measured run compiles anything
        case = {"drafter": drafter, "text": text, "temperature": temperature, "num_drafts": num_drafts}
        found = in_turns(lambda who: self.serve(who, text, temperature, num_drafts, count), drafter, rounds)
        return case | {"requests": count} | found

    def serve(
        self, drafter: str | None, text: str, temperature: float, num_drafts: int, count: int
    ) -> dict[str, float]:
        """Serve `count` requests, with guesses unless `drafter` is None. Return the figures."""
        requests = [
            Request(str(i), prompt, SamplingParams(self.new, temperature, seed=i, ignore_eos=True))
            for i, prompt in enumerate(self.prompts[text][:count])
        ]
        guesses = None if drafter is None else self.drafter(drafter, requests, num_drafts)
        return serve(self.model, requests, guesses, num_drafts)

    def drafter(self, name: str, requests: Sequence[Request], num_drafts: int) -> Drafter:
        if name == "n-gram":
            return NGramDrafter()
        return ModelDrafter(self.small, pages_for(self.small, requests, num_drafts))


class Told(ModelDrafter):
    """A drafter that guesses with the served model itself. Each guess stays right with probability `chance`; otherwise,
    a wrong token replaces it. seconds: the time spent on guessing."""

    def __init__(self, chance: float, *args: Any):
        super().__init__(*args)
        self.chance, self.seconds, self.random = chance, 0.0, np.random.default_rng(0)

    def propose(self, wanted: Sequence[tuple[Request, int]]) -> list[Draft]:
        start = time.perf_counter()
        drafts = [Draft([self.spoilt(token) for token in draft.tokens]) for draft in super().propose(wanted)]
        self.seconds += time.perf_counter() - start
        return drafts

    def spoilt(self, token: int) -> int:
        return token if self.random.random() < self.chance else (token + 1) % self.model.config.vocab_size


def chance_row(model: Any, count: int, chance: float, new: int, rounds: int) -> dict[str, Any]:
    """Serve greedy requests with random prompts, without guesses and with guesses that are right with this chance."""

    def run(who: str | None) -> dict[str, float]:
        params = SamplingParams(new, ignore_eos=True)
        requests = [Request(str(i), prompt, params) for i, prompt in enumerate(prompts.tolist())]
        told = Told(chance, model, pages_for(model, requests, NUM_DRAFTS))
        return serve(model, requests, told if who else None, NUM_DRAFTS)

    prompts = np.random.default_rng(0).integers(0, model.config.vocab_size, (count, BEGINNING))
    return {"chance": chance, "num_drafts": NUM_DRAFTS, "requests": count} | in_turns(run, "told", rounds)


def in_turns(run: Callable[[str | None], dict[str, float]], drafter: str, rounds: int) -> dict[str, float]:
    """Run with and without the drafter in turns. Return figures of the fastest run of each kind."""
    plain, guessed = [], []
    for _ in range(rounds):
        plain.append(run(None))
        guessed.append(run(drafter))
    before, found = (max(runs, key=lambda each: each["tokens_per_second"]) for runs in (plain, guessed))
    return {
        "without": before["tokens_per_second"],
        "with": found["tokens_per_second"],
        "speed_up": found["tokens_per_second"] / before["tokens_per_second"],
        "accepted": found["accepted"],
        "tokens_per_step": found["tokens_per_step"],
    }


def serve(model: Any, requests: Sequence[Request], drafter: Drafter | None, num_drafts: int) -> dict[str, float]:
    """Serve requests. Return the figures of all steps except the first, which reads the prompts."""
    scheduler = Scheduler(pages_for(model, requests, num_drafts), len(requests))
    engine = Engine(model, scheduler, decoding=None if drafter is None else Speculative(drafter, num_drafts))
    for request in requests:
        engine.add(request)
    engine.step()  # reads the prompts
    apart = getattr(drafter, "seconds", 0.0)
    before, start, steps = tokens_of(requests), time.perf_counter(), 0
    while engine.has_work:
        steps += len(engine.scheduler.running)
        engine.step()
    seconds = time.perf_counter() - start - (getattr(drafter, "seconds", 0.0) - apart)
    tokens = tokens_of(requests) - before
    drafted, accepted = (sum(getattr(each, f"num_{what}") for each in requests) for what in ("drafted", "accepted"))
    return {
        "tokens_per_second": tokens / seconds,
        "accepted": accepted / max(drafted, 1),
        "tokens_per_step": tokens / steps,
    }


def pages_for(model: Any, requests: Sequence[Request], guesses: int) -> PagedKVCache:
    """Return a cache with room for all tokens of these requests, and for `guesses` more tokens per request."""
    lengths = [len(request.prompt) + request.params.max_tokens + guesses for request in requests]
    pool = PagePool(sum(-(-length // PAGE_SIZE) for length in lengths), PAGE_SIZE)
    return PagedKVCache(len(model.layers), pool, make_layer=KernelPagedKVCacheLayer)


def tokens_of(requests: Sequence[Request]) -> int:
    return sum(len(request.output) for request in requests)


def step_costs(model: Any, counts: Sequence[int], guesses: Sequence[int]) -> list[dict[str, Any]]:
    """Return the milliseconds of a step, per number of requests, and of guesses that it checks in each request."""
    return [step_cost(model, count, number) for count in counts for number in guesses]


def step_cost(model: Any, count: int, guesses: int) -> dict[str, Any]:
    choose, chunks = np.random.default_rng(0), []
    text = choose.integers(0, model.config.vocab_size, CONTEXT + 1 + guesses).tolist()
    requests = [Request(str(i), text, SamplingParams(1)) for i in range(count)]
    cache = pages_for(model, requests, 0)
    for request in requests:
        cache.open(request)
        chunks.append(Chunk(request, text[:CONTEXT], 0, 1, request.pages))
    mx.eval(batch_logits(model, Batch(chunks), cache))
    checked = Batch([Chunk(request, text[CONTEXT:], CONTEXT, 1 + guesses, request.pages) for request in requests])
    seconds = shortest(lambda: batch_logits(model, checked, cache), SECONDS)
    return {"requests": count, "guesses": guesses, "milliseconds": round(seconds * 1e3, 4)}


def show(row: dict[str, Any], case: str) -> None:
    print(
        f"{case.format(**row)}, {row['requests']:2} requests: {row['without']:7.1f} -> {row['with']:7.1f} tok/s, "
        f"x {row['speed_up']:.2f}; {row['accepted']:4.0%} accepted, {row['tokens_per_step']:.2f} tokens a step",
        flush=True,
    )


if __name__ == "__main__":
    main()
