"""`tiny-llm viz sampling`: how each step of the sampler changes the probabilities of the likeliest next tokens."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from itertools import zip_longest
from typing import Any

import mlx.core as mx
import numpy as np

from ..base.packages import package_of
from ..ui import CommandError, Messages, phrase, right, show, signs, terminal_width
from .labels import padded
from .output import Output
from .probe import Probe, given_or
from .sampling_steps import SamplingStep, percent

__all__ = ["show_sampling"]

LABEL = 14  # columns of a terminal
COLUMN, NARROW = 13, 8  # columns for each step; NARROW if the terminal is too narrow for COLUMN
BAR = 20
MAX_TOKENS = 40


def show_sampling(
    output: Output, model: str, impl: str, prompt: str | None, count: int, sampling: dict[str, Any]
) -> None:
    """Print and draw the likeliest next tokens, before and after each step of the sampler."""
    if not 1 <= count <= MAX_TOKENS:
        raise CommandError(
            "wrong_value", option="--tokens", expected=phrase("from_to", first=1, last=MAX_TOKENS), got=count
        )
    words = output.words
    text = given_or(words("viz_sampling_prompt"), prompt)
    probe = Probe(model, impl, **sampling)
    logits = probe.logits(probe.prompt(text))
    steps = _steps(logits, import_module(f"{package_of(impl)}.sampler"), sampling, words)
    best = [int(token) for token in np.argsort(-steps[0].probs, kind="stable")[:count]]
    labels = [probe.label(token) for token in best]
    title = words("viz_sampling_title", model=probe.name)
    show(title, bold=True)
    show(_text(steps, best, labels, words) + "\n")

    def draw() -> bytes:
        from .sampling_drawing import draw_sampling

        return draw_sampling(steps, best, labels, title, text, words)

    output.picture("sampling.png", draw)


def _steps(logits: mx.array, sampler: Any, sampling: dict[str, Any], words: Messages) -> list[SamplingStep]:
    """Return the model's own probabilities, then the probabilities after each step that changes them, in the order of
    `make_sampler`."""
    steps = [_step(words("viz_sampling_model"), logits)]
    temperature = sampling["temperature"]
    name = words("viz_sampling_temp", temp=f"{temperature:g}")
    if temperature == 0:
        likeliest = mx.arange(logits.shape[-1]) == sampler.greedy(logits)[:, None]
        return [*steps, _step(name, mx.where(likeliest, 0.0, -mx.inf))]
    if temperature != 1:
        logits = logits / temperature
        steps.append(_step(name, logits))
    for key, option, off in (("top_k", "top-k", 0), ("top_p", "top-p", 1), ("min_p", "min-p", 0)):
        if sampling[key] != off:
            logits = getattr(sampler, f"apply_{key}")(logits, sampling[key])
            steps.append(_step(f"{option} {sampling[key]:g}", logits))
    return steps


def _step(name: str, logits: mx.array) -> SamplingStep:
    return SamplingStep(name, np.array(mx.softmax(logits, axis=-1, precise=True))[0])


def _text(steps: list[SamplingStep], best: list[int], labels: list[str], words: Messages) -> str:
    """Return a line for each token, with a column for each step, and a bar for the last step."""
    names = [*labels, words("viz_sampling_rest")]
    columns = [step.shares(best) for step in steps]
    room = terminal_width(sys.stdout) - LABEL - 2 if sys.stdout.isatty() else COLUMN * len(steps) + BAR
    width = COLUMN if COLUMN * len(steps) + BAR <= room else NARROW
    heads = [[step.name] if width == COLUMN else step.name.split(" ") for step in steps]

    def line(name: str, cells: Iterable[str]) -> str:
        return padded(name, LABEL) + "".join(right(cell, width) for cell in cells)

    lines = [line("", cells) for cells in zip_longest(*heads, fillvalue="")]
    for name, *shares in zip(names, *columns, strict=True):
        bar = signs().full * round(max(0, min(BAR, room - width * len(steps))) * shares[-1])
        lines.append(f"{line(name, map(percent, shares))}  {bar}".rstrip())
    return "\n".join([*lines, line(words("viz_sampling_kept"), (f"{step.kept:,}" for step in steps))])
