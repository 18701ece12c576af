"""Runs the kernels of this folder, and has the compiler look at right and wrong ones, for `./course doctor --report`.

METAL_HOST decides where: `off` asks for Apple's compiler and a GPU, anything else for metal_host. The first line is the
number of kernels; each further one is what became of a kernel, in JSON, as soon as it is known. An idiom runs, and its
result is compared with NumPy's. Other kernels are only compiled, and return at once: what a broken one does is not
defined.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import mlx.core as mx
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(Path(__file__).parent)]

from broken_kernels import BROKEN, REFUSED, REFUSED_HEADERS, X  # noqa: E402
from metal_idioms import IDIOMS  # noqa: E402
from test_metal_idioms import run  # noqa: E402
from test_metal_spaces import MIXED, RIGHT  # noqa: E402

from metal_host import metal_kernel  # noqa: E402

Found: TypeAlias = dict[str, Any]


def main() -> None:
    kernels = list(_kernels())
    print(len(kernels), flush=True)
    for part, name, look in kernels:
        print(json.dumps({"part": part, "name": name} | look()), flush=True)


def _kernels() -> Iterator[tuple[str, str, Callable[[], Found]]]:
    """Every kernel: its part of the record, its name, and what looks at it."""
    for name in IDIOMS:
        yield "idioms", name, lambda name=name: _idiom(name)
    for name, (text, _) in REFUSED.items():
        yield "refused", name, lambda name=name, text=text: _source(name, text, REFUSED_HEADERS.get(name, ""))
    for part, sources in {"mixed": MIXED, "right": RIGHT}.items():
        for name, (text, header, *_) in sources.items():
            yield part, name, lambda name=name, text=text, header=header: _source(name, text, header)
    for name in BROKEN:
        yield "broken", name, lambda name=name: _broken(name)


def _idiom(name: str) -> Found:
    """Whether it compiles and runs, and its largest error as in the tests."""
    expected = np.asarray(IDIOMS[name].expected(), np.float64)
    try:
        found = run(name, IDIOMS[name]).astype(np.float64).reshape(expected.shape)
    except (RuntimeError, ValueError) as error:
        return {"accepted": False, "said": _first_error(error)}
    error = np.max(np.abs(found - expected) / np.maximum(1, np.abs(expected)))
    return {"accepted": True, "error": float(error), "right": bool(error <= IDIOMS[name].tolerance)}


def _source(name: str, source: str, header: str, **options: Any) -> Found:
    """Whether a kernel compiles; it is run for one thread, which returns at once."""
    body = f"if (threads_per_grid.x == 1) return;\n{source}"
    sizes = {"grid": (1, 1, 1), "threadgroup": (1, 1, 1), "output_shapes": [(64,)], "output_dtypes": [mx.float32]}
    try:
        kernel = metal_kernel(name, ["x"], ["out"], body, header, **options)
        mx.eval(kernel(inputs=[mx.array(X)], template=[("T", mx.float32)], init_value=0, **sizes))
    except (RuntimeError, ValueError) as error:
        return {"accepted": False, "said": _first_error(error)}
    return {"accepted": True}


def _broken(name: str) -> Found:
    broken = BROKEN[name]
    source = f"const float s = 1;\n{broken.source}" if "s" in broken.inputs else broken.source
    return _source(name, source, broken.header, **broken.options)


def _first_error(error: Exception) -> str:
    lines = str(error).splitlines()
    return next((line for line in lines if "error:" in line), lines[min(1, len(lines) - 1)] if lines else "")


if __name__ == "__main__":
    main()
