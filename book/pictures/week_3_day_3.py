"""The pictures of week 3, day 3."""

import random

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from style import BLUE, GREEN, GREY, ORANGE, PINK

from tiny_llm_ref.serving.page_pool import PagePool
from tiny_llm_ref.serving.paged_cache import PagedKVCache
from tiny_llm_ref.serving.request import Request
from tiny_llm_ref.serving.sampling_params import SamplingParams
from tiny_llm_ref.serving.scheduler import PreemptNewest, Scheduler, TokenBudget

COLOURS = {"a": BLUE, "b": ORANGE, "c": GREEN, "d": PINK}
PALE = {"a": "#cfe3f0", "b": "#f6cfb0", "c": "#bfe6d9", "d": "#f1d5e4"}
PAGE = 4


def box(axes: Axes, x: float, y: float, width: float, face: str, edge: str, **style: object) -> None:
    axes.add_patch(Rectangle((x, y), width, 1, facecolor=face, edgecolor=edge, linewidth=1.1, **style))


def slots() -> None:
    """Draw three requests in slots for the longest possible request, and in pages of one pool."""
    lengths = {"a": 6, "b": 9, "c": 3}
    _, axes = plt.subplots(figsize=(8.4, 4.0))
    for row, (id, length) in enumerate(lengths.items()):
        y = 1.3 * row
        for x in range(20):
            used = x < length
            box(axes, x, y, 1, PALE[id] if used else "#f4f4f4", COLOURS[id] if used else "#cccccc")
        box(axes, 0, y, 20, "none", GREY)
        axes.text(-0.5, y + 0.5, id, ha="right", va="center")
    tables = {"a": [0, 1], "b": [2, 3, 4], "c": [5]}
    for page in range(15):
        x, y = page % 5 * PAGE, 5.3 + 1.3 * (page // 5)
        id = next((id for id, table in tables.items() if page in table), None)
        for place in range(PAGE):
            used = id is not None and tables[id].index(page) * PAGE + place < lengths[id]
            face = PALE[id] if used else "#f4f4f4" if id else "white"
            box(axes, x + place, y, 1, face, COLOURS[id] if used else "#cccccc", linestyle="-" if id else ":")
        box(axes, x, y, PAGE, "none", COLOURS[id] if id else GREY, linestyle="-" if id else ":")
        if id:
            axes.text(x + 0.5, y + 0.5, id, ha="center", va="center", fontsize=9)
    axes.set(xlim=(-1.2, 20.2), ylim=(9.1, -0.2), aspect="equal")
    axes.axis("off")


def tables() -> None:
    """Draw the page tables of three requests and the pool, as `d3_tables.py` prints them before a leaves."""
    lengths = {"a": 9, "b": 14, "c": 3}
    found = {"a": [0, 1, 5], "b": [2, 3, 4, 7], "c": [6]}
    _, axes = plt.subplots(figsize=(8.6, 4.9))
    pool_x, width = 11, 1.5
    owner = {page: (id, entry) for id, table in found.items() for entry, page in enumerate(table)}
    for page in range(12):
        y = page * 1.12
        id, entry = owner.get(page, (None, 0))
        axes.text(pool_x - 0.25, y + 0.5, str(page), ha="right", va="center", fontsize=9, color=GREY)
        for place in range(PAGE):
            position = entry * PAGE + place
            used = id is not None and position < lengths[id]
            style = {} if id else {"linestyle": ":"}
            box(
                axes,
                pool_x + width * place,
                y,
                width,
                PALE[id] if used else "white",
                COLOURS[id] if id else GREY,
                **style,
            )
            if used:
                axes.text(
                    pool_x + width * (place + 0.5), y + 0.52, f"{id}{position}", ha="center", va="center", fontsize=8
                )
    y = 0.0
    for id, table in found.items():
        axes.text(-0.5, y + 0.5, f"{id}  ({lengths[id]})", ha="right", va="center", color=COLOURS[id])
        for entry, page in enumerate(table):
            row = y + entry * 1.12
            box(axes, 0, row, 1.5, PALE[id], COLOURS[id])
            axes.text(0.75, row + 0.52, str(page), ha="center", va="center", fontsize=9)
            arrow = {"arrowstyle": "-|>", "color": COLOURS[id], "linewidth": 1}
            axes.annotate("", (pool_x - 1.1, page * 1.12 + 0.5), (1.6, row + 0.5), arrowprops=arrow)
        y += len(table) * 1.12 + 0.9
    axes.set(xlim=(-2.6, 17.2), ylim=(13.6, -0.2))
    axes.axis("off")


def run() -> None:
    """Draw the pages of each request, step by step, in a pool that is too small. Crosses mark preemptions."""
    rng = random.Random(3)
    pool = PagePool(24, 4)
    scheduler = Scheduler(PagedKVCache(0, pool), 8, TokenBudget(32), PreemptNewest())
    ids = [str(number) for number in range(8)]
    for id in ids:
        params = SamplingParams(max_tokens=rng.randint(15, 40))
        scheduler.add(Request(id, [0] * rng.randint(6, 20), params))
    held: list[dict[str, int]] = []
    crosses: list[tuple[int, str]] = []
    while True:
        batch = scheduler.schedule()
        if not batch.chunks:
            break
        crosses += [(len(held), id) for id in batch.preempted]
        held.append({request.id: len(request.pages) for request in scheduler.running})
        for chunk in batch.chunks:
            request = chunk.request
            if chunk.num_logits:
                request.add(0, (), 1000)
            scheduler.cache.commit(request, min(chunk.end, request.num_tokens - 1))
            if request.finish_reason is not None:
                scheduler.remove(request)
    _, axes = plt.subplots(figsize=(7.6, 3.4), layout="constrained")
    shades = [BLUE, ORANGE, GREEN, PINK, "#56b4e9", "#e69f00", "#7fbf7b", "#b07aa1"]
    bottom = [0] * len(held)
    for id, colour in zip(ids, shades, strict=True):
        counts = [step.get(id, 0) for step in held]
        axes.bar(range(len(held)), counts, bottom=bottom, width=1, color=colour)
        for step, who in crosses:
            if who == id:
                axes.plot(step, pool.num_pages + 0.8, "x", color=colour, markersize=7, markeredgewidth=2)
        bottom = [below + count for below, count in zip(bottom, counts, strict=True)]
    axes.axhline(pool.num_pages, color=GREY, linestyle=":")
    axes.set(xlabel="step", ylabel="pages", xlim=(-0.5, len(held) - 0.5), ylim=(0, pool.num_pages + 2))


PICTURES = (slots, tables, run)
