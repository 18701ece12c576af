"""What this server understands and answers, for programs to read. It is made from the models and classes that do it.
Given.

Source: "OpenAPI Specification", version 3.1.1, spec.openapis.org/oas/v3.1.1.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from tiny_llm_given.serving.api_error import ApiError

from .protocol import ChatRequest, CompletionRequest
from .responses import Answer, ChatAnswer, CompletionAnswer, Piece, Usage

__all__ = ["describe", "index"]

_Json = dict[str, Any]

_PLACE = "#/components/schemas/"
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number"}
_ABOUT = (
    "Whatever is not described here is refused, with an error that names it. In a body and its objects, null means "
    "absent. So does an empty text, list or object under a name that is not described, except web_search_options. "
    "Integers have neither fraction nor exponent, and a name is given once."
)
_INDEX = "This is the base URL of an API like OpenAI's: give it to a client as base_url. Details: /openapi.json"
_EVENTS = "Server-sent events: the data of each is a {}, of the last [DONE]. An error that comes late is an event, too."


def describe(model: Mapping[str, Any], *, has_key: bool, defaults: Mapping[str, Any] | None = None) -> _Json:
    """Return the server's OpenAPI description. model: what the server tells of its model. has_key: whether clients have
    to know a key. defaults: the model's own defaults of parameters."""
    _, requests = models_json_schema(
        [(CompletionRequest, "validation"), (ChatRequest, "validation")],
        ref_template=_PLACE + "{model}",
        schema_generator=_Untitled,
    )
    for kind in (CompletionRequest, ChatRequest):
        for name, value in (defaults or {}).items():
            requests["$defs"][kind.__name__]["properties"][name]["default"] = value
    for schema in requests["$defs"].values():
        _or_null(schema)
    schemas = {**requests["$defs"], **_answers(model)}
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


def index(description: Mapping[str, Any]) -> _Json:
    """Return what the base URL answers: how to use it, and a description's endpoints."""
    paths = description["paths"].items()
    endpoints = [f"{method.upper()} {path}" for path, found in paths for method in found if method in ("get", "post")]
    return {"message": _INDEX, "endpoints": endpoints}


class _Untitled(GenerateJsonSchema):
    """A generator that gives no title to a field, which would only repeat its name."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _or_null(schema: _Json) -> None:
    """Allow null for what may be left out, as `parse` does."""
    for name, field in schema["properties"].items():
        if name not in schema.get("required", []) and {"type": "null"} not in field.get("anyOf", []):
            about = {key: field.pop(key) for key in ("default", "description") if key in field}
            schema["properties"][name] = {"anyOf": [*field.get("anyOf", [field]), {"type": "null"}], **about}


def _paths(refused: Sequence[int]) -> _Json:
    """Return the description of each path. refused: the statuses that each guarded path may have."""
    text = {"text/plain": {"schema": {"type": "string"}}}
    name = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
    health = {status: _response(status, _json("Health")) for status in (200, 503)}
    found = {
        "/health": {"get": _operation("health", health) | {"security": []}},
        "/metrics": {"get": _operation("metrics", {200: _response(200, text), **_errors(refused)})},
        "/v1": {"get": _operation("index", {200: _response(200, _json("Index"))}) | {"security": []}},
        "/v1/models": {"get": _operation("list_models", {200: _response(200, _json("ModelList")), **_errors(refused)})},
        "/v1/models/{model}": {
            "get": _operation("retrieve_model", {200: _response(200, _json("Model")), **_errors([*refused, 404])}),
            "parameters": [name],
        },
    }
    errors = _errors(sorted([*refused, 400, 404, 413, 415, 429, 500, 503, 504]))
    for path, kind in (("completions", "Completion"), ("chat/completions", "Chat")):
        stream = {"schema": {"type": "string", "description": _EVENTS.format(f"{kind}Chunk")}}
        answer = _response(200, _json(f"{kind}Answer") | {"text/event-stream": stream})
        body = {"required": True, "content": _json(f"{kind}Request")}
        operation = _operation(f"create_{path.replace('/', '_')}", {200: answer, **errors})
        found[f"/v1/{path}"] = {"post": operation | {"requestBody": body}}
    return found


def _operation(name: str, responses: Mapping[int, _Json]) -> _Json:
    return {"operationId": name, "responses": {str(status): each for status, each in responses.items()}}


def _errors(statuses: Sequence[int]) -> dict[int, _Json]:
    return {status: _response(status, _json("Error")) for status in statuses}


def _response(status: int, content: _Json) -> _Json:
    return {"description": HTTPStatus(status).phrase, "content": content}


def _json(name: str) -> _Json:
    return {"application/json": {"schema": {"$ref": _PLACE + name}}}


def _answers(model: Mapping[str, Any]) -> _Json:
    """Return the schemas of what the server sends, found by looking at it."""
    errors = [ApiError(400, "", param=each, code=each).body for each in ("", None)]
    found = {
        "Error": _shape(*errors),
        "Health": _shape({"status": "ok"}),
        "Index": _shape({"message": "", "endpoints": [""]}),
        "Model": _shape(dict(model)),
        "ModelList": _shape({"object": "list", "data": [dict(model)]}),
    }
    for name, answer in (
        ("Completion", CompletionAnswer("", 0, "", None)),
        ("Chat", ChatAnswer("", 0, "", None)),
    ):
        choices = [answer.choice(0, each) for each in (Piece(reason="stop"), Piece("", "", "stop", []))]
        found[f"{name}Answer"] = _shape(answer.complete(choices, Usage()))
        found[f"{name}Chunk"] = _shape(*_chunks(answer))
    return found


def _chunks(answer: Answer) -> list[_Json]:
    """Return one chunk of each kind."""
    pieces = (Piece("text"), Piece("", "text", "stop", []))
    deltas = [answer.begin(0), *(answer.delta(0, piece) for piece in pieces)]
    return [answer.part([each for each in deltas if each is not None]), answer.part([], Usage())]


def _shape(*samples: Any) -> _Json:
    """Return a schema that all samples fit."""
    values = [each for each in samples if each is not None]
    if len(values) < len(samples):
        return {"anyOf": [_shape(*values), {"type": "null"}]} if values else {"type": "null"}
    if isinstance(samples[0], dict):
        names = {name: [each[name] for each in samples if name in each] for each in samples for name in each}
        required = [name for name, found in names.items() if len(found) == len(samples)]
        return {"type": "object", "properties": {k: _shape(*v) for k, v in names.items()}, "required": required}
    if isinstance(samples[0], list):
        items = [item for each in samples for item in each]
        return {"type": "array", "items": _shape(*items) if items else {}}
    return {"type": _TYPES[type(samples[0])]}
