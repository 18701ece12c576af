"""Advice on errors: code of a learner, in a module of its own, raises each error, and the course explains it."""

import importlib.util
import inspect
import traceback

import pytest

from tiny_llm_course.diagnosis import advice
from tiny_llm_course.pytest_runs.test_run import run_tests
from tiny_llm_course.tasks.syllabus import select_days
from tiny_llm_course.ui.language import LANGUAGES, Messages

HEAD = """\
import mlx.core as mx
import numpy as np

X = mx.ones((2, 3, 4))
"""
CASES = {  # a learner's code, whose `f()` fails: the advice on the error
    "a misspelt attribute": (
        "def f(): return X.swapaxs(1, 2)",
        ("advice_misspelt", {"name": "swapaxes"}),
    ),
    "a misspelt attribute of the object's own": (
        "class A:\n    def __init__(self): self.wo = 1\ndef f(): return A().w_o",
        ("advice_misspelt", {"name": "wo"}),
    ),
    "a misspelt method of the parent": (
        "class A:\n    def project(self): pass\n"
        "class B(A):\n    def project(self): super().projekt()\n"
        "def f(): B().project()",
        ("advice_misspelt", {"name": "project"}),
    ),
    "a misspelt function of MLX": (
        "def f(): return mx.concatinate([X, X])",
        ("advice_misspelt", {"name": "concatenate"}),
    ),
    "a misspelt variable": (
        "def f():\n    weight = X\n    return wieght",
        ("advice_misspelt", {"name": "weight"}),
    ),
    "a name of PyTorch's": (
        "def f(): return X.unsqueeze(0)",
        ("advice_pytorch", {"name": "unsqueeze", "instead": "mx.expand_dims(x, axis)"}),
    ),
    "a function of PyTorch's": (
        "def f(): return mx.cat([X, X])",
        ("advice_pytorch", {"name": "cat", "instead": "mx.concatenate([x, y], axis)"}),
    ),
    "nothing of a similar name": ("def f(): return X.projection", None),
    "an array asked for its truth": (
        "def f(mask=X):\n    if mask:\n        pass",
        ("advice_truth", {}),
    ),
    "an array of NumPy asked for its truth": (
        "def f(mask=np.ones(3)): return mask or X",
        ("advice_truth", {}),
    ),
    "an array made a number": ("def f(): return float(X)", None),
    ".T of a batch": (
        "def f(key=X): return X @ key.T",
        ("advice_transpose", {"name": "key", "shape": "2 x 3 x 4", "reversed": "4 x 3 x 2"}),
    ),
    ".T of a batch, lines before": (
        "def f(key=X):\n    turned = key.T\n    return X @ turned",
        ("advice_transpose", {"name": "key", "shape": "2 x 3 x 4", "reversed": "4 x 3 x 2"}),
    ),
    ".T of a matrix": ("def f(weight=mx.ones((5, 6))): return X @ weight.T", None),
    "an array of NumPy in a function of MLX": (
        "def f(): return mx.softmax(np.ones(3))",
        ("advice_numpy_in_mlx", {"call": "`softmax`"}),
    ),
    "an array of NumPy in a product of MLX": (
        "def f(): return X @ np.ones((4, 4))",
        ("advice_numpy_in_mlx", {"call": "`@`"}),
    ),
    "other wrong arguments of MLX": ("def f(): return mx.softmax(X, dim=1)", None),
    "bfloat16 in NumPy": (
        "def f(): return np.exp(X.astype(mx.bfloat16))",
        ("advice_mlx_in_numpy", {"call": "`np.exp`"}),
    ),
    "a dtype of MLX in NumPy": (
        "def f(): return np.ones(3).astype(mx.float32)",
        ("advice_mlx_dtype", {}),
    ),
    "a method that calls itself": (
        "class A:\n    def project(self): return self.project()\ndef f(): A().project()",
        ("advice_recursion_super", {"name": "project"}),
    ),
    "a function that calls itself": (
        "def f(): return f()",
        ("advice_recursion", {"name": "f"}),
    ),
    "shapes that do not fit": ("def f(): return X + mx.ones((5, 5))", None),
}


@pytest.fixture
def learners(tmp_path):
    """Return a function that makes a module from a learner's code."""

    def make(source):
        file = tmp_path / "attention.py"
        file.write_text(HEAD + source + "\n")
        spec = importlib.util.spec_from_file_location("tiny_llm.attention", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return make


def advised(call, file):
    """Return the advice on the error that a call raises. file: the package under test."""
    with pytest.raises(Exception) as raised:  # noqa: PT011, any error
        call()
    frames = traceback.extract_tb(raised.value.__traceback__)
    of_package = [
        {"file": frame.filename, "function": frame.name, "code": frame.line}
        for frame in frames
        if frame.filename == file
    ]
    return advice.of(raised.value, of_package, "w1d1.1")


@pytest.mark.parametrize(("source", "expected"), CASES.values(), ids=CASES)
def test_errors_in_the_learners_code(learners, source, expected):
    module = learners(source)
    assert advised(module.f, module.__file__) == expected


def test_a_function_that_was_renamed(learners):
    module = learners("def attention_simple(): pass")
    said = advised(lambda: module.attention, module.__file__)
    assert said == ("advice_renamed", {"name": "attention", "place": "attention.py", "task": "w1d1.1"})


def test_a_method_that_was_renamed(learners):
    module = learners("class A:\n    def projekt(self): pass")
    said = advised(lambda: module.A().project, module.__file__)
    assert said == ("advice_renamed", {"name": "project", "place": "A", "task": "w1d1.1"})


@pytest.mark.parametrize("call", ["f(1, 2, msk=3)", "f()", "f(1, 2, 3, 4)"])
def test_a_signature_that_was_changed(learners, call):
    module = learners("def f(query, key, mask=None): pass")
    said = advised(lambda: eval(call, {"f": module.f}), module.__file__)
    assert said == ("advice_signature", {"name": "f", "task": "w1d1.1"})


def test_a_test_of_its_own_has_no_advice(learners):
    module = learners("")
    assert advised(lambda: [].apend(1), module.__file__) == ("advice_misspelt", {"name": "append"})
    assert advised(lambda: 1 / 0, module.__file__) is None


@pytest.mark.parametrize("language", LANGUAGES)
def test_texts(language):
    """Each advice fills in all values that its message names."""
    for _, expected in CASES.values():
        if expected:
            key, values = expected
            assert inspect.cleandoc(Messages(language)(key, **values))


def test_advice_reaches_the_command(tmp_path):
    (tmp_path / "pyproject.toml").touch()
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "conftest.py").write_text(
        "pytest_plugins = ['tiny_llm_course.testing.pytest_plugin']\n"
        "def pytest_addoption(parser): parser.addoption('--impl')\n"
        "def pytest_configure(config): config.addinivalue_line('markers', 'task(id)')\n"
    )
    (tests / "test_week_0_day_1.py").write_text(
        "import pytest\n@pytest.mark.task('w0d1.1')\ndef test_task_1_a():\n    [].apend(1)\n"
    )
    run = run_tests(select_days("0", "1"), "tiny_llm", [], tests=tests)
    assert [tuple(result.advice) for result in run.results] == [("advice_misspelt", {"name": "append"})]
