"""The pictures of week 3, day 5."""

import json
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import mlx.core as mx
from matplotlib.axes import Axes
from matplotlib.patches import Circle, Rectangle
from style import BLUE, GREEN, GREY, ORANGE, PALE

from tiny_llm_ref.serving.engine import Engine
from tiny_llm_ref.serving.page_pool import PagePool
from tiny_llm_ref.serving.paged_cache import PagedKVCache
from tiny_llm_ref.serving.prefix_cache import PrefixCache
from tiny_llm_ref.serving.request import Request
from tiny_llm_ref.serving.sampling_params import SamplingParams
from tiny_llm_ref.serving.scheduler import PreemptNewest, Scheduler, TokenBudget

RESULTS = sorted((Path(__file__).parents[2] / "benches" / "results").glob("prefix_cache*.json"))
PALE_GREEN, PALE_BLUE, PALE_ORANGE, LIGHT = "#bfe6d9", "#cfe3f0", "#f6cfb0", "#f4f4f4"
PAGE = 4


def page(axes: Axes, x: float, y: float, cells: list[tuple[str, str]], edge: str = GREY) -> None:
    """Draw a page as four cells, each with a text and a colour."""
    for i, (text, face) in enumerate(cells):
        axes.add_patch(Rectangle((x + i, y), 1, 1, facecolor=face, edgecolor="#cccccc", linewidth=0.8))
        axes.text(x + i + 0.5, y + 0.52, text, ha="center", va="center", fontsize=9)
    axes.add_patch(Rectangle((x, y), PAGE, 1, facecolor="none", edgecolor=edge, linewidth=1.3))


def holders(axes: Axes, x: float, y: float, colours: list[str]) -> None:
    """Draw a dot per holder over the right end of a page."""
    for i, colour in enumerate(colours):
        axes.add_patch(Circle((x + PAGE - 0.25 - 0.5 * i, y - 0.3), 0.19, facecolor=colour, edgecolor="none"))


