"""Compares week 3's engine, mlx-lm's batched generation and llama.cpp's batched bench on many requests at once.

python benches/serving.py [--llama-batched-bench FILE --gguf FILE]             into results/serving.json
python benches/serving.py [--llama-batched-bench FILE --gguf FILE] --fast      into results/serving_fast.json
python benches/serving.py --smoke                                              a few tokens; nothing is written

Each request has a prompt of 128 tokens and generates 32 tokens. "decode" is how many tokens per second an engine
generates while all requests generate. "all" is how many tokens per second it generates from the start to the last
token. The models are the bundled one, and one with random weights in Qwen3-0.6B's shape, both with 4 bits per weight.
llama.cpp and mlx-lm run only the random weights. Week 3's engine and llama.cpp take turns, so that other programs slow
down both engines alike. mlx-lm is slow, so it runs only one batch: 4 requests with prompts of 16 tokens, which generate
8 tokens each. llama-batched-bench chooses no tokens, so the results give the speed of week 3's engine with and without
the time for choosing tokens. --fast lets the tuned layers, which run the random weights, round activations to 8 bits,
as llama.cpp does.

Build llama-batched-bench from the source in llama-cpp-python (cmake -DGGML_NATIVE=ON -DCMAKE_BUILD_TYPE=Release). If
the processor has AMX, choose the compiler as peers.py says. Make the GGUF file with peers/make_gguf.py.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import mlx.core as mx
import numpy as np

from tiny_llm_course.base.machine import about
from tiny_llm_course.bench.models import bundled_model, random_model
from tiny_llm_native.extension import set_threads
from tiny_llm_native.matmul.arithmetic import VARIABLE
from tiny_llm_ref.serving.batch import Batch
from tiny_llm_ref.serving.batch_sampler import BatchSampler
from tiny_llm_ref.serving.engine import Engine
from tiny_llm_ref.serving.page_pool import PagePool
from tiny_llm_ref.serving.paged_cache import KernelPagedKVCacheLayer, PagedKVCache
from tiny_llm_ref.serving.request import Request
from tiny_llm_ref.serving.sampling_params import SamplingParams
from tiny_llm_ref.serving.scheduler import PreemptNewest, Scheduler, TokenBudget
from tiny_llm_ref.tuned import tune

RESULTS = Path(__file__).parent / "results" / "serving.json"
THREADS, PROMPT, NEW, PAGE, BUDGET = 2, 128, 32, 16, 512
COUNTS = (1, 4, 16, 32)
PARTS = ("scheduling", "page tables", "bookkeeping", "sampling", "model")
OVERHEAD = PARTS[:3]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-batched-bench", type=Path)
    parser.add_argument("--gguf", type=Path)
    parser.add_argument("--fast", action="store_true", help="let the course's kernels round activations to 8 bits")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--smoke", action="store_true", help="a few tokens; nothing is written")
    options = parser.parse_args()
    if options.fast:
        os.environ[VARIABLE] = "fast"
    set_threads(THREADS)
    shapes = {
        "story": bundled_model("tiny_llm_ref", "story")[0],
        "Qwen3-0.6B": random_model("tiny_llm_ref", is_small=options.smoke),
    }
    tune(shapes["Qwen3-0.6B"])
    counts, new, rounds = ((1, 4), 3, 1) if options.smoke else (COUNTS, NEW, options.rounds)
    rows = [measure(name, model, count, new, rounds, options) for name, model in shapes.items() for count in counts]
    print(table(rows))
    if not options.smoke:
        command = "python benches/serving.py" + " --fast" * options.fast
        found = about(command, "mlx", "mlx-lm", "numpy")
        found |= {"threads": THREADS, "prompt": PROMPT, "new": NEW, "rows": rows}
        found |= {
            "mlx-lm": mlx_lm(shapes["Qwen3-0.6B"]),
            "memory": [memory(name, model) for name, model in shapes.items()],
        }
        if options.llama_batched_bench:
            found["llama.cpp"] = version(options)
        file = RESULTS.with_stem("serving_fast") if options.fast else RESULTS
        file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(json.dumps({name: found[name] for name in ("mlx-lm", "memory")}, indent=1))


class Timed(Engine):
    """An engine that measures how long each part of a step takes, in the steps in which all requests generate."""

    def __init__(self, *args: Any):
        super().__init__(*args, decoding=BatchSampler())
        self.seconds: Counter[str] = Counter()
        self.tokens = 0
        self._of_step: Counter[str] = Counter()
        cache: Any = self.scheduler.cache
        cache.step = self._timed("page tables", cache.step)
        decoding: Any = self.decoding
        decoding.choose = self._timed("sampling", decoding.choose)

    def _timed(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            start = time.perf_counter()
            result = work(*args)
            self._of_step[name] += time.perf_counter() - start
            return result

        return timed

    def step(self) -> list[Request]:
        self._of_step.clear()
        touched: list[Request] = self._timed("step", super().step)()
        parts = self._of_step
        parts["bookkeeping"] = parts.pop("settle") - parts["sampling"]
        parts["model"] = parts["step"] - sum(parts[name] for name in PARTS if name != "model")
        if self.is_decode:
            self.seconds += parts
            self.tokens += len(touched)
        return touched

    def plan(self) -> Batch:
        batch: Batch = self._timed("scheduling", super().plan)()
        self.is_decode = all(len(chunk.tokens) == 1 for chunk in batch.chunks) and not self.scheduler.waiting
        return batch

    def settle(self, *args: Any) -> list[Request]:
        touched: list[Request] = self._timed("settle", super().settle)(*args)
        return touched


def scheduler_of(model: Any, num_pages: int, max_running: int) -> Scheduler:
    cache = PagedKVCache(len(model.layers), PagePool(num_pages, PAGE), make_layer=KernelPagedKVCacheLayer)
    return Scheduler(cache, max_running, TokenBudget(BUDGET), PreemptNewest())


def ours(model: Any, count: int, new: int, length: int = PROMPT) -> dict[str, Any]:
    """Run once, with prompts of `length` tokens. Return tokens per second, and the milliseconds of a step's parts."""
    pages = count * -(-(length + new + 1) // PAGE)
    engine = Timed(model, scheduler_of(model, pages, max(COUNTS)))
    random = np.random.RandomState(count)
    for i in range(count):
        prompt = random.randint(0, model.config.vocab_size, length).tolist()
        engine.add(Request(str(i), prompt, SamplingParams(max_tokens=new, ignore_eos=True)))
    start = time.perf_counter()
    for _ in engine.run():
        pass
    seconds, steps = time.perf_counter() - start, engine.tokens / count
    found = {name: 1e3 * engine.seconds[name] / steps for name in PARTS}
    step = engine.seconds["step"]
    return {
        "decode": engine.tokens / step,
        "decode without sampling": engine.tokens / (step - engine.seconds["sampling"]),
        "all": count * new / seconds,
        "milliseconds": found,
        "overhead": sum(found[name] for name in OVERHEAD) / sum(found.values()),
    }


def llama(options: argparse.Namespace, count: int) -> dict[str, float]:
    """Run llama.cpp's batched bench once, and return its tokens per second, keyed by "decode" and "all"."""
    command = [
        str(options.llama_batched_bench),
        "-m",
        str(options.gguf),
        "-t",
        str(THREADS),
        "-c",
        "8192",
        "-b",
        "2048",
    ]
    command += ["-npp", str(PROMPT), "-ntg", str(NEW), "-npl", str(count), "--output-format", "jsonl"]
    run = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
    if run.returncode or not lines:
        sys.exit(f"{command[0]} failed:\n{run.stderr[-2000:]}")
    row = json.loads(lines[-1])
    return {"decode": row["speed_tg"], "all": count * NEW / row["t"]}


def measure(name: str, model: Any, count: int, new: int, rounds: int, options: argparse.Namespace) -> dict[str, Any]:
    """Let our engine and llama.cpp take turns. Return the best run of each, and the median of our decoding speed
    divided by llama.cpp's."""
    has_peer = options.llama_batched_bench is not None and name != "story"
    print(f"{name}, {count} requests ...", file=sys.stderr, flush=True)
    ours(model, count, 2)  # so that no measured run compiles or loads anything
    runs, peers = [], []
    for _ in range(rounds):
        runs.append(ours(model, count, new))
        if has_peer:
            peers.append(llama(options, count))
    row = {"shape": name, "requests": count} | max(runs, key=lambda run: run["decode"])
    if peers:
        row["llama.cpp"] = {of: max(peer[of] for peer in peers) for of in peers[0]}
        row["ratio"] = median(run["decode"] / peer["decode"] for run, peer in zip(runs, peers, strict=True))
    return row


def mlx_lm(our_model: Any) -> dict[str, float]:
    """Return the tokens per second of mlx-lm and of our engine, with one batch of 4 requests of 16 + 8 tokens."""
    import mlx.nn as nn
    from mlx_lm.generate import BatchGenerator
    from mlx_lm.models.qwen3 import Model, ModelArgs

    from tiny_llm_models.untrained import QWEN3_0_6B

    print("mlx-lm ...", file=sys.stderr, flush=True)
    count, length, new = 4, 16, 8
    our_rate = ours(our_model, count, new, length)["all"]
    model = Model(ModelArgs.from_dict(QWEN3_0_6B | {"rope_scaling": None}))
    model.set_dtype(mx.bfloat16)
    nn.quantize(model, group_size=64, bits=4)
    mx.eval(model.parameters())
    generator = BatchGenerator(model, max_tokens=new)
    start = time.perf_counter()
    generator.insert([list(range(i, i + length)) for i in range(count)])
    tokens = 0
    while responses := generator.next_generated():
        tokens += len(responses)
    its_rate = tokens / (time.perf_counter() - start)
    return {"requests": count, "prompt": length, "new": new, "all": its_rate, "ours": our_rate}


def memory(name: str, model: Any) -> dict[str, Any]:
    """Return how much of their memory for keys and values 64 requests of random lengths waste: if they are stored in
    pages, and if they are padded to the longest request."""
    scheduler = scheduler_of(model, 1, 1)
    engine = Engine(model, scheduler)
    engine.add(Request("", [1], SamplingParams(max_tokens=1)))
    list(engine.run())
    cache: Any = scheduler.cache
    arrays: list[Any] = [array for layer in cache.layers for array in (layer.keys, layer.values)]
    token = sum(array.nbytes for array in arrays) // PAGE
    lengths = np.random.RandomState(0).randint(32, 513, 64)
    held = -(-lengths // PAGE) * PAGE
    return {
        "shape": name,
        "bytes of a token": token,
        "waste of a request in pages, tokens": float((held - lengths).mean()),
        "waste of a request, padded to the longest, tokens": float((lengths.max() - lengths).mean()),
        "part that is used in pages": float(lengths.sum() / held.sum()),
        "part that is used, padded": float(lengths.mean() / lengths.max()),
    }


def version(options: argparse.Namespace) -> str:
    run = subprocess.run([str(options.llama_batched_bench), "--version"], capture_output=True, text=True)
    return (run.stdout + run.stderr).strip().splitlines()[0]


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["tok/s        requests   decode  no sampling      all  overhead  llama.cpp  ratio"]
    for row in rows:
        peer = f"{row['llama.cpp']['decode']:11.1f}{row['ratio']:7.2f}" if "ratio" in row else ""
        lines.append(
            f"{row['shape']:12}{row['requests']:9}{row['decode']:9.1f}{row['decode without sampling']:13.1f}"
            f"{row['all']:9.1f}{row['overhead']:10.1%}{peer}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
