"""Run the kernels' tests with the compiler's sanitizers: `python scripts/sanitize.py [WORD...]`.

The script records the tests' calls of the reference's kernels. A program, sanitize.cpp compiled with all kernels, then
repeats these calls: once to check addresses and undefined behaviour, and once to find races between threads. Python and
MLX are not part of the program, so every fault is in a kernel or in the thread pool. The program does not check the
results of the calls, because the tests check them. WORD: run only tests whose names contain one of the words.
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
KERNELS, NATIVE = ROOT / "src" / "tiny_llm_ref" / "kernels", ROOT / "src" / "tiny_llm_native"
FLAGS = ["-std=c++20", "-O1", "-g", "-march=native", "-fno-omit-frame-pointer", f"-I{NATIVE}"]
SANITIZERS = {
    "addresses and undefined behaviour": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "races": ["-fsanitize=thread"],
}
MOST_CALLS, MOST_BYTES = 100, 2**24  # limits: different calls per kernel; bytes of a call's inputs
NOT_LINKED = ("mlx_extension.cpp", "unquantised.cpp")  # the first needs MLX, the second has the names of block.cpp


def main(words: list[str]) -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        record(folder / "calls", words)
        results = [check(kind, flags, folder) for kind, flags in SANITIZERS.items()]
    return int(not all(results))


def record(file: Path, words: list[str]) -> None:
    """Run the tests of days with kernels, and record the calls of kernels in the file."""
    tests = [
        str(test) for test in sorted((ROOT / "tests").glob("test_week_*.py")) if "impl.kernels" in test.read_text()
    ]
    command = [sys.executable, "-m", "pytest", "-q", "--impl=tiny_llm_ref", "-p", "sanitize", "-p", "no:cacheprovider"]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "scripts")])
    environment = os.environ | {"PYTHONPATH": path, "RECORDED_CALLS": str(file)}
    chosen = ["-k", " or ".join(words)] if words else []
    subprocess.run([*command, *chosen, *tests], cwd=ROOT, env=environment, check=True)


def check(kind: str, flags: list[str], folder: Path) -> bool:
    """Compile the program with these flags, and run it. Return True if it finds no fault."""
    sources = [Path(__file__).with_suffix(".cpp"), *KERNELS.glob("*.cpp"), *NATIVE.rglob("*.cpp")]
    sources = [source for source in sources if source.name not in NOT_LINKED]

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
        # otherwise some versions of Linux place memory where the sanitizer keeps its own memory
        command = ["setarch", "-R", *command]
    return subprocess.run(command).returncode == 0


def pytest_configure(config: Any) -> None:
    """Record the calls of kernels, when this module runs as a pytest plugin."""
    if file := os.environ.get("RECORDED_CALLS"):
        import numpy as np

        from tiny_llm_native import extension

        load, seen = extension.load, set[Any]()
        out = open(file, "ab")  # noqa: SIM115  open until the process ends

        def recording_load(source: Path, name: str, *more: Any) -> Any:
            run = load(source, name, *more)

            def call(inputs: Any, outputs: Any, numbers: Any = (), changed: Any = ()) -> Any:
                results = [*((x.shape, x.dtype) for x in changed), *outputs]
                known = sum(other[0] == name for other in seen)
                if known < MOST_CALLS and sum(x.nbytes for x in inputs) < MOST_BYTES:
                    given = ((x.shape, _strides(x), str(x.dtype)) for x in inputs)
                    form = name, *given, *((tuple(s), str(d)) for s, d in results)
                    if form not in seen:
                        seen.add(form)
                        out.write(_call(np, name, inputs, results, numbers))
                        out.flush()
                return run(inputs, outputs, numbers, changed)

            return call

        extension.load = recording_load


def _strides(x: Any) -> tuple[int, ...]:
    """Return the distance between neighbours along each axis, in elements. For an array that is read backwards, return
    the strides of a copy."""
    import mlx.core as mx

    mx.eval(x)
    strides = tuple(stride // x.itemsize for stride in memoryview(x).strides or ()) if x.size else (0,) * x.ndim
    return _strides(mx.contiguous(x)) if min(strides, default=0) < 0 else strides


# keyed by dtype: its number in kernel.h, and its size in bytes
DTYPES = {"float32": (0, 4), "bfloat16": (1, 2), "float16": (2, 2), "uint32": (3, 4), "int32": (4, 4)}


def _call(np: Any, name: str, inputs: Any, outputs: Any, numbers: Any) -> bytes:
    import mlx.core as mx

    text = f"{name} {len(inputs)} {len(outputs)} {len(numbers)} {' '.join(str(float(number)) for number in numbers)}\n"
    parts = [text.encode()]
    for x in inputs:
        number, size = DTYPES[str(x.dtype).removeprefix("mlx.core.")]
        raw = np.array(mx.contiguous(x).reshape(-1).view(mx.uint16 if size == 2 else mx.uint32)).reshape(x.shape)
        strides = _strides(x)
        reach = 1 + sum((n - 1) * stride for n, stride in zip(x.shape, strides, strict=True))
        memory = np.full(reach if x.size else 0, 0xFFFF, raw.dtype)  # also in the gaps between elements
        np.lib.stride_tricks.as_strided(memory, x.shape, [size * stride for stride in strides])[...] = raw
        form = " ".join(map(str, [number, x.ndim, *x.shape, *strides, memory.nbytes]))
        parts += [f"{form}\n".encode(), memory.tobytes()]
    for shape, dtype in outputs:
        number, size = DTYPES[str(dtype).removeprefix("mlx.core.")]
        parts.append(f"{number} {len(shape)} {' '.join(map(str, shape))} {int(np.prod(shape)) * size}\n".encode())
    return b"".join(parts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
