"""The objects that the server sends, in the form of OpenAI's API. Given.

Only this module says which fields an answer has: the server builds these objects, and `/openapi.json` describes them.
Source: "OpenAI API reference", completions and chat completions, platform.openai.com/docs/api-reference.
"""

from typing import Literal

from pydantic import BaseModel

__all__ = [
    "ChatAnswer",
    "ChatChoice",
    "ChatChunk",
    "ChatLogprobs",
    "ChatMessage",
    "ChosenToken",
    "CompletionAnswer",
    "CompletionChoice",
    "CompletionChunk",
    "CompletionLogprobs",
    "Delta",
    "DeltaChoice",
    "Error",
    "ErrorDetails",
    "Health",
    "Index",
    "Model",
    "ModelList",
    "OutputDetails",
    "PromptDetails",
    "Sent",
    "TokenLogprob",
    "Usage",
]


class Sent(BaseModel):
    """An object that the server sends. A field with a default is left out unless it was set."""

    def as_json(self) -> str:
        return self.model_dump_json(exclude_unset=True)


class PromptDetails(Sent):
    """The number of prompt tokens whose keys and values were in the server's cache."""

    cached_tokens: int


class OutputDetails(Sent):
    """Counts of output tokens: right guesses and wrong guesses (`--draft`), and thinking tokens."""

    accepted_prediction_tokens: int
    rejected_prediction_tokens: int
    reasoning_tokens: int = 0


class Usage(Sent):
    """Token counts, summed over all choices. The prompt counts once."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: OutputDetails | None = None


class _Answer(Sent):
    """An answer or an event of a stream. created: when the answer began, in seconds since 1970."""

    id: str
    created: int
    model: str


class CompletionLogprobs(Sent):
    """Log-probabilities of the tokens. text_offset: where each token begins in the text, in characters."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class CompletionChoice(Sent):
    """A text, or a piece of a text. finish_reason: stop or length; null while more text follows."""

    index: int
    text: str
    finish_reason: str | None
    logprobs: CompletionLogprobs | None


class CompletionChunk(_Answer):
    """An event of a stream. If the client asked for usage, the last event has usage and no choices."""

    object: Literal["text_completion"]
    choices: list[CompletionChoice]
    usage: Usage | None = None


class CompletionAnswer(CompletionChunk):
    """A whole answer."""

    usage: Usage


class TokenLogprob(Sent):
    """A token and its log-probability. bytes: its bytes; null if its name in the vocabulary does not determine them."""

    token: str
    logprob: float
    bytes: list[int] | None


class ChosenToken(TokenLogprob):
    """A token of the answer, and the likeliest tokens for its position."""

    top_logprobs: list[TokenLogprob]


class ChatLogprobs(Sent):
    content: list[ChosenToken]
    refusal: None


class ChatMessage(Sent):
    """An answer. reasoning_content and reasoning both contain the thinking; without thinking, both are left out."""

    role: Literal["assistant"]
    content: str
    refusal: None
    reasoning_content: str = ""
    reasoning: str = ""


class ChatChoice(Sent):
    """An answer. finish_reason: stop or length."""

    index: int
    message: ChatMessage
    finish_reason: str | None
    logprobs: ChatLogprobs | None


class Delta(Sent):
    """The new parts of an answer. A part without anything new is left out."""

    role: Literal["assistant"] = "assistant"
    content: str = ""
    reasoning_content: str = ""
    reasoning: str = ""


class DeltaChoice(Sent):
    """A piece of an answer. finish_reason: stop or length; null while more pieces follow."""

    index: int
    delta: Delta
    finish_reason: str | None
    logprobs: ChatLogprobs | None


class ChatChunk(_Answer):
    """An event of a stream. If the client asked for usage, the last event has usage and no choices."""

    object: Literal["chat.completion.chunk"]
    choices: list[DeltaChoice]
    usage: Usage | None = None


class ChatAnswer(_Answer):
    """A whole answer."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: Usage


class ErrorDetails(Sent):
    """The message and the kind of an error. param: the parameter that is wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(Sent):
    """An error in the form of `ApiError.body`."""

    error: ErrorDetails


class Health(Sent):
    status: Literal["ok", "stopping"]


class Index(Sent):
    message: str
    endpoints: list[str]


class Model(Sent):
    """A model that is served."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(Sent):
    object: Literal["list"]
    data: list[Model]
