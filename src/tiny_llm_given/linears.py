"""The linear layers of a built model, which weeks 2 and 4 replace without changing the model's code."""

from collections.abc import Iterator
from typing import Any

__all__ = ["named_linears"]


def named_linears(model: Any) -> Iterator[tuple[str, Any, str]]:
    """Yield each linear layer's name in a checkpoint, the layer's owner, and the name of the owner's attribute.

    An example is `("model.layers.0.mlp.up_proj", mlp, "up_proj")`. The output layer comes last, if the model has one.
    """
    for i, block in enumerate(model.layers):
        for part in ("self_attn", "mlp"):
            owner = getattr(block, part)
            for attribute in [name for name in vars(owner) if name.endswith("_proj")]:
                yield f"model.layers.{i}.{part}.{attribute}", owner, attribute
    if model.lm_head is not None:
        yield "lm_head", model, "lm_head"
