"""Programs that run as forks of one process behave like started programs: how they begin, get input, and end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

import forks

HERE = {"PATH": os.defpath}


device = pytest.fixture(lambda: None)  # nothing here computes on one


@pytest.fixture(params=[pytest.param(True, marks=pytest.mark.skipif(not forks.CAN_FORK, reason="a Mac")), False])
def can_fork(request, monkeypatch):
    """Run each test with forks, and with programs that are started."""
    monkeypatch.setattr(forks, "CAN_FORK", request.param)
    return request.param


def python(code, input=None, timeout=600, **environment):
    return forks.run_python(["-c", code], Path("/"), HERE | environment, input, timeout)


@pytest.mark.usefixtures("can_fork")
def test_what_a_program_is_given_and_says():
    code = "import os, sys; print(os.getcwd(), sys.stdin.read(), os.environ['X']); sys.stderr.write('e'); sys.exit(3)"
    run = python(code, "é", X="x")
    assert (run.returncode, run.stdout, run.stderr) == (3, "/ é x\n", "e")
    assert python("import sys; print(sys.stdin.read())").stdout == "\n"
    assert python("import os; os.abort()").returncode == -signal.SIGABRT
    late = "lambda: (threading.main_thread().join(), print(2))"
    code = f"import atexit, threading\natexit.register(print, 3)\nthreading.Thread(target={late}).start()\nprint(1)"
    run = python(code)
    assert (run.returncode, run.stdout) == (0, "1\n2\n3\n")
    assert python("import ctypes; ctypes.CDLL(None).printf(b'C')").stdout == "C"
    for code, told in {"raise SystemExit('no')": "no\n", "1 / 0": "ZeroDivisionError: division by zero\n"}.items():
        run = python(code)
        assert (run.returncode, run.stderr.endswith(told)) == (1, True)


@pytest.mark.usefixtures("can_fork")
def test_a_program_that_takes_too_long_is_killed():
    with pytest.raises(subprocess.TimeoutExpired) as error:
        python("import signal; print('begun', flush=True); signal.pause()", timeout=3)
    assert error.value.output in ("begun\n", "")  # on a machine that is slow, it may not have begun


def test_a_program_in_a_terminal(can_fork):
    """The program leads a session, so Ctrl-C sends it a signal. Other programs run at the same time."""
    ours, theirs = os.openpty()
    code = "import os, signal, sys\nsys.stdout.reconfigure(errors='replace')\n"
    code += "print(os.isatty(1), os.getsid(0) == os.getpid())\nsignal.pause()"
    process = forks.start_python(["-c", code], Path("/"), HERE, [theirs] * 3, in_terminal=True)
    os.close(theirs)
    assert os.read(ours, 99) == b"True True\r\n"
    assert isinstance(process, forks.Program) == can_fork
    assert python("print(1)").stdout == "1\n"
    assert process.poll() is None
    os.write(ours, b"\x03")
    assert process.wait(60) == process.poll() == -signal.SIGINT
    os.close(ours)


def test_what_counts_only_when_a_process_starts(monkeypatch, tmp_path):
    monkeypatch.setattr(forks, "CAN_FORK", True)
    assert python("import sys; print(sys.stdout.encoding)", PYTHONIOENCODING="ascii").stdout == "ascii\n"
    (tmp_path / "sitecustomize.py").write_text("print('first')")
    assert python("print(1)", PYTHONPATH=str(tmp_path)).stdout == "first\n1\n"
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    with open(os.devnull, "r+") as nothing:
        process = forks.start_python(["-c", ""], Path("/"), os.environ, [nothing.fileno()] * 3)
    assert isinstance(process, subprocess.Popen)
    assert process.wait(60) == 0
