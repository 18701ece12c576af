"""What students hand in, for tests of `tiny-llm grade`: right and wrong solutions of RMSNorm, week 1, day 4."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from learner import run_python

from tiny_llm_course.tasks.stubs import make_stub

__all__ = ["ENVIRONMENT", "FOLDER", "REFERENCE", "RIGHT", "ROOT"]
__all__ += ["at_call", "at_import", "grade", "package", "stub", "write"]

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "src" / "tiny_llm_ref"
RIGHT = (REFERENCE / "layer_norm.py").read_text()
CALL = "        x32 = x.astype(mx.float32)\n"
FOLDER = tempfile.TemporaryDirectory(prefix="graded-here-")  # everything graded here; its name identifies the workers
ENVIRONMENT = os.environ | {"COLUMNS": "120", "TMPDIR": FOLDER.name}


def stub(name: str) -> str:
    return make_stub((REFERENCE / name).read_text())


def at_call(*lines: str) -> str:
    """Return the right solution of RMSNorm, with these lines at the beginning of each call."""
    assert RIGHT.count(CALL) == 1
    return RIGHT.replace(CALL, "".join(f"        {line}\n" for line in lines) + CALL)


def at_import(*lines: str) -> str:
    return RIGHT.replace("import mlx.core as mx\n", "import mlx.core as mx\n" + "".join(f"{line}\n" for line in lines))


def write(file: Path, content: str = "x = 1\n") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)


def package(folder: Path, **sources: str) -> None:
    folder.mkdir(parents=True)
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source)


def grade(*arguments: Any, fresh: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the command. fresh: whether the run ignores all grades that an earlier run of these tests has kept."""
    words = [*map(str, arguments), *(["--fresh"] if fresh else [])]
    return run_python(["-m", "tiny_llm_course", "grade", *words], Path.cwd(), ENVIRONMENT, timeout=900)
