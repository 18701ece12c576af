"""`tiny-llm batch` in this process: its requests, the expected texts, and its results."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from oracle_cases import Case
from typer.testing import CliRunner

from tiny_llm_course.__main__ import app
from tiny_llm_models.untrained import untrained_config
from tiny_llm_ref import models
from tiny_llm_ref.generate import generate, stream_text
from tiny_llm_ref.serving.distributions import sampler_of
from tiny_llm_ref.serving.request import SamplingParams

__all__ = [
    "COMMAND",
    "ENVIRONMENT",
    "MIXED",
    "call",
    "checkpoint",
    "expected_text",
    "long_batch",
    "results_in",
    "write",
]

COMMAND = ["-m", "tiny_llm_course", "batch"]
KEPT = ("PYTHON", "HF_", "TRANSFORMERS_", "FORCE_")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(KEPT)}
ENVIRONMENT |= {"HF_HUB_OFFLINE": "1", "TERM": "dumb", "LC_ALL": "C.UTF-8", "TINY_LLM_KERNELS": ""}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a checkpoint with one token per byte and a context of 512. Its model never ends a text by itself."""
    path = Case(untrained_config(), seed=0).write(tmp_path_factory.mktemp("checkpoint"))
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": []}))
    return path


def write(file: Path, requests: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(request, ensure_ascii=False) + "\n" for request in requests), encoding="utf-8")
    return file


def results_in(file: Path) -> dict[str, dict[str, Any]]:
    """Return the results in a file, keyed by id. Check that every line is whole, and every id occurs once."""
    text = file.read_text(encoding="utf-8")
    assert text.endswith("\n")
    found = [json.loads(line) for line in text.removesuffix("\n").split("\n")]
    assert len({result["id"] for result in found}) == len(found)
    return {result["id"]: result for result in found}


def call(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["batch", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


MIXED: list[dict[str, Any]] = [
    {"id": "greedy", "prompt": "Once upon a time", "max_tokens": 12},
    {"id": "鰯", "prompt": "昔々、🦜が", "max_tokens": 20, "temperature": 0.9, "top_k": 80, "seed": 7},
    {"prompt": "x" * 90, "max_tokens": 5, "top_p": 0.9, "min_p": 0.01, "temperature": 1, "seed": 2**64 - 1},
    {"id": "penalty", "prompt": "aaaa", "max_tokens": 15, "repetition_penalty": 1.3},
    {"id": "chat", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 9},
]


def expected_text(checkpoint: Path, request: dict[str, Any]) -> str:
    """Return the text that `generate` gives for a request alone."""
    model, tokenizer = models.load(checkpoint)
    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")
    sampler = sampler_of(SamplingParams(**{name: request[name] for name in names if name in request}))
    if "prompt" in request:
        prompt = tokenizer.encode(request["prompt"])
    else:
        prompt = tokenizer.apply_chat_template(request["messages"], add_generation_prompt=True)
    return "".join(stream_text(generate(model, prompt, sampler, request["max_tokens"]), tokenizer))


def long_batch(tmp_path: Path) -> tuple[Path, list[str]]:
    ids = [f"r{i}" for i in range(40)]
    requests = [{"id": id, "prompt": f"text {id}", "max_tokens": 3 + i % 30} for i, id in enumerate(ids)]
    return write(tmp_path / "in.jsonl", requests), ids
