"""How `update` merges a learner's file with the stub from which the learner began, and with the newer stub."""

from __future__ import annotations

import ast

import pytest
from learner import in_units
from merge_texts import CPP, MINE, NEWER, STARTED, STUB, WRITTEN

from tiny_llm_course.tasks.imports import bound_names
from tiny_llm_course.tasks.regions import any_regions
from tiny_llm_course.tasks.splice import SpliceError, code_of, definitions
from tiny_llm_course.tasks.syllabus import TaskId
from tiny_llm_course.update.lost_lines import LostLines
from tiny_llm_course.update.merging import Merged, merge


def merged(yours: str, new: str = NEWER) -> Merged:
    result = merge(yours, STUB, new, "sums.py")
    ast.parse(result.text)
    return result


def test_an_untouched_file_becomes_the_newer_stub():
    assert merged(STUB) == Merged(NEWER)
    assert merged(STUB, STUB) == Merged(STUB)
    assert merged(WRITTEN, STUB) == Merged(WRITTEN)


def test_what_is_written_stays_and_a_docstring_is_renewed():
    text = merged(WRITTEN).text
    assert text == WRITTEN.replace("The sum.", "The sum of all.").replace('"""Sums."""', '"""Sums and means."""')


def test_a_stub_that_was_not_touched_is_renewed():
    new = STUB.replace("Task 2: value is yours", "Task 2: value is still yours")
    assert "value is still yours" in merged(WRITTEN, new).text


def test_work_above_the_error_of_a_stub_stays():
    """The learner has begun a task, but has left the stub's error at the end."""
    begun = STUB.replace(
        '    raise NotImplementedError("Week 1 Day 1 Task 1',
        '    result = 0\n    raise NotImplementedError("Week 1 Day 1 Task 1',
    )
    new = NEWER.replace("Task 1: total is yours", "Task 1: total is all yours")
    assert "    result = 0\n    raise" in merged(begun, new).text


def test_comments_stay_at_the_top_between_and_in_what_changed():
    yours = "# my notes\n" + WRITTEN.replace("class Mean", "# between\n\n\nclass Mean").replace(
        "    y = double(x)\n", "    # how?\n    y = double(x)\n"
    )
    new = NEWER.replace("    y = double(x)\n", "    y = 2 * double(x)\n")
    result = merged(yours, new)
    assert result.text.startswith('# my notes\n"""Sums and means."""\n')
    assert "# between\n\n\nclass Mean" in result.text
    assert "    # how?\n    y = 2 * double(x)\n" in result.text
    assert result.replaced == []


def test_an_edit_of_a_given_function_stays_where_the_course_changed_other_lines():
    yours = WRITTEN.replace("return math.sqrt(y)", "return math.sqrt(abs(y))")
    result = merged(yours, NEWER.replace("    y = double(x)\n", "    z = x\n    y = double(z)\n"))
    assert "    z = x\n" in result.text
    assert "return math.sqrt(abs(y))" in result.text or result.replaced


def test_where_both_changed_the_same_line_the_course_wins_and_it_is_told():
    yours = WRITTEN.replace("return math.sqrt(y)", "return math.sqrt(abs(y))")
    result = merged(yours, NEWER.replace("return math.sqrt(y)", "return y**0.5"))
    assert "return y**0.5" in result.text
    line = yours.splitlines().index("    return math.sqrt(abs(y))") + 1
    assert result.replaced == [LostLines(line, line)]


def test_a_line_that_was_taken_away_and_changed_is_told():
    yours = WRITTEN.replace("    y = double(x)\n", "").replace("sqrt(y)", "sqrt(x)")
    result = merged(yours, NEWER.replace("y = double(x)", "y = double(x + 1)"))
    assert "y = double(x + 1)" in result.text
    assert len(result.replaced) == 1


GIVEN = "def g(x):\n    check(x)\n    return x\n\n\ndef h(x):\n    return x + 2\n"


