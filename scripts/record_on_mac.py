"""Record, on a Mac, how Apple's compiler and GPU treat the kernels in tests/metal_host: tests/metal_host/apple.json.

The file says for each idiom whether it compiles, and how far its result is from NumPy's. For each source that
metal_host must or must not refuse, it says whether Apple's compiler refuses it. Kernels that break at run time are
compiled but return at once, because their behaviour is undefined. test_metal_apple.py checks the file. On other
machines, `--try` does the same with metal_host and writes nothing, as a test of this script.
"""

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests" / "metal_host"
sys.path[:0] = [str(ROOT / "src"), str(TESTS)]

from broken_kernels import BROKEN, REFUSED, REFUSED_HEADERS, X  # noqa: E402
from metal_idioms import IDIOMS  # noqa: E402
from test_metal_idioms import run  # noqa: E402
from test_metal_spaces import MIXED, RIGHT  # noqa: E402

from metal_host import metal_kernel  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--try", action="store_true", dest="is_trial", help="with metal_host, and without a file")
    is_trial = parser.parse_args().is_trial
    if not is_trial and not mx.metal.is_available():
        print("there is no Metal here: --try runs the same with metal_host", file=sys.stderr)
        return 1
    os.environ["METAL_HOST"] = "plain" if is_trial else "off"
    record = {
        "machine": f"{platform.machine()}, {platform.platform()}, MLX {mx.__version__}",  # type: ignore[attr-defined]
        "idioms": {name: _idiom(name) for name in IDIOMS},
        "refused": {name: _source(name, text, REFUSED_HEADERS.get(name, "")) for name, (text, _) in REFUSED.items()},
        "mixed": {name: _source(name, *MIXED[name][:2]) for name in MIXED},
        "right": {name: _source(name, *RIGHT[name]) for name in RIGHT},
        "broken": {name: _broken(name) for name in BROKEN},
    }
    text = json.dumps(record, indent=2, sort_keys=True)
    print(text) if is_trial else (TESTS / "apple.json").write_text(text + "\n", encoding="utf-8")
    return 0


def _idiom(name: str) -> dict[str, Any]:
    """Return whether an idiom compiles and runs, and its largest error, computed as in the tests."""
    expected = np.asarray(IDIOMS[name].expected(), np.float64)
    try:
        found = run(name, IDIOMS[name]).astype(np.float64).reshape(expected.shape)
    except (RuntimeError, ValueError) as error:
        return {"accepted": False, "said": _first_error(error)}
    error = np.max(np.abs(found - expected) / np.maximum(1, np.abs(expected)))
    return {"accepted": True, "error": float(error), "right": bool(error <= IDIOMS[name].tolerance)}


def _source(name: str, source: str, header: str, **options: Any) -> dict[str, Any]:
    """Return whether a kernel compiles. It runs with one thread, which returns at once."""
    body = f"if (threads_per_grid.x == 1) return;\n{source}"
    kernel = metal_kernel(name, ["x"], ["out"], body, header, **options)
    sizes = {"grid": (1, 1, 1), "threadgroup": (1, 1, 1), "output_shapes": [(64,)], "output_dtypes": [mx.float32]}
    try:
        mx.eval(kernel(inputs=[mx.array(X)], template=[("T", mx.float32)], init_value=0, **sizes))
    except (RuntimeError, ValueError) as error:
        return {"accepted": False, "said": _first_error(error)}
    return {"accepted": True}


def _broken(name: str) -> dict[str, Any]:
    broken = BROKEN[name]
    source = f"const float s = 1;\n{broken.source}" if "s" in broken.inputs else broken.source
    return _source(name, source, broken.header, **broken.options)


def _first_error(error: Exception) -> str:
    lines = str(error).splitlines()
    return next((line for line in lines if "error:" in line), lines[min(1, len(lines) - 1)] if lines else "")


if __name__ == "__main__":
    sys.exit(main())
