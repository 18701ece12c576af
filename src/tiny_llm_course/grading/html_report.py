"""One page about a class: who solved what, and which mistakes are common. It needs no other file and no network."""

from __future__ import annotations

from collections import Counter
from html import escape

from ..catalogue import entry_of
from ..syllabus import TaskId, select_task
from .grades import SOLVED, Grade

__all__ = ["html_report"]

STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { border: 1px solid #8884; padding: .2rem .5rem; text-align: left; vertical-align: top; }
td.mark { text-align: center; }
.solved { background: #2a92; } .failed { background: #d332; } .unsolved { opacity: .6; }
tbody th { position: sticky; left: 0; background: Canvas; font-weight: normal; white-space: nowrap; }
.bar { display: inline-block; height: .7rem; background: #2a9; vertical-align: middle; }
"""
MARKS = {"solved": "✔", "failed": "✘", "unsolved": "·"}


def html_report(grades: list[Grade]) -> str:
    """The page."""
    tasks = [task.task for task in grades[0].tasks] if grades else []
    points = sum(grade.points for grade in grades)
    mean = f"{points / len(grades):.1f} of {len(tasks)} tasks" if grades else "no submissions"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>tiny-llm: grades</title><style>{STYLE}</style></head><body>
<h1>Grades</h1>
<p>{len(grades)} submissions, on average {mean}.</p>
<div class="wide"><table><thead><tr><th>submission</th><th>points</th>{"".join(map(_head, tasks))}</tr></thead>
<tbody>{"".join(map(_row, grades))}</tbody></table></div>
<h2>Tasks</h2>
<div class="wide"><table><thead><tr><th>task</th><th>solved</th><th>most common mistakes</th></tr></thead>
<tbody>{"".join(_task_row(task, grades) for task in tasks)}</tbody></table></div>
</body></html>
"""


def _head(task: TaskId) -> str:
    return f'<th title="{escape(select_task(str(task)).title["en"])}">{task}</th>'


def _row(grade: Grade) -> str:
    cells = "".join(
        f'<td class="mark {task.outcome}" title="{escape(task.message[:500])}">{MARKS[task.outcome]}</td>'
        for task in grade.tasks
    )
    problem = f"<br><small>{escape(grade.problem[:300])}</small>" if grade.problem else ""
    return f"<tr><th>{escape(grade.name)}{problem}</th><td>{grade.points}</td>{cells}</tr>\n"


def _task_row(task: TaskId, grades: list[Grade]) -> str:
    of_task = [one for grade in grades for one in grade.tasks if one.task == task]
    solved = sum(one.outcome == SOLVED for one in of_task)
    texts = {mistake.id: mistake.diagnosis["en"] for mistake in entry_of(task).mistakes}
    common = Counter(one.mistake for one in of_task if one.mistake).most_common(3)
    listed = "".join(
        f"<li>{count} x <b>{escape(name)}</b>: {escape(texts.get(name, ''))}</li>" for name, count in common
    )
    width = round(100 * solved / max(1, len(of_task)))
    return (
        f"<tr><td>{task} {escape(select_task(str(task)).title['en'])}</td>"
        f'<td>{solved} of {len(of_task)} <span class="bar" style="width: {width / 20:.1f}rem"></span></td>'
        f"<td>{f'<ul>{listed}</ul>' if listed else ''}</td></tr>\n"
    )
