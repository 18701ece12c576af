"""What OpenAI's API lets a client ask for, as far as this server has it. Given.

`parsing.py` refuses by name everything that is not listed here: nothing that a client asks for is silently ignored.
Source: "OpenAI API reference", completions and chat completions, platform.openai.com/docs/api-reference.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    WithJsonSchema,
    model_validator,
)

from tiny_llm_given.serving.defaults import HarmlessDefaults
from tiny_llm_given.serving.messages import (
    MOST_ITEMS,
    MOST_NAMES,
    ChatTemplateKwargs,
    Effort,
    Message,
    ResponseFormat,
    StreamOptions,
    Strict,
    Text,
    encodable,
)

from .sampling_params import SamplingParams

__all__ = [
    "ChatRequest",
    "CompletionRequest",
    "GenerationRequest",
]

_MOST_CHOICES = 16
_MOST_STOPS, _LONGEST_STOP = 4, 256  # as many as OpenAI's; characters of each
_TOKEN_ID = "^[0-9]{1,9}$"  # as a key
_LEAST = 1e-6  # float32 has no room for scores that are divided by much less


def _stop(text: str) -> str:
    if not text:
        raise ValueError("expected at least one character, got none")
    if len(text) > _LONGEST_STOP:
        raise ValueError(f"expected {_LONGEST_STOP} characters at most, got {len(text)}")
    return text


_Stop: TypeAlias = Annotated[Text, AfterValidator(_stop)]
_Prompt: TypeAlias = str | list[int]


def _listed(stop: Any) -> Any:
    return [stop] if isinstance(stop, str) else stop


def _prompts(prompt: Any) -> list[_Prompt]:
    """Return the prompts of a call: one or several, each a text or its tokens."""
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


_SOME_TEXT = {"type": "string", "minLength": 1}
_SOME_STOP = {**_SOME_TEXT, "maxLength": _LONGEST_STOP}
_SOME_TOKENS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_SOME_PROMPT = (_SOME_TEXT, _SOME_TOKENS)
_Stops: TypeAlias = Annotated[
    list[_Stop],
    Field(max_length=_MOST_STOPS, fail_fast=True),
    BeforeValidator(_listed),
    WithJsonSchema({"anyOf": [_SOME_STOP, {"type": "array", "items": _SOME_STOP, "maxItems": _MOST_STOPS}]}),
]
_Prompts: TypeAlias = Annotated[
    list[Any],
    BeforeValidator(_prompts),
    WithJsonSchema(
        {
            "anyOf": [
                *_SOME_PROMPT,
                {"type": "array", "items": {"anyOf": [*_SOME_PROMPT]}, "minItems": 1, "maxItems": MOST_ITEMS},
            ]
        }
    ),
]
_Bias: TypeAlias = Annotated[float, Field(ge=-100, le=100)]


class GenerationRequest(Strict):
    """The fields that both kinds of requests have. top_k, min_p, repetition_penalty and ignore_eos are not OpenAI's,
    but many servers have them. user: whom the client works for; it makes no difference here."""

    model: Text
    max_tokens: int | None = Field(None, ge=1, description="Of each choice.")
    n: int = Field(1, ge=1, le=_MOST_CHOICES)
    temperature: float = Field(1.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0)
    min_p: float = Field(0.0, ge=0, le=1)
    repetition_penalty: float = Field(1.0, ge=0.01, le=10)
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    logit_bias: dict[str, _Bias] = Field(
        default_factory=dict,
        max_length=MOST_NAMES,
        json_schema_extra={"propertyNames": {"pattern": _TOKEN_ID}},
        description="By token ids.",
    )
    seed: int | None = Field(None, ge=0, lt=2**63)
    stop: _Stops = Field(default_factory=list)
    stream: bool = False
    stream_options: StreamOptions | None = Field(None, description="With stream only.")
    ignore_eos: bool = False
    user: Text | None = None

    @model_validator(mode="after")
    def _check(self) -> "GenerationRequest":
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options: expected stream to be true, got false")
        if not all(re.fullmatch(_TOKEN_ID, token) for token in self.logit_bias):
            raise ValueError('logit_bias: expected token ids as keys, such as "42"')
        return self

    def filled_in(self, defaults: Mapping[str, Any]) -> "GenerationRequest":
        """Return the request with these in place of what the client leaves out."""
        return self.model_copy(update={k: v for k, v in defaults.items() if k not in self.model_fields_set})

    @property
    def default_max_tokens(self) -> int | None:
        """Return max_tokens where the client gives none; None: as many as there is room for."""
        return None

    @property
    def num_logprobs(self) -> int | None:
        """Return how many likely tokens are reported for each position; None: none are."""
        raise NotImplementedError

    @property
    def has_usage(self) -> bool:
        """Tell whether a stream ends with the numbers of tokens."""
        return self.stream_options is not None and self.stream_options.include_usage

    def sampling(self, max_tokens: int, choice: int = 0) -> SamplingParams:
        """Return the sampling of one of the n choices. Each draws with a seed of its own."""
        return SamplingParams(
            max_tokens=max_tokens,
            temperature=self.temperature if self.temperature >= _LEAST else 0.0,
            top_k=self.top_k,
            top_p=max(self.top_p, _LEAST),
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            seed=None if self.seed is None else self.seed + choice,
            stop=self.stop,
            ignore_eos=self.ignore_eos,
            logit_bias=tuple(self.biases.items()),
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            num_logprobs=self.num_logprobs,
        )

    @property
    def changes_logits(self) -> bool:
        return bool(self.logit_bias or self.presence_penalty or self.frequency_penalty)

    @property
    def biases(self) -> dict[int, float]:
        """Return `logit_bias` by tokens."""
        return {int(token): value for token, value in self.logit_bias.items()}


class CompletionRequest(GenerationRequest):
    """One text or several, or their tokens, for the model to continue."""

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

    messages: Annotated[list[Message], Field(min_length=1, max_length=MOST_ITEMS, fail_fast=True)]
    max_completion_tokens: int | None = Field(None, ge=1, description="max_tokens is its old name.")
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
        """Return which parameter says whether the model shall think, and what it says; None: neither says anything."""
        if self.reasoning_effort is not None:
            return "reasoning_effort", self.reasoning_effort != "none"
        return "chat_template_kwargs", self.chat_template_kwargs.enable_thinking
