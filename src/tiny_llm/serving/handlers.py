"""The answers that clients get when something goes wrong. Given."""

from collections.abc import Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from tiny_llm_given.serving.api_error import ApiError

from .async_engine import EngineStoppedError, QueueFullError
from .event_stream import ClientGoneError

__all__ = ["HANDLERS", "refusal"]


def refusal(error: Exception, wait: Callable[[], int]) -> ApiError:
    """Return the error to send to a client whose request was refused with `error`. wait: a function that returns
    how many seconds the client should wait before its next try."""
    if isinstance(error, QueueFullError):
        headers = {"Retry-After": str(wait())}
        return ApiError(429, str(error), kind="rate_limit_error", code="queue_full", headers=headers)
    if isinstance(error, EngineStoppedError):
        return ApiError(503, str(error), kind="server_error", code="stopping", headers={"Retry-After": "10"})
    return ApiError(400, str(error))


async def _api_error(request: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return JSONResponse(error.body, error.status, error.headers)


async def _http_error(request: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}; GET /v1 lists the endpoints"
    return await _api_error(request, ApiError(error.status_code, message, headers=error.headers))


async def _nobody_there(request: HttpRequest, error: Exception) -> Response:
    return Response(status_code=499)


async def _unexpected(request: HttpRequest, error: Exception) -> Response:
    return await _api_error(request, ApiError(500, "the server failed; its log says how", kind="server_error"))


HANDLERS: dict[Any, Callable[..., Any]] = {
    ApiError: _api_error,
    HTTPException: _http_error,
    ClientGoneError: _nobody_there,
    ClientDisconnect: _nobody_there,
    Exception: _unexpected,
}
