"""Checkpoint directories and names that the reference loads: which forms load, and with which settings."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from checkpoint_edits import (
    CASE,
    Change,
    check_error,
    delete,
    edit,
    edit_weights,
    folder,
    scores,
    shard,
    write,
)
from oracle_cases import Case

from tiny_llm_given.config import ModelConfig
from tiny_llm_given.generation_config import sampling_defaults
from tiny_llm_models.untrained import untrained_config
from tiny_llm_ref.models import load_model, resolve

__all__ = ["folder"]


FINE = {
    "sharded": shard,
    "float16 elsewhere": edit(torch_dtype="float16"),
    "inverse frequencies": edit_weights(model__layers__0__self_attn__rotary_emb__inv_freq=[1.0]),
    "rope_scaling of the default type": edit(rope_scaling={"type": "default"}),
    "no rope_scaling": edit(rope_scaling=None, sliding_window=None, use_sliding_window=False),
    "rope_theta, new": edit(drop=("rope_theta",), rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}),
    "rope_theta, both": edit(rope_theta=1.0, rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}),
}


@pytest.mark.parametrize("change", FINE.values(), ids=FINE)
def test_another_form_of_the_same_checkpoint(folder: Path, change: Change):
    expected = scores(load_model(folder))
    mx.eval(expected)
    change(folder)
    assert mx.array_equal(scores(load_model(folder)), expected)


@pytest.mark.parametrize(
    ("changes", "rope_theta"),
    [
        (edit(rope_theta=500.0), 500.0),
        (edit(drop=("rope_theta",), rope_parameters={"rope_theta": 600.0}), 600.0),
        (edit(rope_theta=500.0, rope_parameters={"rope_theta": 600.0}), 600.0),
        (edit(drop=("rope_theta",)), 10000.0),
    ],
    ids=["old", "new", "both", "neither"],
)
def test_rope_theta(folder: Path, changes: Change, rope_theta: float):
    before = scores(load_model(folder))
    mx.eval(before)
    changes(folder)
    model = load_model(folder)
    assert model.config.rope_theta == rope_theta
    assert not mx.allclose(scores(model), before)


def test_tied_checkpoint_may_hold_an_output_layer(tmp_path: Path):
    tied = Case(untrained_config(tie_word_embeddings=True), seed=0).write(tmp_path)
    expected = scores(load_model(tied))
    mx.eval(expected)
    edit_weights(lm_head__weight=np.ones((259, 48), np.float32))(tied)
    assert mx.array_equal(scores(load_model(tied)), expected)


@pytest.mark.parametrize(
    ("generation_config", "config", "expected"),
    [
        ({"eos_token_id": 3}, {"eos_token_id": 9}, (3,)),
        ({"eos_token_id": [3, 4]}, {"eos_token_id": 9}, (3, 4)),
        ({"eos_token_id": 0}, {"eos_token_id": 9}, (0,)),
        ({"eos_token_id": None}, {"eos_token_id": 9}, (9,)),
        ({}, {"eos_token_id": 9}, (9,)),
        ({}, {"eos_token_id": [9, 8]}, (9, 8)),
        ({}, {"eos_token_id": None}, ()),
        ({}, {}, ()),
        (None, {"eos_token_id": 9}, (9,)),
        (None, {}, ()),
    ],
)
def test_eos_token_ids(folder: Path, generation_config: dict[str, Any] | None, config: dict[str, Any], expected: tuple):
    edit(drop=("eos_token_id",))(folder)
    edit(**config)(folder)
    delete("generation_config.json")(folder)
    if generation_config is not None:
        write("generation_config.json", json.dumps(generation_config).encode())(folder)
    assert ModelConfig.from_pretrained(folder).eos_token_ids == expected


QWEN3 = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95}
ADVICE: dict[str, tuple[dict[str, Any], dict[str, float]]] = {
    "qwen3": (QWEN3 | {"eos_token_id": [3, 4], "transformers_version": "5"}, {k: QWEN3[k] for k in list(QWEN3)[1:]}),
    "all": (
        {"min_p": 0.05, "repetition_penalty": 1.05, "top_k": 0},
        {"min_p": 0.05, "repetition_penalty": 1.05, "top_k": 0},
    ),
    "greedy": (QWEN3 | {"do_sample": False}, {"temperature": 0.0, "top_k": 20, "top_p": 0.95}),
    "nothing said": ({"do_sample": None, "temperature": None, "max_new_tokens": 2048}, {}),
}


@pytest.mark.parametrize(("contents", "expected"), ADVICE.values(), ids=ADVICE)
def test_sampling_that_a_checkpoint_advises(tmp_path: Path, contents: dict[str, Any], expected: dict[str, float]):
    write("generation_config.json", json.dumps(contents).encode())(tmp_path)
    assert sampling_defaults(tmp_path) == expected


def test_sampling_without_a_generation_config(tmp_path: Path):
    assert sampling_defaults(tmp_path) == {}


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("temperature", -1, "greater than or equal to 0, got -1"),
        ("temperature", "warm", "a valid number, got 'warm'"),
        ("top_k", 1.5, "a valid integer, got 1.5"),
        ("top_k", True, "a valid integer, got True"),
        ("top_p", 0, "greater than 0, got 0"),
        ("min_p", 2, "less than or equal to 1, got 2"),
        ("repetition_penalty", 0, "greater than or equal to 0.01, got 0"),
    ],
)
def test_sampling_that_cannot_be(tmp_path: Path, name: str, value: object, expected: str):
    write("generation_config.json", json.dumps({name: value}).encode())(tmp_path)
    check_error(
        tmp_path,
        f"generation_config.json: {name}: Input should be {expected}; correct it, or delete it",
        sampling_defaults,
    )


def test_path_may_be_given_in_any_form(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(folder.parent))
    monkeypatch.chdir(folder.parent)
    for form in (folder, str(folder), f"{folder}/", "~/checkpoint", Path("~/checkpoint"), "checkpoint", "./checkpoint"):
        assert resolve(form).samefile(folder)
    monkeypatch.chdir(folder.parent.parent)
    assert resolve(f"{folder.parent.name}/checkpoint").samefile(folder)  # a directory comes before a name on the Hub


HUB = """
import sys, time
from tiny_llm_given.generation_config import sampling_defaults
from tiny_llm_ref.models import load, resolve
start = time.monotonic()
try:
    print(resolve(sys.argv[1]))
    model, tokenizer = load(sys.argv[1])
    print(model.config.vocab_size, tokenizer.encode("a"))
