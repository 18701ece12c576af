"""Measurements on a machine that other programs keep busy, with simulated counters, so that no load is needed."""

import ctypes
import os
import sys

import pytest
from busy import counters_of

from tiny_llm_course.bench import quiet
from tiny_llm_course.bench.quiet import AGAIN, AGAIN_IN_ALL, BUSY, MOST_SECONDS, Counters, Quiet, counters


@pytest.fixture(autouse=True)
def four_processors(monkeypatch):
    monkeypatch.setattr(quiet, "processors", lambda: 4)


class Measured:
    """A Quiet with simulated counters, its messages, and its measurements."""

    def __init__(self, *others, threads=4, seconds=1.0, **options):
        self.told = []
        self.quiet = Quiet(
            threads, lambda *said: self.told.append(said), read=counters_of(others, seconds).__next__, **options
        )

    def measure(self, *results, **options):
        return self.quiet.measure(iter(results).__next__, min, **options)


def test_a_quiet_machine_is_measured_once():
    measured = Measured(0.4)
    assert measured.measure(7) == (7, None)
    assert measured.told == []


def test_a_moment_of_load_is_measured_again():
    measured = Measured(2.0, 0.1)
    assert measured.measure(9, 7) == (7, None)
    assert measured.told == [(BUSY, pytest.approx(2.0))]


def test_the_better_of_two_results_counts():
    assert Measured(2.0, 0.1).measure(7, 9) == (7, None)


def test_what_stays_busy_is_in_doubt():
    measured = Measured(2.0, 3.0, 1.5)
    assert AGAIN == 2
    assert measured.measure(9, 7, 8) == (7, BUSY)
    assert len(measured.told) == AGAIN
    assert measured.quiet.most == pytest.approx(1.5)


def test_what_takes_long_is_measured_once():
    measured = Measured(2.0, seconds=MOST_SECONDS + 1)
    assert measured.measure(9) == (9, BUSY)
    assert measured.told == []


def test_a_run_does_not_measure_again_forever():
    figures = AGAIN_IN_ALL  # more than there are repeats for
    measured = Measured(*[2.0] * (figures + AGAIN_IN_ALL))
    assert [measured.measure(*range(AGAIN + 1))[1] for _ in range(figures)] == [BUSY] * figures
    assert len(measured.told) == AGAIN_IN_ALL


def test_nothing_is_measured_again_where_that_is_not_wanted():
    measured = Measured(2.0, again=0)
    assert measured.measure(9) == (9, BUSY)
    assert measured.told == []


def test_processors_that_kernels_leave_free_are_for_others():
    assert Measured(3.4, threads=1).measure(7) == (7, None)
    assert Measured(3.6, threads=1, again=0).measure(7) == (7, BUSY)
    assert Measured(0.4, threads=8).measure(7) == (7, None)


def test_what_looks_wrong_is_measured_again():
    measured = Measured(0, 0)
    assert measured.measure(9, 7, doubt=lambda found: "high" if found > 8 else None) == (7, None)
    assert measured.told == [("high", 0)]
    assert Measured(0, 0, 0).measure(9, 9, 9, doubt=lambda found: "high") == (9, "high")


def test_moments_too_short_for_the_systems_ticks_say_nothing():
    assert Measured(2.0, seconds=0.1).measure(7) == (7, None)


def test_a_system_that_does_not_say_how_busy_it_is():
    read = iter([Counters(0, None, 0), Counters(1, None, 1)]).__next__
    assert Quiet(4, lambda *said: None, read=read).measure(lambda: 7, min) == (7, None)


def test_linux(tmp_path, monkeypatch):
    """Only this process's processors count. Waiting for disks is not work; time that the hypervisor takes is work."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 2}, raising=False)
    file = tmp_path / "stat"
    tick = os.sysconf("SC_CLK_TCK")
    file.write_text(
        "cpu  9 9 9 9 9 9 9 9 9 9\n"
        f"cpu0 {1 * tick} {2 * tick} {3 * tick} 1000 1000 {4 * tick} {5 * tick} {6 * tick} 1000 1000\n"
        "cpu1 9 9 9 9 9 9 9 9 9 9\n"
        f"cpu2 {tick} 0 0 1000 1000 0 0 0 0 0\n"
        "intr 99 9\n"
    )
    assert quiet._linux_seconds(file) == 1 + 2 + 3 + 4 + 5 + 6 + 1
    assert quiet._linux_seconds(tmp_path / "none") is None


def mach(failed):
    """Return a library with the two functions of macOS that are called."""

    def host_statistics(host, flavour, address, count):
        assert (host, flavour, ctypes.c_uint32.from_address(count).value) == (77, 3, 4)
        tick = os.sysconf("SC_CLK_TCK")
        (ctypes.c_uint32 * 4).from_address(address)[:] = [5 * tick, 2 * tick, 1000, 1 * tick]
        return failed

    library = type("Library", (), {})()
    library.mach_host_self, library.host_statistics = lambda: 77, host_statistics
    return library


def test_macos():
    assert quiet._mac_seconds(mach(failed=0)) == 5 + 2 + 1
    assert quiet._mac_seconds(mach(failed=5)) is None
    assert quiet._mac_seconds(object()) is None


def test_this_machine():
    """The counters of all processes include this process's work, or at least half of it: the system counts in ticks."""
    before = counters()
    while (after := counters()).own < before.own + 0.2:
        pass
    assert after.wall > before.wall
    if sys.platform in ("linux", "darwin"):
        assert after.all - before.all > 0.1
