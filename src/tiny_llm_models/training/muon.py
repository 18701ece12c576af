"""Muon: momentum with orthogonalised updates of matrices (Jordan et al. 2024, kellerjordan.github.io/posts/muon)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch

__all__ = ["Muon"]

_ROOT = (3.4445, -4.7750, 2.0315)  # coefficients of a polynomial that moves singular values towards 1
_ITERATIONS = 5


class Muon(torch.optim.Optimizer):
    """An optimiser for the matrices inside the layers. Train embeddings, output heads and vectors with AdamW.

    torch.optim.Muon multiplies in bfloat16, which is slow on most CPUs, so this class computes in the weights' float32.
    The updates are as large as AdamW's (Liu et al. 2025, arXiv:2502.16982), so both optimisers can share a learning
    rate.
    """

    def __init__(self, matrices: Iterable[torch.nn.Parameter], lr: float, momentum: float = 0.95, decay: float = 0.1):
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        for group in self.param_groups:
            for matrices in _of_one_shape(group["params"]):
                gradients, state = torch.stack([matrix.grad for matrix in matrices]), self.state[matrices[0]]
                if not state:
                    state["averages"] = torch.zeros_like(gradients)
                averages = state["averages"].lerp_(gradients, 1 - group["momentum"])
                size = group["lr"] * 0.2 * max(gradients.shape[1:]) ** 0.5
                for matrix, update in zip(
                    matrices, orthogonal(gradients.lerp(averages, group["momentum"])), strict=True
                ):
                    matrix.mul_(1 - group["lr"] * group["decay"])
                    matrix.add_(update, alpha=-size)


def _of_one_shape(matrices: Iterable[torch.nn.Parameter]) -> Iterable[list[torch.nn.Parameter]]:
    """Group the matrices by shape, because a GPU is faster with one large product than with many small ones."""
    groups = defaultdict[torch.Size, list[torch.nn.Parameter]](list)
    for matrix in matrices:
        groups[matrix.shape].append(matrix)
    return groups.values()


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """For each matrix, approximate the nearest matrix with orthonormal rows or columns by Newton-Schulz iteration.

    Shapes:
        matrices: ... x M x K. Returns: ... x M x K.
    """
    a, b, c = _ROOT
    wide = matrices / (matrices.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    tall = matrices.shape[-2] > matrices.shape[-1]
    if tall:
        wide = wide.mT
    for _ in range(_ITERATIONS):
        square = wide @ wide.mT
        wide = a * wide + (b * square + c * square @ square) @ wide
    return wide.mT if tall else wide
