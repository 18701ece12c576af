"""Samples many texts at once from a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, DynamicCache

from ..hf_format import END, TURN_END

__all__ = ["GREEDY", "LIMIT", "Sampler", "Settings", "load_model"]

LIMIT = 400  # the most tokens that a model adds to a text
_BATCH_TOKENS = {"cpu": 24_000, "cuda": 400_000}  # the most tokens in a batch's prompts and continuations
_COMPACT = 0.8  # finished texts are removed from the batch when less than this share of its texts is unfinished


@dataclass(frozen=True)
class Settings:
    """The sampling settings.

    temperature: 0 chooses the most likely token.
    min_p: a token may be drawn if its probability is at least min_p times the greatest probability.

    Source: min-p, Nguyen et al. 2024, arXiv:2407.01082.
    """

    temperature: float = 0.7
    min_p: float = 0.0


GREEDY = Settings(0)


def load_model(folder: Path, bits: int | None = None, group_size: int = 64) -> Any:
    """Load a model in float32.

    bits: if given, MLX's affine quantisation rounds the matrices to this many bits per weight, in groups of group_size
    weights.
    """
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    matrices = [weight for weight in model.parameters() if weight.dim() == 2]
    for weight in matrices if bits else ():
        packed = mx.quantize(mx.array(weight.detach().numpy()).astype(mx.bfloat16), group_size, bits)
        scales, biases = (part.astype(mx.float32) for part in packed[1:])
        rounded = mx.dequantize(packed[0], scales, biases, group_size, bits)
        weight.data = torch.from_numpy(np.array(rounded))
    return model.eval().to("cuda" if torch.cuda.is_available() else "cpu")


class Sampler:
    """A model that continues texts.

    folder: the checkpoint. bits: as in `load_model`. most: the maximum number of tokens that the model adds to a text.
    """

    def __init__(self, folder: Path, bits: int | None = None, most: int = LIMIT):
        self.model = load_model(folder, bits)
        self.most = most
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._stops = torch.tensor([self.tokenizer.token_to_id(token) for token in (END, TURN_END)])
        self._stops = self._stops.to(self.model.device)

    def continued(
        self, prompts: Sequence[str], settings: Settings, limit: int = LIMIT, seed: int = 0
    ) -> list[tuple[str, bool]]:
        """Continue each prompt by at most `limit` tokens, and by no more than the sampler's `most`.

        Returns:
            For each prompt, the text that the model writes, and whether the model ended it with an end token.
        """
        limit = min(limit, self.most)
        tokens = [encoding.ids for encoding in self.tokenizer.encode_batch(list(prompts))]
        generator = torch.Generator(self.model.device).manual_seed(seed)
        order = sorted(range(len(tokens)), key=lambda i: len(tokens[i]))
        results: dict[int, list[int]] = {}
        while order:
            room = max(1, _BATCH_TOKENS[self.model.device.type] // (len(tokens[order[-1]]) + limit // 2))
            some, order = order[-room:], order[:-room]
            batch = self._batch([tokens[i] for i in some], settings, limit, generator)
            results |= dict(zip(some, batch, strict=True))
        written = [results[i] for i in range(len(tokens))]
        ended = [bool(each) and each[-1] in self._stops.tolist() for each in written]
        shown = [each[:-1] if end else each for each, end in zip(written, ended, strict=True)]
        return list(zip(self.tokenizer.decode_batch(shown, skip_special_tokens=False), ended, strict=True))

    @torch.no_grad()
    def _batch(
        self, prompts: list[list[int]], settings: Settings, limit: int, generator: torch.Generator
    ) -> list[list[int]]:
        """Return the tokens that follow each prompt, including the end token."""
        ids, mask = _left_padded(prompts, self.model.device)
        cache, written = DynamicCache(config=self.model.config), [list[int]() for _ in prompts]
        rows = torch.arange(len(prompts), device=ids.device)  # the prompts whose texts are still in the batch
        going = torch.ones_like(rows, dtype=torch.bool)
        for _ in range(limit):
            positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
            output = self.model(
                ids, attention_mask=mask, position_ids=positions, past_key_values=cache, logits_to_keep=1
            )
            chosen = _chosen(output.logits[:, -1].float(), settings, generator)
            for row, token, goes in zip(rows.tolist(), chosen.tolist(), going.tolist(), strict=True):
                if goes:
                    written[row].append(token)
            going = going & ~torch.isin(chosen, self._stops)
            if not going.any():
                break
            if going.float().mean() < _COMPACT:
                cache.batch_select_indices(going.nonzero()[:, 0])
                rows, chosen, mask, going = (each[going] for each in (rows, chosen, mask, going))
            ids, mask = chosen[:, None], torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
        return written


def _left_padded(prompts: list[list[int]], device: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad the prompts on the left. Return the tokens (B x L), and a mask (B x L) that is 0 for padding."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts], device=device)
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=device)
    return ids, mask


def _chosen(logits: torch.Tensor, settings: Settings, generator: torch.Generator) -> torch.Tensor:
    """Choose one token for each row of logits."""
    if settings.temperature == 0:
        return logits.argmax(-1)
    probabilities = (logits / settings.temperature).softmax(-1)
    least = settings.min_p * probabilities.max(-1, keepdim=True).values
    return torch.multinomial(probabilities * (probabilities >= least), 1, generator=generator)[:, 0]