def test_an_edit_is_told_though_such_a_line_is_elsewhere():
    yours = GIVEN.replace("    check(x)\n    return x\n", "    return x + 2\n")
    result = merge(yours, GIVEN, GIVEN.replace("check(x)", "check(x, 2)"), "given.py")
    assert "    check(x, 2)\n    return x\n" in result.text
    assert result.replaced == [LostLines(2, 2)]


def test_a_line_that_was_taken_away_and_comes_back_is_told():
    yours = GIVEN.replace("    check(x)\n", "")
    result = merge(yours, GIVEN, GIVEN.replace("check(x)", "check(x, 2)"), "given.py")
    assert "check(x, 2)" in result.text
    assert result.replaced == [LostLines(1, 2)]
    result = merge(yours, GIVEN, GIVEN.replace("return x\n", "return 1 * x\n"), "given.py")
    assert "    check(x)\n" in result.text
    assert result.replaced == [LostLines(1, 2)]
    elsewhere = merge(yours, GIVEN, GIVEN.replace("return x + 2", "return x + 3"), "given.py")
    assert "check(x)" not in elsewhere.text
    assert elsewhere.replaced == []


def test_a_function_that_the_learner_moved_and_the_course_changed_is_there_once():
    first, second = GIVEN[: GIVEN.index("def h")], GIVEN[GIVEN.index("def h") :]
    second += "".join(f"\n\ndef h{i}(x):\n    return x + {i}\n" for i in range(3, 6))
    stub, yours = first + second, f"{second}\n\n# about g\n{first.rstrip()}\n"
    result = merge(yours, stub, stub.replace("check(x)", "check(x, 2)"), "given.py")
    assert result.text.count("def g") == 1
    assert "check(x, 2)" in result.text
    line = yours.splitlines().index("# about g") + 1
    assert any(lines.first <= line <= lines.last for lines in result.replaced)
    twice = f"{GIVEN}\n\ndef g(x):\n    return 0\n"
    result = merge(twice, GIVEN, GIVEN.replace("return x + 2", "return x + 3"), "given.py")
    assert result.text.count("def g") == 2, "the learner's own file has both"


@pytest.mark.parametrize("mark", "<|=>")
@pytest.mark.parametrize("name", ["sums.py", "half.cpp"])
def test_lines_that_look_like_the_markers_of_a_conflict(mark: str, name: str):
    for size in (7, 60, 61, 200):
        if name == "half.cpp":
            own = f"/*\n{mark * size} text\nmy notes\n*/\nint mine() {{ return 3; }}\n"
            yours, old, new = f"{STARTED}\n{own}", CPP, f"{CPP}\n// Newer.\n"
        else:
            own = f'MINE = """\n{mark * size}\nnotes\n"""\n'
            yours, old, new = f"{WRITTEN}\n{own}", STUB, f"{NEWER}\nTHEIRS = 1\n"
        result = merge(yours, old, new, name)
        assert own in result.text
        assert result.text.splitlines()[-1] == new.splitlines()[-1] or result.text.endswith(own)
        assert result.replaced == []


def test_exports_of_both_sides():
    yours = WRITTEN.replace('["given", "total"]', '["given", "mine", "total"]') + "\n\ndef mine():\n    return 1\n"
    new = NEWER.replace('["given", "total"]', '["given", "newer", "total"]') + "\n\ndef newer():\n    return 2\n"
    result = merged(yours, new)
    assert '__all__ = ["newer", "given", "mine", "total"]\n' in result.text
    assert result.replaced == []
    assert '__all__ = ["given", "mine", "total"]\n' in merged(yours).text
    fewer = merged(yours, NEWER.replace('["given", "total"]', '["given"]'))
    assert '__all__ = ["given", "mine", ]\n' in fewer.text


def test_comments_in_a_list_of_exports_that_both_changed():
    mine = '[  # of this module\n    # mine\n    "given",  # keep\n    "mine",\n    "total",  # 合計\n]'
    yours = WRITTEN.replace('["given", "total"]', mine) + "\n\nmine = 1\n"
    new = NEWER.replace('["given", "total"]', '["given", "newer"]') + "\n\nnewer = 2\n"
    result = merged(yours, new)
    expected = mine.replace("module\n", 'module\n    "newer",\n').replace('"total",  #', "#")
    assert f"__all__ = {expected}\n" in result.text
    assert result.replaced == []


