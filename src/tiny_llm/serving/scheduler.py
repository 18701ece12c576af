"""The scheduler: which requests run, and what the next step computes of each."""

from collections import deque
from collections.abc import Iterator

from .batch import Batch, Chunk
from .cache import RequestCache
from .request import Request, Status

__all__ = ["Scheduler"]


class Scheduler:
    """Requests wait in the order in which they came, and run as soon as there is room. A step serves all that run.

    It is for a cache in which whoever runs finds room for all tokens, as slots are.
    waiting, running: the requests, the oldest first. max_running: how many may run at the same time.
    """

    def __init__(self, cache: RequestCache, max_running: int = 16):
        _check_max_running(max_running)
        self.cache = cache
        self.max_running = max_running
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []

    def add(self, request: Request) -> None:
        """One more that waits."""
        self.waiting.append(request)

    def remove(self, request: Request) -> None:
        """A request that is over, or that nobody wants any more: its room in the cache is free at once."""
        if request in self.running:
            self.running.remove(request)
            self.cache.close(request.id)
        else:
            self.waiting.remove(request)

    def find(self, id: str) -> Request | None:
        """The request of this name, if it waits or runs."""
        return next((request for request in self if request.id == id), None)

    def __iter__(self) -> Iterator[Request]:
        """All that run and wait."""
        yield from self.running
        yield from self.waiting

    def pending(self, request: Request) -> int:
        """How many tokens of a running request are not in the cache: the prompt at first, later the newest token."""
        return request.num_tokens - self.cache.length(request.id)

    def begin(self) -> Request | None:
        """Let the oldest waiting request run, if there is one, if fewer than `max_running` run, and if there is room.

        Whether the cache has room for all its tokens, `can_open` says. It leaves the queue, is the last of those that
        run, has the status RUNNING and is open in the cache. Returns it, or None where nothing changed.

        Task: w3d1.3
        """
        raise NotImplementedError(
            "Week 3 Day 1 Task 3: Scheduler.begin is yours to write. "
            "Chapter: Continuous batching. "
            "Test: ./course test w3d1.3"
        )

    def schedule(self) -> Batch:
        """The next step: first as many waiting requests as possible begin; then each that runs has a chunk, the oldest
        first, with all its tokens that are not in the cache yet, and is scored after the last.

        `take` makes a chunk. An empty batch: there is nothing to do.

        Task: w3d1.3
        """
        raise NotImplementedError(
            "Week 3 Day 1 Task 3: Scheduler.schedule is yours to write. "
            "Chapter: Continuous batching. "
            "Test: ./course test w3d1.3"
        )

    def take(self, request: Request, count: int) -> Chunk:
        """A chunk of the next `count` tokens of a running request, for which the cache makes room. It is scored after
        the last token if no token of the request is left."""
        start = self.cache.length(request.id)
        tokens = request.tokens[start : start + count]
        self.cache.extend(request.id, tokens)
        return Chunk(request, tokens, start, scored=int(self.pending(request) == 0))

    def check_integrity(self) -> None:
        """Raise AssertionError unless each request is in one place only, and the cache holds those that run."""
        ids = [request.id for request in self]
        assert len(set(ids)) == len(ids), f"a request is in two places: {ids}"
        assert all(request.status is Status.RUNNING for request in self.running)
        assert all(request.status is Status.WAITING for request in self.waiting)
        assert len(self.running) <= self.max_running
        lengths = {request.id: self.cache.length(request.id) for request in self.running}
        for request in self.running:
            assert lengths[request.id] <= len(request.tokens), f"more is stored of {request.id!r} than there is"
        self.cache.check_integrity(lengths)


def _check_max_running(max_running: int) -> None:
    if max_running < 1:
        raise ValueError(f"max_running: expected 1 or more, got {max_running}")
