"""Recording of the outputs of a model's parts, to find the first part whose output is wrong.

A recorder replaces each part of a model, calls the part, and keeps the result. A recording cache keeps the arguments
and results of attention. So recording needs no code in the model, and works for every model with the course's names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
from helpers import array64

__all__ = ["first_divergence", "record"]

BLOCK_PARTS = {
    "input_layernorm": "input norm",
    "self_attn.q_proj": "q projection",
    "self_attn.k_proj": "k projection",
    "self_attn.v_proj": "v projection",
    "self_attn.q_norm": "q norm",
    "self_attn.k_norm": "k norm",
    "self_attn": "attention output",
    "post_attention_layernorm": "norm after attention",
    "mlp.gate_proj": "MLP gate",
    "mlp.up_proj": "MLP up",
    "mlp": "MLP output",
}


def record(model: Any, tokens: mx.array, cache: Any) -> dict[str, np.ndarray]:
    """Run the model once. Return the result of each part, keyed by the part's name, in the order of the results.

    Afterwards, the model has its own parts again. cache: a cache that stores nothing.
    """
    seen: dict[str, np.ndarray] = {}
    undo: list[Callable[[], None]] = []

    def watch(owner: Any, attribute: str, name: str) -> None:
        part = getattr(owner, attribute)
        undo.append(lambda: setattr(owner, attribute, part))
        setattr(owner, attribute, _Recorder(part, name, seen))

    watch(model, "embed_tokens", "embedding")
    for i, layer in enumerate(list(model.layers)):
        for path, name in BLOCK_PARTS.items():
            *owners, attribute = path.split(".")
            owner = layer
            for step in owners:
                owner = getattr(owner, step)
            if hasattr(owner, attribute):
                watch(owner, attribute, f"layer {i}: {name}")
        model.layers[i] = _Recorder(layer, f"layer {i}: output", seen)
        undo.append(lambda i=i, layer=layer: model.layers.__setitem__(i, layer))
    watch(model, "norm", "final norm")
    try:
        hidden = model.hidden(tokens, _RecordingCache(cache, seen))
        for restore in reversed(undo):
            restore()
        undo.clear()
        seen["logits"] = array64(model.logits(hidden))
    finally:
        for restore in reversed(undo):
            restore()
    return seen


def first_divergence(expected: dict[str, np.ndarray], got: dict[str, np.ndarray], tolerance: float) -> str | None:
    """Describe the first part of `expected` whose output differs. Return None if the logits are right.

    A part that the tested model does not have, or does not call, is skipped.
    """
    differences = {name: _difference(want, got[name], tolerance) for name, want in expected.items() if name in got}
    if not differences["logits"]:
        return None
    return next(f"{name}: {difference}" for name, difference in differences.items() if difference)


def _difference(want: np.ndarray, have: np.ndarray, tolerance: float) -> str:
    """Describe the difference between two arrays. Return "" if there is none."""
    if have.shape != want.shape:
        return f"expected shape {want.shape}, got {have.shape}"
    error = np.abs(have - want).max()
    return "" if error <= tolerance * (1 + np.abs(want).max()) else f"largest error {error:.3g}"


class _Recorder:
    """A recorder that takes the place of a part, and passes calls and attributes on to the part."""

    def __init__(self, part: Any, name: str, seen: dict[str, np.ndarray]):
        self._part, self._name, self._seen = part, name, seen

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        out = self._part(*args, **kwargs)
        if isinstance(out, mx.array):
            self._seen.setdefault(self._name, array64(out))  # if a part is called twice, the first call counts
        return out

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._part, attribute)


class _RecordingCache:
    """A cache that records the queries, keys, values and results of each layer's attention."""

    def __init__(self, cache: Any, seen: dict[str, np.ndarray]):
        self.layers = [_RecordingLayer(layer, i, seen) for i, layer in enumerate(cache.layers)]

    def advance(self, length: int) -> None:
        pass


class _RecordingLayer:
    def __init__(self, layer: Any, index: int, seen: dict[str, np.ndarray]):
        self._layer, self._prefix, self._seen = layer, f"layer {index}: ", seen

    @property
    def offset(self) -> Any:
        return self._layer.offset

    def attend(self, query: mx.array, key: mx.array, value: mx.array, scale: float | None = None) -> mx.array:
        out = self._layer.attend(query, key, value, scale)
        arrays = {"q after rope": query, "k after rope": key, "v": value, "heads after attention": out}
        self._seen.update({self._prefix + name: array64(array) for name, array in arrays.items()})
        return out
