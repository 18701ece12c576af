"""Draws a threadgroup: each column is a thread, and time runs downwards."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle, groupby

from metal_host import Event

from ..ui import Messages
from .kernel_call import Call
from .kernel_plan import MARGIN, SMALL, Column, Part, PicturePlan
from .kernel_steps import LANES, Row, Wait, index_text
from .svg import Sheet, text_width

__all__ = ["draw_kernel", "title_of"]

INK, DIM, PALE, BAND, RED = "#1b1d22", "#5d6470", "#c4c9d1", "#f3f4f6", "#d00000"
# Colours that are dark enough for white text.
COLOURS = ("#0072b2", "#00795a", "#8f6400", "#7b4fae", "#b0437f", "#5f7000", "#007785", "#5a5fd6")
ROW, BOX, LINE = 25.0, 18.0, 15.0
_RACE = {"fill": "none", "stroke": RED, "stroke_width": 2.5, "stroke_linejoin": "round"}


def title_of(call: Call, words: Messages) -> str:
    return words("viz_kernel_title", name=call.name, at=call.at, threads=call.threads)


def draw_kernel(call: Call, words: Messages) -> str:
    """Return an SVG picture of the traced threadgroup of a kernel call."""
    drawing, title = _Drawing(PicturePlan(call, words), words), title_of(call, words)
    drawing.head(title)
    for number, step in enumerate(drawing.plan.steps):
        if isinstance(step, int):
            drawing.note(words("viz_kernel_more_steps", count=step))
        else:
            drawing.step(*step, is_banded=number % 2 == 0)
    drawing.race()
    drawing.end()
    drawing.legend()
    drawing.report()
    return drawing.svg(title)


class _Drawing:
    """A drawing of a plan, made from top to bottom."""

    def __init__(self, plan: PicturePlan, words: Messages):
        self.plan = plan
        self._call, self._words = plan.call, words
        self._sheet = Sheet()
        self._y = MARGIN
        self._width = max(plan.right + MARGIN, 660.0)
        names = dict.fromkeys(event.name for event in plan.call.events if event.kind != "wait")
        self._colours = dict(zip((n for n in names if n not in plan.call.about), cycle(COLOURS), strict=False))
        self._red: list[tuple[float, float, float]] = []  # middle (x, y) and width of each red box

    def svg(self, title: str) -> str:
        return self._sheet.svg(self._width, self._y + MARGIN, title)

    def head(self, title: str) -> None:
        """Draw the title, the simdgroups, and the numbers of their threads."""
        self._width = max(self._width, text_width(title, 13) + 2 * MARGIN)
        self._sheet.text(MARGIN, self._y + 8, title, 13, fill=INK, font_weight="bold")
        self._y += 38
        for number, group in groupby(self.plan.columns, key=lambda column: column.threads[0] // LANES):
            columns = list(group)
            left, right = columns[0].x - columns[0].width / 2 + 2, columns[-1].x + columns[-1].width / 2 - 2
            name = self._words("viz_kernel_simdgroup", number=number)
            self._sheet.shape("path", d=f"M{left:.1f} {self._y + 12:.1f}v-4H{right:.1f}v4", fill="none", stroke=DIM)
            if len(columns) > 1 and text_width(name, SMALL) <= right - left:
                self._sheet.text((left + right) / 2, self._y, name, SMALL, "middle", fill=DIM)
        self._y += 24
        self._sheet.text(MARGIN, self._y, f"{self._words('viz_kernel_time')} ↓", SMALL, fill=DIM)
        label = self._words("viz_kernel_threads")
        self._sheet.text(self.plan.left - 6, self._y, label, SMALL, "end", fill=DIM)
        for column in self.plan.columns:
            text = str(column.threads[0]) if column.is_drawn else "…"
            self._sheet.text(column.x, self._y, text, SMALL, "middle", fill=INK if column.is_drawn else DIM)
        self._y += 16

    def step(self, number: int, parts: Sequence[Part], waits: Sequence[Wait], is_banded: bool) -> None:
        """Draw the rows of accesses, then the barriers and operations at which the threads wait."""
        top, lines = self._y, len(parts) + len(waits)
        if is_banded:
            self._sheet.shape("rect", x=4, y=top, width=self._width - 8, height=lines * ROW + 4, rx=4, fill=BAND)
        self._sheet.text(MARGIN, top + ROW / 2 + 2, str(number), SMALL, fill=DIM, font_weight="bold")
        self._y += 2
        place = None
        for part in parts:
            if isinstance(part, list):
                self.note(self._words("viz_kernel_more_rows", count=len(part)))
                place = None
                continue
            self._describe(part, place)
            place = (part.file, part.line)
            for column in self.plan.columns:
                self._cell(part, column)
            self._y += ROW
        for wait in waits:
            self._describe(wait, place)
            place = (wait.file, wait.line)
            self._wait(wait)
        self._y += 2

    def note(self, text: str) -> None:
        """Write a line that says how many steps or rows were left out at this place."""
        self._sheet.text(MARGIN + 26, self._y + ROW / 2, f"⋮  {text}", SMALL, fill=DIM)
        self._y += ROW

    def race(self) -> None:
        """Draw a line between the two accesses that race, through the gaps between rows and between columns."""
        if len(self._red) < 2:
            return
        (x0, y0, _), (x1, y1, width) = sorted(self._red, key=lambda end: (end[1], end[0]))
        path = f"M{x0:.1f} {y0 + BOX / 2 + 1:.1f}V{y0 + ROW / 2:.1f}"
        if y0 == y1:
            path += f"H{x1:.1f}V{y1 + BOX / 2 + 1:.1f}"
        else:
            beside = x1 + math.copysign(width / 2, x0 - x1)
            path += f"H{beside:.1f}V{y1:.1f}H{beside + math.copysign(4, x1 - x0):.1f}"
        self._sheet.shape("path", d=path, **_RACE)

    def _describe(self, line: Row | Wait, last: tuple[str, int] | None) -> None:
        """Write the row's label. Also write the kernel's source line, unless the previous row is about the same
        line."""
        y = self._y + ROW / 2
        if line.line and (line.file, line.line) != last:
            self._sheet.text(MARGIN + 42, y, str(line.line), SMALL, "end", fill=DIM, mono=True)
            self._sheet.text(MARGIN + 50, y, self.plan.source(line), SMALL, fill=INK, mono=True)
        weight = "bold" if isinstance(line, Wait) else "normal"
        colour = INK if isinstance(line, Wait) else self._colour(line)
        self._sheet.text(self.plan.label_x + 12, y, self.plan.label(line), SMALL, fill=colour, font_weight=weight)

    def _cell(self, row: Row, column: Column) -> None:
        y = self._y + ROW / 2
        if not column.is_drawn:
            if any(thread in row.cells for thread in column.threads):
                self._sheet.text(column.x, y, "…", SMALL, "middle", fill=DIM)
            return
        events = row.cells.get(column.threads[0])
        if events:
            is_red = any(map(self.plan.is_red, events))
            self._red += [(column.x, y, column.width)] if is_red else []
            self._box(row, column.x, y, column.width - 8, events, RED if is_red else self._colour(row))

    def _colour(self, row: Row) -> str:
        return self._colours.get(row.name, DIM)

    def _box(self, row: Row, x: float, y: float, width: float, events: Sequence[Event], colour: str) -> None:
        is_write, is_device = row.kind.endswith("write"), row.name in self._call.spaces
        self._shape(x, y, width, colour, is_write, is_device)
        text = index_text(self._call, events)
        self._sheet.text(x, y, text, SMALL, "middle", fill="#ffffff" if is_write else colour)

    def _shape(self, x: float, y: float, width: float, colour: str, is_write: bool, is_device: bool) -> None:
        """Draw a write as a filled rectangle, and a read as an empty rectangle with round ends. An access to
        threadgroup memory has a second outline."""
        for inset in (0,) if is_device else (0, 2.2):
            self._sheet.shape(
                "rect",
                x=x - width / 2 + inset,
                y=y - BOX / 2 + inset,
                width=width - 2 * inset,
                height=BOX - 2 * inset,
                rx=1 if is_write else BOX / 2 - inset,
                fill=colour if is_write else "#ffffff",
                stroke="#ffffff" if is_write and inset else colour,
                stroke_width=0.8 if inset else 1.4,
            )

    def _wait(self, wait: Wait) -> None:
        """For a barrier, draw one line across the columns of the waiting threads. Otherwise, draw one line per
        simdgroup."""
        waiting, y = set(wait.threads), self._y + ROW / 2

        def piece(column: Column) -> tuple[bool, int]:
            return bool(waiting & set(column.threads)), 0 if wait.is_barrier else column.threads[0] // LANES

        for (waits, _), group in groupby(self.plan.columns, key=piece):
            columns = list(group)
            if waits:
                left, right = columns[0].x - columns[0].width / 2 + 3, columns[-1].x + columns[-1].width / 2 - 3
                self._line(wait.is_barrier, left, right, y, [c.x for c in columns if c.is_drawn])
        self._y += ROW

    def _line(self, is_barrier: bool, left: float, right: float, y: float, lanes: Sequence[float]) -> None:
        """Draw a barrier as a thick line, and a simdgroup operation as a thin line with a dot for each lane."""
        width = 4 if is_barrier else 1.2
        self._sheet.shape("path", d=f"M{left:.1f} {y:.1f}H{right:.1f}", stroke=INK, stroke_width=width)
        for x in () if is_barrier else lanes:
            self._sheet.shape("circle", cx=x, cy=y, r=3, fill=INK)

    def end(self) -> None:
        """Mark the place where an error ended the run, and the threads that the error names."""
        if self._call.error is None:
            return
        named = {party.thread for party in self._call.error.parties if party.threadgroup == self._call.at}
        y = self._y + ROW / 2
        self._sheet.text(
            self.plan.label_x + 12, y, self._words("viz_kernel_error"), SMALL, fill=RED, font_weight="bold"
        )
        for column in self.plan.columns:
            if column.is_drawn and column.threads[0] in named:
                self._sheet.text(column.x, y, "×", 16, "middle", fill=RED, font_weight="bold")
        self._y += ROW

    def legend(self) -> None:
        """Explain the shapes and colours, in as many lines as needed."""
        words, x = self._words, MARGIN
        self._y += 22
        for width, draw, text in self._samples():
            whole = width + 6 + text_width(text, SMALL)
            if x + whole > self._width - MARGIN:
                x, self._y = MARGIN, self._y + 22
            draw(x + width / 2)
            self._sheet.text(x + width + 6, self._y, text, SMALL, fill=INK)
            x += whole + 20
        self._y += 24
        hidden = sum(len(column.threads) for column in self.plan.columns if not column.is_drawn)
        notes = [words("viz_kernel_elements")]
        notes += [words("viz_kernel_more_threads", count=hidden, threads=self._call.threads)] if hidden else []
        notes += [words("viz_kernel_nothing")] if not self._call.events else []
        notes += [words("viz_kernel_limit", count=len(self._call.events))] if self._call.events.is_cut else []
        for text in notes:
            self._sheet.text(MARGIN, self._y, text, SMALL, fill=DIM)
            self._y += LINE

    def _samples(self) -> list[tuple[float, Callable[[float], None], str]]:
        """Return the width, the drawing function and the meaning of each symbol that occurs."""
        words, drawn = self._words, self.plan.shown()
        rows = [line for line in drawn if isinstance(line, Row)]
        waits = [line for line in drawn if isinstance(line, Wait)]
        samples: list[tuple[float, Callable[[float], None], str]] = []
        for is_write, is_device, meaning in (
            (False, True, "read"),
            (True, True, "write"),
            (False, False, "read_threadgroup"),
            (True, False, "write_threadgroup"),
        ):
            if any(r.kind.endswith("write") == is_write and (r.name in self._call.spaces) == is_device for r in rows):
                draw = partial(self._sample, is_write=is_write, is_device=is_device)
                samples.append((30, draw, words(f"viz_kernel_legend_{meaning}")))
        for is_barrier, meaning in ((True, "barrier"), (False, "operation")):
            if any(wait.is_barrier == is_barrier for wait in waits):
                samples.append((34, partial(self._sample_line, is_barrier), words(f"viz_kernel_legend_{meaning}")))
        if len(self._red) == 2:
            samples.append((30, self._sample_race, words("viz_kernel_legend_race")))
        return samples

    def _sample(self, x: float, is_write: bool, is_device: bool) -> None:
        self._shape(x, self._y, 30, DIM, is_write, is_device)
        self._sheet.text(x, self._y, "3", SMALL, "middle", fill="#ffffff" if is_write else DIM)

    def _sample_line(self, is_barrier: bool, x: float) -> None:
        self._line(is_barrier, x - 17, x + 17, self._y, (x - 10, x, x + 10))

    def _sample_race(self, x: float) -> None:
        self._sheet.shape("path", d=f"M{x - 15:.1f} {self._y:.1f}h30", **_RACE)

    def report(self) -> None:
        """Write the error's message."""
        if self._call.error is None:
            return
        self._y += 6
        self._paragraph(self._words("viz_kernel_cut"), False)
        self._y += 4
        for line in str(self._call.error).splitlines():
            self._paragraph(line, True)

    def _paragraph(self, text: str, mono: bool) -> None:
        indent = len(text) - len(text.lstrip())
        most = int((self._width - 2 * MARGIN) / text_width("x", SMALL))
        for part in textwrap.wrap(text.strip(), most - indent) if mono else [text]:
            self._sheet.text(MARGIN + indent * text_width("x", SMALL), self._y, part, SMALL, fill=RED, mono=mono)
            self._y += LINE
