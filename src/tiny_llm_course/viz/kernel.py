"""`tiny-llm viz kernel`: what the threads of a threadgroup read and write, and where they wait for each other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from metal_host import Counts, MetalKernelError

from ..ui import CommandError, Messages, phrase, show, table
from .kernel_call import Call, Sizes, call_in
from .kernel_drawing import draw_kernel, title_of
from .kernel_steps import KernelStep, folded, steps_of
from .output import Output

__all__ = ["show_kernel"]

MOST_STEPS = 24  # steps that are printed
_COLUMNS = ("read", "distinct_read", "written", "distinct_written", "lines", "conflicts")


def show_kernel(output: Output, script: Path, number: int, threadgroup: str) -> None:
    """Run the script, print the steps of one threadgroup and the counts of the whole kernel, and draw the threadgroup.

    number: the number of the script's kernel call to show, counted from 1. threadgroup: the threadgroup's position in
    the grid, such as "0,0,0".
    """
    if number < 1:
        raise CommandError("wrong_value", option="--call", expected=phrase("at_least", least=1), got=number)
    if not script.is_file():
        raise CommandError("viz_script", script=script)
    at = _position(threadgroup)
    show(f"$ python {script}", dim=True)  # the script's own output follows
    call, problem = call_in(script, number, at)
    words = output.words
    show("\n" + title_of(call, words), bold=True)
    show(words("viz_kernel_call", number=number, calls=call.of) + "\n", dim=True)
    show(_steps_text(steps_of(call), words))
    if call.events.is_cut:
        show(words("viz_kernel_limit", count=len(call.events)), fg="yellow")
    if call.error:
        show("\n" + _error_text(call, call.error, words), fg="red")
    if call.counts:
        show("\n" + _counts_text(call.counts, call.spaces, words))
    show()
    output.file("kernel.svg", draw_kernel(call, words).encode())
    if problem:
        raise problem


def _steps_text(steps: list[KernelStep], words: Messages) -> str:
    """Return a line for each step: how many threads read or write each array, and how many wait at each barrier."""
    texts = [words("viz_kernel_steps")]
    for part in folded(list(enumerate(steps, 1)), MOST_STEPS, lambda _: False):
        if isinstance(part, list):
            texts.append(f"   …  {words('viz_kernel_more_steps', count=len(part))}")
        else:
            texts.append(f"{part[0]:4}  {words('viz_kernel_and').join(_step_texts(part[1], words))}")
    return "\n".join(texts) if steps else words("viz_kernel_nothing")


def _step_texts(step: KernelStep, words: Messages) -> list[str]:
    threads: dict[str, set[int]] = {}
    for row in step.rows:
        what = words(f"viz_kernel_row_{row.kind.replace(' ', '_')}", name=row.name)
        threads.setdefault(what, set()).update(row.cells)
    for wait in step.waits:
        threads.setdefault(wait.name, set()).update(wait.threads)
    return [f"{what}: {len(those)}" for what, those in threads.items()]


def _error_text(call: Call, error: MetalKernelError, words: Messages) -> str:
    lines = [words("viz_kernel_cut"), str(error)]
    elsewhere = [party.threadgroup for party in error.parties if party.threadgroup != call.at]
    if elsewhere and len(elsewhere) == len(error.parties):
        lines.append(words("viz_kernel_elsewhere", option=",".join(map(str, elsewhere[0]))))
    return "\n".join(lines)


def _counts_text(counts: Counts, spaces: Mapping[str, str], words: Messages) -> str:
    """Return the number of waits in all threadgroups, and a table of the threadgroups' memory traffic."""
    head = ["", *(words(f"viz_kernel_{column}") for column in _COLUMNS)]
    rows = []
    for group, hidden in ((counts.buffers, "conflicts"), (counts.variables, "lines")):
        for name, traffic in group.items():
            if not traffic.read + traffic.written:
                continue
            numbers = ["" if c == hidden else f"{getattr(traffic, c):,}" for c in _COLUMNS]
            rows.append([f"{name} ({spaces.get(name, 'threadgroup')})", *numbers])
    said = words(
        "viz_kernel_counts",
        threadgroups=counts.threadgroups,
        barriers=counts.barriers,
        operations=counts.simd_operations + counts.simd_barriers,
    )
    return "\n".join([said, *table(head, *rows)])


def _position(text: str) -> Sizes:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > 3 or not all(part.isdecimal() for part in parts):
        raise CommandError("wrong_value", option="--threadgroup", expected=phrase("viz_three_numbers"), got=text)
    x, y, z = (*map(int, parts), 0, 0, 0)[:3]
    return x, y, z
