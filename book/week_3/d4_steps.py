"""Print the tables and spans that an engine passes to the kernel, and compare the tokens with those of day 3."""

import mlx.core as mx

from tiny_llm.attention import scaled_dot_product_attention_grouped
from tiny_llm.models import load
from tiny_llm.serving.engine import Engine
from tiny_llm.serving.page_pool import PagePool
from tiny_llm.serving.paged_cache import KernelPagedKVCacheLayer, PagedKVCache, PagedKVCacheLayer
from tiny_llm.serving.request import Request
from tiny_llm.serving.sampling_params import SamplingParams
from tiny_llm.serving.scheduler import PreemptNewest, Scheduler, TokenBudget

model, tokenizer = load("story", mx.float32)
PROMPTS = {
    "a": "Tom was in",
    "b": "The old box",
    "c": "Mia had a red key. She hid the key in the old box. Where is the key? " * 2,
}
SHOWN = (1, 3, 5)


class Told(PagedKVCache):
    """A cache that prints the kernel's arguments for some steps."""

    steps = 0

    def step(self, chunks):
        found = super().step(chunks)
        tables, spans = found.layers[0].rows.arrays
        self.steps += 1
        if self.steps in SHOWN:
            rows = spans[-1, 1].item()
            print(f"step {self.steps}: {rows} {'row' if rows == 1 else 'rows'}")
            for chunk, table, span in zip(chunks, tables.tolist(), spans.tolist(), strict=True):
                first, last, length = span
                way = "in parts of its keys" if last - first <= 32 else "in blocks of queries"
                print(f"    {chunk.request.id}  [{first:2}, {last:2}, {length:2}]   {way:24}{table}")
        return found


calls = 0


def counted(*arguments):
    global calls
    calls += 1
    return scaled_dot_product_attention_grouped(*arguments)


def served(cache) -> dict[str, list[int]]:
    engine = Engine(model, Scheduler(cache, 4, TokenBudget(44), PreemptNewest()), is_checked=True)
    for id, prompt in PROMPTS.items():
        engine.add(Request(id, tokenizer.encode(prompt), SamplingParams(12)))
    return {request.id: request.output for request in engine.run()}


def gathering(num_pages: int, page_size: int) -> PagedKVCacheLayer:
    return PagedKVCacheLayer(num_pages, page_size, counted)


cache = Told(len(model.layers), PagePool(16, page_size=8), make_layer=KernelPagedKVCacheLayer)
texts = served(cache)
gathered = served(PagedKVCache(len(model.layers), PagePool(16, page_size=8), make_layer=gathering))
print(f"calls of attention: {cache.steps * len(model.layers)}, with yesterday's cache {calls}")
print(f"the same tokens: {texts == gathered}")
