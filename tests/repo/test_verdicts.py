"""Verdicts: files that are trusted while nothing changes, and the message about a mistake that survives."""

import pytest
import verdicts

from tiny_llm_course.tasks.syllabus import select_days

DAY = select_days("1", "1")[0]
GOOD = {"rejected by": ["test_task_1_a"], "same as": [], "named": "no-scale"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(verdicts, "FOLDER", tmp_path)
    return tmp_path


def computed(inputs=("tests/helpers.py",)):
    found = verdicts.Verdicts({"w1d1.1 no-scale": 'test_task_1_a["x"]', "w1d1.2 no-bias": "b"}, ("w1d1.1 einsum",))
    return verdicts.Computed(found, (), inputs)


def test_what_was_written_is_known(folder):
    assert not verdicts.is_known(DAY)
    verdicts.write(DAY, computed())
    assert verdicts.is_known(DAY)
    assert verdicts.kept(DAY) == computed().verdicts
    assert verdicts.kept(DAY, DAY.tasks[1].id) == verdicts.Verdicts({"w1d1.2 no-bias": "b"}, ())
    assert verdicts.known(DAY)["machine"] == verdicts.machine()


def test_what_is_of_other_code_is_not(folder):
    file = verdicts.write(DAY, computed())
    file.write_text(file.read_text().replace("tests/helpers.py", "tests/oracles.py"))
    assert not verdicts.is_known(DAY)


def test_a_mistake_has_to_be_rejected_told_apart_and_named():
    rows = {
        "w1d1.1 no-scale": GOOD,
        "w1d1.1 survives": GOOD | {"rejected by": []},
        "w1d1.1 twin": GOOD | {"same as": ["other"]},
        "w1d1.1 misnamed": GOOD,
    }
    assert list(verdicts.problems_of_mistakes(rows)) == [
        "w1d1.1 survives: no test rejects it",
        "w1d1.1 twin: no test tells it from other",
        "w1d1.1 misnamed: a learner is told no-scale",
    ]


def test_a_variant_has_to_be_tested_and_accepted():
    failures = {"w1d1.1 einsum": {}, "w1d1.1 addmm": {"test_task_1_a": "Failed"}}
    assert list(verdicts.problems_of_variants({*failures, "w1d1.2 new"}, failures)) == [
        "w1d1.1 addmm: is correct, and test_task_1_a rejects it: Failed",
        "w1d1.2 new: was not tested",
    ]


def test_half_of_the_mistakes_survive_the_first_test():
    table = {
        "tests": ["first", "second"],
        "mistakes": {"a": {"rejected by": ["first"]}, "b": {"rejected by": ["second"]}},
    }
    assert list(verdicts.problems_of_first_tests({"w1d1.1": table})) == []
    table["mistakes"]["c"] = {"rejected by": ["first"]}
    [problem] = verdicts.problems_of_first_tests({"w1d1.1": table})
    assert problem.endswith("got 1 of 3")
