"""A Python file of the course in three versions, and a C++ file: stub, learner's version, and newer course."""

from __future__ import annotations

__all__ = ["CPP", "MINE", "NEWER", "STARTED", "STUB", "WRITTEN"]

STUB = '''\
"""Sums."""

import math

from .basics import double

__all__ = ["given", "total"]


def total(x: list[float]) -> float:
    """The sum.

    Task: w1d1.1
    """
    raise NotImplementedError("Week 1 Day 1 Task 1: total is yours to write. ")


class Mean:
    """The mean.

    Task: w1d1.2
    """

    def __init__(self, x: list[float]):
        self.x = x

    def value(self) -> float:
        raise NotImplementedError("Week 1 Day 1 Task 2: value is yours to write. ")


def given(x: float) -> float:
    """What is given."""
    y = double(x)
    return math.sqrt(y)
'''
WRITTEN = STUB.replace(
    '    raise NotImplementedError("Week 1 Day 1 Task 1: total is yours to write. ")\n',
    "    # my loop\n    result = 0.0\n    for one in x:\n        result += one\n    return result\n",
)
NEWER = STUB.replace("The sum.", "The sum of all.").replace('"""Sums."""', '"""Sums and means."""')


CPP = """\
#include "kernel.h"

float half(float x) {
    // task w1d1.1 begin
    // Week 1 Day 1 Task 1: what belongs here is yours to write.
    // task w1d1.1 end
}

// task w1d1.2 begin
// Week 1 Day 1 Task 2: what belongs here is yours to write.
// task w1d1.2 end
"""
MINE = "    return x / 2;  // mine\n"
STARTED = CPP.replace("    // Week 1 Day 1 Task 1: what belongs here is yours to write.\n", MINE)
