"""Compares the course's tuned model with other engines, in Qwen3-0.6B's shape.

python benches/peers.py --llama-bench FILE --gguf FILE [--torch PYTHON]     into results/peers.json
python benches/peers.py --llama-bench FILE --gguf FILE --fast               into results/peers_fast.json
python benches/peers.py --llama-bench FILE --gguf FILE --march x86-64-v3    into results/peers_x86-64-v3.json

--fast lets the course's kernels round activations to 8 bits where measurements show that rounding makes them faster.
llama.cpp rounds activations to 8 bits, too. All weights are random. The course and mlx-lm store 4 bits per weight, in
groups of 64 weights. llama.cpp stores weights in Q4_0: in groups of 32 weights with one 16-bit scale, so in as many
bytes per weight. Transformers stores weights in bfloat16. Decoding is measured as in llama-bench: in passes over one
token each, which choose no next token. The engines take turns, so that other programs slow down all engines alike.

Build llama-bench from the source in llama-cpp-python: cmake -DGGML_NATIVE=ON -DCMAKE_BUILD_TYPE=Release, target
llama-bench. GCC 12 omits the stores that configure AMX, so that llama-bench stops with an illegal instruction on a
processor with AMX: use GCC 13 or Clang there, or compile ggml-cpu/amx/mmq.cpp with -fno-tree-dse and -fno-dse. For
--march x86-64-v3, build llama-bench with -DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON.
Make the GGUF file with peers/make_gguf.py. PYTHON is the path of a Python interpreter with torch and transformers. The
course itself needs none of these programs and packages.

Each round first measures the machine's limits, in bytes and operations per second, with `tiny_llm_native.roofline`. The
results also give each speed as a share of the speed that the highest measured limits allow for the same pass, if it
reads as many bytes per weight as the engine. An engine that may round activations to 8 bits is compared with the limit
of 8-bit arithmetic.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
THREADS, NEW = 2, 32  # NEW: how many tokens to decode
LENGTHS = (128, 512)  # of the prompts, in tokens
PEERS = ("ours", "llama.cpp", "mlx-lm", "transformers")
LIMITS = "limits"
BYTES = {"ours": 4.5 / 8, "llama.cpp": 4.5 / 8, "mlx-lm": 4.5 / 8, "transformers": 2}  # that an engine reads per weight
SLOW = "mlx-lm"  # is measured in one round, with a prompt of 16 tokens and 8 tokens to decode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-bench", type=Path)
    parser.add_argument("--gguf", type=Path)
    parser.add_argument("--torch", help="the path of a Python interpreter with torch and transformers")
    parser.add_argument("--march", help="compile the course's kernels for this older processor")
    parser.add_argument("--fast", action="store_true", help="let the course's kernels round activations to 8 bits")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", choices=[LIMITS, *PEERS], help="measure one engine in this process; print JSON")
    options = parser.parse_args()
    if options.measure:
        measure = {LIMITS: limits, "ours": ours, "mlx-lm": mlx_lm, "transformers": transformers}
        found = measure[options.measure](options)
        print(json.dumps(found))
        return
    rounds = [one_round(options, number) for number in range(options.rounds)]
    save(options, rounds)


def one_round(options: argparse.Namespace, number: int) -> dict[str, dict[str, float]]:
    print(f"round {number + 1}: {LIMITS} ...", file=sys.stderr, flush=True)
    found = {LIMITS: run_here(LIMITS, options)}
    for peer in PEERS:
        if is_measured(peer, options, number):
            print(f"round {number + 1}: {peer} ...", file=sys.stderr, flush=True)
            found[peer] = run_llama_bench(options) if peer == "llama.cpp" else run_here(peer, options)
            print(f"  {found[peer]}", file=sys.stderr, flush=True)
    return found


def is_measured(peer: str, options: argparse.Namespace, number: int) -> bool:
    """Tell whether this round measures the engine, and whether the options name the program that the engine needs."""
    if peer == "llama.cpp":
        return options.llama_bench is not None
    if peer == "transformers":
        return options.torch is not None
    return peer != SLOW or not (number or options.march)


def run_here(peer: str, options: argparse.Namespace) -> dict[str, float]:
    """Run this script with --measure in a separate process, and return the measurements that the process prints."""
    command = [options.torch if peer == "transformers" else sys.executable, __file__, "--measure", peer]
    command += _flags(options)
    found: dict[str, float] = json.loads(run(command).splitlines()[-1])
    return found


def run_llama_bench(options: argparse.Namespace) -> dict[str, float]:
    """Return llama.cpp's best speed of three runs in tokens per second, keyed by the pass, such as "prefill 128"."""
    rows = [row for command in llama_bench(options) for row in json.loads(run(command))]
    return {
        f"prefill {row['n_prompt']}" if row["n_prompt"] else f"decode {row['n_depth']}": max(row["samples_ts"])
        for row in rows
    }


