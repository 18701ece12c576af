"""The model whose weights or logits a picture shows."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import mlx.core as mx
import numpy as np

from ..base.packages import package_of
from ..generation.session import Session, Settings
from ..model.loaded_model import Wanted
from ..ui import CommandError
from .arrays import Array
from .collecting import CollectingCache
from .labels import token_bytes, token_labels

__all__ = ["Attention", "Probe", "given_or"]


NAME = 40  # the most characters of a model's name that are shown

_GREEDY = {
    "temperature": 0.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "seed": None,
}


def given_or(example: str, prompt: str | None) -> str:
    """Return the prompt, or the example if no prompt was given.

    Raises:
        CommandError: the prompt is empty.
    """
    if prompt == "":
        raise CommandError("prompt_empty")
    return example if prompt is None else prompt


@dataclass(frozen=True)
class Attention:
    """The attention weights of a model that has read a text, and the head that is shown first.

    Shapes: weights: layers x H_q x L x L: a row for each query, a column for each key.
    """

    model: str
    prompt: str
    labels: list[str]
    pieces: list[bytes]
    weights: Array
    layer: int
    head: int

    @property
    def chosen(self) -> Array:
        """Return the weights of the head that is shown first. Shapes: -> L x L."""
        chosen: Array = self.weights[self.layer, self.head]
        return chosen


class Probe(Session):
    """A loaded model and its tokenizer, which give pictures their attention weights and logits.

    sampling: arguments of `make_sampler`.

    Raises:
        CommandError: there is no such model or implementation, or an argument is out of range.
    """

    def __init__(self, model: str, impl: str, **sampling: Any):
        self._package = package_of(impl)
        super().__init__(Settings(Wanted(self._package, model), 0, [], _GREEDY | sampling))
        self._model = self._engine.model
        self.name = model if len(model) <= NAME else "…" + model[1 - NAME :]  # shows the end of a path
        self.layers: int = self._model.config.num_hidden_layers
        self.heads: int = self._model.config.num_attention_heads

    def prompt(self, text: str, limit: int | None = None) -> list[int]:
        """Return the tokens of a text, without a chat template.

        limit: how many tokens can be shown. None: as many as the model can read.

        Raises:
            CommandError: the text is too long, or not UTF-8.
        """
        tokens = self.encode(text)
        if len(tokens) > self.context:
            raise CommandError("viz_prompt_tokens", limit=self.context, count=len(tokens))
        if limit is not None and len(tokens) > limit:
            raise CommandError("viz_prompt_page", limit=limit, count=len(tokens))
        return tokens

    def pieces(self, tokens: list[int]) -> list[bytes]:
        """Return the bytes of each token."""
        entries = self._tokenizer.convert_ids_to_tokens(tokens)
        return [token_bytes(entry, token) for entry, token in zip(entries, tokens, strict=True)]

    def label(self, token: int) -> str:
        """Return the label of one token, by itself."""
        return token_labels(self.pieces([token]))[0]

    def weights(self, tokens: list[int]) -> Array:
        """Return the attention weights of every layer and head.

        Shapes: -> layers x H_q x L x L: a row for each query, a column for each key.
        """
        plain = import_module(f"{self._package}.kv_cache").NoCache(len(self._model.layers))
        cache = CollectingCache(plain)
        mx.eval(self._model.hidden(mx.array([tokens]), cache))
        return np.stack([np.array(layer.weights)[0] for layer in cache.layers])

    def logits(self, tokens: list[int]) -> mx.array:
        """Return the logits of the next token. Shapes: -> 1 x V.

        Raises:
            CommandError: some logits are NaN.
        """
        logits: mx.array = self._model(mx.array([tokens]))[:, -1].astype(mx.float32)
        if mx.isnan(logits).any():
            raise CommandError("viz_nan", exit_code=1)
        return logits
