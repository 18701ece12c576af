"""The scheduler, which decides which requests run, and which of their tokens the next step computes."""

import sys
from collections import deque
from collections.abc import Iterator, Sequence

from .batch import Batch, Chunk
from .cache import RequestCache
from .request import Request, Status

__all__ = ["Budget", "PreemptNewest", "Preemption", "Scheduler", "TokenBudget"]


class Budget:
    """The budget of a step. This class sets no limit: a step computes all pending tokens of all running requests, even
    whole prompts.

    num_tokens: how many tokens a step may compute, for all requests together.
    """

    num_tokens = sys.maxsize

    def order(self, running: Sequence[Request]) -> list[Request]:
        """Return the running requests, as a new list, in the order in which the budget gives them tokens."""
        return list(running)


class TokenBudget(Budget):
    """A budget that divides a long prompt into chunks: each step computes as many of the prompt's tokens as the other
    requests leave in the budget.

    num_tokens: how many tokens a step may compute, for all requests together.
    Source: Agrawal et al. 2024, "Taming Throughput-Latency Tradeoff in LLM Inference with Sarathi-Serve", section 4,
    arXiv:2403.02310.
    """

    def __init__(self, num_tokens: int = 256):
        self.num_tokens = num_tokens

    def order(self, running: Sequence[Request]) -> list[Request]:
        """Return first the requests that have one pending token, then the requests that have several, each group in the
        order of `running`.

        So every request that generates gets its token in every step, and prompts share the rest of the budget.

        Task: w3d2.1
        """
        return sorted(running, key=lambda request: request.num_pending > 1)


class Preemption:
    """The way to make room for running requests. This class raises an error if there is no room, because it is made for
    a cache of slots, in which every running request has room."""

    def make_room(self, scheduler: "Scheduler", request: Request, count: int, batch: Batch) -> bool:
        """Reserve room for `count` more tokens of a running request. Return False if the request gets no chunk in this
        step.

        batch: the plan of this step so far.
        """
        if not scheduler.cache.reserve(request, count):
            raise RuntimeError(f"no room for {count} more tokens of {request.id!r}, and nobody may be preempted")
        return True


class PreemptNewest(Preemption):
    """A `Preemption` for a paged cache: if there is no room, the newest running request loses its pages, and waits
    for room again.

    Source: Kwon et al. 2023, "Efficient Memory Management for Large Language Model Serving with PagedAttention",
    section 4.5, arXiv:2309.06180.
    """

    def make_room(self, scheduler: "Scheduler", request: Request, count: int, batch: Batch) -> bool:
        """Reserve room for `count` more tokens of a request. Until there is room, preempt the newest running request.

        The newest running request may be this request itself, which then gets no chunk in this step: return False.
        Return False, too, for a request that was preempted earlier in this step.

        Task: w3d3.4
        """
        while request.status is Status.RUNNING:
            if scheduler.cache.reserve(request, count):
                return True
            self.preempt(scheduler, scheduler.running[-1], batch)
        return False

    def preempt(self, scheduler: "Scheduler", request: Request, batch: Batch) -> None:
        """Stop a running request: it leaves the cache, and becomes the first in `waiting`, with the status WAITING.

        The request keeps its prompt and output, whose keys and values are computed again once there is room. Withdraw
        its chunk, if it has one, from the batch, and append its id to `batch.preempted`.

        Task: w3d3.4
        """
        scheduler.running.remove(request)
        scheduler.cache.close(request)
        request.status = Status.WAITING
        scheduler.waiting.appendleft(request)
        batch.withdraw(request)
        batch.preempted.append(request.id)


