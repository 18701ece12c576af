"""The requests of `tiny-llm batch`: a JSON object on each line of a file, checked before anything is computed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .language import Messages
from .problems import CommandError

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


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != "" and not any("\ud800" <= letter <= "\udfff" for letter in value)


PARAMS: dict[str, Callable[[Any], bool]] = {
    "max_tokens": lambda value: _is_whole(value) and value >= 1,
    "temperature": lambda value: _is_number(value) and value >= 0,
    "top_k": lambda value: _is_whole(value) and value >= 0,
    "top_p": lambda value: _is_number(value) and 0 < value <= 1,
    "min_p": lambda value: _is_number(value) and 0 <= value <= 1,
    "repetition_penalty": lambda value: _is_number(value) and value > 0,
    "seed": lambda value: _is_whole(value) and 0 <= value < 2**64,
    "stop": lambda value: _is_text(value) or (isinstance(value, list) and all(map(_is_text, value))),
    "stop_token_ids": lambda value: isinstance(value, list) and all(map(_is_whole, value)),
    "ignore_eos": lambda value: isinstance(value, bool),
}
KEYS: dict[str, Callable[[Any], bool]] = {  # whose expected values `batch_expects_KEY` of messages.toml says
    "id": _is_text,
    "prompt": _is_text,
    "messages": lambda value: isinstance(value, list) and value != [],
    **PARAMS,
}


def read_requests(file: Path, words: Messages) -> list[BatchRequest]:
    """All requests of a file. Raises a CommandError that names the file, the line and the key of the first mistake."""
    lines = file.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if lines[-1] == b"":
        del lines[-1]
    if not lines:
        raise CommandError(words("batch_no_requests", file=file))
    found: dict[str, BatchRequest] = {}
    for number, line in enumerate(lines, start=1):
        try:
            request = _request(number, line, words)
            if request.id in found:
                raise _LineError(words("batch_id_twice", id=request.id, line=found[request.id].line))
        except _LineError as problem:
            raise CommandError(f"{file}:{number}: {problem}") from None
        found[request.id] = request
    return list(found.values())


class _LineError(Exception):
    """What is wrong with a line."""


def _request(number: int, line: bytes, words: Messages) -> BatchRequest:
    entry = _object(line, words)
    for key, value in entry.items():
        if key not in KEYS:
            raise _LineError(words("batch_unknown_key", name=key, known=", ".join(KEYS)))
        if not KEYS[key](value):
            raise _wrong(key, key, value, words)
    if ("prompt" in entry) == ("messages" in entry):
        raise _LineError(words("batch_prompt_or_messages"))
    for key, expects, value in _wrong_messages(entry.get("messages", [])):
        raise _wrong(key, expects, value, words)
    params = {key: entry[key] for key in PARAMS if key in entry}
    if isinstance(params.get("stop"), str):
        params["stop"] = [params["stop"]]
    prompt = entry["prompt"] if "prompt" in entry else entry["messages"]
    return BatchRequest(entry.get("id", f"line-{number}"), number, prompt, params)


def _object(line: bytes, words: Messages) -> dict[str, Any]:
    if not line.strip():
        raise _LineError(words("batch_empty_line"))

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        for key in keys:
            if keys.count(key) > 1:
                raise _LineError(words("batch_key_twice", name=key))
        return dict(pairs)

    def refused(constant: str) -> None:
        raise ValueError(constant)  # NaN and the like, which JSON does not have

    try:
        entry = json.loads(line.decode("utf-8"), object_pairs_hook=unique, parse_constant=refused)
    except UnicodeDecodeError:
        raise _LineError(words("batch_not_utf8")) from None
    except json.JSONDecodeError as error:
        raise _LineError(words("batch_not_json", error=f"{error.msg} ({error.colno})")) from None
    except (ValueError, RecursionError) as error:
        raise _LineError(words("batch_not_json", error=str(error)[:SHOWN])) from None
    if not isinstance(entry, dict):
        raise _LineError(words("batch_not_object", got=_shown(entry)))
    return entry


def _wrong_messages(messages: list[Any]) -> Iterator[tuple[str, str, Any]]:
    """Of each message that is wrong: what it is called, what is expected, what came."""
    for number, message in enumerate(messages):
        name = f"messages[{number}]"
        if not isinstance(message, dict) or message.keys() != {"role", "content"}:
            yield name, "message", message
        elif message["role"] not in ROLES:
            yield f"{name}.role", "role", message["role"]
        elif not _is_text(message["content"]):
            yield f"{name}.content", "content", message["content"]


def _wrong(key: str, expects: str, value: object, words: Messages) -> _LineError:
    return _LineError(
        words("batch_wrong_value", name=key, expected=words(f"batch_expects_{expects}"), got=_shown(value))
    )


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
