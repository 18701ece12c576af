"""Muon: momentum, with matrix updates made orthogonal (Jordan et al. 2024, kellerjordan.github.io/posts/muon)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

__all__ = ["Muon"]

_ROOT = (3.4445, -4.7750, 2.0315)  # the polynomial that drives singular values towards 1
_ITERATIONS = 5


class Muon(torch.optim.Optimizer):
    """For the matrices inside the layers; embeddings, heads and vectors want AdamW.

    torch.optim.Muon multiplies in bfloat16, which most CPUs do slowly; this one keeps the weights' float32.
    Its updates have the size of AdamW's (Liu et al. 2025, arXiv:2502.16982), so that both take one learning rate.
    """

    def __init__(self, matrices: Iterable[torch.nn.Parameter], lr: float, momentum: float = 0.95, decay: float = 0.1):
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        for group in self.param_groups:
            for matrix in group["params"]:
                state = self.state[matrix]
                average = state.setdefault("average", torch.zeros_like(matrix))
                average.lerp_(matrix.grad, 1 - group["momentum"])
                update = orthogonal(matrix.grad.lerp(average, group["momentum"]))
                matrix.mul_(1 - group["lr"] * group["decay"])
                matrix.add_(update, alpha=-group["lr"] * 0.2 * max(matrix.shape) ** 0.5)


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """Nearly the nearest matrix with orthonormal rows or columns, by a Newton-Schulz iteration."""
    a, b, c = _ROOT
    wide = matrix / (matrix.norm() + 1e-7)
    if matrix.shape[0] > matrix.shape[1]:
        wide = wide.T
    for _ in range(_ITERATIONS):
        square = wide @ wide.T
        wide = a * wide + (b * square + c * square @ square) @ wide
    return wide.T if matrix.shape[0] > matrix.shape[1] else wide
