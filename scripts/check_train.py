"""Test the training of the bundled models, and these models in Transformers, with the course installed from a wheel.

Both tests need PyTorch, which is not in the lock file. So pip installs PyTorch into a virtual environment of its own,
.venv/train, together with a wheel of this tree. All other packages have the same versions there as in the running
Python: those of the lock file.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".venv" / "train"
REQUIREMENTS = ROOT / "src" / "tiny_llm_models" / "training" / "requirements.txt"

NOT_LOCKED = {"tiny-llm", "pip", "setuptools", "wheel"}


def main() -> int:
    python = HOME / "bin" / "python"
    if not python.exists():
        venv.create(HOME, with_pip=True)
    constraints = HOME / "constraints.txt"
    locked = {d.metadata["Name"]: d.version for d in distributions() if d.metadata["Name"] not in NOT_LOCKED}
    constraints.write_text("".join(f"{name}=={number}\n" for name, number in sorted(locked.items())), encoding="utf-8")
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--constraint", constraints]
    subprocess.run([*pip, "--requirement", REQUIREMENTS, ROOT], check=True)
    tests = subprocess.run([python, "-m", "pytest", "-q", "tests/train"], cwd=ROOT)
    return tests.returncode


if __name__ == "__main__":
    sys.exit(main())
