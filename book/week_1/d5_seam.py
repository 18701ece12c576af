"""Print each call that the model makes to its cache. The cache stores nothing."""

import mlx.core as mx

from tiny_llm.kv_cache import NoCache
from tiny_llm.models import load


class Listener(NoCache):
    """NoCache that prints a line per call."""

    def attend(self, query: mx.array, key: mx.array, value: mx.array, scale: float | None = None) -> mx.array:
        print(f"attend  query {query.shape}, key {key.shape}, value {value.shape}, scale {scale}")
        return super().attend(query, key, value, scale)

    def advance(self, length: int) -> None:
        print(f"advance {length}")


model, _ = load("story")
hidden = model.hidden(mx.array([[5, 6, 7], [8, 9, 10]]), Listener(len(model.layers)))
print(f"hidden  {hidden.shape}, logits {model.logits(hidden[:, -1:]).shape} if only those of the last token are wanted")
