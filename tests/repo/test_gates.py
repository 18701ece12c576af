"""Each gate for single modules accepts a good example, and rejects bad ones with their places."""

import re

import gates
import pytest

from tiny_llm_course.tasks.syllabus import Day, Task, TaskId

GOOD = {
    "basics.py": '''"""Basics."""

import math
from typing import TYPE_CHECKING

import mlx.core as mx

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SIZE", "Table", "double"]

SIZE: int = 3
_private = 4


class Table:
    """Contract.

    Task: w1d1.1, w1d1.2
    """


def double(x):
    return 2 * x


def _check_x(x): ...
''',
    "mlp.py": '"""MLP."""\n\nfrom .basics import double\n\n__all__: list[str] = []\n',
    "serving/__init__.py": '"""Serving."""\n\n__all__: list[str] = []\n',
    "serving/engine.py": '"""Engine."""\n\nfrom ..mlp import x\nfrom . import pool\n\n__all__: list[str] = []\n',
}
LONG = "def f():\n" + '    """One\n    two.\n    """\n' + "    x = 1\n"

BAD = [
    (gates.check_imports, "mlp.py", "import tiny_llm.basics", "mlp.py:1: imports tiny_llm.basics by its full name"),
    (gates.check_imports, "mlp.py", "from tiny_llm_ref import x", "mlp.py:1: imports tiny_llm_ref by its full name"),
    (gates.check_imports, "mlp.py", "import tiny_llm_course", "mlp.py:1: imports tiny_llm_course by its full name"),
    (gates.check_imports, "mlp.py", "x = 1\nfrom .basics import _x", "mlp.py:2: imports _x, which is not public"),
    (gates.check_imports, "mlp.py", "from .basics import *", "mlp.py:1: imports *, which is not public"),
    (
        gates.check_imports,
        "mlp.py",
        "from .embedding import x",
        "mlp.py:1: mlp imports embedding, which LAYERS does not",
    ),
    (gates.check_imports, "mlp.py", "def f():\n    from . import qwen2", "mlp.py:2: mlp imports qwen2, which LAYERS"),
    (gates.check_imports, "mlp.py", "from .serving.engine import x", "mlp.py:1: mlp imports serving, which LAYERS"),
    (gates.check_imports, "mlp.py", "from .extra import x", "mlp.py:1: mlp imports extra, which LAYERS does not"),
    (gates.check_imports, "extra.py", "", "extra.py: extra has no place in LAYERS"),
    (gates.check_imports, "__init__.py", "from .basics import x", "__init__.py:1: __init__ imports basics"),
    (gates.check_exports, "mlp.py", "x = 1", "mlp.py: has no list __all__"),
    (gates.check_exports, "mlp.py", "__all__ = []\nx, _y = 1, 2", "mlp.py: expected __all__ = ['x'], got []"),
    (gates.check_exports, "mlp.py", "__all__ = ['x']", "mlp.py: expected __all__ = [], got ['x']"),
    (gates.check_exports, "mlp.py", "__all__ = ['f', 'C']\nf = C = 1", "mlp.py: expected __all__ = ['C', 'f'], got"),
    (gates.check_definitions_only, "mlp.py", "x = 1", "mlp.py: has no docstring"),
    (gates.check_definitions_only, "mlp.py", "'Doc.'\nprint()", "mlp.py:2: does more than define"),
    (gates.check_definitions_only, "mlp.py", "'Doc.'\nx = [f()]", "mlp.py:2: does more than define"),
    (gates.check_definitions_only, "mlp.py", "'Doc.'\nif x:\n    y = 1", "mlp.py:2: does more than define"),
    (gates.check_definitions_only, "mlp.py", "'Doc.'\nif __name__ == 'x':\n    f()", "mlp.py:2: does more than define"),
    (gates.check_definitions_only, "mlp.py", "'Doc.'\nif TYPE_CHECKING:\n    f()", "mlp.py:2: does more than define"),
    (gates.check_sizes, "mlp.py", LONG + "    x = 1\n" * 39, "mlp.py:1: expected at most 40 lines in f, got 41"),
]


@pytest.mark.parametrize(("check", "path", "source", "message"), BAD)
def test_a_bad_module_is_rejected(check, path, source, message):
    (problem,) = check({path: source})
    assert problem.startswith(message)


@pytest.mark.parametrize("check", dict.fromkeys(check for check, *_ in BAD))
def test_good_modules_are_not(check):
    assert check(GOOD) == []
    assert check({"mlp.py": f'"""Doc."""\n__all__ = ["f"]\n{LONG}' + "    x = 1\n" * 38}) == []
    assert check({"mlp.py": '"""Doc."""\n__all__ = []\nif __name__ == "__main__":\n    print()\n'}) == []


def test_a_long_file_is_named():
    assert gates.long_files({"mlp.py": "x = 1\n" * 400}) == []
    assert gates.long_files({"mlp.py": "x = 1\n" * 401}) == ["mlp.py has 401 lines: is it one idea?"]


def test_task_ids():
    assert gates.check_task_ids(GOOD, [day("basics")]) == []


@pytest.mark.parametrize(
    ("module", "text", "message"),
    [
        ("basics", "Task: w1d1.1", "w1d1.2: no docstring has this task"),
        ("basics", "Task: w1d1.1, w1d1.2, w1d1.3", "basics.py: the syllabus has no task w1d1.3"),
        ("basics", "Task: w1d1.1, w1d1.2\n\n    More.", "basics.py: a task id stands outside of a last line"),
        ("basics", "Tasks: w1d1.1, w1d1.2", "basics.py: a task id stands outside of a last line"),
        ("mlp", "Task: w1d1.1, w1d1.2", "week 1 day 1: expected modules ['basics'], in which its tasks stand"),
    ],
)
def test_disagreeing_task_ids_are_rejected(module, text, message):
    source = GOOD["basics.py"].replace("Task: w1d1.1, w1d1.2", text)
    problems = gates.check_task_ids({"basics.py": source}, [day(module)])
    assert re.search(f"^{re.escape(message)}", "\n".join(problems), re.MULTILINE)


def day(*modules: str) -> Day:
    return Day(1, 1, {"en": "Chapter"}, modules, tuple(Task(TaskId(1, 1, number), {}, ()) for number in (1, 2)))
