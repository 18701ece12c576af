"""C++ is formatted as .clang-format says, and the stubs of the reference compile without a warning of their own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from metal_host.toolchain import compiler_command, for_this_processor
from tiny_llm_course.tasks.regions import code_files, is_native
from tiny_llm_course.tasks.stubs import make_stub
from tiny_llm_native.compiler import KERNEL_FLAGS

ROOT = Path(__file__).resolve().parent.parent
REFERENCE, NATIVE = ROOT / "src" / "tiny_llm_ref", ROOT / "src" / "tiny_llm_native"
METAL_HOST = ROOT / "src" / "metal_host"
WARNINGS = [
    "-Wall",
    "-Wextra",
    *(f"-Wno-unused-{what}" for what in ("parameter", "variable", "function", "but-set-variable", "local-typedefs")),
]


def main() -> int:
    files = [file for package in (REFERENCE, NATIVE) for file in code_files(package) if is_native(file)]
    runtime = [ROOT / "src" / "tiny_llm_course" / "native" / "checked.cpp"]
    runtime += [file for part in ("include", "runtime") for file in (METAL_HOST / part).rglob("*.*")]
    formatted = subprocess.run(
        [str(Path(sys.executable).with_name("clang-format")), "--dry-run", "--Werror", *map(str, [*files, *runtime])]
    )
    unfit = [file for file in files if _is_kernel(file) and not _compiles(file, files)]
    return int(bool(formatted.returncode) | bool(unfit))


def _is_kernel(file: Path) -> bool:
    return file.suffix == ".cpp" and file.name != "mlx_extension.cpp"


def _compiles(file: Path, files: list[Path]) -> bool:
    """The file, and its stub."""
    with tempfile.TemporaryDirectory() as folder:
        for other in files:
            stub = make_stub(other.read_text(encoding="utf-8"), filename=other.name)
            (Path(folder) / other.name).write_text(stub, encoding="utf-8")
        options = [*KERNEL_FLAGS, for_this_processor(), f"-I{NATIVE}", *WARNINGS, "-Werror", "-fsyntax-only"]
        command = [*compiler_command(), *options]
        runs = [subprocess.run([*command, str(place / file.name)]) for place in (file.parent, Path(folder))]
        return not any(run.returncode for run in runs)


if __name__ == "__main__":
    sys.exit(main())
