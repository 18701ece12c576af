"""Print one step of the finished engine, call by call: request a generates, and request b begins.

python book/week_3/one_step.py          each call and its file; lines with a star say what the call changed
python book/week_3/one_step.py fails    the same step, after an attempt in which the model raises an exception
"""

import sys
from collections.abc import Callable, Iterable
from typing import Any

import mlx.core as mx

import tiny_llm.serving.engine as engine_module
from tiny_llm.models import load
from tiny_llm.serving.batch import Batch, Chunk
from tiny_llm.serving.batch_sampler import BatchSampler
from tiny_llm.serving.engine import Engine
from tiny_llm.serving.page_pool import PagePool
from tiny_llm.serving.paged_cache import PagedKVCache
from tiny_llm.serving.request import Request
from tiny_llm.serving.sampling_params import SamplingParams
from tiny_llm.serving.scheduler import PreemptNewest, Scheduler, TokenBudget

model, tokenizer = load("story", mx.float32)
pool = PagePool(num_pages=16, page_size=4)
cache = PagedKVCache(len(model.layers), pool)
scheduler = Scheduler(cache, 4, TokenBudget(64), PreemptNewest())
decoding = BatchSampler()
engine = Engine(model, scheduler, decoding=decoding)
a = Request("a", tokenizer.encode("Once upon a time"), SamplingParams(max_tokens=20))
b = Request("b", tokenizer.encode("The dog saw a little"), SamplingParams(max_tokens=20, temperature=0.8, seed=1))

engine.add(a)
engine.step()
while a.num_computed_tokens % pool.page_size:  # until the pages of request a are full
    engine.step()
engine.add(b)


def state() -> dict[str, Any]:
    """Return everything that a step may change, keyed by name."""
    found: dict[str, Any] = {}
    for request in (a, b):
        found[f"{request.id}.status"] = request.status.value
        found[f"{request.id}.pages"] = list(request.pages)
        found[f"{request.id}.output"] = words(request.output)
        found[f"{request.id}.num_computed_tokens"] = request.num_computed_tokens
    found["scheduler.waiting"], found["scheduler.running"] = ids(scheduler.waiting), ids(scheduler.running)
    found["free pages"] = pool.num_free
    found["positions written in layer 0"] = int((cache.layers[0].keys != 0).any(axis=(1, 3)).sum())
    return found


class Trace:
    """Records calls, and what each call changes. A change belongs to the innermost call that is running."""

    def __init__(self) -> None:
        self.lines: list[list[str]] = []  # the text of a call or change, and the call's file
        self.depth = 0
        self.seen = state()

    def watch(self, owner: Any, name: str, text: Callable[..., str]) -> None:
        function = getattr(owner, name)
        file = function.__module__.rpartition(".")[2] + ".py"

        def watched(*args: Any) -> Any:
            self.look()
            line = ["  " * self.depth + text(*args), file]
            self.lines.append(line)
            self.depth += 1
            result = function(*args)
            self.look()
            self.depth -= 1
            line[0] += said(result) or (" -> None" if name == "begin" else "")
            return result

        setattr(owner, name, watched)

    def look(self) -> None:
        now = state()
        for name, value in now.items():
            if value != self.seen[name]:
                self.lines.append([f"{'  ' * self.depth}* {name}: {self.seen[name]} -> {value}", ""])
        self.seen = now

    def show(self) -> None:
        stages = {"scheduler.schedule": "RESERVE", "batch_logits": "COMPUTE", "engine.settle": "COMMIT"}
        for text, file in self.lines:
            if stage := stages.get(text.strip().partition("(")[0]):
                print(f"\n{stage}")
            print(f"{text:62} {file}".rstrip())


def words(tokens: list[int]) -> list[str]:
    return [tokenizer.decode([token]) for token in tokens]


def ids(requests: Iterable[Request]) -> str:
    return f"[{', '.join(request.id for request in requests)}]"


def shape(array: mx.array) -> str:
    return " x ".join(map(str, array.shape))


def said(result: Any) -> str:
    """Return a short description of a call's result."""
    if isinstance(result, Request):
        return f" -> {result.id}"
    if isinstance(result, Batch):
        return f" -> {result.num_tokens} rows"
    if isinstance(result, Chunk):
        return f" -> positions {result.start} to {result.end - 1}, num_logits {result.num_logits}"
    if isinstance(result, mx.array):
        return f" -> {shape(result)}"
    if isinstance(result, list) and isinstance(result[0], Request):
        return f" -> {ids(result)}"
    if isinstance(result, list) and isinstance(result[0], list):
        return f" -> {', '.join(str(words(tokens)) for tokens in result)}"
    return f" -> {result}" if isinstance(result, (bool, list)) else ""


def call_by_call() -> None:
    trace = Trace()
    trace.watch(engine, "step", lambda: "engine.step()")
    trace.watch(scheduler, "schedule", lambda: "scheduler.schedule()")
    trace.watch(scheduler, "begin", lambda: "scheduler.begin()")
    trace.watch(scheduler, "take", lambda request, count: f"scheduler.take({request.id}, {count})")
    trace.watch(scheduler.budget, "order", lambda running: f"budget.order({ids(running)})")
    trace.watch(
        scheduler.preemption, "make_room", lambda _, request, count, __: f"preemption.make_room({request.id}, {count})"
    )
    trace.watch(cache, "open", lambda request: f"cache.open({request.id})")
    trace.watch(cache, "reserve", lambda request, count: f"cache.reserve({request.id}, {count})")
    trace.watch(pool, "allocate", lambda count: f"pool.allocate({count})")
    trace.watch(engine_module, "batch_logits", lambda *_: "batch_logits(model, batch, cache)")
    trace.watch(cache, "step", lambda chunks: "cache.step(chunks)")
    trace.watch(model, "hidden", lambda tokens, _: f"model.hidden({shape(tokens)})")
    trace.watch(model, "logits", lambda hidden: f"model.logits({shape(hidden)})")
    trace.watch(engine, "settle", lambda *_: "engine.settle(batch, logits)")
    trace.watch(decoding, "choose", lambda *_: "decoding.choose(chunks, logits)")
    for request in (a, b):
        trace.watch(request, "add", lambda token, *_, id=request.id: f"{id}.add({tokenizer.decode([token])!r})")
    trace.watch(cache, "commit", lambda request, count: f"cache.commit({request.id}, {count})")
    engine.step()
    trace.show()


def fails() -> None:
    show("before the step")
    model.hidden = out_of_memory
    try:
        engine.step()
    except MemoryError as error:
        show(f"the model raised {type(error).__name__}")
    del model.hidden
    engine.step()
    show("after the next step")


def out_of_memory(tokens: mx.array, cache: object) -> mx.array:
    raise MemoryError


def show(title: str) -> None:
    print(f"{title}; free pages: {pool.num_free}")
    for request in (a, b):
        counts = f"{request.num_tokens:2} tokens, {request.num_computed_tokens:2} computed"
        print(f"  {request.id}   {request.status.value:8}   {counts}   pages {request.pages}")


fails() if sys.argv[1:] == ["fails"] else call_by_call()
