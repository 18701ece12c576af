"""Writes a page about a class: the tasks that each student solved, and common mistakes. The page needs no network."""

from __future__ import annotations

from collections import Counter
from html import escape

from ..catalogue import entry_of
from ..tasks.syllabus import TaskId, select_task
from ..ui import Messages
from .grades import SOLVED, Grade
from .sandbox import NONE

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


def html_report(grades: list[Grade], words: Messages) -> str:
    """Return the page, which needs no other file."""
    tasks = [task.task for task in grades[0].tasks] if grades else []
    return f"""<!doctype html>
<html lang="{words.language}"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>tiny-llm: {words("grades_title")}</title><style>{STYLE}</style></head><body>
<h1>{words("grades_title")}</h1>
<p>{_average(grades, words)}</p>
<p>{_protection(grades, words)}</p>
<div class="wide"><table><thead><tr>{_heads(words, "grades_submission", "grades_points")}
{"".join(_head(task, words) for task in tasks)}</tr></thead>
<tbody>{"".join(map(_row, grades))}</tbody></table></div>
<h2>{words("grades_tasks")}</h2>
<div class="wide"><table><thead><tr>{_heads(words, "grades_task", "grades_solved", "grades_mistakes")}</tr></thead>
<tbody>{"".join(_task_row(task, grades, words) for task in tasks)}</tbody></table></div>
</body></html>
"""


def _average(grades: list[Grade], words: Messages) -> str:
    if not grades:
        return words("grades_none")
    mean = sum(grade.points for grade in grades) / len(grades)
    return words("grades_average", count=len(grades), points=f"{mean:.1f}", most=len(grades[0].tasks))


def _protection(grades: list[Grade], words: Messages) -> str:
    """Return a sentence that names the submissions' sandbox. Return "" if the file of grades names no sandbox."""
    if count := sum(grade.protection == NONE for grade in grades):
        return words("grades_unprotected", count=count)
    used = {grade.protection for grade in grades if grade.protection}
    return escape(words("grade_protected", sandbox=", ".join(sorted(used)))) if used else ""


def _heads(words: Messages, *keys: str) -> str:
    return "".join(f"<th>{words(key)}</th>" for key in keys)


def _head(task: TaskId, words: Messages) -> str:
    return f'<th title="{escape(words.of(select_task(str(task)).title))}">{task}</th>'


def _row(grade: Grade) -> str:
    cells = "".join(
        f'<td class="mark {task.outcome}" title="{escape(task.message[:500])}">{MARKS[task.outcome]}</td>'
        for task in grade.tasks
    )
    problem = f"<br><small>{escape(grade.problem[:300])}</small>" if grade.problem else ""
    return f"<tr><th>{escape(grade.name)}{problem}</th><td>{grade.points}</td>{cells}</tr>\n"


def _task_row(task: TaskId, grades: list[Grade], words: Messages) -> str:
    of_task = [one for grade in grades for one in grade.tasks if one.task == task]
    solved = sum(one.outcome == SOLVED for one in of_task)
    texts = {mistake.id: words.of(mistake.diagnosis) for mistake in entry_of(task).mistakes}
    common = Counter(one.mistake for one in of_task if one.mistake).most_common(3)
    listed = "".join(
        f"<li>{count} x <b>{escape(name)}</b>: {escape(texts.get(name, ''))}</li>" for name, count in common
    )
    width = round(100 * solved / max(1, len(of_task)))
    return (
        f"<tr><td>{task} {escape(words.of(select_task(str(task)).title))}</td>"
        f'<td>{solved} / {len(of_task)} <span class="bar" style="width: {width / 20:.1f}rem"></span></td>'
        f"<td>{f'<ul>{listed}</ul>' if listed else ''}</td></tr>\n"
    )
