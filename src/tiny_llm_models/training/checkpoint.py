"""Checkpoints of trained models: folders in Hugging Face format."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from ..hf_format import ARCHITECTURES, END, TURN_END, write_json
from .recipes import Recipe
from .tokenizer import save_tokenizer

__all__ = ["mix_in", "weights_of", "write_checkpoint", "write_defaults"]


def write_checkpoint(folder: Path, recipe: Recipe, model: torch.nn.Module, tokenizer: Tokenizer) -> None:
    """Write config.json, generation_config.json, the tokenizer's files, and model.safetensors in bfloat16."""
    save_tokenizer(tokenizer, folder)
    turn, text = (tokenizer.token_to_id(token) for token in (TURN_END, END))
    config = {
        "architectures": [ARCHITECTURES[recipe.model_type]],
        "model_type": recipe.model_type,
        **recipe.config(),
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
        "bos_token_id": None,
        "eos_token_id": turn,
    }
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", {"eos_token_id": [turn, text], "pad_token_id": text})
    weights = {
        name: weight.detach().to("cpu", torch.bfloat16).contiguous()
        for name, weight in model.state_dict().items()
        if not (recipe.tied and name == "lm_head.weight")
    }
    unfinished = folder / "model.unfinished"
    save_file(weights, unfinished, metadata={"format": "pt"})
    unfinished.replace(folder / "model.safetensors")


def mix_in(model: torch.nn.Module, folder: Path, share: float) -> None:
    """Average a model's weights with those of a checkpoint from which its training went on.

    share: the checkpoint's share of the average, from 0 to 1.

    Source: Wortsman et al. 2022, arXiv:2109.01903.
    """
    earlier = load_file(folder / "model.safetensors")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.lerp_(earlier[name].to(weight), share)


def write_defaults(folder: Path, settings: dict[str, Any]) -> None:
    """Add sampling settings to generation_config.json."""
    path = folder / "generation_config.json"
    write_json(path, {**json.loads(path.read_text(encoding="utf-8")), "do_sample": True, **settings})


def weights_of(folder: Path) -> str:
    """Return the digest of a checkpoint's weights. Each measurement is stored with this digest, so that a measurement
    of older weights is noticed."""
    return sha256((folder / "model.safetensors").read_bytes()).hexdigest()
