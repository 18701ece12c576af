"""The engine, which takes requests and serves them step by step."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Protocol

import mlx.core as mx

from ..qwen2 import CausalLM
from .batch import Batch
from .cache import RequestCache
from .decoding import Decoding
from .request import Request, Status
from .scheduler import Scheduler

__all__ = ["Engine", "Observer", "batch_logits"]


class Observer(Protocol):
    """An object that the engine notifies of each step and each abort."""

    def on_step(self, engine: "Engine", batch: Batch, touched: Sequence[Request]) -> None:
        """React to the end of the step that computed this batch. touched: the requests that got tokens or finished."""

    def on_abort(self, engine: "Engine", request: Request) -> None:
        """React to the abort of a request between two steps: the client no longer wants the request, or the request
        failed and has an `error`."""


def batch_logits(model: CausalLM, batch: Batch, cache: RequestCache) -> mx.array:
    """Run the model once on all tokens of a batch. Return the logits of the rows that need logits.

    Call the model with the cache from `cache.step`. Each token is a row of its own, in the order of the chunks. The
    last num_logits rows of each chunk need logits.
    Shapes: -> N x V, where N is the sum of all num_logits. model.hidden takes T x 1, and model.logits N x 1 x E.

    Task: w3d1.4
    """
    raise NotImplementedError(
        "Week 3 Day 1 Task 4: batch_logits is yours to write. Chapter: Continuous batching. Test: ./course test w3d1.4"
    )


class Engine:
    """An engine, which serves a scheduler's requests with a model.

    Requests may be added and aborted between any two steps. observers: objects that the engine notifies of steps and
    aborts. is_checked: whether to call `check_integrity` after each step. decoding: the object that chooses tokens.
    """

    def __init__(
        self,
        model: CausalLM,
        scheduler: Scheduler,
        observers: Sequence[Observer] = (),
        is_checked: bool = False,
        decoding: Decoding | None = None,
    ):
        self.model = model
        self.scheduler = scheduler
        self.decoding = Decoding() if decoding is None else decoding
        self.max_length = min(model.config.max_position_embeddings, scheduler.cache.capacity)
        self._observers, self._is_checked = observers, is_checked

    @property
    def has_work(self) -> bool:
        """Tell whether any request waits or runs."""
        return bool(self.scheduler.running or self.scheduler.waiting)

    def add(self, request: Request) -> None:
        """Add a request, which the next steps serve.

        Raises:
            ValueError: a request with the same id is being served; this request was served earlier; the prompt has a
                token id outside the vocabulary, or leaves no room for output in the model's context or in the cache.
        """
        self._check_new(request)
        self.scheduler.add(request)

    def abort(self, id: str, error: Exception | None = None) -> Request | None:
        """End the request with this id at once, and free its room in the cache. Return the request, or None if there is
        no such request.

        error: the exception that ends the request, whose finish_reason becomes "error". None means that the client no
        longer wants the request, whose finish_reason becomes "abort".
        """
        request = self.scheduler.find(id)
        if request is not None:
            self.leave(request)
            request.finish("abort" if error is None else "error", error)
            for observer in self._observers:
                observer.on_abort(self, request)
        return request

    def step(self) -> list[Request]:
        """Reserve, compute and commit one batch. Return the requests that got tokens or finished, in the same order as
        in the batch.

        If the model raises an exception, nothing has been committed, so there is nothing to undo: room stays reserved,
        requests that have begun stay running, and the next step plans the same tokens again. If the sampling of one
        request fails, this request finishes with the error, and all other requests go on.
        """
        batch = self.plan()
        logits = batch_logits(self.model, batch, self.scheduler.cache) if batch.chunks else mx.zeros((0, 0))
        mx.eval(logits)
        touched = self.settle(batch, logits)
        for observer in self._observers:
            observer.on_step(self, batch, touched)
        if self._is_checked:
            self.check_integrity()
        return touched

    def plan(self) -> Batch:
        """Plan the next batch. The cache reserves room for the batch's tokens, but counts none of them as computed."""
        batch = self.scheduler.schedule()
        for chunk in batch.chunks:
            if chunk.request.num_cached_tokens is None:
                chunk.request.num_cached_tokens = chunk.start
        return self.decoding.draft(batch, self.scheduler.cache, self.max_length)

    def settle(self, batch: Batch, logits: mx.array) -> list[Request]:
        """Commit a step: give each request that has logits its next tokens, and count the computed tokens of each
        request.

        `decoding.choose` returns one result for each chunk. Pass the tokens of a result to `Request.add` one after the
        other, with the model's eos_token_ids and this engine's max_length, until the request has finished. If the
        result is an exception, or `add` raises one, finish the request with "error" and that exception. The other
        requests are not affected.
        After that, pass to `cache.commit` how many of the request's tokens are computed: those before chunk.end, but at
        most num_tokens - 1, because the newest token never counts. Call `leave` for a request that has finished. Return
        the requests that have logits, in the order of the batch.
        Shapes: logits: N x V, num_logits rows for each chunk.

        Task: w3d1.4
        """
        raise NotImplementedError(
            "Week 3 Day 1 Task 4: Engine.settle is yours to write. "
            "Chapter: Continuous batching. "
            "Test: ./course test w3d1.4"
        )

    def leave(self, request: Request) -> None:
        """Remove a request from `decoding`, and from the scheduler, which frees the request's room in the cache."""
        self.scheduler.remove(request)
        self.decoding.forget(request)

    def run(self) -> Iterator[Request]:
        """Run steps until no request is left; yield each request when it has finished."""
        while self.has_work:
            for request in self.step():
                if request.finish_reason is not None:
                    yield request

    def check_integrity(self) -> None:
        """Raise AssertionError unless scheduler and cache are in a state that is valid between two steps."""
        self.scheduler.check_integrity()

    def _check_new(self, request: Request) -> None:
        vocab_size, prompt = self.model.config.vocab_size, request.prompt
        if self.scheduler.find(request.id) is not None:
            raise ValueError(f"id: expected one that no other request has, got {request.id!r} again")
        if request.status is not Status.WAITING or request.output:
            raise ValueError(f"request {request.id!r}: expected a new one, got one that was served before")
        if not all(0 <= token < vocab_size for token in prompt):
            raise ValueError(
                f"prompt: expected token ids from 0 to {vocab_size - 1}, got {min(prompt)} to {max(prompt)}"
            )
        if len(prompt) >= self.max_length:
            raise ValueError(
                f"prompt: expected fewer than {self.max_length} tokens, for which there is room, got {len(prompt)}"
            )
