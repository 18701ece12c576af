"""How `update` merges files whose code moved: between files, into shared packages, and in regions of kernels."""

from __future__ import annotations

from merge_texts import CPP, NEWER, STARTED, STUB, WRITTEN

from tiny_llm_course.tasks.imports import redirected, relocated
from tiny_llm_course.tasks.splice import code_of
from tiny_llm_course.update.merging import Moves, merge
from tiny_llm_course.update.moves import heirs, moved_tasks, shared_places


def test_a_function_that_comes_from_another_file():
    """The helper and the import that the function needs come with it."""
    source = (
        WRITTEN.replace("return result", "return _rounded(result)") + "\n\ndef _rounded(x):\n    return math.floor(x)\n"
    )
    new = '"""Other."""\n\n__all__ = []\n\n\n' + code_of(NEWER, "total")
    old = '"""Other."""\n\n__all__ = []\n'
    moves = Moves(arrived={"total": source})
    there, made = merge(f"{old}\n# mine\n", old, new, "other.py", moves), merge(new, new, new, "new.py", moves)
    assert "# mine\n" in there.text
    for text in (there.text, made.text):
        assert "The sum of all." in text
        assert "return _rounded(result)" in text
        assert "def _rounded(x):\n    return math.floor(x)\n" in text
        assert "import math\n" in text


def test_a_function_that_comes_from_a_file_with_other_line_ends():
    source = WRITTEN.replace("return result", 'y = """one\ntwo"""\n    return result')
    old, moves = '"""Other."""\n', Moves(arrived={"total": source.replace("\n", "\r\n")})
    new = f"{old}\n\n{code_of(NEWER, 'total')}"
    unix = merge(old, old, new, "other.py", moves).text
    assert "\r" not in unix
    assert 'y = """one\ntwo"""\n' in unix
    assert merge(old.replace("\n", "\r\n"), old, new, "other.py", moves).text == unix.replace("\n", "\r\n")


def test_a_region_that_comes_from_a_file_with_other_line_ends():
    moves = Moves(arrived={"w1d1.1": STARTED.replace("\n", "\r\n")})
    assert "\r" not in merge("", "", CPP, "half.cpp", moves).text


def test_a_function_that_went_to_another_file():
    new = NEWER[: NEWER.index("def total")] + NEWER[NEWER.index("class Mean") :]
    new = new.replace(', "total"]', "]")
    yours = WRITTEN.replace("class Mean", "# my notes\n\n\nclass Mean")
    text = merge(yours, STUB, new, "sums.py", Moves(left={"total": ".totals"})).text
    assert "def total" not in text
    assert "# my notes" in text
    assert ".totals" not in text
    used = merge(f"{yours}\n\nprint(total([]))\n", STUB, new, "sums.py", Moves(left={"total": ".totals"}))
    assert "from .totals import total\n" in used.text
    assert used.replaced == []


def test_relative_imports_of_a_file_that_moves():
    source = (
        "import math\nfrom . import basics\nfrom .basics import (\n    double,\n)\nfrom .serving.cache import Cache\n"
    )
    moved = source.replace("from . ", "from .. ").replace(".basics", "..basics").replace(".serving.cache", ".cache")
    assert relocated(source, "sums.py", "serving/sums.py") == moved
    assert relocated(moved, "serving/sums.py", "sums.py") == source
    assert relocated(source, "sums.py", "means.py") == source


def test_a_task_is_known_by_its_id_and_its_name():
    total, mean = STUB[: STUB.index("class Mean")], STUB[STUB.index("class Mean") :]
    assert moved_tasks({"sums.py": STUB}, {"sums.py": total, "means.py": mean}) == [
        ("Mean.__init__", "sums.py", "means.py"),
        ("Mean.value", "sums.py", "means.py"),
    ]
    assert moved_tasks({"sums.py": STUB}, {"sums.py": STUB.replace("w1d1.1", "w1d1.4")}) == []
    assert heirs({"sums.py": STUB}, {"one.py": total, "means.py": mean}) == {"sums.py": "means.py"}
    assert heirs({"a.py": "A = 1\n"}, {"given/a.py": "A = 2\n"}) == {"a.py": "given/a.py"}
    assert heirs({"a.py": "A = 1\n"}, {"b.py": "A = 2\n"}) == {}
    both = {"half.cpp": CPP, "half.metal": CPP}
    assert heirs(both, {"two/half.cpp": CPP, "two/half.metal": CPP}) == {name: f"two/{name}" for name in both}


def test_a_given_file_that_has_another_name_in_the_shared_package():
    """Code that uses a module by its old name still finds the module under this name."""
    theirs = {"src/tiny_llm_native/fallback.py", "src/tiny_llm_native/checks/guard.h", "src/tiny_llm_given/config.py"}
    gone = ["kernels/ops.py", "kernels/guard.h", "config.py", "kernels/other.h"]
    assert shared_places(gone, theirs) == {
        "kernels/ops.py": "tiny_llm_native/fallback.py",
        "kernels/guard.h": "tiny_llm_native/checks/guard.h",
        "config.py": "tiny_llm_given/config.py",
    }
    places = {"kernels/ops.py": "tiny_llm_native.fallback"}
    source = "from .kernels import ops, softmax\nfrom .kernels.ops import rope\nfrom .kernels import ops as same\n"
    assert redirected(source, "mine.py", places) == (
        "from tiny_llm_native import fallback as ops\nfrom .kernels import softmax\n"
        "from tiny_llm_native.fallback import rope\nfrom tiny_llm_native import fallback as same\n"
    )
