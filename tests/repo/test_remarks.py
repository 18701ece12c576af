"""Remarks about code that passes a task's tests but does not do what the task asks for."""

from types import SimpleNamespace

import pytest
from learner import new_clone

from tiny_llm_course.learner.workspace import Workspace
from tiny_llm_course.tasks.syllabus import TaskId, day_of
from tiny_llm_course.testing.remarks import remarks, remarks_on, show_remarks
from tiny_llm_course.ui.language import Messages

ONE_BY_ONE = """
    // with vectors: load and store
    for (int64_t i = 0; i < n; i++) out[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
"""
WITH_HELPER = "static floats silu(floats x) { return x / (1 + exp(-x)); }\n"
OF_REMARKS = [str(task) for remark in remarks() for task in remark.tasks]


clone = pytest.fixture(new_clone, scope="module")


def said(clone, task, source, name):
    clone.file(name).write_text(source)
    return [remark.text["en"].strip().split(":")[0] for remark in remarks_on(Workspace(clone.root), TaskId.parse(task))]


@pytest.mark.parametrize("task", OF_REMARKS)
def test_nothing_is_said_about_the_reference(clone, task):
    workspace, id = Workspace(clone.root), TaskId.parse(task)
    [file] = workspace.parts(day_of(id), id)
    name = str(file.relative_to(clone.file("")))
    assert said(clone, task, clone.solved(name, task), name) == []
    assert len(said(clone, task, clone.solved(name), name)) == 1, "a stub has neither"


def swiglu(clone, body, before=""):
    source = clone.solved("kernels/swiglu.cpp", "w2d5.3")
    start = source.index("// task w2d5.3 begin\n") + len("// task w2d5.3 begin\n")
    end = source.index("    // task w2d5.3 end")
    return before + source[:start] + body.lstrip("\n") + source[end:]


def test_numbers_one_by_one_where_vectors_are_asked_for(clone):
    source = swiglu(clone, ONE_BY_ONE)
    [remark] = said(clone, "w2d5.3", source, "kernels/swiglu.cpp")
    assert remark.startswith(
        "The result is right, but the code computes one number at a time. The task asks for vectors"
    )


def test_vectors_in_a_function_of_ones_own_count(clone):
    assert said(clone, "w2d5.3", swiglu(clone, ONE_BY_ONE, WITH_HELPER), "kernels/swiglu.cpp") == []


@pytest.mark.parametrize("language", ["en", "ja"])
def test_what_was_not_checked_without_clang_is_said(capsys, monkeypatch, language):
    """The remark follows the tests of a kernel in Metal."""
    words = Messages(language)
    for clang, task in (("", "w2d4.4"), ("", "w2d4.1"), ("true", "w2d4.4")):
        monkeypatch.setenv("METAL_HOST_CLANG", clang)
        if clang:
            monkeypatch.setattr("tiny_llm_course.testing.remarks._has_clang", lambda: True)
        show_remarks(
            SimpleNamespace(package="tiny_llm", collected=[TaskId.parse(task)], is_solved=lambda _: True), words
        )
        shown = " ".join(capsys.readouterr().out.split())
        assert (words("remark_spaces").split()[0] in shown) == (task == "w2d4.4" and not clang)


def test_nothing_is_said_about_the_package_of_the_reference(capsys):
    run = SimpleNamespace(package="tiny_llm_ref", collected=[TaskId.parse("w2d5.3")], is_solved=lambda _: True)
    show_remarks(run, Messages("en"))
    assert capsys.readouterr().out == ""
