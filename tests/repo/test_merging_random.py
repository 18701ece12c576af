"""Merges of a learner's random work with random changes of the course, in which nothing is lost."""

from __future__ import annotations

import ast
import random
from collections import Counter

import pytest
from learner import ROOT, in_units

from tiny_llm_course.tasks.regions import any_regions
from tiny_llm_course.tasks.stubs import make_stub
from tiny_llm_course.tasks.syllabus import TaskId
from tiny_llm_course.tasks.task_code import StubError, task_parts
from tiny_llm_course.update.merging import merge
from tiny_llm_course.update.written import tasks_by_name

FILES = [
    "attention.py",
    "basics.py",
    "kv_cache.py",
    "sampler.py",
    "quantize.py",
    "serving/scheduler.py",
    "kernels/softmax.cpp",
]


@pytest.mark.parametrize(
    "seeds", [range(40), pytest.param(range(40, 2000), marks=pytest.mark.nightly("takes minutes"))]
)
def test_nothing_of_a_learner_is_lost(seeds: range):
    """Random work in real files, and random changes of the course: every line of the learner's is in the merged file,
    as often as the learner has it, or in the report of replaced lines."""
    for seed in seeds:
        chance = random.Random(seed)
        name = chance.choice(FILES)
        reference = (ROOT / "src/tiny_llm_ref" / name).read_text(encoding="utf-8")
        stub = make_stub(reference, filename=name)
        done = {task for task in _tasks(reference, name) if chance.random() < 0.5}
        solved = make_stub(reference, is_solved=done.__contains__, filename=name)
        yours, new = _edited(solved, "mine", chance, name), _edited(stub, "newer", chance, name)
        unit = chance.choice(["    ", "    ", "\t"])
        yours, old, theirs = (in_units(text, unit) for text in (yours, stub, new))
        end = chance.choice(["\n", "\r\n"])
        result = merge(yours.replace("\n", end), stub, new, name)
        assert result.text.count("\n") == result.text.count(end)
        text = result.text.replace("\r\n", "\n")
        if not name.endswith(".cpp"):
            ast.parse(text)
        told = [line for part in result.replaced for line in _lines(yours)[part.first - 1 : part.last]]
        assert not _lost(yours, old, theirs, text, told), f"{name}, seed {seed}"


def _lost(yours: str, old: str, new: str, merged: str, told: list[str]) -> list[str]:
    """Return the learner's lines that occur less often in the merged file than they should."""
    mine, stub, theirs, found = (Counter(_lines(text)) for text in (yours, old, new, merged))
    course = {line: theirs[line] - stub[line] for line in mine}  # what the course added or took away
    found += Counter(told)
    return [
        line
        for line, count in mine.items()
        if count > stub[line] and found[line] < count + min(0, course[line])
        if line.strip() and not line.startswith(("import ", "from ", "__all__"))
    ]


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _tasks(reference: str, name: str) -> set[TaskId]:
    return set(any_regions(reference, name)) if name.endswith(".cpp") else set(task_parts(reference))


def _edited(source: str, mark: str, chance: random.Random, name: str) -> str:
    """Return the source with changes in some lines. Each new line has a mark."""
    for number in range(chance.randrange(12)):
        changed = _changed(source.splitlines(keepends=True), f"{mark}_{number}", chance, name.endswith(".cpp"))
        try:
            tasks_by_name(changed, name)
            if not name.endswith(".cpp"):
                compile(changed, name, "exec", dont_inherit=True)
        except (StubError, SyntaxError, ValueError):
            continue
        source = changed
    return source


def _changed(lines: list[str], mark: str, chance: random.Random, is_native: bool) -> str:
    place = chance.randrange(len(lines))
    line = lines[place].rstrip("\n")
    indent = line[: len(line) - len(line.lstrip())]
    comment = "//" if is_native else "#"
    kinds = ["comment", "comment", "line end", "separator", "twice", "gone"]
    kinds += ["region"] if is_native else ["function", "import", "constant", "statement", "code", "export"]
    match chance.choice(kinds):
        case "comment":
            lines.insert(place, f"{indent}{comment} {mark}\n")
        case "line end" if line.strip():
            lines[place] = f"{line}  {comment} {mark}\n"
        case "separator":
            line = chance.choice("<=>|") * chance.choice([7, 60, 61])
            lines.append(f"/*\n{line}\n*/\n" if is_native else f'\n"""\n{line}\n"""\n')
        case "twice":
            lines.insert(chance.randrange(len(lines)), f"{line}\n")
        case "gone" if not line.endswith(":"):
            del lines[place]
        case "function":
            lines.insert(place, f"\n\ndef f_{mark}():\n    return {mark!r}\n\n\n")
        case "import":
            lines.insert(place, f"import a_{mark}\n")
        case "constant":
            lines.append(f"\nC_{mark} = 1\n")
        case "statement":
            lines.append(f"\nif __debug__:\n    print({mark!r})\n")
        case "code":
            lines.insert(place, f"{indent}assert {mark!r}\n")
        case "export":
            return "".join(lines).replace("__all__ = [", f'__all__ = ["{mark}", ', 1)
        case "region":
            lines.insert(place, f"int f_{mark}() {{ return 0; }}\n")
    return "".join(lines)