def line(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    middle = (start[0] + end[0]) / 2
    axes.plot([start[0], middle, middle, end[0]], [start[1], start[1], end[1], end[1]], color=GREY, lw=1.1, zorder=0)


def tree() -> None:
    """Draw a system prompt of two pages, followed by three chats. a is finished; b and c run, with their own pages."""
    _, axes = plt.subplots(figsize=(9, 3.7))
    step = 6.0
    system = [[(str(i), PALE_GREEN) for i in part] for part in ("stuv", "wxyz")]
    nodes = {  # keyed by column and row: cells, holders besides the tree
        "s0": (0, 2, system[0], [BLUE, ORANGE]),
        "s1": (1, 2, system[1], [BLUE, ORANGE]),
        "a0": (2, 0.4, [(t, LIGHT) for t in "aaaa"], []),
        "a1": (3, 0.4, [(t, LIGHT) for t in "aaaa"], []),
        "b0": (2, 2, [(t, PALE_BLUE) for t in "bbbb"], [BLUE]),
        "c0": (2, 3.6, [(t, PALE_ORANGE) for t in "cccc"], [ORANGE]),
    }
    parents = {"s1": "s0", "a0": "s1", "b0": "s1", "c0": "s1", "a1": "a0"}
    for name, (column, y, cells, others) in nodes.items():
        x = 1.6 + step * column
        page(axes, x, y, cells)
        holders(axes, x, y, [GREEN, *others])
        if name in parents:
            parent = nodes[parents[name]]
            line(axes, (1.6 + step * parent[0] + PAGE, parent[1] + 0.5), (x, y + 0.5))
    axes.add_patch(Circle((0, 2.5), 0.22, facecolor=GREY, edgecolor="none"))
    line(axes, (0, 2.5), (1.6, 2.5))
    for y, letter, face, colour, count in ((2, "b", PALE_BLUE, BLUE, 1), (3.6, "c", PALE_ORANGE, ORANGE, 3)):
        x = 1.6 + step * 3
        page(axes, x, y, [(letter, face)] * count + [("", "white")] * (PAGE - count), colour)
        holders(axes, x, y, [colour])
    axes.set(xlim=(-0.4, 1.6 + 3 * step + PAGE + 0.2), ylim=(4.9, -0.35), aspect="equal")
    axes.axis("off")


def copy() -> None:
    """Draw a page held by the tree and c. b knows two positions of the page, so b writes a token into a copy."""
    _, axes = plt.subplots(figsize=(8.8, 3.5))
    known = [("15", PALE_GREEN), ("16", PALE_GREEN), ("17", PALE_GREEN), ("18", PALE_GREEN)]
    free = [("", "white")] * PAGE
    copied = [("15", PALE_BLUE), ("16", PALE_BLUE), ("17", LIGHT), ("18", LIGHT)]
    written = [*copied[:2], ("21", BLUE), copied[3]]
    stages = [("", free, []), ("open", copied, [BLUE]), ("step", written, [BLUE])]
    for row, (name, new, own) in enumerate(stages):
        y = 2.0 * row
        axes.text(-0.5, y + 0.52, name, ha="right", va="center", family="monospace", fontsize=10)
        page(axes, 0, y, known)
        holders(axes, 0, y, [GREEN, ORANGE])
        page(axes, 7, y, new, BLUE if own else PALE)
        holders(axes, 7, y, own)
        x = (2, 9, 10)[row]
        axes.plot([x, x], [y - 0.12, y + 1.2], color=BLUE, lw=2)
    arrow = {"arrowstyle": "-|>", "color": "black"}
    axes.annotate("", (6.85, 2.5), (4.15, 2.5), arrowprops=arrow)
    axes.set(xlim=(-2.6, 11.3), ylim=(5.5, -0.65), aspect="equal")
    axes.axis("off")


class NoWeights:
    """A model that computes nothing: every next token is token 0."""

    config = SimpleNamespace(vocab_size=20_000, max_position_embeddings=2048, eos_token_ids=())
    layers = ()

    def hidden(self, tokens: mx.array, cache: object) -> mx.array:
        return mx.zeros((len(tokens), 1, 1))

    def logits(self, hidden: mx.array) -> mx.array:
        return mx.zeros((len(hidden), 1, 2))


class Rows:
    """An observer that records how many tokens of each request each step computed."""

    def __init__(self) -> None:
        self.steps: list[dict[str, int]] = []

    def on_step(self, engine: Engine, batch: object, touched: object) -> None:
        self.steps.append({chunk.request.id: len(chunk.tokens) for chunk in batch.chunks})

    def on_abort(self, engine: Engine, request: Request) -> None:
        """Do nothing: no request is aborted."""


def steps() -> None:
    """Draw the rows of each step, by request, for eight requests with 700 shared tokens and 20 own tokens each."""
    rows, pool = Rows(), PagePool(400, 16)
    cache = PagedKVCache(0, pool, PrefixCache(pool))
    engine = Engine(NoWeights(), Scheduler(cache, 8, TokenBudget(256), PreemptNewest()), [rows])
    for i in range(8):
        engine.add(Request(f"{i}", [*range(700), *range(1000 * (i + 1), 1000 * (i + 1) + 20)], SamplingParams(4)))
    while engine.has_work:
        engine.step()
    _, axes = plt.subplots(figsize=(8.4, 3.0), layout="constrained")
    colours = [BLUE, ORANGE, *["#8c8c8c", "#b5b5b5"] * 3]
    for number, tokens in enumerate(rows.steps, start=1):
        bottom = 0
        for id, count in tokens.items():
            edge = {"edgecolor": "white", "linewidth": 0.5} if count > 8 else {}
            axes.bar(number, count, bottom=bottom, width=0.8, color=colours[int(id)], **edge)
            if count > 18:
                axes.text(number, bottom + count / 2, str(count), ha="center", va="center", fontsize=8, color="white")
            bottom += count
    axes.axhline(256, color=GREY, ls=":", lw=1)
    axes.set(xticks=range(1, len(rows.steps) + 1), yticks=(0, 128, 256), ylim=(0, 275))


def first_token() -> None:
    """Draw the measured time to the first token of each request, without and with the tree."""
    _, panels = plt.subplots(2, len(RESULTS), figsize=(4.6 * len(RESULTS), 5), layout="constrained", squeeze=False)
    for column, file in zip(panels.T, RESULTS, strict=True):
        found = json.loads(file.read_text(encoding="utf-8"))
        column[0].set_title(found["model"], fontsize=10)
        for axes, arrival in zip(column, ("one by one", "at once"), strict=True):
            for shift, cache, colour in ((-0.2, "pages", PALE), (0.2, "prefix", BLUE)):
                (row,) = [row for row in found["rows"] if (row["arrival"], row["cache"]) == (arrival, cache)]
                places = [place + shift for place in range(len(row["first_tokens"]))]
                axes.bar(places, [1e3 * seconds for seconds in row["first_tokens"]], width=0.38, color=colour)
            axes.set(xticks=range(len(row["first_tokens"])))
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g} ms")


PICTURES = (tree, copy, steps, first_token)