class Scheduler:
    """A scheduler, in which requests wait in order of arrival and run as soon as there is room. A step serves all
    running requests.

    waiting, running: the requests, the oldest first. max_running: how many requests may run at the same time.
    budget: the object that limits the tokens of a step, and orders the requests that share these tokens (day 2).
    preemption: the object that makes room for running requests (day 3).

    Raises:
        ValueError: max_running is less than 1, or larger than the number of tokens in the budget: then in some steps, a
            request that generates would get no token.
    """

    def __init__(
        self,
        cache: RequestCache,
        max_running: int = 16,
        budget: Budget | None = None,
        preemption: Preemption | None = None,
    ):
        self.cache = cache
        self.max_running = max_running
        self.budget = Budget() if budget is None else budget
        self.preemption = Preemption() if preemption is None else preemption
        _check_max_running(max_running, self.budget)
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []

    def add(self, request: Request) -> None:
        """Append a request to `waiting`."""
        self.waiting.append(request)

    def remove(self, request: Request) -> None:
        """Remove a request that finished, or that its client no longer wants. Free the request's room in the cache."""
        if request in self.running:
            self.running.remove(request)
            self.cache.close(request)
        else:
            self.waiting.remove(request)

    def find(self, id: str) -> Request | None:
        """Return the waiting or running request with this id; None if there is no such request."""
        return next((request for request in self if request.id == id), None)

    def __iter__(self) -> Iterator[Request]:
        """Yield all running requests, then all waiting requests."""
        yield from self.running
        yield from self.waiting

    def begin(self) -> Request | None:
        """Let the oldest waiting request run, if fewer than `max_running` requests run, and if there is room.

        `cache.open` reserves room for all tokens of the request, or returns False. Move the request from the front of
        `waiting` to the end of `running`, with the status RUNNING. Return the request, or None if nothing changed.

        Task: w3d1.3
        """
        if not self.waiting or len(self.running) >= self.max_running or not self.cache.open(self.waiting[0]):
            return None
        request = self.waiting.popleft()
        request.status = Status.RUNNING
        self.running.append(request)
        return request

    def schedule(self) -> Batch:
        """Plan the next step, and reserve room for it.

        First, each running request gets a chunk, in the order that `budget.order` gives, with as many of its pending
        tokens as `left` allows. `preemption.make_room` reserves room for the chunk; if it returns False, add no chunk.
        Do not call `make_room` for a request if the budget has no tokens left. Then let waiting requests `begin`, each
        with a chunk, while the budget has tokens left. No request begins in a step that preempted a request.

        `take` makes a chunk. An empty batch means that there is nothing to do.

        Task: w3d1.3
        """
        batch = Batch()
        for request in self.budget.order(self.running):
            count = min(request.num_pending, self.left(batch))
            if count and self.preemption.make_room(self, request, count, batch):
                batch.add(self.take(request, count))
        while not batch.preempted and self.left(batch) and (begun := self.begin()):
            batch.add(self.take(begun, min(begun.num_pending, self.left(batch))))
        return batch

    def left(self, batch: Batch) -> int:
        """Return how many tokens of the budget a batch does not use."""
        return self.budget.num_tokens - batch.num_tokens

    def take(self, request: Request, count: int) -> Chunk:
        """Return a chunk of the next `count` pending tokens of a request. The chunk's last row needs logits if no token
        after the chunk is pending."""
        start = request.num_computed_tokens
        tokens = request.tokens[start : start + count]
        return Chunk(request, tokens, start, int(count == request.num_pending), request.pages)

    def check_integrity(self) -> None:
        """Raise AssertionError unless each request waits or runs, and the cache holds exactly the running requests."""
        ids = [request.id for request in self]
        assert len(set(ids)) == len(ids), f"a request is in two places: {ids}"
        assert all(request.status is Status.RUNNING for request in self.running)
        assert all(request.status is Status.WAITING for request in self.waiting)
        assert len(self.running) <= self.max_running
        for request in self.running:
            assert request.num_pending > 0, f"more is computed of {request.id!r} than there is"
        for request in self.waiting:
            assert not request.pages, f"{request.id!r} waits, and has pages"
            assert not request.num_computed_tokens, f"{request.id!r} waits, and has computed tokens"
        self.cache.check_integrity(self.running)


def _check_max_running(max_running: int, budget: Budget) -> None:
    if max_running < 1:
        raise ValueError(f"max_running: expected 1 or more, got {max_running}")
    if budget.num_tokens < max_running:
        raise ValueError(
            f"token budget: expected at least max_running ({max_running}), so that each request that generates gets a "
            f"token in each step, got {budget.num_tokens}"
        )
