"""Measures how much a long prompt delays requests that generate: the longest gap between two tokens, for each budget.

python benches/chunked_prefill.py                       the bundled model, into results/chunked_prefill.json
python benches/chunked_prefill.py --shape qwen3-0.6b    random weights, into results/chunked_prefill_qwen3-0.6b.json
python benches/chunked_prefill.py --smoke               a short prompt; nothing is written (with --shape, a small model)

Three requests generate tokens. When each of them has 12 tokens, a request with a prompt of 900 tokens arrives. The run
ends with the first token of this fourth request. A gap is the time between two consecutive tokens of one of the three
requests. "gap before" is the median gap before the fourth request arrives, and "longest gap" is the longest gap from
then on. The budgets (how many tokens a step may compute) take turns. For each budget, the round in which the longest
gap is shortest counts. Each weight has 4 bits, and the layers are tuned.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx

from tiny_llm_course.base.machine import about
from tiny_llm_course.bench.models import bundled_model, random_model
from tiny_llm_native.extension import set_threads
from tiny_llm_ref.kernels.attention import flash_attention
from tiny_llm_ref.serving.batched_cache import BatchedKVCache
from tiny_llm_ref.serving.engine import Engine
from tiny_llm_ref.serving.latency import Recorder, percentile
from tiny_llm_ref.serving.request import Request
from tiny_llm_ref.serving.sampling_params import SamplingParams
from tiny_llm_ref.serving.scheduler import Scheduler, TokenBudget
from tiny_llm_ref.tuned import tune

RESULTS = Path(__file__).parent / "results"
STORY, SHAPE = "story", "qwen3-0.6b"
PROMPT, SHORT, RUNNING = 900, 16, 3  # RUNNING: how many requests generate; the others: tokens per prompt
ALONE = 12  # how many tokens each of these requests generates before the long prompt arrives
BUDGETS = (None, 512, 256, 128, 64, 32)  # tokens per step; None: whole prompts
ROUNDS, THREADS = 3, 2


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
    prompt, budgets, rounds = (40, (None, 16), 1) if options.smoke else (PROMPT, BUDGETS, ROUNDS)
    measure(model, prompt, None)  # so that no measured run compiles or loads anything
    best: dict[int | None, dict[str, float]] = {}
    for _ in range(rounds):
        for budget in budgets:
            found = measure(model, prompt, budget)
            best[budget] = min(found, best.get(budget, found), key=lambda row: row["longest_gap"])
    rows = [{"budget": budget, **best[budget]} for budget in budgets]
    show(rows)
    if not options.smoke:
        write(rows, options.shape)


def measure(model: Any, length: int, budget: int | None) -> dict[str, float]:
    """Run once. Return how many steps read the prompt, the token count of the largest of them, and times in seconds."""
    recorder = Recorder()
    engine = Engine(model, scheduler(model, length, budget), [recorder])
    running = [request(model, f"r{i}", SHORT) for i in range(RUNNING)]
    prompt = request(model, "prompt", length)
    for each in running:
        recorder.arrive(each)
        engine.add(each)
    while len(running[-1].output) < ALONE:
        engine.step()
    first = len(recorder.steps)
    recorder.arrive(prompt)
    engine.add(prompt)
    while not prompt.output:
        engine.step()
    start = recorder.arrivals[prompt.id]
    before = [gap for each in running for gap in gaps(recorder.token_times[each.id], 0.0, start)]
    during = [gap for each in running for gap in gaps(recorder.token_times[each.id], start, float("inf"))]
    steps = recorder.steps[first:]
    return {
        "steps": len(steps),
        "longest_step": max(sum(step.tokens.values()) for step in steps),
        "gap_before": percentile(before, 50),
        "longest_gap": percentile(during, 100),
        "first_token": recorder.of(prompt).first,
    }


def gaps(times: list[float], start: float, end: float) -> list[float]:
    """For each token that came at `start` or later, but before `end`, return the seconds since the previous token."""
    return [later - earlier for earlier, later in pairwise(times) if start <= later < end]


def scheduler(model: Any, length: int, budget: int | None) -> Scheduler:
    capacity = max(length, SHORT + ALONE) + 64  # requests go on generating while the prompt is read
    capacity += 0 if budget is None else length // (budget - RUNNING)
    cache = BatchedKVCache(len(model.layers), RUNNING + 1, capacity, flash_attention)
    return Scheduler(cache, RUNNING + 1, None if budget is None else TokenBudget(budget))


def request(model: Any, id: str, length: int) -> Request:
    """Return a request that generates as long as the engine runs. Its prompt has `length` tokens, drawn at random
    with a seed made from the id."""
    mx.random.seed(sum(id.encode()))
    prompt = mx.random.randint(0, min(model.config.vocab_size, 250), (length,)).tolist()
    return Request(id, prompt, SamplingParams(max_tokens=10_000, ignore_eos=True))


def show(rows: list[dict[str, Any]]) -> None:
    print("  budget   steps   longest step   gap before   longest gap   first token")
    for row in rows:
        times = [1e3 * row[name] for name in ("gap_before", "longest_gap", "first_token")]
        counts = f"{row['budget'] or 'none':>8}{row['steps']:8}{row['longest_step']:10} rows"
        print(counts + "{:10.1f} ms{:11.1f} ms{:11.1f} ms".format(*times))


def write(rows: list[dict[str, Any]], shape: str | None) -> None:
    command = "python benches/chunked_prefill.py" + (f" --shape {shape}" if shape else "")
    found = about(command, "mlx", "numpy")
    found |= {"model": shape or STORY, "measured": time.strftime("%Y-%m-%d"), "prompt": PROMPT, "running": RUNNING}
    found["rows"] = [
        {name: round(value, 6) if isinstance(value, float) else value for name, value in row.items()} for row in rows
    ]
    file = RESULTS / (f"chunked_prefill_{shape}.json" if shape else "chunked_prefill.json")
    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
