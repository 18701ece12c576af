"""Initial weights with which a model can copy before any training: induction heads.

To answer with a name that never occurs in training, a model has to find an earlier occurrence of the current token, and
copy the token after this occurrence. Two heads do this together: a head in the first layer attends to the previous
token, and a head in the second layer attends to positions whose previous token equals the current one (induction heads,
Olsson et al. 2022, arXiv:2209.11895). Training finds such heads by itself, but not within the few million tokens that a
small CPU can process in an hour. So this module writes the two heads into the first two layers before training (compare
mimetic initialization, Trockman and Kolter 2023, arXiv:2305.09828).
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["write_induction_heads"]

_EMBEDDING_STD = 0.06
_CONSTANT = 4 * _EMBEDDING_STD  # the value of channel 0; the first head makes queries and keys from this channel only
_ENERGY = (0.3, 0.25, 0.2, 0.15, 0.1)  # the first head's energy in the pairs of dimensions that RoPE rotates fastest
_SHARPNESS = 18.0  # the attention score of a perfect match
_UNNORMED = 3.0  # a factor for queries and keys that gives about the same score in a model without QK-Norm
_MOVED, _COPIED = 2.0, 6.0  # the lengths of the first and second head's outputs, in lengths of an embedding


@torch.no_grad()
def write_induction_heads(model: Any, context: int) -> None:
    """Write the two heads into a new Qwen2 or Qwen3 model of at least two layers.

    context: the longest distance, in tokens, at which the second head has to find a match.

    Raises:
        ValueError: the model has too few layers or channels.
    """
    embeddings, layers = model.model.embed_tokens.weight, model.model.layers
    turns = model.model.rotary_emb.inv_freq  # for each pair of a head's dimensions, radians per position
    channels, head_dim = embeddings.shape[1], 2 * len(turns)
    if channels < 2 * head_dim or len(layers) < 2:
        raise ValueError(f"expected two layers of at least {2 * head_dim} channels, got {len(layers)} of {channels}")
    for layer in layers:  # at first, all other heads and all MLPs have an output of zero
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    embeddings.normal_(std=_EMBEDDING_STD)
    embeddings[:, 0] = _CONSTANT
    if not model.config.tie_word_embeddings:
        model.lm_head.weight.copy_(embeddings)

    directions = _orthogonal(channels)
    directions[:, 0] = 0
    here, before, copied = directions[:head_dim], directions[head_dim : 2 * head_dim], directions[-head_dim:]
    unit = _EMBEDDING_STD * (channels / head_dim) ** 0.5  # makes a head's output as long as an embedding
    # The first head attends to the previous token, and copies that token's part in the directions `here` into `before`.
    constant = torch.eye(channels)[:1]
    query, key = _one_back(turns)
    _write_head(layers[0].self_attn, query @ constant, key @ constant, here, _MOVED * unit * before.T)
    # The second head compares `here` with `before`, in dimensions that RoPE hardly rotates within the context.
    still = (turns * context < 1).repeat(2)
    mix = _orthogonal(head_dim) * still[:, None]
    _write_head(layers[1].self_attn, mix @ here, mix @ before, copied, _COPIED * unit * copied.T)


def _one_back(turns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a query and a key (head_dim x 1) whose product under RoPE is greatest at a distance of one."""
    length = torch.zeros(len(turns))
    length[: len(_ENERGY)] = torch.tensor(_ENERGY).sqrt()
    query = torch.cat([length * turns.cos(), -length * turns.sin()])  # rotated back by one position
    key = torch.cat([length, torch.zeros(len(turns))])
    return query[:, None], key[:, None]


def _write_head(attention: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, out: torch.Tensor) -> None:
    """Write these matrices into the first head."""
    head_dim = len(query)
    attention.v_proj.weight[:head_dim] = value
    attention.o_proj.weight[:, :head_dim] = out
    normed = hasattr(attention, "q_norm")
    for projection, rows in ((attention.q_proj, query), (attention.k_proj, key)):
        projection.weight[:head_dim] = rows if normed else _UNNORMED * rows
    for norm in (attention.q_norm, attention.k_norm) if normed else ():
        norm.weight.fill_((_SHARPNESS / head_dim**0.5) ** 0.5)


def _orthogonal(size: int) -> torch.Tensor:
    return torch.linalg.qr(torch.randn(size, size)).Q
