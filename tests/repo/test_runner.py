"""`run_tests` in one process and in several: results, crashes, hangs, interruptions. Its day tests need no MLX."""

import os
import threading

import pytest

from tiny_llm_course.pytest_runs import test_run
from tiny_llm_course.pytest_runs.test_run import PytestRun, run_tests
from tiny_llm_course.tasks.syllabus import TaskId, select_days
from tiny_llm_course.testing.task_lines import TaskLines
from tiny_llm_course.ui.language import Messages

DAYS = select_days("0", None)
CONFTEST = """
pytest_plugins = ["tiny_llm_course.testing.pytest_plugin"]
def pytest_addoption(parser): parser.addoption("--impl")
def pytest_configure(config): config.addinivalue_line("markers", "task(id)")
"""
TEST = """
@pytest.mark.task("w0d{day}.{task}")
def test_task_{task}_{name}():
    {body}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "pyproject.toml").touch()
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "conftest.py").write_text(CONFTEST)
    for day in (1, 2):
        add(tests, day, 1, "a", "pass")
        add(tests, day, 2, "a", "pass")
    return tests


class Signal:
    """A pipe with a name. body: the code of a test that waits until `give` is called."""

    def __init__(self, path):
        os.mkfifo(path)
        self._descriptor = os.open(path, os.O_RDWR)  # open already: nobody waits for a writer
        self.body = f"open({str(path)!r}).readline()"

    def give(self):
        os.write(self._descriptor, b"\n")


def add(folder, day, task, name, body):
    """Add a test. body: the test's line of code."""
    file = folder / f"test_week_0_day_{day}.py"
    before = file.read_text() if file.exists() else "import os, signal\nimport pytest\n"
    file.write_text(before + TEST.format(day=day, task=task, name=name, body=body))


def shown(run):
    return [(str(result.task), result.test, result.outcome) for result in run.results]


def of_day(run, day):
    return [(test, outcome) for task, test, outcome in shown(run) if task.startswith(f"w0d{day}.")]


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_several_processes_give_the_same_results(folder):
    day_2_ended = Signal(folder / "signal")
    add(folder, 1, 3, "late", day_2_ended.body)
    add(folder, 2, 3, "wrong", "assert 1 == 2")
    add(folder, 2, 3, "stub", "raise NotImplementedError('Week 0 Day 2 Task 3: yours')")

    def on_event(run):
        if run.finished[TaskId(0, 2, 3)] == 2:
            day_2_ended.give()

    day_2_ended.give()  # to one process, which runs day 1 before day 2
    one = run_tests(DAYS, "tiny_llm", [], tests=folder)
    two = run_tests(DAYS, "tiny_llm", [], on_event, tests=folder, jobs=2)
    assert shown(one) == shown(two)
    assert [outcome for _, _, outcome in shown(one)] == [*["passed"] * 5, "failed", "unsolved"]
    assert (
        one.collected == two.collected == {TaskId(0, d, t): 1 + (d == 2 and t == 3) for d in (1, 2) for t in (1, 2, 3)}
    )
    assert one.is_solved(TaskId(0, 1, 3))
    assert two.is_solved(TaskId(0, 1, 3))
    assert one.problem == two.problem == ""
    assert two.is_collected


def test_a_choice_that_one_process_has_no_test_of(folder):
    add(folder, 2, 3, "only", "pass")
    run = run_tests(DAYS, "tiny_llm", ["-k", "only"], tests=folder, jobs=2)
    assert shown(run) == [("w0d2.3", "test_task_3_only", "passed")]
    assert run.problem == ""
    assert run_tests(DAYS, "tiny_llm", ["-k", "nothing"], tests=folder, jobs=2).results == []


def test_a_process_that_dies_fails_only_its_own_test(folder):
    add(folder, 1, 3, "dies", "os.abort()")
    add(folder, 1, 4, "never", "pass")
    is_dead = Signal(folder / "signal")
    add(folder, 2, 3, "late", is_dead.body)

    def on_event(run):
        if run.finished[TaskId(0, 1, 3)]:
            is_dead.give()

    run = run_tests(DAYS, "tiny_llm", [], on_event, tests=folder, jobs=2)
    assert of_day(run, 1)[-1] == ("test_task_3_dies", "failed")
    assert of_day(run, 2) == [("test_task_1_a", "passed"), ("test_task_2_a", "passed"), ("test_task_3_late", "passed")]
    [failure] = [result for result in run.results if result.outcome == "failed"]
    assert failure.message == run.problem == "the code under test ended Python with SIGABRT"
    assert run.running.endswith("::test_task_3_dies")
    assert run.chosen == run.finished | {TaskId(0, 1, 4): 0}


