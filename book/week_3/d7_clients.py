"""Serve three clients with one engine, in one event loop. The second client leaves after ten tokens."""

import asyncio
from contextlib import aclosing

import mlx.core as mx

from tiny_llm.models import load
from tiny_llm.serving.async_engine import AsyncEngine
from tiny_llm.serving.batched_cache import BatchedKVCache
from tiny_llm.serving.engine import Engine
from tiny_llm.serving.request import Request, SamplingParams, TextStream
from tiny_llm.serving.scheduler import Scheduler

found = {}


def make_engine():
    """Load the model and make the engine. This runs in the engine's thread, the only thread that uses the model."""
    model, found["tokenizer"] = load("story", mx.float32)
    return Engine(model, Scheduler(BatchedKVCache(len(model.layers), num_slots=2, capacity=128), 2), is_checked=True)


def request_of(name):
    tokenizer = found["tokenizer"]
    prompt = tokenizer.encode(f"Once upon a time, there was a girl named {name}.")
    return Request(name, prompt, SamplingParams(max_tokens=40), TextStream(tokenizer))


async def client(engine, name, patience):
    tokens, text, reason = 0, "", "left"
    async with aclosing(engine.generate(lambda: request_of(name))) as updates:
        async for update in updates:
            tokens, text = tokens + len(update.tokens), text + update.text
            if update.finish_reason is not None:
                reason = update.finish_reason
            elif tokens == patience:
                break
    return f"{name:5} {tokens:2} tokens, {reason:6} {text.strip()[:56]}..."


async def main():
    engine = AsyncEngine(make_engine, max_requests=3)
    await engine.start()
    patience = {"Mia": None, "Cora": 10, "Nina": None}
    for line in await asyncio.gather(*(client(engine, *each) for each in patience.items())):
        print(line)
    print("still served:", await engine.call(lambda engine: len(list(engine.scheduler))))
    await engine.stop()


asyncio.run(main())
