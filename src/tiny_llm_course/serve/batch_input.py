"""The requests of `tiny-llm batch`: a JSON object on each line of a file, checked before anything is computed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..model.params import PARAMS, Param, is_text
from ..ui import CommandError, Phrase, one_of, phrase

__all__ = ["KEYS", "BatchRequest", "Prompt", "read_requests"]

Prompt = str | list[dict[str, str]]
ROLES = ("system", "user", "assistant")
SHOWN = 40  # characters of a value that is wrong


@dataclass(frozen=True)
class BatchRequest:
    """A line. prompt: a text as it is, or messages. params: of `SamplingParams`, as far as they were given."""

    id: str
    line: int
    prompt: Prompt
    params: Mapping[str, Any]


KEYS = {
    "id": Param(phrase("expects_text"), is_text),
    "prompt": Param(phrase("expects_text"), is_text),
    "messages": Param(phrase("batch_messages"), lambda value: isinstance(value, list) and value != []),
    **PARAMS,
}


def read_requests(file: Path) -> list[BatchRequest]:
    """Read all requests of a file. Raises a CommandError that names the file, the line and the key of the first
    mistake."""
    lines = file.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if lines[-1] == b"":
        del lines[-1]
    if not lines:
        raise CommandError("batch_no_requests", file=file)
    requests: dict[str, BatchRequest] = {}
    for number, line in enumerate(lines, start=1):
        try:
            request = _request(number, line)
            if request.id in requests:
                raise _LineError(phrase("batch_id_twice", id=request.id, line=requests[request.id].line))
        except _LineError as wrong:
            raise CommandError("batch_line", file=file, line=number, problem=wrong.problem) from None
        requests[request.id] = request
    return list(requests.values())


class _LineError(Exception):
    """A line of the requests is wrong."""

    def __init__(self, problem: Phrase):
        super().__init__(problem)
        self.problem = problem


def _request(number: int, line: bytes) -> BatchRequest:
    entry = _object(line)
    for key, value in entry.items():
        if key not in KEYS:
            raise _LineError(phrase("batch_unknown_key", name=key, known=", ".join(KEYS)))
        if not KEYS[key].holds(value):
            raise _wrong(key, KEYS[key].expected, value)
    if ("prompt" in entry) == ("messages" in entry):
        raise _LineError(phrase("batch_prompt_or_messages"))
    for key, expected, value in _wrong_messages(entry.get("messages", [])):
        raise _wrong(key, expected, value)
    params = {key: entry[key] for key in PARAMS if key in entry}
    if isinstance(params.get("stop"), str):
        params["stop"] = [params["stop"]]
    prompt = entry["prompt"] if "prompt" in entry else entry["messages"]
    return BatchRequest(entry.get("id", f"line-{number}"), number, prompt, params)


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
        raise ValueError(constant)  # NaN and the like, which JSON does not have

    try:
        entry = json.loads(line.decode("utf-8"), object_pairs_hook=unique, parse_constant=refused)
    except UnicodeDecodeError:
        raise _LineError(phrase("batch_not_utf8")) from None
    except json.JSONDecodeError as error:
        raise _LineError(phrase("batch_not_json", error=f"{error.msg} ({error.colno})")) from None
    except (ValueError, RecursionError) as error:
        raise _LineError(phrase("batch_not_json", error=str(error)[:SHOWN])) from None
    if not isinstance(entry, dict):
        raise _LineError(phrase("batch_not_object", got=_shown(entry)))
    return entry


def _wrong_messages(messages: list[Any]) -> Iterator[tuple[str, Phrase, Any]]:
    """Yield the name of each message that is wrong, what is expected, and what came."""
    for number, message in enumerate(messages):
        name = f"messages[{number}]"
        if not isinstance(message, dict) or message.keys() != {"role", "content"}:
            yield name, phrase("batch_message"), message
        elif message["role"] not in ROLES:
            yield f"{name}.role", one_of(ROLES), message["role"]
        elif not is_text(message["content"]):
            yield f"{name}.content", phrase("expects_text"), message["content"]


def _wrong(key: str, expected: Phrase, value: object) -> _LineError:
    return _LineError(phrase("batch_value", name=key, expected=expected, got=_shown(value)))


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
