"""`make_stub` on small modules: what is replaced, what stays, what is left out."""

import ast
import subprocess
import sys
from textwrap import dedent, indent

import pytest

from tiny_llm_course.tasks.stubs import make_stub
from tiny_llm_course.tasks.task_code import StubError


def module(text: str) -> str:
    """A module in which `DOC` stands for a docstring with the tag of task 1, `DOC w1d1.2` with that of task 2, and
    `ERROR f` for the error of f as task 1, `ERROR f 2` as task 2."""
    lines = dedent(text).removeprefix("\n").splitlines(keepends=True)
    return "".join(indent(expand(line.split()) or line.lstrip(" "), margin(line), str.strip) for line in lines)


def margin(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" "))]


def expand(words: list[str]) -> str | None:
    match words:
        case ["DOC", *ids]:
            return f'"""Contract.\n\nTask: {", ".join(ids or ["w1d1.1"])}\n"""\n'
        case ["ERROR", name, *tasks]:
            task = tasks[0] if tasks else 1
            return (
                "raise NotImplementedError(\n"
                f'    "Week 1 Day 1 Task {task}: {name} is yours to write. "\n'
                '    "Chapter: Attention and multi-head attention. "\n'
                f'    "Test: ./course test w1d1.{task}"\n'
                ")\n"
            )
    return None


