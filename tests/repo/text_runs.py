"""Runs of `tiny-llm main` and `chat` on a checkpoint of bytes, and the reference's results for the same prompts."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from learner import Terminal, run_python
from typer.testing import CliRunner

from tiny_llm_course.__main__ import app
from tiny_llm_given.config import ModelConfig
from tiny_llm_given.weights import expected_shapes
from tiny_llm_models.untrained import untrained_config, write_untrained
from tiny_llm_ref import models
from tiny_llm_ref.generate import generate_simple, stream_text
from tiny_llm_ref.sampler import make_sampler

__all__ = [
    "COMMAND",
    "OVERHEAD",
    "PROMPT",
    "Reference",
    "as_line",
    "call",
    "checkpoint",
    "environment",
    "in_terminal",
    "reference",
    "run",
]

COMMAND = ["-m", "tiny_llm_course"]
PROMPT = "昔々、🦜が"
OVERHEAD = len("U" + "user\n" + "E" + "\n" + "U" + "assistant\n")  # chat template: U and E are one token each


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a checkpoint in bfloat16 with a context of 512 tokens, one per byte. Its model never ends a text by
    itself."""
    path = tmp_path_factory.mktemp("checkpoint")
    config = untrained_config()
    weights = write_untrained(path, config, expected_shapes(ModelConfig.from_hf(config)))
    halves = {name: mx.array(weight).astype(mx.bfloat16) for name, weight in weights.items()}
    mx.save_safetensors(str(path / "model.safetensors"), halves)
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": []}))
    return path


class Reference:
    """The expected output of the commands, from the reference's own functions. One sampler serves all calls."""

    def __init__(self, checkpoint: Path, dtype: mx.Dtype | None):
        self.model, self.tokenizer = models.load(checkpoint, dtype)
        self.sampler: Any = None

    def sample(self, **settings: Any) -> Reference:
        self.sampler = make_sampler(**settings)
        return self

    def text(self, prompt: str | list[dict[str, str]], max_tokens: int) -> str:
        encode = self.tokenizer.encode if isinstance(prompt, str) else self.tokenizer.apply_chat_template
        tokens = encode(prompt) if isinstance(prompt, str) else encode(prompt, add_generation_prompt=True)
        new = generate_simple(self.model, tokens, self.sampler, max_tokens)
        return "".join(stream_text(new, self.tokenizer))


@pytest.fixture(scope="module")
def reference(checkpoint: Path) -> Reference:
    return Reference(checkpoint, mx.float32 if mx.default_device().type == mx.DeviceType.cpu else None)


def environment(**changes: str) -> dict[str, str]:
    dropped = ("PYTHON", "HF_", "TRANSFORMERS_", "FORCE_")
    return (
        {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        | {"HF_HUB_OFFLINE": "1", "TERM": "dumb"}
        | changes
    )


def run(*arguments: object, stdin: str | None = None, **env: str) -> tuple[int, bytes, str]:
    """Run a command. Return its exit code, stdout and stderr. stdin: None means /dev/null."""
    result = run_python([*COMMAND, *map(str, arguments)], Path.cwd(), environment(**env), stdin, timeout=600)
    return result.returncode, result.stdout.encode(), result.stderr


def call(*arguments: object) -> tuple[int, bytes, str]:
    """Run a command like `run`, but in this process, which is faster."""
    result = CliRunner().invoke(app, [*map(str, arguments)], input="")
    return result.exit_code, result.stdout_bytes, result.stderr


def in_terminal(*arguments: object, **env: str) -> Terminal:
    return Terminal([sys.executable, *COMMAND, *map(str, arguments)], Path.cwd(), environment(**env))


def as_line(text: str) -> bytes:
    return (text if text.endswith("\n") else text + "\n").encode()
