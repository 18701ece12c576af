"""Plans a threadgroup's picture: which threads, steps and rows to draw, and where. All other threads, steps and rows
are only counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from metal_host import Event

from ..ui import Messages
from .kernel_call import Call
from .kernel_steps import LANES, KernelStep, Row, Wait, folded, index_text, racing, steps_of
from .labels import shortened
from .svg import text_width

__all__ = ["MARGIN", "SMALL", "Column", "Part", "PicturePlan"]

THREADS, SIMDGROUPS, STEPS, ROWS = 18, 3, 14, 10  # the most threads, simdgroups, steps and rows that are drawn
SOURCE = 52  # the most characters of a kernel's line that are shown
MARGIN, SMALL = 16.0, 10.5
GAP = 34.0  # the width of a column for threads that are left out

Part: TypeAlias = "Row | list[Row]"  # a row, or several rows that are left out


@dataclass(frozen=True)
class Column:
    """A column for one thread, or for several neighbouring threads that are left out. x: the column's middle."""

    threads: Sequence[int]
    x: float
    width: float

    @property
    def is_drawn(self) -> bool:
        return len(self.threads) == 1


class PicturePlan:
    """The lines of the picture from top to bottom, and its columns from left to right.

    steps: the number, rows and waits of each step. Where steps are left out, an integer says how many.
    """

    def __init__(self, call: Call, words: Messages):
        self.call = call
        self._words = words
        self.red = racing(call)
        self.steps: list[tuple[int, list[Part], list[Wait]] | int] = []
        for entry in folded(list(enumerate(steps_of(call), 1)), STEPS, lambda e: self._has_red(e[1].rows)):
            self.steps.append(len(entry) if isinstance(entry, list) else (entry[0], *self._parts(entry[1])))
        shown = self.shown()
        self.label_x = MARGIN + 50 + max((text_width(self.source(line), SMALL) for line in shown), default=60)
        self.left = self.label_x + 24 + max((text_width(self.label(line), SMALL) for line in shown), default=40)
        cells = chain.from_iterable(line.cells.values() for line in shown if isinstance(line, Row))
        widest = max((text_width(index_text(call, cell), SMALL) for cell in cells), default=0)
        self.columns = self._placed(self.left, max(widest + 18, 32))
        self.right = self.columns[-1].x + self.columns[-1].width / 2 if self.columns else self.left

    def is_red(self, event: Event) -> bool:
        return any(event is red for red in self.red)

    def source(self, line: Row | Wait) -> str:
        """Return the text of the kernel's source line, cut to the width of its column in the picture."""
        return shortened(self.call.line(line.file, line.line), SOURCE)

    def label(self, line: Row | Wait) -> str:
        """Return the label of a row, which says what the row's threads do."""
        if isinstance(line, Wait):
            return line.name
        return self._words(f"viz_kernel_row_{line.kind.replace(' ', '_')}", name=line.name)

    def _parts(self, step: KernelStep) -> tuple[list[Part], list[Wait]]:
        return folded(step.rows, ROWS, lambda row: self._has_red([row])), step.waits

    def _has_red(self, rows: Sequence[Row]) -> bool:
        return any(self.is_red(event) for row in rows for cell in row.cells.values() for event in cell)

    def shown(self) -> list[Row | Wait]:
        """Return the rows and waits that have a line of their own."""
        steps = [step for step in self.steps if not isinstance(step, int)]
        return [line for _, rows, waits in steps for line in (*rows, *waits) if not isinstance(line, list)]

    def _placed(self, x: float, width: float) -> list[Column]:
        columns: list[Column] = []
        for simdgroup in self._chosen():
            for threads in simdgroup:
                own = width if len(threads) == 1 else GAP
                columns.append(Column(threads, x + own / 2, own))
                x += own
            x += 12
        return columns

    def _chosen(self) -> list[list[Sequence[int]]]:
        """Return the threads of each column, grouped by simdgroup. Neighbouring threads without a column of
        their own share one."""
        named = {party.thread for party in self.call.error.parties} if self.call.error else set()
        threads = range(self.call.threads)
        simdgroups = [threads[i : i + LANES] for i in range(0, len(threads), LANES)]
        parts = folded(simdgroups, SIMDGROUPS, lambda lanes: bool(named & set(lanes)))
        most = max(5, THREADS // max(1, sum(not isinstance(part, list) for part in parts)))
        chosen: list[list[Sequence[int]]] = []
        for part in parts:
            if isinstance(part, list):
                chosen.append([[*chain.from_iterable(part)]])
                continue
            lanes = folded(part, most, named.__contains__)
            chosen.append([lane if isinstance(lane, list) else [lane] for lane in lanes])
        return chosen
