"""Rotary positional encoding, which rotates pairs of numbers by angles that depend on the position."""

from typing import TypeAlias

import mlx.core as mx

__all__ = ["Offset", "RoPE"]

Offset: TypeAlias = "int | slice | list[slice] | mx.array | None"


class RoPE:
    """Rotary positional encoding (RoPE), which rotates pairs of a head's D numbers by angles that grow with position.

    At position p, pair i rotates by the angle p * base^(-2i/D): (a, b) becomes (a cos - b sin, a sin + b cos).
    Two layouts of the D/2 pairs are in use:
        traditional=True (task 1): neighbours, (x[2i], x[2i + 1]), as in the paper;
        traditional=False (task 2): halves, (x[i], x[i + D/2]), as in the checkpoints of Qwen and Llama.
    Angles are computed in float32, whatever the dtype of x.

    dims: D, an even number. seq_len: the number of positions, which are 0 to seq_len - 1. base: the base of the angles;
    the slowest pair needs about 2 pi * base positions for one turn.
    `__init__` must set `self.dims` and `self.seq_len`, because the checks in `__call__` read them.
    Call with x: B x L x H x D -> the same shape and dtype. `offset` says which L positions the tokens have:
        None: 0, 1, ..., L-1;    an int n: n, ..., n+L-1;    a slice(n, n+L): the same positions;
        a list of B slices: one per row;    an integer array of B: the first position of each row (0-d: of all rows).
    Source: Su et al. 2021, "RoFormer", section 3.4.2, arXiv:2104.09864.

    Raises:
        ValueError: dims is odd; x is not B x L x H x D; a slice does not have length L; a list or array does not have B
            offsets; a position is not from 0 to seq_len - 1 (positions in an array are not checked). The `_check_*`
            functions (given) raise these errors.

    Task: w1d2.1, w1d2.2
    """

    def __init__(self, dims: int, seq_len: int, base: float = 10000, traditional: bool = False):
        _check_dims(dims)
        self.dims, self.seq_len = dims, seq_len
        self.traditional = traditional
        frequencies = mx.power(base, -mx.arange(0, dims, 2) / dims)  # D/2
        angles = mx.arange(seq_len)[:, None] * frequencies  # seq_len, D/2
        self.cos, self.sin = mx.cos(angles), mx.sin(angles)

    def __call__(self, x: mx.array, offset: Offset = None) -> mx.array:
        _check_input(x, self.dims)
        _check_offset(offset, x.shape[0], x.shape[1], self.seq_len)
        positions = _first_positions(offset) + mx.arange(x.shape[1])  # L, or B, L
        cos = self.cos[positions][..., None, :]  # (B,) L, 1, D/2
        sin = self.sin[positions][..., None, :]
        a, b = self._pairs(x.astype(mx.float32))  # each B, L, H, D/2
        return self._unpair(a * cos - b * sin, a * sin + b * cos).astype(x.dtype)

    def _pairs(self, x: mx.array) -> tuple[mx.array, mx.array]:
        if self.traditional:
            return x[..., 0::2], x[..., 1::2]
        return x[..., : self.dims // 2], x[..., self.dims // 2 :]

    def _unpair(self, a: mx.array, b: mx.array) -> mx.array:
        if self.traditional:
            return mx.stack([a, b], axis=-1).flatten(-2)
        return mx.concatenate([a, b], axis=-1)


def _first_positions(offset: Offset) -> mx.array:
    """Return the position of each row's first token, B x 1. If all rows share one `offset`, return a 0-d array."""
    if isinstance(offset, list):
        offset = mx.array([part.start or 0 for part in offset])
    elif isinstance(offset, slice):
        offset = mx.array(offset.start or 0)
    elif not isinstance(offset, mx.array):
        offset = mx.array(offset or 0)
    return offset[:, None] if offset.ndim else offset


def _check_dims(dims: int) -> None:
    if dims < 2 or dims % 2:
        raise ValueError(f"dims: expected an even number, got {dims}")


def _check_input(x: mx.array, dims: int) -> None:
    if x.ndim != 4 or x.shape[-1] != dims:
        raise ValueError(f"x: expected shape B x L x H x {dims}, got {x.shape}")


def _check_offset(offset: Offset, B: int, L: int, seq_len: int) -> None:
    if isinstance(offset, mx.array):
        if offset.shape not in ((), (B,)):
            raise ValueError(f"offset: expected one for each of {B} rows, got shape {offset.shape}")
        return
    if isinstance(offset, list) and len(offset) != B:
        raise ValueError(f"offset: expected one slice for each of {B} rows, got {len(offset)}")
    for part in offset if isinstance(offset, list) else [offset]:
        span = part if isinstance(part, slice) else slice(part or 0, (part or 0) + L)
        start = span.start or 0
        if span.stop is None or span.stop - start != L or span.step not in (None, 1):
            raise ValueError(f"offset: expected a slice of {L} positions, got {part}")
        if start < 0 or span.stop > seq_len:
            raise ValueError(f"offset: expected positions from 0 to {seq_len - 1}, got {start} to {span.stop - 1}")
