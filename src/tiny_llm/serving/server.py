"""An OpenAI-compatible server, which connects HTTP clients with an `AsyncEngine`."""

import secrets
import time
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tiny_llm_given.generation_config import Sampling
from tiny_llm_given.serving.answers import Health, Model, ModelList, Sent
from tiny_llm_given.serving.api_error import ApiError
from tiny_llm_given.serving.hosts import LocalHosts
from tiny_llm_given.serving.parsing import parse
from tiny_llm_given.serving.retry_after import RetryAfter
from tiny_llm_given.serving.room import TooLongError

from ..thinking import Thoughts
from .async_engine import AsyncEngine, Counts, EngineStoppedError, QueueFullError, Update
from .choices import Choice
from .event_stream import EventStream, merged, until_gone
from .handlers import HANDLERS, refusal
from .metrics import Metrics
from .openapi import describe, index
from .prompts import Prompts
from .protocol import ChatRequest, CompletionRequest, GenerationRequest
from .request import Request
from .responses import ChatWriter, CompletionWriter, Writer, joined

__all__ = ["Limits", "ServedModel", "Server"]

_T = TypeVar("_T")
_LARGE = 1 << 16  # bytes: parsing a body of this size in the event loop would make other clients wait
_Handler: TypeAlias = Callable[[HttpRequest], Coroutine[Any, Any, ASGIApp]]


@dataclass(frozen=True)
class ServedModel:
    """The model that is served. max_length: how many tokens a prompt and its answer may have together. has_drafts:
    whether the engine decodes speculatively. sampling: the default settings of requests; None means OpenAI's defaults.
    """

    name: str
    tokenizer: Any
    max_length: int
    has_drafts: bool = False
    sampling: Sampling | None = None


@dataclass(frozen=True)
class Limits:
    """The limits for clients. max_body: how many bytes a body may have. timeout: how many seconds a request may take.
    api_key: the key that clients have to send; None means that no key is needed. origins: the origins of web pages,
    other than the server's own, whose scripts may send requests. names: the names that a request's Host header may
    contain, in addition to this machine's local names; None means any name."""

    max_body: int = 1 << 20
    timeout: float = 600.0
    api_key: str | None = None
    origins: Sequence[str] = ()
    names: Collection[str] | None = None


