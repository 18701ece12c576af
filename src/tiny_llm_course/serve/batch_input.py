"""The requests of `tiny-llm batch`: a JSON object on each line of a file, checked before anything is computed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tiny_llm_given.serving.parameters import MaxTokens, Messages, Parameters, SomeText, Temperature

from ..model.expectations import EXPECTED_STOP, first_wrong, shown
from ..ui import CommandError, Phrase, phrase

__all__ = ["BatchLine", "BatchRequest", "Prompt", "read_requests"]

Prompt = str | list[dict[str, str]]
_LONGEST = 40  # the most characters of an error about JSON
_KNOWN = {  # field -> what is expected, for fields for which the schema's own text is too long
    "messages": phrase("batch_messages"),
    "Message": phrase("batch_message"),
    "content": phrase("batch_content"),
    "stop": EXPECTED_STOP,
}


class BatchLine(Parameters):
    """A request on a line: a text to continue, or messages to answer. If the line has no id, the id is `line-` and
    the line's number."""

    id: SomeText | None = None
    prompt: SomeText | None = None
    messages: Messages | None = None
    max_tokens: MaxTokens = 256
    temperature: Temperature = 0.0


@dataclass(frozen=True)
class BatchRequest:
    """A request. prompt: a text to continue, or messages to answer. params: the arguments of `SamplingParams`."""

    id: str
    prompt: Prompt
    params: Mapping[str, Any]


def read_requests(file: Path) -> list[BatchRequest]:
    """Read all requests of a file. Raises a CommandError that names the file, the line and the key of the first
    mistake."""
    lines = file.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if lines[-1] == b"":
        del lines[-1]
    if not lines:
        raise CommandError("batch_no_requests", file=file)
    requests: dict[str, BatchRequest] = {}
    numbers: dict[str, int] = {}  # id -> number of its line
    for number, line in enumerate(lines, start=1):
        try:
            request = _request(number, line)
            if request.id in requests:
                raise _LineError(phrase("batch_id_twice", id=request.id, line=numbers[request.id]))
        except _LineError as wrong:
            raise CommandError("batch_line", file=file, line=number, problem=wrong.problem) from None
        requests[request.id], numbers[request.id] = request, number
    return list(requests.values())


class _LineError(Exception):
    """The error raised when a line in the file of requests is wrong."""

    def __init__(self, problem: Phrase):
        super().__init__(problem)
        self.problem = problem


def _request(number: int, line: bytes) -> BatchRequest:
    try:
        found = BatchLine.model_validate(_object(line))
    except ValidationError as error:
        wrong = first_wrong(BatchLine, error, _KNOWN)
        if wrong.names:
            raise _LineError(phrase("batch_unknown_key", name=wrong.place, known=", ".join(wrong.names))) from None
        got = shown(wrong.got)
        raise _LineError(phrase("batch_value", name=wrong.place, expected=wrong.expected, got=got)) from None
    if (found.prompt is None) == (found.messages is None):
        raise _LineError(phrase("batch_prompt_or_messages"))
    prompt = found.prompt or [message.as_template() for message in found.messages or ()]
    return BatchRequest(found.id or f"line-{number}", prompt, found.arguments())


def _object(line: bytes) -> dict[str, Any]:
    if not line.strip():
        raise _LineError(phrase("batch_empty_line"))

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        for key in keys:
            if keys.count(key) > 1:
                raise _LineError(phrase("batch_key_twice", name=key))
        return dict(pairs)

    def refused(constant: str) -> None:
        raise ValueError(constant)  # NaN and infinities, which JSON does not have

    try:
        entry = json.loads(line.decode("utf-8"), object_pairs_hook=unique, parse_constant=refused)
    except UnicodeDecodeError:
        raise _LineError(phrase("batch_not_utf8")) from None
    except json.JSONDecodeError as error:
        raise _LineError(phrase("batch_not_json", error=f"{error.msg} ({error.colno})")) from None
    except (ValueError, RecursionError) as error:
        raise _LineError(phrase("batch_not_json", error=str(error)[:_LONGEST])) from None
    if not isinstance(entry, dict):
        raise _LineError(phrase("batch_not_object", got=shown(entry)))
    return entry
