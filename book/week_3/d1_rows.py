"""Print the rows of one step, in which two requests generate and a third request begins."""

import mlx.core as mx

from tiny_llm.models import load
from tiny_llm.serving.batched_cache import BatchedKVCache
from tiny_llm.serving.engine import Engine, batch_logits
from tiny_llm.serving.request import Request
from tiny_llm.serving.scheduler import Scheduler

model, tokenizer = load("story", mx.float32)
cache = BatchedKVCache(len(model.layers), num_slots=3, capacity=32)
engine = Engine(model, Scheduler(cache, max_running=3))

engine.add(Request("a", tokenizer.encode("Once upon a time")))
engine.step()
engine.add(Request("b", tokenizer.encode("Tom was afraid of the dark. He told")))
engine.step()
engine.step()
engine.add(Request("c", tokenizer.encode("The dog saw a little")))

batch = engine.plan()
print("row   request   slot   position   sees keys   logits   token")
row = 0
for chunk in batch.chunks:
    (slot,) = chunk.pages
    for position, token in zip(range(chunk.start, chunk.end), chunk.tokens, strict=True):
        needed = "yes" if position >= chunk.end - chunk.num_logits else ""
        seen = f"0 to {position}"
        print(f"{row:3}   {chunk.request.id:7}   {slot:4}   {position:8}   {seen:9}   {needed:6}   ", end="")
        print(repr(tokenizer.decode([token])))
        row += 1

logits = batch_logits(model, batch, cache)
print(f"model.hidden: {row} x 1 tokens; model.logits: {len(logits)} rows")
for chunk, found in zip(batch.chunks, logits, strict=True):  # each chunk has one row of logits
    request = chunk.request
    alone = model(mx.array([request.tokens]))[:, -1]
    same = mx.allclose(found, alone, atol=1e-3).item()
    likeliest = tokenizer.decode([found.argmax().item()])
    print(f"{request.id}: likeliest {likeliest!r}; the logits it gets alone: {same}")
