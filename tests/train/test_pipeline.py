"""The pipeline that makes the bundled models, run on a small scale. Needs PyTorch: scripts/check train."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from tiny_llm_models import BUNDLED
from tiny_llm_models.train.muon import orthogonal
from tiny_llm_models.train.recipes import RECIPES, SMOKE, SMOKE_STAGES
from tiny_llm_models.train.training import Trainer
from tiny_llm_ref.config import ModelConfig
from tiny_llm_ref.weights import load_weights

PIPELINE = [sys.executable, "-m", "tiny_llm_models.train"]
KILLED = """
import os, signal, sys
from tiny_llm_models.train import training
from tiny_llm_models.train.__main__ import app
training._SAVE_SECONDS = 0
run = training.Trainer.run
def die_at_step_3(trainer, report):
    def watched(step):
        report(step)
        if step["step"] == 4:  # which is not saved yet
            os.kill(os.getpid(), signal.SIGKILL)
    run(trainer, watched)
training.Trainer.run = die_at_step_3
app(["train", "story", "--smoke", "--work", sys.argv[1]])
"""


@pytest.fixture
def device() -> None:
    """PyTorch's is its own choice."""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where everything was made once, with one command."""
    work = tmp_path_factory.mktemp("work")
    subprocess.run([*PIPELINE, "all", "--smoke", "--work", str(work)], check=True, timeout=600)
    return work / "smoke"


@pytest.mark.parametrize("name", BUNDLED)
def test_everything_is_made(work: Path, name: str):
    folder = work / "checkpoints" / name
    assert {path.name for path in folder.iterdir()} == {
        *("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"),
        *("README.md", "README.ja.md", "loss.svg", "evaluation.json", "training.jsonl"),
    }
    for card in ("README.md", "README.ja.md"):
        text = (folder / card).read_text(encoding="utf-8")
        assert f"# {name}\n" in text
        assert "{" not in text
    figures = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
    assert 100 < figures["perplexity"]["english"]["bfloat16"] < 10_000  # nothing was learnt yet
    assert ("agreement" in figures) == (name == "story-draft")


@pytest.mark.parametrize("name", BUNDLED)
def test_checkpoint_has_the_trained_weights(work: Path, name: str):
    folder = work / "checkpoints" / name
    state = torch.load(work / name / "checkpoint.pt")
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
    assert set(loaded) == set(state["model"])
    for key, weight in loaded.items():
        assert torch.equal(weight, state["model"][key].bfloat16().float())
    assert load_weights(folder, ModelConfig.from_pretrained(folder)).keys() == set(loaded) - (
        {"lm_head.weight"} if SMOKE[name].tied else set()
    )


def new_trainer(work: Path, folder: Path) -> Trainer:
    return Trainer(SMOKE["story"], SMOKE_STAGES, sorted(work.glob("corpus-*.npz")), folder)


def test_a_killed_training_goes_on_as_if_nothing_had_happened(work: Path, tmp_path: Path):
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], timeout=300)
    assert killed.returncode == -signal.SIGKILL
    saved = torch.load(tmp_path / "smoke" / "story" / "checkpoint.pt")
    assert saved["step"] == 3
    subprocess.run([*PIPELINE, "train", "story", "--smoke", "--work", str(tmp_path)], check=True, timeout=300)
    one, other = (torch.load(path / "story" / "checkpoint.pt") for path in (work, tmp_path / "smoke"))
    assert one["step"] == other["step"] > 4
    for key, weight in one["model"].items():
        torch.testing.assert_close(other["model"][key], weight, rtol=1e-4, atol=1e-6)


def test_the_log_forgets_steps_that_were_lost(work: Path, tmp_path: Path):
    trainer = new_trainer(work, tmp_path)
    trainer.run(lambda step: None)
    log = tmp_path / "log.jsonl"
    log.write_text('{"step": 1}\n{"step": 2, "loss": 1}\n{"step": 999}\n{"st', encoding="utf-8")
    new_trainer(work, tmp_path)
    assert log.read_text(encoding="utf-8") == '{"step": 1}\n{"step": 2, "loss": 1}\n'


def test_training_learns(work: Path, tmp_path: Path):
    """Half a dozen steps on the same few documents."""
    trainer = new_trainer(work, tmp_path)
    losses: list[float] = []
    trainer.run(lambda step: losses.append(step["loss"]))
    losses = [loss for loss in losses if not math.isnan(loss)]  # a batch of the last stage may have no text to learn
    assert losses[-1] < losses[0] - 1


@pytest.mark.parametrize("shape", [(5, 9), (9, 5), (7, 7)])
def test_muon_updates_are_nearly_orthogonal(shape: tuple[int, int]):
    torch.manual_seed(0)
    singular = torch.linalg.svdvals(orthogonal(torch.randn(shape)))
    assert singular.min() > 0.5
    assert singular.max() < 1.3


@pytest.mark.parametrize("name", BUNDLED)
def test_sizes_can_be_quantised_in_every_group_size(name: str):
    recipe = RECIPES[name]
    for size in (recipe.hidden_size, recipe.intermediate_size, recipe.heads * 64):
        assert size % 128 == 0


def test_an_unknown_model_is_named():
    result = subprocess.run([*PIPELINE, "train", "storm"], capture_output=True, text=True)
    assert result.returncode == 2
    assert "expected one of story, story-draft, story-qwen2, got 'storm'" in " ".join(result.stderr.split())
