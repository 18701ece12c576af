"""Measures speculative decoding: tokens per second with and without guesses, and the share of guesses accepted.

python benches/speculative.py                 into results/speculative.json
python benches/speculative.py --only pairs    measures one part, and keeps the other parts of the file
python benches/speculative.py --smoke         a few tokens; nothing is written

"pairs": `story` serves 1, 4 and 16 requests at the same time, in the form that `./course batch` uses by default (tuned
layers, weights in bfloat16, activations in float32): with guesses of its draft heads, of `story-draft` or from the text
itself (n-grams), and without guesses. Runs with and without guesses take turns, and the fastest run of each kind
counts. Six requests come one after the other for each that runs. In "stories", each prompt is the beginning of a story.
In "asked again", each request is a chat in which a question about a story is answered and then asked again. "adapts":
whether each request's number of guesses adapts.

"chances": guesses that are right with a given probability and cost no time show how much speed guessing can gain. The
model has random weights in Qwen3-0.6B's shape. It makes the guesses itself, in time that is not counted, and some
guesses are then replaced by wrong ones.

"steps": the time of a step in Qwen3-0.6B's shape, for several numbers of requests and of guesses per request.

In "chances" and "steps", each weight has 4 bits, and the layers are tuned.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from tokenizers import Tokenizer

from tiny_llm_course.base.machine import about
from tiny_llm_course.bench.models import random_model
from tiny_llm_course.bench.timing import shortest
from tiny_llm_models import bundled, draft_heads, evaluation
from tiny_llm_models.hf_format import TURN_END
from tiny_llm_native.extension import set_threads
from tiny_llm_ref.models import load
from tiny_llm_ref.serving.batch import Batch, Chunk
from tiny_llm_ref.serving.draft_heads import DraftHeads
from tiny_llm_ref.serving.draft_length import AdaptiveLength, DraftLength
from tiny_llm_ref.serving.drafters import Drafter, ModelDrafter, NGramDrafter
from tiny_llm_ref.serving.engine import Engine, batch_logits
from tiny_llm_ref.serving.head_drafter import HeadDrafter
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
IN_TURN = 6  # requests one after the other, for each that runs
PARTS = ("pairs", "chances", "steps")
CASES = (  # drafter, text to continue, temperature, num_drafts, adapts
    ("heads", "stories", 0.0, 3, False),
    ("heads", "stories", 0.0, 3, True),
    ("heads", "stories", 0.7, 3, True),
    ("story-draft", "stories", 0.0, 2, False),
    ("n-gram", "stories", 0.0, 4, False),
    ("n-gram", "stories", 0.0, 4, True),
    ("n-gram", "asked again", 0.0, 4, False),
)
CHANCES = (0.5, 0.7, 0.9)  # the probability that a guess is right, with NUM_DRAFTS guesses per step
NUM_DRAFTS = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="a few tokens; nothing is written")
    parser.add_argument("--only", choices=PARTS, help="measure this part, and keep the other parts of the file")
    options = parser.parse_args()
    set_threads(THREADS)
    measured = measure([options.only] if options.only else PARTS, options.smoke)
    if not options.smoke:
        found = about("python benches/speculative.py", "mlx", "numpy") | {"threads": THREADS, "new": NEW}
        if options.only:
            kept = json.loads(RESULTS.read_text(encoding="utf-8"))
            if {name: kept[name] for name in found} != found:
                parser.error("the other parts are from another machine or other versions: measure all parts")
            found = kept
        RESULTS.write_text(json.dumps(found | measured, indent=1) + "\n", encoding="utf-8")


def measure(parts: Sequence[str], is_small: bool) -> dict[str, Any]:
    """Measure parts of the results, and print each result."""
    counts, new, rounds = ((1, 3), 6, 1) if is_small else (COUNTS, NEW, ROUNDS)
    measured: dict[str, Any] = {}
    if "pairs" in parts:
        bench, measured["pairs"] = Pairs(new, max(counts)), []
        for case in (CASES[:1] + CASES[3:5] + CASES[-1:]) if is_small else CASES:
            for count in counts:
                row = bench.row(*case, count, rounds)
                show(row, "{drafter:11} {text:11} temperature {temperature:.1f}, {num_drafts} guesses")
                measured["pairs"].append(row)
    if parts == ["pairs"]:
        return measured
    model: Any = random_model("tiny_llm_ref", is_small)
    tune(model)
    if "chances" in parts:
        measured["chances"] = []
        for count in counts:
            for chance in CHANCES:
                row = chance_row(model, count, chance, new, rounds)
                show(row, "Qwen3-0.6B, {num_drafts} free guesses, each right with chance {chance:.1f}")
                measured["chances"].append(row)
    if "steps" in parts:
        measured["steps"] = step_costs(model, *(((1, 3), (0, 2)) if is_small else (COUNTS, GUESSES)))
        for row in measured["steps"]:
            print(f"{row['requests']:3} requests, {row['guesses']} guesses each: {row['milliseconds']:8.2f} ms a step")
    return measured


class Pairs:
    """The model `story`, the drafters for it, and the prompts."""

    def __init__(self, new: int, count: int):
        self.new = new
        self.model, tokenizer = load("story")
        tune(self.model, mx.float32)
        self.small, _ = load("story-draft")
        tune(self.small, mx.float32)
        weights: Any = mx.load(str(draft_heads("story")))
        self.heads = DraftHeads(weights)
        stories = evaluation.held_out_stories("english", count * IN_TURN)
        asked = evaluation.exams(
            Tokenizer.from_file(str(bundled("story") / "tokenizer.json")), "english", "short", count * IN_TURN
        )
        self.prompts = {
            "stories": [tokenizer.encode(story)[:BEGINNING] for story in stories],
            "asked again": [tokenizer.encode(again(exam)) for exam in asked],
        }

    def row(
        self, drafter: str, text: str, temperature: float, num_drafts: int, adapts: bool, count: int, rounds: int
    ) -> dict[str, Any]:
        case = {
            "drafter": drafter,
            "text": text,
            "temperature": temperature,
            "num_drafts": num_drafts,
            "adapts": adapts,
            "requests": count,
        }
        self.serve(None, case)  # so that no measured run compiles anything
        return case | in_turns(lambda who: self.serve(who, case), drafter, rounds)

    def serve(self, drafter: str | None, case: dict[str, Any]) -> dict[str, float]:
        """Serve requests, with guesses unless `drafter` is None. Return the figures."""
        is_story, prompts = case["text"] == "stories", self.prompts[case["text"]]
        requests = [
            Request(str(i), prompt, SamplingParams(self.new, case["temperature"], seed=i, ignore_eos=is_story))
            for i, prompt in enumerate(prompts[: case["requests"] * IN_TURN])
        ]
        model = copy(self.model)  # draft heads change the model's norm
        decoding = None
        if drafter is not None:
            length = AdaptiveLength() if case["adapts"] else DraftLength()
            guesses = self.drafter(drafter, model, requests, case["num_drafts"])
            decoding = Speculative(guesses, case["num_drafts"], length=length)
        return serve(model, requests, decoding, case["num_drafts"], case["requests"])

    def drafter(self, name: str, model: Any, requests: Sequence[Request], num_drafts: int) -> Drafter:
        if name == "n-gram":
            return NGramDrafter()
        if name == "heads":
            return HeadDrafter(model, self.heads)
        return ModelDrafter(self.small, pages_for(self.small, requests, num_drafts))


def again(exam: evaluation.Exam) -> str:
    """Return a chat in which a question was answered, and is asked again."""
    return f"{exam.prompt}{exam.question.answer}{TURN_END}\n{evaluation.chat_prompt(exam.question.text)}"


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
        return serve(model, requests, Speculative(told, NUM_DRAFTS) if who else None, NUM_DRAFTS, count)

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


def serve(
    model: Any, requests: Sequence[Request], decoding: Speculative | None, num_drafts: int, count: int
) -> dict[str, float]:
    """Serve requests, at most `count` at the same time. Return the figures of all steps except the first, which reads
    prompts."""
    engine = Engine(model, Scheduler(pages_for(model, requests, num_drafts), count), decoding=decoding)
    for request in requests:
        engine.add(request)
    engine.step()  # reads the first prompts
    told = getattr(decoding, "drafter", None)
    apart = getattr(told, "seconds", 0.0)
    before, start, steps = tokens_of(requests), time.perf_counter(), 0
    while engine.has_work:
        steps += sum(request.num_pending == 1 for request in engine.scheduler.running)
        engine.step()
    seconds = time.perf_counter() - start - (getattr(told, "seconds", 0.0) - apart)
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
