"""The scripts of benches/ run, with the smallest possible work, and write whole files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = sorted((ROOT / "benches" / "results").glob("*.json"))


device = pytest.fixture(lambda: None)  # they choose their own


@pytest.mark.parametrize(
    ("script", "printed"),
    [
        ("ahead.py", "attention, growing"),
        ("one_token.py", "whole step"),
        ("story.py", "./course main --bits 4 --layers tuned"),
        ("quantisation.py", "bits"),
        ("arithmetic.py", "float32"),
        ("prefix_cache.py", "prefix"),
        ("speculative.py", "accepted"),
        ("chunked_prefill.py", "longest gap"),
        ("serving.py", "no sampling"),
        ("server.py", "pages in use: 0"),
    ],
)
def test_smoke(script, printed):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TINY_LLM")}
    kept["TINY_LLM_ARITHMETIC"] = "float32"
    run = subprocess.run(
        [sys.executable, f"benches/{script}", "--smoke"], cwd=ROOT, env=kept, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert printed in run.stdout


@pytest.mark.parametrize(("script", "said"), [("peers.py", "llama-bench"), ("serving.py", "llama-batched-bench")])
def test_benches_with_peers_explain_themselves(script, said):
    run = subprocess.run([sys.executable, f"benches/{script}", "--help"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0
    assert said in run.stdout


@pytest.mark.parametrize("file", RESULTS, ids=lambda file: file.name)
def test_results_say_how_to_measure_them_again(file):
    found = json.loads(file.read_text(encoding="utf-8"))
    assert found["machine"]
    assert found["versions"]["mlx"]
    script = found["command"].split()[1] if found["command"].startswith("python ") else None
    assert script is None or (ROOT / script).is_file()
    assert script is not None or found["command"].startswith("tiny-llm ")
