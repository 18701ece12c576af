"""Measures how accurate the tuned layers are in each arithmetic mode: errors of products, perplexity, right answers.

python benches/arithmetic.py            into results/arithmetic.json
python benches/arithmetic.py --smoke    a few texts; nothing is written

The error of a product is its difference from the same product in NumPy's float64: the root mean square of the
difference, divided by the root mean square of the float64 product. The error is measured for an x with one row ("few")
and for an x with 64 rows ("many"). Each weight has 4 bits, and 64 weights form a group. The perplexity and the share of
right answers are those of the model `story`, for the stories and questions of `benches/quantisation.py`.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from quantisation import QUESTIONS, STORIES, judged

from metal_host.toolchain import compiler_command, for_this_processor
from tiny_llm_course.base.machine import about
from tiny_llm_course.bench.models import bundled_model
from tiny_llm_native.compiler import KERNEL_FLAGS
from tiny_llm_native.matmul.arithmetic import VARIABLE, candidates
from tiny_llm_native.matmul.packed import pack, packed_matmul
from tiny_llm_ref.quantize import dequantize, quantize

RESULTS = Path(__file__).parent / "results" / "arithmetic.json"
MODEL = "story"
COLUMNS, OUT, ROWS = 3072, 1024, {"few": 1, "many": 64}  # ROWS: how many rows x has


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="a few texts; nothing is written")
    options = parser.parse_args()
    stories, questions = (2, 3) if options.smoke else (STORIES, QUESTIONS)
    model, _ = bundled_model("tiny_llm_ref", MODEL)
    rows: dict[str, Any] = {}
    for name in candidates():
        os.environ[VARIABLE] = name
        rows[name] = {"error": errors()} | judged(model, MODEL, stories, questions)
        print(name, json.dumps(rows[name]), flush=True)
    if not options.smoke:
        flags = " ".join([*compiler_command(), *KERNEL_FLAGS, for_this_processor()])
        report = about("python benches/arithmetic.py", "mlx", "numpy") | {"compiler": flags, "model": MODEL}
        report |= {"stories": stories, "questions": questions, "arithmetic": rows}
        RESULTS.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def errors() -> dict[str, float]:
    """Return the relative error of a product, keyed by "few" and "many" rows of x."""
    mx.random.seed(0)
    weight = quantize(mx.random.normal((OUT, COLUMNS), mx.bfloat16), 64, 4)
    packed, scales, biases = weight
    dense = np.array(dequantize(packed, scales.astype(mx.float32), biases.astype(mx.float32), 64, 4), np.float64)
    panels, found = pack(*weight), {}
    for name, rows in ROWS.items():
        x = mx.random.normal((rows, COLUMNS))
        right = np.array(x, np.float64) @ dense.T
        wrong = np.array(packed_matmul(x, panels), np.float64) - right
        found[name] = float(f"{np.sqrt(np.mean(wrong**2) / np.mean(right**2)):.2g}")
    return found


if __name__ == "__main__":
    main()