except FileNotFoundError as error:
    print(error)
    assert time.monotonic() - start < 10
"""
REVISION = "0123456789abcdef0123456789abcdef01234567"
NO_NETWORK = {"offline": {"HF_HUB_OFFLINE": "1"}, "unreachable": {"HF_ENDPOINT": "http://127.0.0.1:9"}}


def ask_hub(home: Path, settings: dict[str, str], name: str) -> list[str]:
    """Return the lines that HUB prints in a process of its own: huggingface_hub reads its settings when imported."""
    unset = ("HF_", "HUGGINGFACE_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(unset) and "proxy" not in key.lower()}
    environment = kept | settings | {"HF_HOME": str(home), "NO_PROXY": "*"}
    run = subprocess.run(
        [sys.executable, "-c", HUB, name], env=environment, capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


@pytest.mark.parametrize("settings", NO_NETWORK.values(), ids=NO_NETWORK)
def test_name_that_is_not_downloaded(tmp_path: Path, settings: dict[str, str]):
    assert ask_hub(tmp_path, settings, "Qwen/Qwen3-0.6B") == [
        "'Qwen/Qwen3-0.6B' is neither a directory nor downloaded yet, and the Hub cannot be reached; "
        "give the path of a checkpoint directory, or try again with a network"
    ]


def test_name_of_another_format(tmp_path: Path):
    """From a repository with .gguf files, only the other files are downloaded."""
    cached = tmp_path / "hub" / "models--some-org--some-model-GGUF"
    (cached / "snapshots" / REVISION).mkdir(parents=True)
    (cached / "snapshots" / REVISION / "params.txt").write_text("")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(REVISION)
    assert ask_hub(tmp_path, NO_NETWORK["offline"], "some-org/some-model-GGUF") == [
        "'some-org/some-model-GGUF' has no config.json on the Hub; expected a checkpoint in Hugging Face format. Names "
        "that end in -GGUF are in llama.cpp's format: take the model that it was made from"
    ]


@pytest.mark.parametrize("settings", NO_NETWORK.values(), ids=NO_NETWORK)
def test_name_that_was_downloaded_loads_without_a_network(tmp_path: Path, settings: dict[str, str]):
    cached = tmp_path / "hub" / "models--some-org--some-model"
    CASE.write(cached / "snapshots" / REVISION)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(REVISION)
    path, sizes = ask_hub(tmp_path, settings, "some-org/some-model")
    assert Path(path).samefile(cached / "snapshots" / REVISION)
    assert sizes.startswith("259 [")
