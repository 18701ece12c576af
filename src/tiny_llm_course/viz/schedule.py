"""`tiny-llm viz schedule`: the requests that an engine served in each step, the number of waiting requests, and the
pages in use."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ..ui import CommandError, Messages, phrase, right, show, table_row
from .output import Output
from .schedule_page import schedule_page
from .schedule_run import KINDS, RecordedRun, read_run

__all__ = ["show_schedule"]

FORMATS = (".png", ".svg", ".html")


def show_schedule(file: Path, out: Path, words: Messages) -> None:
    """Print the main numbers of a recorded run, and draw the run.

    out: a file in one of FORMATS, or a folder for a picture and a page.
    """
    if out.suffix and out.suffix not in FORMATS and not out.is_dir():
        raise CommandError(
            "wrong_value", option="--out", expected=phrase("viz_out_file", formats=", ".join(FORMATS)), got=str(out)
        )
    run = read_run(file)
    show(run.title(words), bold=True)
    show(_text(run, words) + "\n")
    is_file = out.suffix in FORMATS and not out.is_dir()
    output = Output(out.parent if is_file else out, words)
    for name in (out.name,) if is_file else ("schedule.png", "schedule.html"):
        if name.endswith(".html"):
            output.file(name, schedule_page(run, words).encode())
        else:
            output.picture(name, partial(_draw, run, words, name[-3:]))


def _draw(run: RecordedRun, words: Messages, format: str) -> bytes:
    from .schedule_drawing import draw_schedule

    return draw_schedule(run, words, format)


def _text(run: RecordedRun, words: Messages) -> str:
    """Return a table with the numbers of requests, steps, tokens, events and pages."""
    tokens = {kind: sum(w.length for step in run.steps for w in step.work if w.kind == kind) for kind in KINDS}
    rows = [
        ("viz_schedule_requests", f"{len(run.prompts):,}"),
        ("viz_schedule_steps", f"{len(run.steps):,}"),
        ("viz_schedule_generated", f"{sum(step.generated for step in run.steps):,}"),
        *((f"viz_schedule_tokens_{kind}", f"{count:,}") for kind, count in tokens.items()),
        ("viz_schedule_preempted", f"{sum(len(step.preempted) for step in run.steps):,}"),
        ("viz_schedule_aborted", f"{sum(len(step.aborted) for step in run.steps) + len(run.late):,}"),
        ("viz_schedule_most_running", f"{max(step.running for step in run.steps):,}"),
        ("viz_schedule_most_waiting", f"{max(step.waiting for step in run.steps):,}"),
    ]
    if run.pages is not None:
        most = max(step.pages_used or 0 for step in run.steps)
        rows.append(("viz_schedule_most_pages", f"{most:,} / {run.pages:,}"))
    return "\n".join(table_row(words(key), right(value, 12)) for key, value in rows)
