"""Check that native code is formatted according to .clang-format, and that the kernels and their stubs compile without
a warning."""

from __future__ import annotations

import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from metal_host.toolchain import compiler_command, for_this_processor
from tiny_llm_course.tasks.regions import code_files, is_native
from tiny_llm_course.tasks.stubs import make_stub
from tiny_llm_native.compiler import KERNEL_FLAGS
from tiny_llm_native.matmul.arithmetic import KERNELS, Choice, candidates, flags

ROOT = Path(__file__).resolve().parent.parent
REFERENCE, NATIVE = ROOT / "src" / "tiny_llm_ref", ROOT / "src" / "tiny_llm_native"
METAL_HOST = ROOT / "src" / "metal_host"
WARNINGS = [
    "-Wall",
    "-Wextra",
    *(f"-Wno-unused-{what}" for what in ("parameter", "variable", "function", "but-set-variable", "local-typedefs")),
]


# for processors with AMX, whatever processor this machine has
AMX = ["-march=sapphirerapids", "-DTINY_LLM_FEW=Bfloat16", *(f"-DTINY_LLM_{n}=Bfloat16Tiles" for n in ("SOME", "MANY"))]


def main() -> int:
    reference, native = ([file for file in code_files(package) if is_native(file)] for package in (REFERENCE, NATIVE))
    runtime = [ROOT / "src" / "tiny_llm_course" / "native" / "checked.cpp"]
    runtime += [file for part in ("include", "runtime") for file in (METAL_HOST / part).rglob("*.*")]
    formatted = subprocess.run(
        [
            str(Path(sys.executable).with_name("clang-format")),
            "--dry-run",
            "--Werror",
            *map(str, [*reference, *native, *runtime]),
        ]
    )
    compiled = [_compiles(file) for file in [*reference, *native] if _is_kernel(file)]
    compiled += [_compiles(file, *flags(Choice.always(name))) for name in candidates()[1:] for file in KERNELS]
    if platform.machine() == "x86_64":
        compiled += [_compiles(file, *AMX) for file in (*KERNELS, NATIVE / "roofline.cpp")]
    with tempfile.TemporaryDirectory() as folder:
        stubs = [_stub(file, Path(folder)) for file in reference]
        compiled += [_compiles(stub) for stub in stubs if _is_kernel(stub)]
    return int(bool(formatted.returncode) or not all(compiled))


def _is_kernel(file: Path) -> bool:
    return file.suffix == ".cpp" and file.name != "mlx_extension.cpp"


def _stub(file: Path, folder: Path) -> Path:
    """Write the stub of a file of the reference, and return the stub's path. folder: the folder of all stubs, which
    include each other."""
    stub = folder / file.name
    stub.write_text(make_stub(file.read_text(encoding="utf-8"), filename=file.name), encoding="utf-8")
    return stub


def _compiles(file: Path, *more: str) -> bool:
    options = [*KERNEL_FLAGS, for_this_processor(), f"-I{NATIVE}", *WARNINGS, "-Werror", "-fsyntax-only", *more]
    return not subprocess.run([*compiler_command(), *options, str(file)]).returncode


if __name__ == "__main__":
    sys.exit(main())
