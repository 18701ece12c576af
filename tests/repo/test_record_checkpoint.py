"""scripts/record_checkpoint.py, with which users report how a checkpoint runs on their machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from thinking_checkpoint import ANSWER, COUNT, THINKING, write_thinking

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "record_checkpoint.py"


def record(folder: Path, *options: object) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    out = folder / "record.json"
    command = [sys.executable, str(SCRIPT), *map(str, options), "--out", str(out)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL)
    return run, json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}


@pytest.mark.parametrize("options", [[], ["--bits", 8]], ids=["as it is", "8 bits"])
def test_a_bundled_model(tmp_path: Path, options: list[object]) -> None:
    run, found = record(tmp_path, "story", "--max-tokens", 20, *options)
    assert run.returncode == 0, run.stderr
    assert found["model"] == "story"
    assert {"python", "mlx", "mlx-lm", "transformers"} <= found["versions"].keys()
    assert "processors" in found["machine"]
    assert (found["config"]["model_type"], found["config"]["num_hidden_layers"]) == ("qwen3", 6)
    assert len(found["runs"]) == 3
    for each in found["runs"]:
        assert each["text"] in run.stdout
        assert each["same_in_mlx_lm"] == each["tokens"] > 5
        assert each["tokens_per_second"] > 0
        assert (each["thinks"], each["thinking"]) == (False, "")
    total = sum(each["tokens"] for each in found["runs"])
    assert f"mlx-lm agrees on {total} of {total} tokens" in run.stderr


def test_a_model_that_can_think(tmp_path: Path) -> None:
    run, found = record(tmp_path, write_thinking(tmp_path / "model", temperature=2.0))
    assert run.returncode == 0, run.stderr
    assert [each["thinks"] for each in found["runs"]] == [False] * 3 + [True] * 3
    assert {each["text"] for each in found["runs"]} == {ANSWER}
    assert [each["thinking"] for each in found["runs"]] == [""] * 3 + [THINKING] * 3
    assert [each["same_in_mlx_lm"] for each in found["runs"]] == [3] * 3 + [3 + COUNT] * 3


def test_what_cannot_be_recorded(tmp_path: Path) -> None:
    run, found = record(tmp_path, tmp_path / "nowhere")
    assert (run.returncode, run.stdout, found) == (1, "", {})
    assert run.stderr.startswith("error: --model: no checkpoint directory")
