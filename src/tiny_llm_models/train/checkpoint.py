"""Writing a trained model as others load it: a folder in Hugging Face format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from .recipes import Recipe
from .tokenizer import save_tokenizer

__all__ = ["write_checkpoint"]

_ARCHITECTURES = {"qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}


def write_checkpoint(folder: Path, recipe: Recipe, model: torch.nn.Module, tokenizer: Tokenizer) -> None:
    """config.json, generation_config.json, tokenizer files and model.safetensors in bfloat16."""
    save_tokenizer(tokenizer, folder)
    turn, text = (tokenizer.token_to_id(token) for token in ("<|im_end|>", "<|endoftext|>"))
    config = {
        "architectures": [_ARCHITECTURES[recipe.model_type]],
        "model_type": recipe.model_type,
        **recipe.config(),
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
        "bos_token_id": None,
        "eos_token_id": turn,
    }
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", {"eos_token_id": [turn, text], "pad_token_id": text})
    weights = {
        name: weight.detach().to("cpu", torch.bfloat16).contiguous()
        for name, weight in model.state_dict().items()
        if not (recipe.tied and name == "lm_head.weight")
    }
    unfinished = folder / "model.unfinished"
    save_file(weights, unfinished, metadata={"format": "pt"})
    unfinished.replace(folder / "model.safetensors")


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
