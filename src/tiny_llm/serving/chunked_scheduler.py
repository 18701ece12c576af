"""A scheduler with a budget of tokens for each step, so that a long prompt does not keep others waiting."""

from collections.abc import Sequence

from .batch import Batch, Chunk
from .cache import RequestCache
from .scheduler import Scheduler

__all__ = ["ChunkedScheduler"]


class ChunkedScheduler(Scheduler):
    """A prompt is computed in chunks, as much of it in a step as the tokens that are generated leave of the budget.

    It is for a cache in which whoever runs finds room for all tokens; for pages there is `PreemptingScheduler`.
    token_budget: how many tokens a step may have, of all requests together. It is at least max_running, so that each
    request that generates gets its token in each step.

    Source: Agrawal et al. 2024, "Taming Throughput-Latency Tradeoff in LLM Inference with Sarathi-Serve", section 4,
    arXiv:2403.02310.

    Raises:
        ValueError: token_budget is less than max_running.
    """

    def __init__(self, cache: RequestCache, max_running: int = 16, token_budget: int = 256):
        super().__init__(cache, max_running)
        _check_budget(token_budget, max_running)
        self.token_budget = token_budget

    def schedule(self) -> Batch:
        """The next step: first a chunk for each running request that has one pending token, then for those that have
        more of them, then for waiting requests, which begin; each in the order in which they came.

        A chunk has all pending tokens of its request, or as many as are left of the budget. No chunk is empty, and no
        request begins for which nothing is left. A request whose stored tokens were lost has many pending ones, and
        counts as those that have more.

        Task: w3d2.1
        """
        raise NotImplementedError(
            "Week 3 Day 2 Task 1: ChunkedScheduler.schedule is yours to write. "
            "Chapter: Chunked prefill. "
            "Test: ./course test w3d2.1"
        )

    def left(self, chunks: Sequence[Chunk]) -> int:
        """What these chunks leave of the budget."""
        return self.token_budget - sum(len(chunk.tokens) for chunk in chunks)


def _check_budget(token_budget: int, max_running: int) -> None:
    if token_budget < max_running:
        raise ValueError(
            f"token_budget: expected at least max_running ({max_running}), so that each request that generates gets a "
            f"token in each step, got {token_budget}"
        )
