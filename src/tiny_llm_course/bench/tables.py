"""Shows the tables of `bench`, each row as soon as it is measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..tasks.syllabus import select_days, select_task
from ..ui import Messages, right, show, table_row, wrapped
from .quiet import doubt_text

__all__ = ["Tables", "rung_name", "show_doubts", "show_limits", "speed"]

Row = dict[str, Any]

SHARE, STAGE = 8, 20  # widths in characters: of a share of the limit, and of a share with a speed


class Tables:
    """The tables of `bench`: headings and rows, in the order of the measurements."""

    def __init__(self, words: Messages):
        self._words = words
        self._about: Row = {}  # the number of threads, and the reason to doubt the limits
        self._has_limits = False  # limits are measured several times, but shown once
        self._case: tuple[str, str] | None = None  # the case whose heading was printed last
        self._fallback = 0.0  # seconds of this case's fallback
        self._stages: list[Row] = []

    def show(self, name: str, value: Any) -> None:
        """Show an event. name: "kernels" or "model" (the value is a row), "threads", "limits_doubt" or "limits"."""
        if name in ("threads", "limits_doubt"):
            self._about[name] = value
        elif name == "limits" and not self._has_limits:
            self._has_limits = True
            show_limits(value, self._about["threads"], self._about["limits_doubt"], self._words)
        elif name == "kernels":
            self._kernel(value)
        elif name == "model":
            if not self._stages:
                show_model_heading(value["prompt"], self._words)
            self._stages.append(value)
            show_stage(value, self._words)

    def finish(self) -> None:
        """Show which rung the learner has reached, if a model was measured."""
        if self._stages:
            show_standing(self._stages, self._words)

    def _kernel(self, row: Row) -> None:
        if self._case != (row["kernel"], row["sizes"]):
            self._case, self._fallback = (row["kernel"], row["sizes"]), row["seconds"]
            show_case_heading(row, self._words)
        show_rung(row, self._fallback, self._words)


def show_limits(limits: dict[str, float], threads: int, doubt: str | None, words: Messages) -> None:
    show(words("roofline_machine", threads=threads), bold=True)
    units = {"bandwidth": "GB/s", "float32": "GFLOP/s", "bfloat16": "GFLOP/s", "int8": "GOP/s"}
    for name, unit in units.items():
        if limits.get(name):
            digits = 1 if name == "bandwidth" else 0
            speed = right(f"{limits[name] / 1e9:,.{digits}f} {unit}", 16)
            show(table_row(words(f"roofline_{name}"), speed + _mark(doubt)))


def show_case_heading(row: Row, words: Messages) -> None:
    """Show a kernel, its sizes and the names of the columns. row: the row of the case's first rung."""
    share = words("bench_share") if row["limit"] else ""
    heads = [right(share, SHARE + 2), right(words("bench_time"), 16), right(words("bench_ratio"), 12)]
    show("\n" + table_row(f"{row['kernel']}, {row['sizes']}", *heads)[2:], bold=True)


def show_rung(row: Row, fallback: float, words: Messages) -> None:
    name = rung_name(row["rung"], words)
    if row["seconds"] is None:
        show(table_row(name, right(words("bench_open"), SHARE + 17)), dim=True)
        return
    cells = [_share(row["limit"]), right(f"{row['seconds'] * 1e6:,.1f} µs", 16)]
    show(table_row(name, *cells, right(f"{fallback / row['seconds']:.1f} x", 12) + _mark(row.get("doubt"))))


def show_model_heading(prompt: int, words: Messages) -> None:
    show("\n" + words("bench_model", prompt=prompt), bold=True)
    show(table_row("", right(words("bench_prefill"), STAGE), right(words("bench_decode"), STAGE)))


def show_stage(row: Row, words: Messages) -> None:
    cells = [right(words("bench_open"), STAGE)] * 2
    if row["decode"] is not None:
        cells = [_share(row[f"{of}_limit"]) + right(speed(row[of]), STAGE - SHARE) for of in ("prefill", "decode")]
    name = rung_name(row["stage"], words)
    show(table_row(name, cells[0], cells[1] + _mark(row.get("doubt"))), dim=row["decode"] is None)


def _share(limit: float | None) -> str:
    return right(f"{100 * limit:.0f} %" if limit else "", SHARE)


def show_standing(rows: list[Row], words: Messages) -> None:
    """Show which rung the learner has reached."""
    days = [row for row in rows if row["stage"] != "tuned"]
    written = next((i for i, row in enumerate(days) if row["decode"] is None), len(days))
    stands = words("bench_rung", rung=written, count=len(days))
    if written < len(days):
        stands += " " + words("bench_next", day=rung_name(days[written]["stage"], words))
    show("\n" + wrapped(stands))


def show_doubts(doubts: Iterable[str], others: float, words: Messages) -> None:
    """Show the reasons why some figures are marked with a question mark."""
    for doubt in doubts:
        show("\n" + wrapped(f"? {doubt_text(f'doubt_{doubt}', others, words)}"), fg="yellow")


def _mark(doubt: str | None) -> str:
    return " ?" if doubt else ""


def rung_name(rung: str, words: Messages) -> str:
    """Return the name of a rung or stage, such as a task's or a day's title."""
    if rung in ("fallback", "mlx", "tuned", "week 1"):
        return words(f"bench_{rung.replace(' ', '_')}")
    if "." in rung:
        return f"{rung} {words.of(select_task(rung).title)}"
    day = rung.partition("d")[2]
    return words("bench_day", day=day, title=words.of(select_days("2", day)[0].chapter))


def speed(tokens: float) -> str:
    """Return a number of tokens per second as a text with about three digits."""
    return f"{tokens:,.{0 if tokens >= 100 else 1 if tokens >= 10 else 2}f} tok/s"
