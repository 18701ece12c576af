"""The OpenAPI description of this server's requests and answers, made from their pydantic models. Given.

Source: "OpenAPI Specification", version 3.1.1, spec.openapis.org/oas/v3.1.1.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from tiny_llm_given.serving.answers import (
    ChatAnswer,
    ChatChunk,
    CompletionAnswer,
    CompletionChunk,
    Error,
    Health,
    Index,
    Model,
    ModelList,
    Sent,
)

from .protocol import ChatRequest, CompletionRequest

__all__ = ["describe", "index"]

_Json = dict[str, Any]

_PLACE = "#/components/schemas/"
_REQUESTS: tuple[type[BaseModel], ...] = (CompletionRequest, ChatRequest)
_ANSWERS: tuple[type[Sent], ...] = (
    *(CompletionAnswer, CompletionChunk, ChatAnswer, ChatChunk),
    *(Error, Health, Index, Model, ModelList),
)
_ABOUT = (
    "The server refuses every parameter that is not described here, with an error that names the parameter. In a body "
    "and its objects, null means absent. So does an empty text, list or object as the value of a name that is not "
    "described, except web_search_options. Integers have neither fraction nor exponent. No name may be given twice."
)
_INDEX = "This is the base URL of an API like OpenAI's: give it to a client as base_url. Details: /openapi.json"
_EVENTS = "Server-sent events: each event's data is a {}; the last event's data is [DONE]. Late errors are events, too."


def describe(*, has_key: bool, defaults: Mapping[str, Any] | None = None) -> _Json:
    """Return the server's OpenAPI description. has_key: whether clients have to send a key. defaults: the model's own
    default values, keyed by parameter."""
    _, found = models_json_schema(
        [*((each, "validation") for each in _REQUESTS), *((each, "serialization") for each in _ANSWERS)],
        ref_template=_PLACE + "{model}",
        schema_generator=_Untitled,
    )
    schemas = found["$defs"]
    for kind in _REQUESTS:
        for name, value in (defaults or {}).items():
            schemas[kind.__name__]["properties"][name]["default"] = value
    components: _Json = {"schemas": dict(sorted(schemas.items()))}
    if has_key:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "tiny-llm", "version": "1", "description": _ABOUT},
        "paths": _paths([401] if has_key else []),
        "components": components,
        "security": [{"key": []}] if has_key else [],
    }


def index(description: Mapping[str, Any]) -> Index:
    """Return the answer to a GET of the base URL: how to use this URL, and the endpoints in the description."""
    paths = description["paths"].items()
    endpoints = [f"{method.upper()} {path}" for path, found in paths for method in found if method in ("get", "post")]
    return Index(message=_INDEX, endpoints=endpoints)


class _Untitled(GenerateJsonSchema):
    """A schema generator that leaves out the titles of fields, which would only repeat the fields' names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _paths(refused: Sequence[int]) -> _Json:
    """Return the description of each path. refused: the statuses with which guarded paths refuse a client."""
    text = {"text/plain": {"schema": {"type": "string"}}}
    name = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
    health = {status: _response(status, _json(Health)) for status in (200, 503)}
    found = {
        "/health": {"get": _operation("health", health) | {"security": []}},
        "/metrics": {"get": _operation("metrics", {200: _response(200, text), **_errors(refused)})},
        "/v1": {"get": _operation("index", {200: _response(200, _json(Index))}) | {"security": []}},
        "/v1/models": {"get": _operation("list_models", {200: _response(200, _json(ModelList)), **_errors(refused)})},
        "/v1/models/{model}": {
            "get": _operation("retrieve_model", {200: _response(200, _json(Model)), **_errors([*refused, 404])}),
            "parameters": [name],
        },
    }
    errors = _errors(sorted([*refused, 400, 404, 413, 415, 429, 500, 503, 504]))
    for path, asked, whole, chunk in (
        ("completions", CompletionRequest, CompletionAnswer, CompletionChunk),
        ("chat/completions", ChatRequest, ChatAnswer, ChatChunk),
    ):
        stream = {"schema": {"type": "string", "description": _EVENTS.format(chunk.__name__)}}
        answer = _response(200, _json(whole) | {"text/event-stream": stream})
        body = {"required": True, "content": _json(asked)}
        operation = _operation(f"create_{path.replace('/', '_')}", {200: answer, **errors})
        found[f"/v1/{path}"] = {"post": operation | {"requestBody": body}}
    return found


def _operation(name: str, responses: Mapping[int, _Json]) -> _Json:
    return {"operationId": name, "responses": {str(status): each for status, each in responses.items()}}


def _errors(statuses: Sequence[int]) -> dict[int, _Json]:
    return {status: _response(status, _json(Error)) for status in statuses}


def _response(status: int, content: _Json) -> _Json:
    return {"description": HTTPStatus(status).phrase, "content": content}


def _json(kind: type[BaseModel]) -> _Json:
    return {"application/json": {"schema": {"$ref": _PLACE + kind.__name__}}}
