"""`Retry-After`: how long refused clients are told to wait."""

from __future__ import annotations

import math

import pytest

from tiny_llm_given.serving.retry_after import RetryAfter


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_those_who_are_refused_come_back_one_after_the_other(clock: Clock) -> None:
    """They come back at the rate at which requests end: eight have ended in four seconds."""
    retry = RetryAfter(clock)
    retry.begin(16)
    clock.now += 4
    retry.end(8)
    assert [retry.seconds() for _ in range(40)] == [math.ceil(k / 2) for k in range(1, 41)]
    retry.end(8)
    clock.now += 100
    assert [retry.seconds(4) for _ in range(3)] == [1, 2, 3]  # nobody waits any more; these need four places each


def test_until_a_request_has_ended_the_next_end_is_as_far_away(clock: Clock) -> None:
    retry = RetryAfter(clock)
    retry.begin(16)
    assert [retry.seconds() for _ in range(20)] == [1] * 10 + [2] * 10
    clock.now += 4
    assert [retry.seconds() for _ in range(3)] == [4, 8, 12]


def test_requests_that_were_refused_at_once_do_not_count(clock: Clock) -> None:
    """Otherwise the server would seem to serve a crowd of them in no time."""
    retry = RetryAfter(clock)
    retry.begin(16)
    clock.now += 4
    retry.begin(100)
    retry.end(100, were_served=False)
    assert [retry.seconds() for _ in range(3)] == [4, 8, 12]


def test_no_wait_is_longer_than_clients_accept(clock: Clock) -> None:
    retry = RetryAfter(clock)
    assert retry.seconds() == 1  # nothing is known yet
    retry.begin()
    clock.now += 1000
    retry.end()
    assert [retry.seconds() for _ in range(3)] == [60, 60, 60]


def test_time_without_requests_does_not_count(clock: Clock) -> None:
    retry = RetryAfter(clock)
    for _ in range(2):
        retry.begin()
        clock.now += 1
        retry.end()
        clock.now += 1000
    retry.begin()
    assert [retry.seconds() for _ in range(3)] == [1, 2, 3]
