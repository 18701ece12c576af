"""OpenAI's parameters that this server lacks, and the neutral values that many clients send for them. Given."""

from typing import Annotated, Literal

from pydantic import Field

from .messages import Off, Strict

__all__ = ["HarmlessDefaults"]


class HarmlessDefaults(Strict):
    """The parameters with their harmless values. If a value is not harmless, the server's error names its parameter."""

    function_call: Literal["none", "auto"] | None = None
    modalities: Annotated[list[Literal["text"]], Field(max_length=1, fail_fast=True)] | None = None
    parallel_tool_calls: bool | None = None  # there are no tools
    service_tier: Literal["auto", "default"] | None = None
    store: Off | None = None
    tool_choice: Literal["none", "auto"] | None = None
    verbosity: Literal["medium"] | None = None