def test_a_process_that_hangs_is_ended_alone(folder, monkeypatch):
    monkeypatch.setattr(test_run, "GRACE", 3)
    add(folder, 1, 3, "hangs", "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM]); signal.pause()")
    run = run_tests(DAYS, "tiny_llm", [], tests=folder, time_limit=1, jobs=2)
    assert run.problem == "ended after 4 seconds without an answer: is there a loop that never ends?"
    assert of_day(run, 1)[-1] == ("test_task_3_hangs", "failed")
    assert len(of_day(run, 2)) == 2
    assert run.seconds < 30


def test_a_thread_that_never_ends_costs_no_test(folder):
    """Python waits for the thread when it exits. By then, the results are known."""
    add(folder, 1, 3, "thread", "import threading; threading.Thread(target=threading.Event().wait).start()")
    run = run_tests(DAYS, "tiny_llm", [], tests=folder, time_limit=60, jobs=2)
    assert run.problem == ""
    assert {outcome for _, _, outcome in shown(run)} == {"passed"}
    assert len(run.results) == 5
    assert run.seconds < 60


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("why", ["deadline", "stop", "Ctrl-C"])
def test_all_processes_are_ended(folder, why, jobs):
    for day in (1, 2):
        pid = folder / f"pid_{day}"
        add(folder, day, 3, "long", f"open({str(pid)!r}, 'w').write(str(os.getpid())); signal.pause()")
    stop = threading.Event()

    def on_event(run):
        if run.is_collected and all(run.finished[TaskId(0, day, 2)] for day in range(1, jobs + 1)):
            if why == "stop":
                stop.set()
            elif why == "Ctrl-C":
                raise KeyboardInterrupt

    deadline = 5 if why == "deadline" else 60
    run = run_tests(DAYS, "tiny_llm", [], on_event, tests=folder, deadline=deadline, stop=stop, jobs=jobs)
    assert run.seconds < 30
    assert run.interrupted == (why == "Ctrl-C")
    too_late = "ended because all tests together took too long"
    assert run.problem == {"deadline": too_late, "stop": "interrupted", "Ctrl-C": "interrupted"}[why]
    failed = [result.test for result in run.results if result.outcome == "failed"]
    assert not failed or why != "Ctrl-C"
    assert why != "deadline" or failed == ["test_task_3_long"] * jobs
    for pid in folder.glob("pid_*"):
        assert not pid.read_text() or not is_running(int(pid.read_text()))


def test_what_pytest_says_when_it_cannot_begin(folder):
    run = run_tests(DAYS, "tiny_llm", ["--no-such-option"], tests=folder, jobs=2)
    assert run.results == []
    assert "unrecognized arguments: --no-such-option" in run.problem


def test_events_come_while_tests_run(folder):
    is_seen = Signal(folder / "signal")
    add(folder, 1, 3, "waits", is_seen.body)

    def on_event(run):
        if run.is_collected and run.finished[TaskId(0, 1, 2)] == run.chosen[TaskId(0, 1, 2)]:
            is_seen.give()

    run = run_tests(DAYS, "tiny_llm", [], on_event, time_limit=20, tests=folder)
    assert {outcome for _, _, outcome in shown(run)} == {"passed"}, "the last test waits for the one before"


def test_lines_come_in_the_order_of_the_course(capsys):
    """Of two processes, the one with day 2 ends first, but day 2 is shown after day 1."""
    run, lines = PytestRun(), TaskLines(DAYS, None, Messages("en"))

    def take(event, **about):
        run.take({"event": event, **about})
        lines.update(run)
        return capsys.readouterr().out.splitlines()

    def result(task):
        return take("result", test="test", task=task, outcome="passed")

    assert take("chosen", tests={"w0d1.1": 2, "w0d1.3": 1}) == []
    run.is_collected = True
    assert take("chosen", tests={"w0d2.1": 1}) == []
    assert result("w0d2.1") == []
    assert result("w0d1.1") == []
    assert result("w0d1.1") == ["Week 0 day 1: Attention by hand", "  ✔ w0d1.1  Softmax: 2 passed"]
    assert [line[:11].strip() for line in result("w0d1.3")] == ["✔ w0d1.3", "Week 0 day", "✔ w0d2.1"]
    lines.finish(run)
    assert capsys.readouterr().out == ""
