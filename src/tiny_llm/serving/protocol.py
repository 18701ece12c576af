"""The parameters of OpenAI's API that this server supports. Given.

`parsing.py` refuses every other parameter by name, so that the server never silently ignores a parameter.
Source: "OpenAI API reference", completions and chat completions, platform.openai.com/docs/api-reference.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from tiny_llm_given.serving.defaults import HarmlessDefaults
from tiny_llm_given.serving.messages import (
    MOST_ITEMS,
    MOST_NAMES,
    ChatTemplateKwargs,
    Effort,
    ResponseFormat,
    StreamOptions,
    Text,
    encodable,
)
from tiny_llm_given.serving.parameters import MaxTokens, Messages, Parameters, SomeText, TokenId

from .sampling_params import SamplingParams

__all__ = [
    "ChatRequest",
    "CompletionRequest",
    "GenerationRequest",
]

_MOST_CHOICES = 16
_TOKEN_ID = "^[0-9]{1,9}$"  # a key of logit_bias
_Prompt: TypeAlias = SomeText | Annotated[list[TokenId], Field(min_length=1)]


def _prompts(prompt: Any) -> list[str | list[int]]:
    """Return all prompts of a call as a list. Each prompt is a text or a list of token ids."""
    prompts = [prompt] if _is_prompt(prompt) else prompt
    if isinstance(prompts, list) and len(prompts) > MOST_ITEMS:
        raise ValueError(f"expected {MOST_ITEMS} prompts at most, got {len(prompts)}")
    if not isinstance(prompts, list) or not all(_is_prompt(each) for each in prompts):
        raise ValueError("expected a text, token ids from 0 on, or a list of either")
    if not all(prompts):
        raise ValueError("expected at least one token, got none")
    return [encodable(each) if isinstance(each, str) else each for each in prompts]


def _is_token(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_prompt(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(_is_token(each) for each in value))


_Several: TypeAlias = Annotated[list[_Prompt], Field(min_length=1, max_length=MOST_ITEMS)]
_Prompts: TypeAlias = Annotated[
    list[Any],  # `_prompts` checks each token, so pydantic does not have to
    BeforeValidator(_prompts, json_schema_input_type=_Prompt | _Several),
]
_Bias: TypeAlias = Annotated[float, Field(ge=-100, le=100)]


class GenerationRequest(Parameters):
    """The fields that completion and chat requests share. user: the client's name for its user, which has no effect."""

    model: Text
    n: int = Field(1, ge=1, le=_MOST_CHOICES)
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    logit_bias: dict[str, _Bias] = Field(
        default_factory=dict,
        max_length=MOST_NAMES,
        json_schema_extra={"propertyNames": {"pattern": _TOKEN_ID}},
        description="Keyed by token ids.",
    )
    stream: bool = False
    stream_options: StreamOptions | None = Field(None, description="Allowed only if stream is true.")
    user: Text | None = None

    @model_validator(mode="after")
    def _check(self) -> "GenerationRequest":
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options: expected stream to be true, got false")
        if not all(re.fullmatch(_TOKEN_ID, token) for token in self.logit_bias):
            raise ValueError('logit_bias: expected token ids as keys, such as "42"')
        return self

    def filled_in(self, defaults: Mapping[str, Any]) -> "GenerationRequest":
        """Return the request, with these defaults in the fields that the client left out."""
        return self.model_copy(update={k: v for k, v in defaults.items() if k not in self.model_fields_set})

    @property
    def default_max_tokens(self) -> int | None:
        """Return how many tokens the output may have if the client does not set max_tokens; None means all that fit."""
        return None

    @property
    def num_logprobs(self) -> int | None:
        """Return how many of the likeliest tokens are reported for each position; None if nothing is reported."""
        raise NotImplementedError

    @property
    def has_usage(self) -> bool:
        """Tell whether a stream ends with an event that contains the token counts."""
        return self.stream_options is not None and self.stream_options.include_usage

    def sampling(self, max_tokens: int, choice: int = 0) -> SamplingParams:
        """Return the sampling parameters of one of the n choices."""
        more = {
            "max_tokens": max_tokens,
            "logit_bias": tuple(self.biases.items()),
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "num_logprobs": self.num_logprobs,
        }
        return SamplingParams(**self.arguments(choice) | more)

    @property
    def changes_logits(self) -> bool:
        return bool(self.logit_bias or self.presence_penalty or self.frequency_penalty)

    @property
    def biases(self) -> dict[int, float]:
        """Return `logit_bias`, keyed by token ids as integers."""
        return {int(token): value for token, value in self.logit_bias.items()}


class CompletionRequest(GenerationRequest):
    """One or several texts, or lists of token ids, for the model to continue."""

    prompt: _Prompts
    echo: bool = False
    logprobs: int | None = Field(None, ge=0, le=5, description="Not with echo.")
    best_of: int | None = Field(None, description="The same as n.")

    @model_validator(mode="after")
    def _check_completion(self) -> "CompletionRequest":
        if self.best_of not in (None, self.n):
            raise ValueError(f"best_of: expected n, which is {self.n}, got {self.best_of}: no choice is left out here")
        if self.echo and self.logprobs is not None:
            raise ValueError("logprobs: expected none with echo: those of a prompt are not kept")
        return self

    @property
    def default_max_tokens(self) -> int | None:
        return 16

    @property
    def num_logprobs(self) -> int | None:
        return self.logprobs


class ChatRequest(GenerationRequest, HarmlessDefaults):
    """A conversation that the model answers."""

    messages: Messages
    max_completion_tokens: MaxTokens | None = Field(None, description="max_tokens is its old name.")
    logprobs: bool = False
    top_logprobs: int | None = Field(None, ge=0, le=20, description="With logprobs only.")
    response_format: ResponseFormat | None = None
    chat_template_kwargs: ChatTemplateKwargs = Field(default_factory=ChatTemplateKwargs)
    reasoning_effort: Effort | None = Field(
        None, description="none: no thinking. All others: thinking, as enable_thinking."
    )

    @model_validator(mode="after")
    def _check_chat(self) -> "ChatRequest":
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs: expected logprobs to be true, got false")
        if None not in (self.max_tokens, self.max_completion_tokens) and self.max_tokens != self.max_completion_tokens:
            raise ValueError("max_tokens: expected max_completion_tokens or this, its old name, got two numbers")
        switch, effort = self.chat_template_kwargs.enable_thinking, self.reasoning_effort
        if None not in (switch, effort) and switch != (effort != "none"):
            raise ValueError(f"reasoning_effort: expected what enable_thinking says, which is {switch}, got {effort!r}")
        return self

    @property
    def default_max_tokens(self) -> int | None:
        return self.max_completion_tokens

    @property
    def num_logprobs(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def wants_thinking(self) -> tuple[str, bool | None]:
        """Return the name and value of the parameter that turns thinking on or off. An unset value is None."""
        if self.reasoning_effort is not None:
            return "reasoning_effort", self.reasoning_effort != "none"
        return "chat_template_kwargs", self.chat_template_kwargs.enable_thinking