def run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode < 0:
        sys.exit(f"{command[0]} was stopped by {signal.Signals(-done.returncode).name}\n{done.stderr[-2000:]}".rstrip())
    if done.returncode:
        sys.exit(f"{command[0]} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def llama_bench(options: argparse.Namespace) -> list[list[str]]:
    """Return two commands: one measures prefill of prompts of LENGTHS tokens, the other decoding after such prompts."""
    base = [str(options.llama_bench), "-m", str(options.gguf), "-t", str(THREADS), "-r", "3", "-o", "json"]
    lengths = ",".join(map(str, LENGTHS))
    return [[*base, "-p", lengths, "-n", "0"], [*base, "-p", "0", "-n", str(NEW), "-d", lengths]]


def best(work: Callable[[], Any], runs: int = 3) -> float:
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def limits(options: argparse.Namespace) -> dict[str, float]:
    """Return how many bytes per second the machine reads, and its operations per second for each number type."""
    compile_for_older(options.march)
    from tiny_llm_native.roofline import measure

    return {name: rate for name, rate in measure()._asdict().items() if name != "threads"}


def compile_for_older(processor: str | None) -> None:
    """From now on, compile kernels for this processor (a name for -march). None: for this machine's processor."""
    if processor:
        from tiny_llm_native import compiler

        compiler.for_this_processor = lambda: f"-march={processor}"  # type: ignore[assignment]


def ours(options: argparse.Namespace) -> dict[str, float]:
    import mlx.core as mx

    from tiny_llm_course.bench.models import random_model
    from tiny_llm_native.matmul import arithmetic
    from tiny_llm_ref.generate import next_logits
    from tiny_llm_ref.kernels.attention import flash_attention
    from tiny_llm_ref.kv_cache import KVCache
    from tiny_llm_ref.tuned import tune

    if options.fast:
        os.environ.setdefault(arithmetic.VARIABLE, "fast")
    compile_for_older(options.march)
    model = random_model("tiny_llm_ref", is_small=False)
    tune(model)
    found = {}
    for length in LENGTHS:
        tokens = mx.random.randint(0, 150000, (1, length))
        mx.eval(tokens)

        def read(tokens: mx.array = tokens) -> KVCache:
            cache = KVCache(len(model.layers), attention=flash_attention)
            mx.eval(next_logits(model, tokens, cache))
            return cache

        def write(cache: KVCache, token: mx.array = tokens[:, :1]) -> None:
            for _ in range(NEW):
                logits = next_logits(model, token, cache)
                mx.async_eval(logits)
            mx.eval(logits)
            cache.trim(NEW)

        read()
        found[f"prefill {length}"] = length / best(read)
        cache = read()
        write(cache)
        found[f"decode {length}"] = NEW / best(partial(write, cache))
    print(f"ours: {arithmetic.chosen()}", file=sys.stderr)
    return found


def mlx_lm(options: argparse.Namespace) -> dict[str, float]:
    import mlx.core as mx
    import mlx.nn as nn
    from mlx_lm.generate import generate_step
    from mlx_lm.models.qwen3 import Model, ModelArgs

    from tiny_llm_models.untrained import QWEN3_0_6B

    model = Model(ModelArgs.from_dict(QWEN3_0_6B | {"rope_scaling": None}))
    model.set_dtype(mx.bfloat16)
    nn.quantize(model, group_size=64, bits=4)
    mx.eval(model.parameters())
    start = time.perf_counter()
    times = [time.perf_counter() for _ in generate_step(mx.arange(16), model, max_tokens=9)]
    return {"prefill 16": 16 / (times[0] - start), "decode 16": 8 / (times[8] - times[0])}


def transformers(options: argparse.Namespace) -> dict[str, float]:
    import torch
    from transformers import DynamicCache, Qwen3Config, Qwen3ForCausalLM

    sys.path.insert(0, str(HERE.parent / "src"))  # the course need not be installed in this Python
    from tiny_llm_models.untrained import QWEN3_0_6B

    torch.set_num_threads(THREADS)
    config = Qwen3Config.from_dict(QWEN3_0_6B)
    model = Qwen3ForCausalLM(config).to(torch.bfloat16).eval()
    found = {}
    with torch.inference_mode():
        for length in LENGTHS:
            tokens = torch.randint(0, 150000, (1, length))

            def read(tokens: Any = tokens) -> Any:
                cache = DynamicCache(config=config)
                model(tokens, past_key_values=cache, logits_to_keep=1)
                return cache

            def write(token: Any, cache: Any) -> None:
                for _ in range(NEW // 2):
                    model(token, past_key_values=cache, logits_to_keep=1)

            read()
            found[f"prefill {length}"] = length / best(read, 2)
            cache = read()
            start = time.perf_counter()
            write(tokens[:, :1], cache)
            found[f"decode {length}"] = NEW // 2 / (time.perf_counter() - start)
    return found


def save(options: argparse.Namespace, rounds: list[dict[str, dict[str, float]]]) -> None:
    from tiny_llm_course.base.machine import about

    ratios: dict[str, dict[str, float]] = {}
    for peer in [peer for peer in rounds[0] if peer not in ("ours", LIMITS)]:
        for what in rounds[0][peer]:
            like = what.replace("16", str(LENGTHS[0]))  # mlx-lm's prompt is shorter
            of_rounds = [each["ours"][like] / each[peer][what] for each in rounds if peer in each]
            ratios.setdefault(peer, {})[what] = median(of_rounds)
    flags = _flags(options)
    name = "_".join(["peers", *(flag.removeprefix("--") for flag in flags if flag != "--march")]) + ".json"
    command = " ".join(["python benches/peers.py", *flags])
    found = about(command, "mlx", "mlx-lm", "numpy") | peer_versions(options)
    found |= {"threads": THREADS, "rounds": rounds, "ratios": ratios, "shares": shares(rounds, options.fast)}
    (HERE / "results" / name).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({"ratios": ratios, "shares": found["shares"]}, indent=1))


def shares(rounds: list[dict[str, dict[str, float]]], is_fast: bool) -> dict[str, dict[str, float]]:
    """Return each engine's best speed in each pass, as a share of the speed that the highest limits allow. is_fast:
    whether the course's kernels may round activations to 8 bits."""
    from tiny_llm_course.bench.models import model_config
    from tiny_llm_ref.costs import Machine, model_cost

    best_limits = {name: max(each[LIMITS][name] for each in rounds) for name in rounds[0][LIMITS]}
    bandwidth = best_limits.pop("bandwidth")
    exact = max(best_limits["float32"], best_limits["bfloat16"])
    rounding = {"llama.cpp", "ours"} if is_fast else {"llama.cpp"}
    found: dict[str, dict[str, float]] = {}
    for peer, bytes_per_weight in BYTES.items():
        machine = Machine(max(best_limits.values()) if peer in rounding else exact, bandwidth)
        speeds = [each[peer] for each in rounds if peer in each]
        for what in speeds[0] if speeds else ():
            kind, length = what.split()
            L, S = (int(length),) * 2 if kind == "prefill" else (1, int(length) + 1)
            cost = model_cost(model_config(is_small=False), L, S, bytes_per_weight)
            speed = max(each[what] for each in speeds)
            found.setdefault(peer, {})[what] = speed * machine.seconds(cost) / L
    return found


def _flags(options: argparse.Namespace) -> list[str]:
    """Return the options that change the course's kernels."""
    return ["--fast"] * options.fast + (["--march", options.march] if options.march else [])


def peer_versions(options: argparse.Namespace) -> dict[str, Any]:
    found = {}
    if options.llama_bench:
        row = json.loads(run([*llama_bench(options)[0], "-p", "1", "-r", "1"]))[0]
        found["llama.cpp"] = f"build {row['build_number']}, {row['build_commit']}"
    if options.torch:
        code = "import torch, transformers as t; print('torch', torch.__version__, 'transformers', t.__version__)"
        found["transformers"] = run([options.torch, "-c", code]).strip()
    return {"peers": found}


if __name__ == "__main__":
    main()