class Server:
    """The endpoints of the server: all steps from an HTTP request to its response."""

    def __init__(self, engine: AsyncEngine, model: ServedModel, metrics: Metrics, limits: Limits | None = None):
        self.engine, self.model, self.metrics = engine, model, metrics
        self.limits = Limits() if limits is None else limits
        self._created = int(time.time())
        self._prompts = Prompts(model.tokenizer, model.max_length)
        self._retry_after = RetryAfter()

    def app(self, more: Sequence[Route] = ()) -> Starlette:
        """Return the application, with the routes in `more` added to its own. The engine must be running."""
        has_key = self.limits.api_key is not None
        description = describe(has_key=has_key, defaults=self.model.sampling)
        routes = [
            Route("/health", self.health),
            Route("/openapi.json", JSONResponse(description), methods=["GET"]),
            Route("/v1", _response(index(description)), methods=["GET"]),
            Route("/metrics", self.guarded(self.show_metrics)),
            Route("/v1/models", self.guarded(self.models)),
            Route("/v1/models/{name:path}", self.guarded(self.one_model)),
            Route("/v1/completions", self.guarded(self.complete), methods=["POST"]),
            Route("/v1/chat/completions", self.guarded(self.chat), methods=["POST"]),
            *more,
        ]
        return Starlette(routes=routes, middleware=list(self._middleware()), exception_handlers=HANDLERS)

    def _middleware(self) -> Iterator[Middleware]:
        """Yield the middleware through which a request passes on its way to the routes."""
        if self.limits.names is not None:
            yield Middleware(LocalHosts, names=self.limits.names)
        if origins := list(self.limits.origins):
            yield Middleware(CORSMiddleware, allow_origins=origins, allow_methods=["*"], allow_headers=["*"])

    def guarded(self, handler: _Handler) -> _Handler:
        """Return a handler that refuses clients that do not send the key."""

        async def guarded(request: HttpRequest) -> ASGIApp:
            key, (scheme, _, given) = self.limits.api_key, request.headers.get("authorization", "").partition(" ")
            knows = scheme.lower() == "bearer" and secrets.compare_digest(given.strip().encode(), (key or "").encode())
            if key is not None and not knows:
                raise ApiError(
                    401,
                    "Authorization: expected `Bearer KEY` with this server's key",
                    code="invalid_api_key",
                    headers={"WWW-Authenticate": "Bearer"},
                )
            return await handler(request)

        return guarded

    async def health(self, request: HttpRequest) -> Response:
        is_well = not self.engine.is_stopping
        return _response(Health(status="ok" if is_well else "stopping"), 200 if is_well else 503)

    async def show_metrics(self, request: HttpRequest) -> Response:
        return PlainTextResponse(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def models(self, request: HttpRequest) -> Response:
        return _response(ModelList(object="list", data=[self._about_model()]))

    async def one_model(self, request: HttpRequest) -> Response:
        self._check_model(request.path_params["name"])
        return _response(self._about_model())

    async def complete(self, request: HttpRequest) -> ASGIApp:
        body = await self.read(CompletionRequest, request)
        prompts = await self._unless_gone(request, self._encoded(body.prompt), "prompt")
        writer = CompletionWriter("cmpl-" + secrets.token_hex(12), int(time.time()), body.model, self.model.tokenizer)
        return await self.answer(request, body, prompts, writer)

    async def _encoded(self, prompts: Sequence[str | list[int]]) -> list[tuple[list[int], str]]:
        return [await self._prompts.encode(prompt) for prompt in prompts]

    async def chat(self, request: HttpRequest) -> ASGIApp:
        body = await self.read(ChatRequest, request)
        messages = [message.as_template() for message in body.messages]
        thinking = await self._unless_gone(request, self._prompts.thinking(), "messages")
        name, wanted = body.wants_thinking
        try:
            thinks = thinking.choose(wanted)
        except ValueError as error:
            raise ApiError(400, f"{name}: {error}", param=name) from None
        tokens = await self._unless_gone(request, self._prompts.encode_chat(messages, thinks), "messages")
        writer = ChatWriter("chatcmpl-" + secrets.token_hex(12), int(time.time()), body.model, self.model.tokenizer)
        return await self.answer(request, body, [(tokens, "")], writer, partial(thinking.thoughts, thinks))

    async def read(self, kind: Any, request: HttpRequest) -> Any:
        """Read and check the body of a client's request."""
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise ApiError(415, "Content-Type: expected application/json")  # CORS lets any web page send other types
        body, most = bytearray(), self.limits.max_body
        async for part in request.stream():
            body += part
            if len(body) > most:
                raise ApiError(413, f"body: expected {most} bytes at most, got more", code="request_too_large")
        if len(body) < _LARGE:
            found = parse(kind, bytes(body))
        else:
            found = await self._unless_gone(request, self._prompts.parse(lambda: parse(kind, bytes(body))))
        found = found.filled_in(self.model.sampling or {})
        self._admit(found.n * len(getattr(found, "prompt", [""])))  # before encoding, which may take long
        self._check_model(found.model)
        if max(found.biases, default=0) >= (size := self._prompts.size):
            raise ApiError(400, f"logit_bias: expected token ids below {size}", param="logit_bias")
        if self.model.has_drafts and (found.changes_logits or found.num_logprobs is not None):
            name = (
                "logprobs" if found.num_logprobs is not None else "logit_bias, presence_penalty and frequency_penalty"
            )
            raise ApiError(400, f"{name}: not supported by a server that guesses (--draft)")
        return found

    async def answer(
        self,
        request: HttpRequest,
        body: GenerationRequest,
        prompts: Sequence[tuple[list[int], str]],
        writer: Writer,
        thoughts: Callable[[], Thoughts | None] = lambda: None,
    ) -> ASGIApp:
        """Serve n choices for each prompt. Return the whole answer, or a stream of its pieces. thoughts: a function
        that makes the reader of a choice's thinking."""
        choices = []
        for tokens, text in prompts:
            max_tokens = self._max_tokens(body, len(tokens))
            echoed = text if getattr(body, "echo", False) else ""
            choices += [Choice(tokens, echoed, body, i, max_tokens, thoughts()) for i in range(body.n)]
        self._admit(len(choices))
        if body.stream:
            return EventStream(self.events(choices, writer, body.has_usage), self.limits.timeout)
        return _response(await until_gone(request.receive, self.collect(choices, writer), self.limits.timeout))

    async def collect(self, choices: Sequence[Choice], writer: Writer) -> Sent:
        """Wait for all updates, and return the whole answer."""
        found: list[list[Update]] = [[] for _ in choices]
        async with aclosing(self.updates(choices)) as updates:
            async for index, update in updates:
                found[index].append(update)
        return writer.answer([joined(each) for each in found])

    async def events(self, choices: Sequence[Choice], writer: Writer, has_usage: bool) -> AsyncGenerator[str, None]:
        """Yield the events of a stream, each as JSON, and [DONE] after the last event."""
        begun, counts = set[int](), Counts()
        async with aclosing(self.updates(choices)) as updates:
            async for index, update in updates:
                if index not in begun:
                    begun.add(index)
                    if (first := writer.begin(index)) is not None:
                        yield first.as_json()
                if update.tokens or update.text or update.finish_reason:
                    yield writer.chunk(index, update).as_json()
                if update.counts is not None:
                    counts += update.counts
        if has_usage:
            yield writer.end(counts).as_json()
        yield "[DONE]"

    async def updates(self, choices: Sequence[Choice]) -> AsyncGenerator[tuple[int, Update], None]:
        """Yield the updates of all choices as they come, each with the index of its choice. Raises ApiError if a choice
        fails or is refused."""

        def make(choice: Choice) -> Request:
            request = choice.make_request(self.model.tokenizer)
            self.metrics.arrive(request)
            return request

        streams = [self.engine.generate(partial(make, choice)) for choice in choices]
        self._retry_after.begin(len(choices))
        were_served = True
        try:
            async with aclosing(merged(streams)) as updates:
                async for index, update in updates:
                    if update.error is not None:
                        raise ApiError(500, f"the request failed: {update.error}", kind="server_error")
                    if update.finish_reason == "abort":
                        raise EngineStoppedError("expected a running server, got one shutting down: ask again later")
                    yield index, choices[index].take(update)
        except (QueueFullError, EngineStoppedError, ValueError) as error:
            were_served = False
            raise refusal(error, partial(self._retry_after.seconds, len(choices))) from None
        finally:
            self._retry_after.end(len(choices), were_served=were_served)

    def _admit(self, count: int) -> None:
        try:
            self.engine.check_open(count)
        except (QueueFullError, EngineStoppedError) as error:
            raise refusal(error, partial(self._retry_after.seconds, count)) from None

    def _max_tokens(self, body: GenerationRequest, length: int) -> int:
        """Return how many tokens the output may have: as many as the client asked for, or all that fit the context."""
        room = self.model.max_length - length
        wanted = body.max_tokens or body.default_max_tokens or room
        if room < 1 or (wanted > room and (body.max_tokens or isinstance(body, ChatRequest))):
            raise ApiError(
                400,
                f"expected {self.model.max_length} tokens at most, of prompt and output, got {length} and "
                f"{max(wanted, 1)}",
                code="context_length_exceeded",
            )
        return min(wanted, room)

    async def _unless_gone(self, request: HttpRequest, work: Coroutine[Any, Any, _T], param: str | None = None) -> _T:
        """Do `work`, which precedes the answer, and return its result. param: the parameter that a ValueError is about.

        Raises:
            ApiError: the work raised a ValueError.
            ClientGoneError: the client left.
        """
        try:
            return await until_gone(request.receive, work, self.limits.timeout)
        except TooLongError as error:
            raise ApiError(400, str(error), code="context_length_exceeded") from None
        except ValueError as error:
            raise ApiError(400, str(error), param=param) from None

    def _check_model(self, name: str) -> None:
        if name != self.model.name:
            raise ApiError(
                404, f"model: expected {self.model.name!r}, got {name!r}", param="model", code="model_not_found"
            )

    def _about_model(self) -> Model:
        return Model(id=self.model.name, object="model", created=self._created, owned_by="tiny-llm")


def _response(answer: Sent, status: int = 200) -> Response:
    return Response(answer.as_json(), status, media_type="application/json")
