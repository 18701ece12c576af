"""A recorded run as an interactive page in one HTML file."""

from __future__ import annotations

from typing import Any

from ..ui import Messages
from .page import filled
from .schedule_run import KINDS, RecordedRun, RecordedStep, RequestEvent

__all__ = ["schedule_page"]

# Placeholders stay in these texts, because the page's script fills them in
_HOLES = {name: f"{{{name}}}" for name in ("number", "start", "end", "count", "first", "last", "used", "kept", "free")}
_TEXTS = (
    "prefill",
    "decode",
    "again",
    "idle",
    "preempted",
    "aborted",
    "error",
    "waiting",
    "running",
    "pages",
    "used",
    "kept",
    "all_pages",
    "step",
    "lanes",
    "choose",
    "by_step",
    "by_time",
    "page_step",
    "page_work",
    "page_pages",
    "page_found",
    "finished",
    "requests",
    "prompt",
    "first_step",
    "last_step",
    "steps_of",
    "preemptions",
    "end",
    "more",
    "zoom_in",
    "zoom_out",
)


def schedule_page(run: RecordedRun, words: Messages) -> str:
    """Return the page of a recorded run. The page loads nothing over the network."""
    ids = {id: number for number, id in enumerate(dict.fromkeys([*run.prompts, *_named(run)]))}
    data = {
        "about": run.about,
        "title": run.title(words),
        "ids": list(ids),
        "prompts": [run.prompts.get(id, 0) for id in ids],
        "kinds": KINDS,
        "lanes": run.lanes,
        "pages": run.pages,
        "steps": [_step(step, ids) for step in run.steps],
        "spans": [[ids[span.id], span.lane, span.first, span.last] for span in run.spans],
        "late": _places(run.late, ids),
        "texts": {name: words(f"viz_schedule_{name}", **_HOLES) for name in _TEXTS},
    }
    return filled("schedule", words.language, run.title(words), data)


def _named(run: RecordedRun) -> list[str]:
    """Return the ids of all requests that were preempted, finished or aborted. Some of these requests end before a step
    computes anything for them."""
    places = [p for step in run.steps for p in (*step.preempted, *step.finished, *step.aborted)] + run.late
    return [place.id for place in places]


def _step(step: RecordedStep, ids: dict[str, int]) -> dict[str, Any]:
    return {
        "time": step.time,
        "work": [[ids[w.id], w.lane, KINDS.index(w.kind), w.start, w.length, w.scored] for w in step.work],
        "preempted": _places(step.preempted, ids),
        "finished": _places(step.finished, ids),
        "aborted": _places(step.aborted, ids),
        "running": step.running,
        "waiting": step.waiting,
        "used": step.pages_used,
        "kept": step.pages_kept,
    }


def _places(places: list[RequestEvent], ids: dict[str, int]) -> list[list[Any]]:
    return [[ids[place.id], place.lane, place.why] for place in places]
