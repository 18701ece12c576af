"""How a learner's mistake gets its name: the comparisons, their time limit, and mistakes compiled ahead."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future

import numpy as np
import pytest
from learner import Clone

from tiny_llm_course.catalogue import entry_of
from tiny_llm_course.diagnosis import mutants, naming
from tiny_llm_course.diagnosis.naming import Diagnosis
from tiny_llm_course.diagnosis.observation import Observation
from tiny_llm_course.pytest_runs.time_limit import TimedOut, leave_out_compiling, time_limit
from tiny_llm_course.tasks.syllabus import TaskId

TESTS = ["one", "two", "three"]
# The value that each mistake gives in each test; the right value is 0.
MISTAKES = {"late": (0, 0, 1), "always": (1, 1, 1), "at first": (1, 1, 2)}


def seen(value):
    error = AssertionError("values differ") if value else None
    return Observation([(np.array([float(value)]), "float32", 1e-6)], error)


def named(*values, ready=None, replayed=None):
    """Return the diagnosis for a learner whose code gives these values."""

    def replay(test, mistake):
        if replayed is not None:
            replayed.append((test, mistake))
        return seen(MISTAKES[mistake][TESTS.index(test)] if mistake else 0)

    told = Diagnosis(list(MISTAKES), replay, ready)
    for test, value in zip(TESTS, values, strict=False):
        told.add(test, seen(value))
    return told


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_gets_its_name(name):
    assert named(*MISTAKES[name]).named == name


def test_the_last_candidate_is_compared_to_the_end():
    """After two tests only one mistake is left, but the third test shows that the learner made a different mistake."""
    assert named(1, 1, 1).named == "always"
    assert named(1, 1, 3).named is None
    assert named(0, 1, 1).named is None, "the learner passed a test that the mistakes fail"


def test_nothing_is_replayed_before_a_failure():
    replayed = []
    named(0, 0, replayed=replayed)
    assert replayed == []


def test_a_machine_at_fault_gets_no_name():
    """The reference fails in the same way as the learner's code."""
    told = Diagnosis(["always"], lambda test, mistake: seen(1))
    told.add("one", seen(1))
    assert (told.named, told.left) == (None, 0)


def test_mistakes_that_are_not_ready_are_counted():
    told = named(1, 1, 3, ready=lambda test: ["at first"])
    assert (told.named, told.left) == (None, 2)
    assert named(1, 1, 1, ready=lambda test: ["always"]).named == "always"


def test_no_time_is_left(monkeypatch):
    monkeypatch.setattr(naming, "MAX_SECONDS", -1)
    assert (named(1).named, named(1).left) == (None, 3)


@pytest.mark.parametrize("kind", ["CompileError", "TimedOut"])
def test_code_that_gave_nothing_is_not_compared(kind):
    told = Diagnosis(["always"], lambda test, mistake: pytest.fail("nothing is to be compiled for this"))
    told.add("one", Observation(error=type(kind, (Exception,), {})()))
    assert (told.named, told.left) == (None, 0)


def test_what_is_done_in_time():
    """One comparison ends only after the others were counted."""
    may_end = threading.Event()
    if os.cpu_count() == 1:
        return
    assert mutants.done_in_time(lambda i: i and may_end.wait(), [0, 1], 0.5) == [0]
    may_end.set()
    assert mutants.done_in_time(lambda i: 1 // i, [0, 1], 60) == [1], "what failed is not done"
    with pytest.raises(ZeroDivisionError):
        mutants.done_in_time(lambda i: 1 // i, [0, 1], None)


def test_the_clock_stands_while_a_compiler_runs():
    told = []
    leave_out_compiling(told.append)
    with time_limit(100):
        sys.audit("kernel.compiling", "rope.cpp")
        stopped = [signal.getitimer(timer) for timer in (signal.ITIMER_REAL, signal.ITIMER_PROF)]
        sys.audit("kernel.compiled", "rope.cpp")
        real, computing = (signal.getitimer(timer)[0] for timer in (signal.ITIMER_REAL, signal.ITIMER_PROF))
    assert stopped == [(0, 0), (0, 0)]
    assert 33.4 < real <= 100
    assert 0 < computing <= 33.4
    assert told == ["rope.cpp", ""]


def test_a_compiler_in_another_thread_stops_no_clock():
    done: Future[None] = Future()
    told = []

    def compile_elsewhere():
        sys.audit("kernel.compiling", "rope.cpp")
        done.set_result(None)

    leave_out_compiling(told.append)  # for the rest of this process, so it must do no harm later
    with time_limit(100):
        threading.Thread(target=compile_elsewhere).start()
        done.result()
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert told == []


@pytest.mark.parametrize(("body", "said"), [("compute", "0.033 seconds of computing"), ("wait", "0.1 seconds")])
def test_a_test_that_takes_too_long(body, said):
    def run():
        if body == "compute":
            signal.setitimer(signal.ITIMER_REAL, 0)  # a busy machine may make it wait for long
        while True:
            if body == "wait":
                signal.pause()

    with pytest.raises(TimedOut, match=f"^{said}$"), time_limit(0.1):
        run()
    assert signal.getitimer(signal.ITIMER_REAL) == signal.getitimer(signal.ITIMER_PROF) == (0, 0)


def test_mistakes_are_compiled_ahead(tmp_path):
    """They are compiled in a clone, once, by a process of its own."""
    clone = Clone.create(tmp_path)
    folder = clone.root / "src/tiny_llm_ref/kernels/built/mistakes"
    code = """
from tiny_llm_course.diagnosis import ahead; from tiny_llm_course.tasks import syllabus
ahead.NICE = ()  # other tests leave little of the processors
ahead.compile_ahead(syllabus.select_days("2", "2")[0], "test_task_2_softmax")
"""
    command = [sys.executable, "-c", code]
    environment = clone.environment | {"TINY_LLM_AHEAD": ""}
    subprocess.run(command, env=environment, check=True)
    (note,) = folder.glob("w2d2-*.ahead")
    with note.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # once the process has ended
        done = file.read()
    mistakes = [mistake.id for mistake in entry_of(TaskId(2, 2, 2)).mistakes]
    assert all(list(folder.glob(f"w2d2.2_{mistake}/softmax-*.so")) for mistake in mistakes)
    assert len(done) == 64
    written = {file: file.stat().st_mtime_ns for file in folder.rglob("*")}
    subprocess.run(command, env=environment, check=True)
    with note.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # no process holds the lock, so none was started
    assert {file: file.stat().st_mtime_ns for file in folder.rglob("*")} == written
