#!/usr/bin/env python3
"""Update scripts/contracts.json, which has the contract number of each task and the signatures of its functions.

python scripts/contracts.py                  add new tasks and new contracts
python scripts/contracts.py --same w1d2.3    also add this task's new signatures, although its contract is the same
python scripts/contracts.py --check          write nothing; if the file is outdated, say why, and exit with 1

`./course update` keeps a learner's function if the task's `contract` in syllabus.toml has not changed. So a signature
that changes needs a higher contract number, unless functions with the old signature still solve the task.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tiny_llm_course.tasks.regions import code_files, is_native
from tiny_llm_course.tasks.syllabus import Task, tasks
from tiny_llm_course.tasks.task_code import Function, tasks_in

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "scripts" / "contracts.json"
REFERENCE = ROOT / "src" / "tiny_llm_ref"

Contracts = Mapping[str, Mapping[str, Any]]  # keyed by task: `contract`, a number, and `functions`, name -> signature


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the file is outdated")
    parser.add_argument("--same", nargs="+", default=[], metavar="TASK", help="tasks that old functions still solve")
    options = parser.parse_args()
    old, new = json.loads(FILE.read_text(encoding="utf-8")), contracts(REFERENCE, tasks())
    wrong = problems(old, new, options.same)
    if not wrong and not options.check:
        FILE.write_text(json.dumps(new, indent=1) + "\n", encoding="utf-8")
    elif not wrong and new != old:
        wrong = ["scripts/contracts.json is not up to date: run python scripts/contracts.py"]
    for line in wrong:
        print(line, file=sys.stderr)
    return int(bool(wrong))


def contracts(reference: Path, known: Collection[Task]) -> dict[str, dict[str, Any]]:
    """Return each task's contract number in the syllabus, and the signatures of its functions in the reference."""
    found: dict[str, dict[str, Any]] = {
        str(task.id): {"contract": task.contract, "functions": {}} for task in sorted(known, key=lambda task: task.id)
    }
    for file in code_files(reference):
        if not is_native(file):
            for function, ids, name in tasks_in(ast.parse(file.read_text(encoding="utf-8"))):
                for task in ids:
                    found[str(task)]["functions"][name] = signature(function)
    return found


def signature(function: Function) -> str:
    """Return the parameters of a function as code, with their defaults and without their types."""
    arguments = function.args
    several = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    for argument in filter(None, several):
        argument.annotation = None
    return f"{'async ' * isinstance(function, ast.AsyncFunctionDef)}({ast.unparse(arguments)})"


def problems(old: Contracts, new: Contracts, same: Collection[str] = ()) -> list[str]:
    """Return a line for each task whose contract number fell, and for each task whose signatures changed although its
    contract number did not."""
    found = []
    for task in old.keys() & new.keys() - set(same):
        before, after = old[task], new[task]
        if after["contract"] < before["contract"]:
            found.append(f"{task}: `contract` fell from {before['contract']} to {after['contract']}, but may only grow")
        elif after["contract"] == before["contract"] and after["functions"] != before["functions"]:
            found.append(
                f"{task}: {', '.join(_changes(before['functions'], after['functions']))}. Raise the task's `contract` "
                "in syllabus.toml. If functions with the old signature still solve the task, run instead: "
                f"python scripts/contracts.py --same {task}"
            )
    return sorted(found)


def _changes(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return [f"{name}{old.get(name, ' (new)')} became {name}{new.get(name, ' (gone)')}" for name in names]


if __name__ == "__main__":
    sys.exit(main())
