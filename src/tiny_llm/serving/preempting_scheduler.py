"""A scheduler for a cache that may run out of room: the newest request then gives way, and is computed again later."""

from .batch import Batch, Chunk
from .chunked_scheduler import ChunkedScheduler
from .request import Request, Status

__all__ = ["PreemptingScheduler"]


class PreemptingScheduler(ChunkedScheduler):
    """As `ChunkedScheduler`, for a cache in which a running request may find no room for its next tokens.

    A preempted request loses what is stored of it, and keeps prompt and output: it waits again, before all others, and
    once there is room, all its tokens are computed anew.

    Source: Kwon et al. 2023, "Efficient Memory Management for Large Language Model Serving with PagedAttention",
    section 4.5, arXiv:2309.06180.
    """

    def preempt(self, request: Request) -> None:
        """Stop a running request: it leaves the cache, and is the first of those that wait, with the status WAITING.

        Task: w3d3.4
        """
        raise NotImplementedError(
            "Week 3 Day 3 Task 4: PreemptingScheduler.preempt is yours to write. "
            "Chapter: A paged KV cache. "
            "Test: ./course test w3d3.4"
        )

    def schedule(self) -> Batch:
        """As in `ChunkedScheduler`; but where there is no room for a chunk, the newest of all running requests is
        preempted, and again, until there is room, be it the request itself for which there was none.

        Who has no tokens in this step needs no room. A chunk that a preempted request had is taken back. The batch
        names who was preempted, in that order. In a step that preempts, no waiting request begins.

        Task: w3d3.4
        """
        raise NotImplementedError(
            "Week 3 Day 3 Task 4: PreemptingScheduler.schedule is yours to write. "
            "Chapter: A paged KV cache. "
            "Test: ./course test w3d3.4"
        )