CASES = {
    "a function": (
        """
        import math  # stays, though nothing uses it

        __all__ = ["f", "given"]


        # About f.
        def f(x: int, *, y: int = 2) -> int:
            DOC
            z = x + y

            # A thought.
            return z  # and another
            # A last one.


        # About given.
        def given(x):
            return f(x)
        """,
        """
        import math  # stays, though nothing uses it

        __all__ = ["f", "given"]


        # About f.
        def f(x: int, *, y: int = 2) -> int:
            DOC
            ERROR f


        # About given.
        def given(x):
            return f(x)
        """,
    ),
    "decorators, comments and a signature of many lines": (
        """
        @cache
        @wraps(
            other,
        )
        async def f(
            x: dict[int, str],  # comment: with a colon
            y=lambda: 0,
        ) -> int:  # noqa: X1
            # before the docstring
            DOC
            # after the docstring

            await x
        """,
        """
        @cache
        @wraps(
            other,
        )
        async def f(
            x: dict[int, str],  # comment: with a colon
            y=lambda: 0,
        ) -> int:  # noqa: X1
            # before the docstring
            DOC
            ERROR f
        """,
    ),
    "one-line bodies": (
        '''
        class C:
            """Contract.

            Task: w1d1.1"""
            def f(self): return 1  # done
            def g(self, x={"a": 1}): "The contract of g."; return x
            def h(self): """The contract of h."""  # kept
        ''',
        '''
        class C:
            """Contract.

            Task: w1d1.1"""
            def f(self):
                ERROR C.f
            def g(self, x={"a": 1}):
                "The contract of g."
                ERROR C.g
            def h(self):
                """The contract of h."""  # kept
                ERROR C.h
        ''',
    ),
    "a body that is its docstring, the last line of the file": (
        """
        def f():
            DOC
        """,
        """
        def f():
            DOC
            ERROR f
        """,
    ),
    "letters outside ASCII": (
        '''
        class Größe:
            """重みの表。

            Task: w1d1.1
            """

            def π(self, é="é"): "円周率 🥧"; return "🥧"  # 近似

            def 半径(self):
                "半径"  # メートル
                return "é"
        ''',
        '''
        class Größe:
            """重みの表。

            Task: w1d1.1
            """

            def π(self, é="é"):
                "円周率 🥧"
                ERROR Größe.π

            def 半径(self):
                "半径"  # メートル
                ERROR Größe.半径
        ''',
    ),
    "a class": (
        """
        class C:
            DOC

            size = 3

            def __init__(self):
                # no docstring here
                self.x = 1

            @property
            def f(self):
                return self.x

            def g(self):
                DOC w1d1.2
                return self.x

            def _check_x(self):
                return self.x

            class Inner:
                def h(self):
                    return 1
        """,
        """
        class C:
            DOC

            size = 3

            def __init__(self):
                ERROR C.__init__

            @property
            def f(self):
                ERROR C.f

            def g(self):
                DOC w1d1.2
                ERROR C.g 2

            def _check_x(self):
                return self.x

            class Inner:
                def h(self):
                    ERROR C.Inner.h
        """,
    ),
    "one method of a class within a class": (
        """
        class Outer:
            class Inner:
                def f(self):
                    DOC

                    @wraps(print)
                    def nested():
                        return 1

                    return nested()

                def given(self):
                    def nested():
                        return 1

                    return nested()
        """,
        """
        class Outer:
            class Inner:
                def f(self):
                    DOC
                    ERROR Outer.Inner.f

                def given(self):
                    def nested():
                        return 1

                    return nested()
        """,
    ),
    "a body without docstring that begins with a decorated function": (
        """
        class C:
            DOC

            def f(self) -> dict[str, int]:

                # about nested
                @wraps(print)
                def nested():
                    return 1

                return nested()
        """,
        """
        class C:
            DOC

            def f(self) -> dict[str, int]:
                ERROR C.f
        """,
    ),
    "several tasks, of which none is solved": (
        """
        def f():
            DOC w1d1.2 w1d1.1
            return 1
        """,
        """
        def f():
            DOC w1d1.2 w1d1.1
            ERROR f 2
        """,
    ),
    "helpers of tasks": (
        """
        import x

        _SIZE = 3  # of a table
        _table: dict[int, int] = {}


        def f():
            DOC
            _check_f()
            return _helper() + _Helper()


        # Doubles.
        @cache
        def _helper():
            return 2 * _deeper()


        def _deeper():
            return _table[_SIZE] + _deeper()


        class _Helper:
            def _method(self):
                return 1


        def _check_f():
            pass
        """,
        """
        import x


        def f():
            DOC
            _check_f()
            ERROR f


        def _check_f():
            pass
        """,
    ),
    "checks at the beginning": (
        """
        _SIZE = 3
        _names = ["x", "y"]


        def f(x, y):
            DOC

            # sizes first
            _check_size(x, _SIZE)  # of x

            _check_names(
                [x, y],  # both
                _names,
            )
            z = _helper(x)
            _check_size(z, _SIZE)
            return z


        class C:
            DOC

            def __init__(self, x):
                self._check_new(x)
                self.x = x

            def g(self, x): _check_size(x, self.x); return x  # done

            def _check_new(self, x):
                pass


        def _helper(x):
            return _names


        def _check_size(x, size): ...


        def _check_names(names, expected): ...
        """,
        """
        _SIZE = 3
        _names = ["x", "y"]


        def f(x, y):
            DOC
            _check_size(x, _SIZE)  # of x
            _check_names(
                [x, y],  # both
                _names,
            )
            ERROR f


        class C:
            DOC

            def __init__(self, x):
                self._check_new(x)
                ERROR C.__init__

            def g(self, x):
                _check_size(x, self.x)
                ERROR C.g

            def _check_new(self, x):
                pass


        def _check_size(x, size): ...


        def _check_names(names, expected): ...
        """,
    ),
    "helpers that kept code uses": (
        """
        __all__ = ["_exported"]


        def f(x: "_Quoted", y=_default) -> _Annotated:
            DOC
            return _given(_exported, _decorate, _Base, _validate, _default, _class_body, _Quoted, _Annotated)


        @_decorate
        class C(_Base):
            size = _class_body

            def given(self):
                return _given()


        def _check_f():
            _validate()


        class _Base: ...


        class _Quoted: ...


        class _Annotated: ...


        def _decorate(x): ...


        def _given():
            return _deeper()


        def _deeper(): ...


        def _validate(): ...


        _exported = 1
        _default = 2
        _class_body: int = 3
        """,
        """
        __all__ = ["_exported"]


        def f(x: "_Quoted", y=_default) -> _Annotated:
            DOC
            ERROR f


        @_decorate
        class C(_Base):
            size = _class_body

            def given(self):
                return _given()


        def _check_f():
            _validate()


        class _Base: ...


        class _Quoted: ...


        class _Annotated: ...


        def _decorate(x): ...


        def _given():
            return _deeper()


        def _deeper(): ...


        def _validate(): ...


        _exported = 1
        _default = 2
        _class_body: int = 3
        """,
    ),
    "private methods": (
        """
        class C:
            def _first(self):
                return self._shared()

            def f(self):
                DOC
                return self._first() + self._last()

            def given(self):
                return self._shared()

            def _shared(self):
                return 1

            def __len__(self):
                return 1

            def _repr_html_(self):
                return "called by name from elsewhere"

            # of f
            def _last(self):
                return 1


        class D:
            DOC

            def f(self):
                return self._helper()

            def _helper(self):
                return 1


        x = 1
        """,
        """
        class C:
            def f(self):
                DOC
                ERROR C.f

            def given(self):
                return self._shared()

            def _shared(self):
                return 1

            def __len__(self):
                return 1

            def _repr_html_(self):
                return "called by name from elsewhere"


        class D:
            DOC

            def f(self):
                ERROR D.f


        x = 1
        """,
    ),
    "names that lead nowhere": (
        '''
        class Given:
            size = 1

            def __init__(self):
                pass


        class C(Given):
            """Its docstring does not use `_helper`."""

            _limit = 3

            def f(self):
                DOC
                super().__init__()
                return _helper(self._limit) + _shared


        def _used_by_none():
            return _shared


        _shared = 1


        def _helper(x): ...
        ''',
        '''
        class Given:
            size = 1

            def __init__(self):
                pass


        class C(Given):
            """Its docstring does not use `_helper`."""

            _limit = 3

            def f(self):
                DOC
                ERROR C.f


        def _used_by_none():
            return _shared


        _shared = 1
        ''',
    ),
    "an asynchronous generator stays one": (
        """
        async def f(items):
            DOC
            async for item in items:
                yield item


        async def g(items):
            DOC

            def inner():
                yield 1

            return inner()
        """,
        """
        async def f(items):
            DOC
            ERROR f
            yield  # what makes this an asynchronous generator


        async def g(items):
            DOC
            ERROR g
        """,
    ),
    "a private class without anything else": (
        """
        class C:
            def _only(self):
                return 1


        def f():
            DOC
            return C()._only()
        """,
        """
        class C:
            def _only(self):
                return 1


        def f():
            DOC
            ERROR f
        """,
    ),
    "a private task": (
        """
        def f():
            DOC
            return _g()


        class _C:
            def h(self):
                DOC
                return f()


        def _g():
            DOC w1d1.2
            return 1
        """,
        """
        def f():
            DOC
            ERROR f


        class _C:
            def h(self):
                DOC
                ERROR _C.h


        def _g():
            DOC w1d1.2
            ERROR _g 2
        """,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_stub(case):
    source, expected = map(module, CASES[case])
    assert make_stub(source) == expected
    ast.parse(expected)


@pytest.mark.parametrize("case", CASES)
def test_windows_line_ends(case):
    source, expected = (module(text).replace("\n", "\r\n") for text in CASES[case])
    assert make_stub(source) == expected


@pytest.mark.parametrize("case", CASES)
def test_nothing_changes_once_all_is_solved(case):
    source = module(CASES[case][0])
    assert make_stub(source, is_solved=lambda task_id: True) == source


def test_a_formatted_module_gives_a_formatted_stub(tmp_path):
    for number, (source, _) in enumerate(CASES.values()):
        (tmp_path / f"{number}.py").write_text(module(source), encoding="utf-8")
    ruff = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length=120", "--target-version=py310"]
    subprocess.run([*ruff, tmp_path], check=True)
    for file in tmp_path.glob("*.py"):
        file.write_text(make_stub(file.read_text(encoding="utf-8")), encoding="utf-8")
    formatted = subprocess.run([*ruff, "--diff", tmp_path], capture_output=True, text=True, check=False)
    assert formatted.returncode == 0, formatted.stdout


@pytest.mark.parametrize(("name", "lines"), [("f" * 24, 1), ("f" * 25, 3)], ids=["fits", "too long"])
def test_an_error_that_fits_stands_on_one_line(name, lines):
    stub = make_stub(f"def {name}():\n    'Task: w1d7.1'\n")
    assert len(stub.splitlines()) == 4 + lines


def test_the_error_names_the_first_task_that_is_not_solved():
    source = module("""
        def f():
            DOC w1d1.1 w1d1.2
            return _helper()


        def g():
            DOC
            return _helper()


        def _helper(): ...
    """)
    expected = module("""
        def f():
            DOC w1d1.1 w1d1.2
            ERROR f 2


        def g():
            DOC
            return _helper()


        def _helper(): ...
    """)
    assert make_stub(source, is_solved=lambda task_id: task_id.task == 1) == expected


def test_the_error_is_what_a_caller_gets():
    namespace: dict[str, object] = {}
    exec(make_stub(module("def f():\n    DOC\n")), namespace)
    with pytest.raises(NotImplementedError) as raised:
        namespace["f"]()
    assert str(raised.value) == (
        "Week 1 Day 1 Task 1: f is yours to write. Chapter: Attention and multi-head attention. "
        "Test: ./course test w1d1.1"
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1\n\n\ndef f():\n    '''Task: w9d1.1'''\n", "basics.py:4: the syllabus has no task w9d1.1"),
        ("class C:\n    '''Task: w1d1.1, w1d1'''\n", "basics.py:1: a task id looks like w1d2.3, got 'w1d1'"),
        ("def f(:\n    pass\n", "basics.py:1: "),
        ("x = '\0'\n", "basics.py"),
    ],
)
def test_a_faulty_reference_is_named(source, message):
    with pytest.raises(StubError) as raised:
        make_stub(source, filename="basics.py")
    assert str(raised.value).startswith(message)