def test_own_imports_stay_also_those_of_a_top_level_if():
    yours = WRITTEN.replace("import math\n", "import math\nimport os\nimport sys\n")
    yours += '\n\nif os.environ.get("DEBUG"):\n    print(sys.path)\n'
    new = (
        NEWER.replace("import math\n", "import functools\nimport math\nimport os\n")
        + "\n\ncached = functools.cache(given)\n"
    )
    text = merged(yours, new).text
    assert text.count("import os\n") == 1
    assert {"os", "sys", "math", "functools"} <= bound_names(text)
    assert yours[yours.index("\n\nif os") :] in text


def test_an_import_that_only_the_learner_needs_now_stays():
    yours = WRITTEN.replace("    return result\n", "    return math.fsum([result])\n")
    new = NEWER.replace("import math\n\n", "").replace("math.sqrt(y)", "y**0.5")
    assert "import math\n" in merged(yours, new).text
    assert "import math\n" not in merged(WRITTEN, new).text


def test_an_import_that_both_changed():
    yours = WRITTEN.replace("import double", "import double, half") + "\n\nmine = half(1)\n"
    text = merged(yours, NEWER.replace("import double", "import double, triple")).text
    assert {"double", "half", "triple"} <= bound_names(text)


def test_given_code_that_the_learner_uses_stays_though_the_course_has_it_no_more():
    yours = WRITTEN.replace("return result", "return given(result)")
    new = NEWER[: NEWER.index("\n\ndef given")].replace('"given", ', "")
    assert "def given(x: float)" in merged(yours, new).text
    assert "def given(x: float)" not in merged(WRITTEN, new).text


def test_given_code_goes_though_the_learner_and_the_course_use_its_name_for_something_else():
    new = NEWER + "\n\nclass Pool:\n    pages: int = 8\n\n\ndef held(pool):\n    return pool.held()\n"
    members = "    pages: int = 8\n    result: float = 0.0\n\n    def held(self):\n        return 0\n"
    old, yours = (source + f"\n\nclass Pool:\n{members}" for source in (STUB, WRITTEN))
    text = merge(yours, old, new, "sums.py").text
    assert "Pool.pages" in definitions(text)
    assert not {"Pool.result", "Pool.held"} & set(definitions(text))


def test_own_definitions_stay_wherever_they_are():
    yours = WRITTEN.replace("class Mean", "LIMIT = 3\n\n\ndef helper():\n    return LIMIT\n\n\nclass Mean").replace(
        "    def value", "    def mine(self):\n        return self.x\n\n    def value"
    )
    yours += "\n\nclass Own:\n    def one(self):\n        return 1\n"
    new = NEWER.replace("    def value(self)", "    def other(self):\n        return 0\n\n    def value(self)")
    text = merged(yours, new).text
    assert {"LIMIT", "helper", "Mean.mine", "Mean.other", "Own", "Own.one"} <= set(definitions(text))


def test_a_definition_that_the_course_has_now_too_is_the_courses_and_it_is_told():
    yours = WRITTEN + "\n\ndef half(x):\n    return x / 2\n"
    result = merged(yours, NEWER + "\n\ndef half(x: float) -> float:\n    return 0.5 * x\n")
    assert result.text.count("def half") == 1
    assert "0.5 * x" in result.text
    line = yours.splitlines().index("def half(x):") + 1
    assert result.replaced == [LostLines(line, line + 1)]


def test_a_task_that_is_new_to_the_course_and_that_the_learner_has_already():
    yours = WRITTEN + "\n\ndef half(x):\n    return x / 2\n"
    new = NEWER.replace(
        "class Mean",
        'def half(x):\n    """Half.\n\n    Task: w1d1.3\n    """\n'
        '    raise NotImplementedError("Week 1 Day 1 Task 3: half is yours to write. ")\n\n\nclass Mean',
    )
    text = merged(yours, new).text
    assert text.count("def half") == 1
    assert code_of(text, "half") == 'def half(x):\n    """Half.\n\n    Task: w1d1.3\n    """\n    return x / 2\n'


