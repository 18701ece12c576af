"""Turns a body into a request of the protocol, or raises an error that names the first mistake in the body. Given."""

import json
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from .api_error import ApiError
from .defaults import HarmlessDefaults
from .messages import MOST_NAMES, Strict

__all__ = ["parse"]

_UNSUPPORTED = (  # parameters of OpenAI's API
    *("audio", "function_call", "functions", "metadata", "modalities", "moderation", "parallel_tool_calls"),
    *("prediction", "prompt_cache_key", "prompt_cache_retention", "reasoning_effort", "safety_identifier"),
    *("service_tier", "store", "suffix", "tool_choice", "tools", "verbosity", "web_search_options"),
    *("annotations", "include_obfuscation", "name", "refusal", "tool_call_id", "tool_calls"),  # within other objects
)
_HARMLESS = {*HarmlessDefaults.model_fields, "include_obfuscation"}  # some values of these parameters are accepted

_R = TypeVar("_R", bound=Strict)


def parse(kind: type[_R], body: bytes) -> _R:
    """Parse a body into a request of this kind. Raises ApiError (400) for the first mistake in the body."""
    try:
        found = json.loads(body, parse_constant=_refuse_constant, object_pairs_hook=_once_each)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"body: expected JSON, got something else: {error}") from None
    if not isinstance(found, dict):
        raise ApiError(400, f"body: expected a JSON object, got {type(found).__name__}")
    given = kind.asked(found)
    if unsupported := sorted(given.keys() & set(_UNSUPPORTED) - kind.model_fields.keys()):
        raise _unsupported(unsupported[0])
    try:
        return kind.model_validate(given)
    except (ValidationError, RecursionError) as error:
        raise _explained(error) from None


def _is_unsupported(place: Sequence[int | str], problem: str) -> bool:
    """Tell whether the error is about a parameter that OpenAI's API has and this server lacks."""
    names = [part for part in place if part in _UNSUPPORTED]
    return bool(names) and (problem == "extra_forbidden" or names[0] in _HARMLESS)


def _unsupported(place: str) -> ApiError:
    name = place.partition(".")[0]
    return ApiError(400, f"{place}: this server does not support it", param=name, code="unsupported_parameter")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _once_each(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MOST_NAMES:
        raise ApiError(400, f"body: expected {MOST_NAMES} names at most in an object, got {len(pairs)}")
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is given twice")
    return found


def _explained(error: "ValidationError | RecursionError") -> ApiError:
    if isinstance(error, RecursionError):
        return ApiError(400, "body: expected fewer levels of lists and objects")
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if _is_unsupported(first["loc"], first["type"]):
        return _unsupported(place)
    if first["type"] == "extra_forbidden":
        return ApiError(400, f"{place}: there is no such parameter", param=place, code="unknown_parameter")
    if not place and first["type"] != "value_error":
        return ApiError(400, f"body: {message}")
    if not place:  # an error of ours, which begins with the parameter's name
        return ApiError(400, message, param=message.partition(":")[0])
    return ApiError(400, f"{place}: {message}", param=place.partition(".")[0])
