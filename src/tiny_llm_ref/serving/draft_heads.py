"""Draft heads: small networks that guess the next tokens from the model's own vectors. Given."""

from collections.abc import Mapping
from typing import TypeAlias

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

__all__ = ["DraftHeads", "Vectors"]

Vectors: TypeAlias = NDArray[np.float32]  # N.. x E


class DraftHeads:
    """K small networks, which guess K tokens at once. Head i guesses the token that comes i tokens after the newest.

    Each head reads two vectors of size E: the vector that the model's last norm got where the model chose the newest
    token, and the embedding of the newest token. The model's own last norm and output layer turn the head's result, of
    size E, into logits. The heads compute with NumPy, because for matrices as small as theirs, an operation of MLX
    takes longer to start than to compute.
    Shapes of the weights: eh_proj.weight: K * R x 2E, out_proj.weight: K x E x R, out_proj.bias: K x E.
    Source: Cai et al. 2024, "Medusa", section 2.1, arXiv:2401.10774. Heads that also read the newest token:
    Ankner et al. 2024, "Hydra", section 3, arXiv:2402.05109.
    """

    def __init__(self, weights: Mapping[str, mx.array], eps: float = 1e-6):
        eh_proj, out_proj, bias = (
            np.array(weights[name].astype(mx.float32))
            for name in ("eh_proj.weight", "out_proj.weight", "out_proj.bias")
        )
        self.count, self.eps = len(out_proj), eps
        self.eh_proj, self.out_proj, self.bias = eh_proj, out_proj.swapaxes(1, 2), bias[:, None]

    def __call__(self, hidden: Vectors, embedded: Vectors) -> Vectors:
        """Return one vector for each guess.

        Shapes: hidden, embedded: N x E -> N x K x E.
        """
        x = np.stack([embedded, hidden], axis=1)  # N, 2, E
        x /= np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.eps)
        x = x.reshape(len(x), -1) @ self.eh_proj.T  # N, K * R
        x /= 1 + np.exp(-x)
        x = x.reshape(len(x), self.count, -1).swapaxes(0, 1)  # K, N, R
        return np.ascontiguousarray((x @ self.out_proj + self.bias).swapaxes(0, 1))
