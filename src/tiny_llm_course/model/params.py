"""The parameters of a request, on the command line or in a file of requests, and the values that they can have."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from ..ui import Phrase, phrase

__all__ = ["COURSE_SAMPLING", "MAX_TOKENS", "MAX_TOKENS_THINKING", "PARAMS", "Param", "is_text"]


class Param(NamedTuple):
    """The condition on a parameter's value. expected: the condition in words. holds: tells whether a value meets it."""

    expected: Phrase
    holds: Callable[[Any], bool]


def is_text(value: object) -> bool:
    return isinstance(value, str) and value != "" and not any("\ud800" <= letter <= "\udfff" for letter in value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


PARAMS = {  # the parameters of `SamplingParams`, by name
    "max_tokens": Param(phrase("expects_whole", least=1), lambda value: _is_whole(value) and value >= 1),
    "temperature": Param(phrase("expects_temperature"), lambda value: _is_number(value) and value >= 0),
    "top_k": Param(phrase("expects_whole", least=0), lambda value: _is_whole(value) and value >= 0),
    "top_p": Param(phrase("expects_top_p"), lambda value: _is_number(value) and 0 < value <= 1),
    "min_p": Param(phrase("expects_min_p"), lambda value: _is_number(value) and 0 <= value <= 1),
    "repetition_penalty": Param(phrase("expects_positive"), lambda value: _is_number(value) and value > 0),
    "seed": Param(phrase("expects_seed"), lambda value: _is_whole(value) and 0 <= value < 2**64),
    "stop": Param(
        phrase("expects_stop"),
        lambda value: is_text(value) or (isinstance(value, list) and all(map(is_text, value))),
    ),
    "stop_token_ids": Param(
        phrase("expects_token_ids"), lambda value: isinstance(value, list) and all(map(_is_whole, value))
    ),
    "ignore_eos": Param(phrase("expects_bool"), lambda value: isinstance(value, bool)),
}


COURSE_SAMPLING = {"temperature": 0.7, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
MAX_TOKENS, MAX_TOKENS_THINKING = 400, 4096  # where --max-tokens is left out
