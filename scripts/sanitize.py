"""Run the kernels' tests under the sanitizers of the compiler: `python scripts/sanitize.py [WORD...]`.

The calls that tests make of the reference's kernels are recorded, and made again by a program (sanitize.cpp) that is
compiled with all kernels: once for addresses and undefined behaviour, once for races between threads. Python and MLX
take no part in that, so that whatever is found is in a kernel or in the pool of threads. What a call computes is not
looked at: the tests do that. WORDs: only tests whose names contain one, as for pytest's -k.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "src" / "tiny_llm_ref" / "kernels"
FLAGS = ["-std=c++20", "-O1", "-g", "-march=native", "-fno-omit-frame-pointer", f"-I{KERNELS}"]
SANITIZERS = {
    "addresses and undefined behaviour": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "races": ["-fsanitize=thread"],
}
MOST_CALLS, MOST_BYTES = 60, 2**24  # of a kernel: calls with different shapes; and of a call


def main(words: list[str]) -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        record(folder / "calls", words)
        results = [check(kind, flags, folder) for kind, flags in SANITIZERS.items()]
    return int(not all(results))


def record(file: Path, words: list[str]) -> None:
    """Run the tests of days with kernels; their calls come into the file."""
    tests = [
        str(test) for test in sorted((ROOT / "tests").glob("test_week_*.py")) if "impl.kernels" in test.read_text()
    ]
    command = [sys.executable, "-m", "pytest", "-q", "--impl=tiny_llm_ref", "-p", "sanitize", "-p", "no:cacheprovider"]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "scripts")])
    environment = os.environ | {"PYTHONPATH": path, "RECORDED_CALLS": str(file)}
    chosen = ["-k", " or ".join(words)] if words else []
    subprocess.run([*command, *chosen, *tests], cwd=ROOT, env=environment, check=True)


def check(kind: str, flags: list[str], folder: Path) -> bool:
    """Compile with these flags and make the calls."""
    sources = [Path(__file__).with_suffix(".cpp"), *KERNELS.glob("*.cpp")]
    sources = [source for source in sources if source.name != "bridge.cpp"]

    def compiled(source: Path) -> str:
        target = str(folder / f"{source.stem}.o")
        subprocess.run(["g++", *FLAGS, *flags, "-c", str(source), "-o", target], check=True)
        return target

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, sources))
    program = str(folder / "sanitize")
    subprocess.run(["g++", *flags, "-rdynamic", *objects, "-o", program], check=True)
    print(f"{kind}: ", end="", flush=True)
    command = [program, str(folder / "calls")]
    if flags == SANITIZERS["races"]:
        command = [
            "setarch",
            "-R",
            *command,
        ]  # else some kernels of Linux place memory where the sanitizer keeps its own
    return subprocess.run(command).returncode == 0


def pytest_configure(config: Any) -> None:
    """As a plugin of pytest: write down what kernels are called with."""
    if file := os.environ.get("RECORDED_CALLS"):
        import numpy as np

        from tiny_llm_ref.kernels import extension

        load, seen = extension.load, set[Any]()
        out = open(file, "ab")  # noqa: SIM115  to the end of the process

        def recording_load(source: Path, name: str, *more: Any) -> Any:
            run = load(source, name, *more)

            def call(inputs: Any, outputs: Any, numbers: Any = ()) -> Any:
                form = name, *((x.shape, str(x.dtype)) for x in inputs), *((tuple(s), str(d)) for s, d in outputs)
                known = sum(other[0] == name for other in seen)
                if form not in seen and known < MOST_CALLS and sum(x.nbytes for x in inputs) < MOST_BYTES:
                    seen.add(form)
                    out.write(_call(np, name, inputs, outputs, numbers))
                    out.flush()
                return run(inputs, outputs, numbers)

            return call

        extension.load = recording_load


DTYPES = {"float32": (0, 4), "bfloat16": (1, 2), "float16": (2, 2), "uint32": (3, 4), "int32": (4, 4)}  # as kernel.h


def _call(np: Any, name: str, inputs: Any, outputs: Any, numbers: Any) -> bytes:
    import mlx.core as mx

    text = f"{name} {len(inputs)} {len(outputs)} {len(numbers)} {' '.join(str(float(number)) for number in numbers)}\n"
    parts = [text.encode()]
    for x in inputs:
        number, size = DTYPES[str(x.dtype).removeprefix("mlx.core.")]
        raw = mx.contiguous(x).view(mx.uint16 if size == 2 else mx.uint32) if x.ndim else x.reshape(1).view(mx.uint32)
        shape = " ".join(map(str, x.shape))
        parts += [f"{number} {x.ndim} {shape} {x.nbytes}\n".encode(), np.array(raw).tobytes()]
    for shape, dtype in outputs:
        number, size = DTYPES[str(dtype).removeprefix("mlx.core.")]
        parts.append(f"{number} {len(shape)} {' '.join(map(str, shape))} {int(np.prod(shape)) * size}\n".encode())
    return b"".join(parts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