def test_a_task_that_the_course_has_no_more_stays():
    new = NEWER[: NEWER.index("def total")] + NEWER[NEWER.index("class Mean") :]
    assert code_of(merged(WRITTEN, new).text, "total") == code_of(WRITTEN, "total")


def test_a_changed_signature_is_told_and_the_function_stays_whole():
    new = NEWER.replace("x: list[float]) -> float:\n", "x: list[float], start: float) -> float:\n", 1)
    result = merged(WRITTEN, new)
    assert code_of(result.text, "total") == code_of(WRITTEN, "total")
    assert result.signatures == [
        ("def total(x: list[float]) -> float", "def total(x: list[float], start: float) -> float")
    ]
    assert merged(STUB, new).signatures == []


def test_the_learners_own_signature_stays_with_its_function():
    """The course changed only the docstring."""
    yours = WRITTEN.replace("total(x: list[float])", "total(x: list[float], fast=False)").replace(
        "    return result\n", "    return x[0] if fast else result\n"
    )
    result = merged(yours)
    assert code_of(result.text, "total") == code_of(yours, "total")
    assert (result.signatures, result.replaced) == ([], [])


def test_a_newer_syllabus():
    new = NEWER.replace("Task: w1d1.2", "Task: w9d9.9").replace("Week 1 Day 1 Task 2", "Week 9 Day 9 Task 9")
    assert "Task: w9d9.9" in merged(WRITTEN, new).text


@pytest.mark.parametrize("unit", ["\t", "  "])
def test_the_learners_indentation(unit: str):
    """An editor has indented the whole file in another way."""
    yours = in_units(WRITTEN, unit)
    text = merged(yours, NEWER.replace("    y = double(x)\n", "    y = double(x)\n    if y < 0:\n        y = 0\n")).text
    assert f"\n{unit}y = double(x)\n{unit}if y < 0:\n{unit * 2}y = 0\n" in text
    assert code_of(text, "total").replace("The sum of all.", "The sum.") == code_of(yours, "total")


def test_line_ends_and_a_last_line_without_one():
    windows = WRITTEN.replace("\n", "\r\n")
    assert merged(windows).text == merged(WRITTEN).text.replace("\n", "\r\n")
    assert merged(WRITTEN + "\n\nmine = 1").text.endswith("mine = 1\n")


def test_a_syntax_error_matters_only_if_the_course_changed_the_file():
    broken = WRITTEN + "def broken(:\n"
    assert merge(broken, STUB, STUB, "sums.py").text == broken
    with pytest.raises(SpliceError, match=r"sums.py:\d+: invalid syntax"):
        merge(broken, STUB, NEWER, "sums.py")


def test_regions_and_what_is_around_them():
    yours = "// my notes\n" + STARTED.replace("float half", "// above\nfloat half")
    new = "// Newer.\n" + CPP.replace("Task 2: what", "Task 2: newer, what").replace(
        "float half(float x)", "float half_(float x)"
    )
    result = merge(yours, CPP, new, "half.cpp")
    assert "// my notes\n" in result.text
    assert "// Newer.\n" in result.text
    assert "// above\nfloat half_(float x)" in result.text
    assert any_regions(result.text, "half.cpp")[TaskId(1, 1, 1)] == MINE
    assert "Task 2: newer, what" in result.text
    assert result.replaced == []


def test_code_below_the_comment_of_a_stub_stays():
    yours = CPP.replace("    // task w1d1.1 end", f"{MINE}    // task w1d1.1 end")
    new = CPP.replace("Task 1: what", "Task 1: newer, what")
    assert MINE in merge(yours, CPP, new, "half.cpp").text


def test_a_region_of_a_task_that_is_new():
    new = CPP + "// task w9d9.9 begin\n// Week 9 Day 9 Task 9: what belongs here.\n// task w9d9.9 end\n"
    text = merge(STARTED, CPP, new, "half.cpp").text
    assert list(any_regions(text, "half.cpp")) == [TaskId(1, 1, 1), TaskId(1, 1, 2), TaskId(9, 9, 9)]
