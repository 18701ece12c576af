"""The file of a recorded run, which `batch --record` writes and `viz schedule` reads."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from tiny_llm_given.serving.messages import Text

__all__ = ["FORMAT", "VERSION", "RunAbort", "RunChunk", "RunFile", "RunPages", "RunRequest", "RunStep"]

FORMAT: Literal["tiny-llm run"] = "tiny-llm run"
VERSION: Literal[2] = 2
_END = 2**53  # JavaScript represents all whole numbers less than this number exactly
Count = Annotated[int, Field(ge=0, lt=_END)]
Size = Annotated[int, Field(ge=1, lt=_END)]
Seconds = Annotated[float, Field(ge=0)]  # since the recorder was created


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class RunChunk(_Part):
    """The tokens of one request that a step computed: positions from `start` up to but not including `start + length`.
    scored: the number of these tokens for which logits were computed."""

    id: Text
    start: Count
    length: Size
    scored: Count


class RunStep(_Part):
    """A step. time: the time at which the step ended. generated: the number of tokens added to outputs. preempted: the
    requests preempted before anything was computed. finished: the requests that ended with this step, each with the
    reason. pages_used: the number of pages that running requests hold. pages_kept: the number of pages that only the
    prefix tree holds. pages_used and pages_kept are None if the cache has no pages."""

    time: Seconds
    chunks: list[RunChunk]
    generated: Count
    preempted: list[Text]
    finished: dict[str, Text]
    running: Count
    waiting: Count
    pages_used: Count | None = None
    pages_kept: Count | None = None


class RunPages(_Part):
    count: Size
    size: Size


class RunRequest(_Part):
    prompt: Count  # number of tokens


class RunAbort(_Part):
    """A request that was aborted after `step` steps."""

    id: Text
    time: Seconds = 0.0
    step: Count


class RunFile(_Part):
    """A whole run. model, cache, max_running, token_budget: the command's options. requests: the requests, keyed by
    id."""

    format: Literal["tiny-llm run"] = FORMAT
    version: Literal[2] = VERSION
    model: Text
    cache: Text
    max_running: Count | None = None
    token_budget: Count | None = None
    pages: RunPages | None = None
    requests: dict[str, RunRequest]
    steps: Annotated[list[RunStep], Field(min_length=1)]
    aborted: list[RunAbort]
