"""Stop strings: their cost, and that the first one to be complete is found."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tiny_llm_ref.generate import StopStrings


class Counted(str):
    """A text that counts how many of its characters were copied."""

    copied = 0

    def __getitem__(self, place: Any) -> str:
        part = super().__getitem__(place)
        Counted.copied += len(part)
        return part


@pytest.mark.parametrize("text", ["a" * 20, "x" * 20])
def test_a_long_stop_string_costs_no_more_than_the_text(text: str) -> None:
    """This holds for each piece of text, whether or not the stop string may begin in it."""
    Counted.copied = 0
    stops = StopStrings([Counted("x" * 1_000_000)])
    assert stops.add(text) == ("" if text[0] == "x" else text)
    assert Counted.copied <= len(text) ** 2


def test_stop_strings_as_the_definition_finds_them() -> None:
    draw = random.Random(2)
    for _ in range(3000):
        text = "".join(draw.choices("ab", k=draw.randint(1, 14)))
        wanted = ["".join(draw.choices("ab", k=draw.randint(1, 6))) for _ in range(draw.randint(1, 3))]
        stops, held = StopStrings(wanted), ""
        for end in range(1, len(text) + 1):
            held += stops.add(text[end - 1])
            if any(text[:end].endswith(stop) for stop in wanted):
                assert stops.found
                assert held == text[: end - max(len(stop) for stop in wanted if text[:end].endswith(stop))]
                break
            begun = [n for stop in wanted for n in range(1, len(stop)) if text[:end].endswith(stop[:n])]
            assert held == text[: end - max(begun, default=0)]
