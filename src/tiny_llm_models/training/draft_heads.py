"""The training of draft heads, which guess a model's next tokens. The model itself does not change."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.functional import cross_entropy, rms_norm, silu

from .checkpoint import weights_of
from .corpus import Corpus
from .sampling import load_model

__all__ = ["HEADS", "HeadNetworks", "HeadTrainer"]

HEADS = 3  # heads of a model, and so the most guesses per step
_WIDTH = 192  # of each head's inner vector
_RATE = 4e-3
_ROWS = 1536  # places in the text from which a step learns
_SAVE_SECONDS = 60
_WEIGHTS = (1.0, 0.8, 0.6)  # of each head in the loss: a later guess counts only if all earlier guesses are right


class HeadNetworks(nn.Module):
    """The heads of `tiny_llm_ref.serving.draft_heads.DraftHeads`, with the same names and shapes of weights."""

    def __init__(self, E: int):
        super().__init__()
        self.eh_proj = nn.Linear(2 * E, HEADS * _WIDTH, bias=False)
        self.out_proj = nn.Module()
        self.out_proj.weight = nn.Parameter(torch.randn(HEADS, E, _WIDTH) * _WIDTH**-0.5)
        self.out_proj.bias = nn.Parameter(torch.zeros(HEADS, E))

    def forward(self, hidden: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor:
        """Shapes: hidden, embedded: N x E -> N x HEADS x E."""
        x = torch.cat([_normed(embedded), _normed(hidden)], dim=-1)
        x = silu(self.eh_proj(x)).unflatten(-1, (HEADS, _WIDTH))
        found: torch.Tensor = torch.einsum("nkr,ker->nke", x, self.out_proj.weight) + self.out_proj.bias
        return found


class HeadTrainer:
    """The training of draft heads for a finished model. Training continues from its last checkpoint, if there is one.

    The heads read the model's vector at a place of a document, and the document's next token. Head i learns the
    distribution that the model itself has for the token that comes i tokens after this next token.
    folder: the model's checkpoint. work: the folder of the training's own checkpoint. every: one in this many documents
    is used.
    """

    def __init__(self, folder: Path, corpus: Corpus, work: Path, every: int = 1):
        torch.manual_seed(0)
        self._folder, self._corpus, self._file = folder, corpus, work / "draft_heads.pt"
        self._model = load_model(folder)
        self._model.requires_grad_(False)
        self._seen: dict[str, torch.Tensor] = {}
        self._model.model.norm.register_forward_pre_hook(lambda _, inputs: self._seen.update(last=inputs[0]))
        self._heads = HeadNetworks(self._model.config.hidden_size).to(self._model.device)
        self._optimizer = torch.optim.Adam(self._heads.parameters())
        self._batches = corpus.plan(every, "draft heads")
        self.step = 0
        work.mkdir(parents=True, exist_ok=True)
        if self._file.exists():
            state = torch.load(self._file, map_location=self._model.device)
            self._heads.load_state_dict(state["heads"])
            self._optimizer.load_state_dict(state["optimizer"])
            self.step = state["step"]

    def run(self, report: Callable[[float, list[float]], Any]) -> None:
        """Train to the end. report: a function that is called after each step with the share of the training that is
        done, and with the share of right guesses of each head."""
        saved, total = time.monotonic(), len(self._batches)
        while self.step < total:
            done = self.step / total
            right = self.learn(self._batches[self.step], _RATE * min(100 * done + 0.1, 1 - done))
            self.step += 1
            report(self.step / total, right)
            if time.monotonic() - saved > _SAVE_SECONDS or self.step == total:
                state = {"heads": self._heads.state_dict(), "optimizer": self._optimizer.state_dict()}
                torch.save({**state, "step": self.step}, self._file)
                saved = time.monotonic()

    def learn(self, documents: list[int], rate: float) -> list[float]:
        """Train one step on these documents. Return the share of right guesses of each head; return [] if the documents
        have nothing to guess."""
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        batch = self._corpus.batch(documents)
        rows = _places(batch.weights > 0).to(self._model.device)
        if not len(rows):
            return []
        ids = torch.from_numpy(batch.ids).to(self._model.device)
        last = self._vectors(ids)
        guessed = self._logits(self._heads(last[rows], self._model.model.embed_tokens(ids.flatten()[rows + 1])))
        with torch.no_grad():  # head i's token is the one that the model predicts after i + 1 more tokens
            expected = self._logits(torch.stack([last[rows + 1 + i] for i in range(HEADS)], dim=1)).softmax(-1)
        losses = cross_entropy(guessed, expected, reduction="none").unflatten(0, (-1, HEADS))
        (losses.mean(0) @ torch.tensor(_WEIGHTS).to(losses)).backward()
        self._optimizer.step()
        self._optimizer.zero_grad()
        right = (guessed.argmax(-1) == expected.argmax(-1)).float().unflatten(0, (-1, HEADS))
        return [round(share, 4) for share in right.mean(0).tolist()]

    def write(self, path: Path, **notes: str) -> None:
        """Write the heads in bfloat16. notes: what the file says about itself, in addition to the digest of the model's
        weights."""
        weights = {name: weight.to("cpu", torch.bfloat16) for name, weight in self._heads.state_dict().items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        save_file(weights, unfinished, metadata={"format": "pt", "weights": weights_of(self._folder), **notes})
        unfinished.replace(path)

    def _vectors(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the vectors that the model's last norm gets for a batch of documents, as (B * L) x E."""
        with torch.no_grad(), torch.autocast(ids.device.type, torch.bfloat16):
            self._model.model(ids, attention_mask={"full_attention": None}, use_cache=False)
        return self._seen["last"].float().flatten(0, 1)

    def _logits(self, x: torch.Tensor) -> torch.Tensor:
        """Shapes: x: N x HEADS x E -> N * HEADS x V."""
        with torch.autocast(x.device.type, torch.bfloat16):
            logits: torch.Tensor = self._model.lm_head(self._model.model.norm(x.reshape(-1, x.shape[-1])))
        return logits.float()


def _places(counts: np.ndarray[Any, Any]) -> torch.Tensor:
    """Choose places at random whose next HEADS + 1 tokens all count, as indices into the flattened array."""
    length = counts.shape[1] - HEADS - 1
    places = np.zeros_like(counts)
    places[:, :length] = np.logical_and.reduce([counts[:, i : i + length] for i in range(1, HEADS + 2)])
    found = torch.from_numpy(np.flatnonzero(places))
    return found[torch.randperm(len(found))[:_ROWS]]


def _normed(x: torch.Tensor) -> torch.Tensor:
    return rms_norm(x, x.shape[-1:], eps=1e-6)
