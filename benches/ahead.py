"""Measures how much time `generate_ahead` saves per token, and `mx.compile` per call of a function: week 2, day 1.

python benches/ahead.py            into results/ahead.json
python benches/ahead.py --smoke    small models, a few tokens; nothing is written

Loops: `generate` and `generate_ahead` take turns at generating the same text, and the fastest run of each loop counts.
"python" is the time that Python needs to build the graph of a step, before MLX computes the graph. Functions: plain and
compiled calls take turns, and the shortest call of each kind counts. The first call of the compiled function is timed
separately, with an empty cache of compiled code. In "attention, growing", each call has one key more than the previous
call.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from statistics import mean
from typing import Any

import mlx.core as mx

from tiny_llm_course.base.machine import about
from tiny_llm_course.bench.models import random_model
from tiny_llm_course.model.loaded_model import LoadedModel, Wanted
from tiny_llm_ref.attention import scaled_dot_product_attention_grouped
from tiny_llm_ref.basics import linear, silu
from tiny_llm_ref.generate import generate, generate_ahead, next_logits
from tiny_llm_ref.kernels.attention import flash_attention
from tiny_llm_ref.kv_cache import KVCache
from tiny_llm_ref.layer_norm import RMSNorm
from tiny_llm_ref.sampler import greedy
from tiny_llm_ref.tuned import tune

RESULTS = Path(__file__).parent / "results" / "ahead.json"
PROMPT = "Mia had a red key. She hid the key in the old box. Then Mia went to the river. Where is the key?"
TOKENS, RUNS, CALLS = 100, 5, 200
FAST = {"bits": 4, "layers": "tuned"}

Function = Callable[..., mx.array]
Arguments = Callable[[int], tuple[mx.array, ...]]  # takes the number of a call, returns this call's arguments


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="small models, a few tokens; nothing is written")
    options = parser.parse_args()
    found: dict[str, Any] = about("python benches/ahead.py", "mlx", "numpy")
    found["loops"] = [loop(*model, options.smoke) for model in models(options.smoke)]
    for row in found["loops"]:
        shares = ", ".join(f"{name} {row[name] * 1e3:.2f} ms" for name in ("generate", "generate_ahead", "python"))
        print(f"{row['model']:24} {shares}")
    with tempfile.TemporaryDirectory() as empty:
        os.environ["TMPDIR"] = empty  # where MLX keeps compiled code
        found["functions"] = [function(*case, 3 if options.smoke else CALLS) for case in functions(options.smoke)]
    for row in found["functions"]:
        times = ", ".join(f"{name} {row[name] * 1e6:.0f} µs" for name in ("plain", "compiled"))
        print(f"{row['function']:24} {times}, first call {row['first']:.2f} s")
    if not options.smoke:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


# ---------------------------------------------------------------------------------------------------------------- loops


def models(is_small: bool) -> Iterator[tuple[str, Any, Callable[[], KVCache], list[int]]]:
    """Yield a model's name, the model, a function that makes a cache for the model, and the token ids of a prompt."""
    for name, options in (("story, plain", {}), ("story, tuned", FAST)):
        engine = LoadedModel(Wanted("tiny_llm_ref", "story", **options))
        yield name, engine.model, engine.cache, engine.tokenizer.encode(PROMPT)
    model = random_model("tiny_llm_ref", is_small)
    tune(model)
    yield "qwen3-0.6b, tuned", model, lambda: KVCache(len(model.layers), attention=flash_attention), [*range(28)]


def loop(name: str, model: Any, cache: Callable[[], KVCache], prompt: list[int], is_smoke: bool) -> dict[str, Any]:
    """Return the seconds per token of each loop, and the seconds that Python needs to build the graph of one step."""
    tokens, runs = (4, 1) if is_smoke else (TOKENS, RUNS)
    found: dict[str, Any] = {"model": name}
    for _ in range(runs + 1):  # the first run is slower, because it loads and compiles
        for way in (generate, generate_ahead):
            seconds = per_token(way(model, prompt, greedy, tokens, (), cache()))
            found[way.__name__] = min(seconds, found.get(way.__name__, seconds))
    return found | {"python": building(model, cache(), prompt, tokens)}


def per_token(tokens: Iterable[int]) -> float:
    """Generate the tokens, and return the mean time in seconds from one token to the next."""
    times = [time.perf_counter() for _ in tokens]
    return (times[-1] - times[0]) / (len(times) - 1)


def building(model: Any, cache: KVCache, prompt: list[int], steps: int) -> float:
    """Return the mean time in seconds that Python needs to build the graph of a step."""
    token = greedy(next_logits(model, mx.array([prompt]), cache))[:, None]
    mx.eval(token)
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        token = greedy(next_logits(model, token, cache))[:, None]
        seconds.append(time.perf_counter() - start)
        mx.eval(token)
    return mean(seconds)


# ------------------------------------------------------------------------------------------------------------ functions


def functions(is_small: bool) -> Iterator[tuple[str, Function, Arguments]]:
    """Yield functions of week 1, in the sizes of Qwen3-0.6B: a name, the function, and its `Arguments`."""
    E, I, D, keys = (64, 192, 16, 40) if is_small else (1024, 3072, 128, 512)

    def normal(*shape: int) -> mx.array:
        return mx.random.normal(shape)

    def swiglu(gate: mx.array, up: mx.array) -> mx.array:
        return silu(gate) * up

    one, many = normal(2, 1, 1, I), normal(2, 1, 128, I)
    query, key, value = normal(1, 16, 1, D), normal(1, 8, 2 * keys, D), normal(1, 8, 2 * keys, D)
    x, weight = normal(1, 1, E), normal(I, E)
    norm = RMSNorm(E, normal(E))
    mx.eval(one, many, query, key, value, x, weight, norm.weight)

    def stored(length: int) -> tuple[mx.array, ...]:
        return query, mx.contiguous(key[:, :, :length]), mx.contiguous(value[:, :, :length])

    yield "RMSNorm, 1 token", norm, lambda _: (x,)
    yield "SwiGLU, 1 token", swiglu, lambda _: tuple(one)
    yield "SwiGLU, 128 tokens", swiglu, lambda _: tuple(many)
    yield "matrix product, 1 token", linear, lambda _: (x, weight)
    yield "attention, constant", scaled_dot_product_attention_grouped, lambda _: stored(keys)
    yield "attention, growing", scaled_dot_product_attention_grouped, lambda number: stored(keys + number)


def function(name: str, work: Function, arguments: Arguments, calls: int) -> dict[str, Any]:
    """Return the seconds of the first compiled call, the shortest plain call, and the shortest later compiled call."""
    compiled = mx.compile(work)
    numbers = count()
    first = once(compiled, arguments(next(numbers)))
    pairs = [[once(run, arguments(next(numbers))) for run in (work, compiled)] for _ in range(calls)]
    plain, later = map(min, zip(*pairs, strict=True))
    return {"function": name, "first": first, "plain": plain, "compiled": later}


def once(work: Function, arguments: tuple[mx.array, ...]) -> float:
    mx.eval(arguments)
    start = time.perf_counter()
    mx.eval(work(*arguments))
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
