"""Writes grades as CSV, as JUnit XML, or as JSON for Gradescope, GitHub Classroom and Exercism."""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from itertools import groupby
from typing import Any

from ..catalogue import entry_of
from ..tasks.syllabus import select_task
from ..ui import Messages, signs
from .grades import SOLVED, UNSOLVED, Grade, TaskGrade
from .protection import told

__all__ = ["EACH", "TOGETHER", "from_json", "legend", "table_line"]

FORMULAS = tuple("=+-@\t\n＝＋－＠")  # a spreadsheet may evaluate a cell that begins with one of these
COMMAND = re.compile(r"^(\s*)(?=::)|(?<=##)(?=\[)", re.MULTILINE)  # where GitHub would find a command in a log

Json = dict[str, Any]


def table_line(grade: Grade) -> str:
    """Return a line of the table: points, a symbol for each task (with a space between days), the submission's name and
    its problem."""
    days = groupby(grade.tasks, key=lambda task: (task.task.week, task.task.day))
    marks = " ".join("".join(map(_sign, tasks)) for _, tasks in days)
    problem = f"  {grade.problem.splitlines()[0]}" if grade.problem else ""
    points = Messages()("grade_points", points=f"{grade.points:>3}", count=len(grade.tasks))
    return f"{points}  {marks}  {grade.name}{problem}"


def legend() -> str:
    """Return an explanation of the symbols in a table."""
    return Messages()("grade_legend", solved=signs().solved, failed=signs().failed, open=signs().open)


def _sign(task: TaskGrade) -> str:
    return signs().solved if task.points else signs().open if task.outcome == UNSOLVED else signs().failed


def _table(grades: list[Grade]) -> str:
    return "\n".join([*map(table_line, grades), legend(), told()]) + "\n"


def _csv(grades: list[Grade]) -> str:
    """Return the grades as CSV: a row for each submission, and a column for each task. A cell that a spreadsheet would
    evaluate is written as text."""
    tasks = [task.task for task in grades[0].tasks] if grades else []
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["submission", "points", "of", *tasks, "mistakes", "problem", "seconds", "protection"])
    for grade in grades:
        mistakes = " ".join(f"{task.task}:{task.mistake}" for task in grade.tasks if task.mistake)
        row = [grade.name, grade.points, len(tasks), *(task.points for task in grade.tasks), mistakes, grade.problem]
        writer.writerow([_cell(value) for value in [*row, f"{grade.seconds:.1f}", grade.protection]])
    return out.getvalue()


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULAS) else value


def _junit(grades: list[Grade]) -> str:
    """Return the grades as JUnit XML: a test suite for each submission, with a test case for each task."""
    root = ElementTree.Element("testsuites")
    for grade in grades:
        failed = [task for task in grade.tasks if task.outcome != SOLVED]
        suite = ElementTree.SubElement(root, "testsuite", name=grade.name, tests=str(len(grade.tasks)))
        suite.attrib |= {"failures": str(len(failed)), "errors": "0", "time": f"{grade.seconds:.3f}"}
        for task in grade.tasks:
            case = ElementTree.SubElement(suite, "testcase", classname=grade.name, name=str(task.task))
            if task.outcome != SOLVED:
                text = _explained(task, grade)
                ElementTree.SubElement(case, "failure", message=text.partition("\n")[0]).text = text
        if grade.problem:
            ElementTree.SubElement(suite, "system-out").text = grade.problem
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _json(grades: list[Grade]) -> str:
    return (
        json.dumps({"version": 1, "grades": [grade.as_json() for grade in grades]}, indent=1, ensure_ascii=False) + "\n"
    )


def from_json(text: str) -> list[Grade]:
    """Read the grades that `grade --format json` wrote.

    Raises:
        ValueError: the text contains no such grades.
    """
    content = json.loads(text)
    if not isinstance(content, dict) or not isinstance(content.get("grades"), list):
        raise ValueError("there is no list of grades")
    return [Grade.from_json(entry) for entry in content["grades"]]


def _gradescope(grade: Grade) -> Json:
    """Return Gradescope's results.json.

    Source: https://gradescope-autograders.readthedocs.io/en/latest/specs/
    """
    return {
        "score": grade.points,
        "execution_time": round(grade.seconds),
        "output": grade.problem,
        "tests": [
            {
                "name": _title(task),
                "number": str(task.task),
                "score": task.points,
                "max_score": 1,
                "status": "passed" if task.outcome == SOLVED else "failed",
                "output": _explained(task, grade),
            }
            for task in grade.tasks
        ],
    }


def _classroom(grade: Grade) -> Json:
    """Return the grade in the format of GitHub Classroom's graders.

    classroom-resources/autograding-grading-reporter reads this JSON in base64, and prints the messages to a workflow's
    log.
    """
    return {
        "version": 1,
        "status": _status(grade),
        "max_score": len(grade.tasks),
        "tests": [
            {
                "name": _title(task),
                "status": "pass" if task.outcome == SOLVED else "fail",
                "score": task.points,
                "message": COMMAND.sub(r"\1| ", _explained(task, grade)) or None,
                "test_code": f"tests of {task.task}",
                "filename": "",
                "line_no": 0,
                "duration": 0,
            }
            for task in grade.tasks
        ],
    }


def _exercism(grade: Grade) -> Json:
    """Return Exercism's results.json, version 3.

    Source: https://exercism.org/docs/building/tooling/test-runners/interface
    """
    status = "error" if grade.problem and not any(task.total for task in grade.tasks) else _status(grade)
    tests = [
        {
            "name": _title(task),
            "task_id": number,
            "status": "pass" if task.outcome == SOLVED else "fail",
            "message": None if task.outcome == SOLVED else _explained(task, grade),
            "output": None,
            "test_code": f"tests of {task.task}",
        }
        for number, task in enumerate(grade.tasks, start=1)
    ]
    return {
        "version": 3,
        "status": status,
        "message": grade.problem if status == "error" else None,
        "tests": [] if status == "error" else tests,
    }


def _status(grade: Grade) -> str:
    return "pass" if grade.points == len(grade.tasks) else "fail"


def _title(task: TaskGrade) -> str:
    return f"{task.task} {select_task(str(task.task)).title['en']}"


def _explained(task: TaskGrade, grade: Grade) -> str:
    """Return a text that tells the student why a task earned no point."""
    if task.outcome == SOLVED:
        return ""
    if not task.message:
        return grade.problem or "not tested"
    passed = f"{task.passed} of {task.total} tests pass. First to fail:"
    if task.hidden:  # students may not see what this test checks
        return f"{passed} a test of your instructor's"
    lines = [f"{passed} {task.test}", task.message]
    mistake = entry_of(task.task).mistake(task.mistake)
    return "\n".join([*lines, mistake.diagnosis["en"]] if mistake else lines)


TOGETHER: dict[str, Callable[[list[Grade]], str]] = {  # one file for all submissions
    "table": _table,
    "csv": _csv,
    "junit": _junit,
    "json": _json,
}
EACH: dict[str, Callable[[Grade], Json]] = {  # a file for each submission
    "gradescope": _gradescope,
    "classroom": _classroom,
    "exercism": _exercism,
}
