"""Objects within a request, as OpenAI's API and servers of open models have them. Given.

Every list has a longest length, and is checked only up to the first item that is wrong: a list of a million wrong items
costs no more than a list of one.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

__all__ = [
    "MOST_ITEMS",
    "ChatTemplateKwargs",
    "Effort",
    "Message",
    "ResponseFormat",
    "StreamOptions",
    "Strict",
    "Text",
    "TextPart",
    "encodable",
]


def encodable(text: str) -> str:
    """The text, if it can be encoded: JSON may have half a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("expected whole characters, got half of a surrogate pair") from None
    return text


MOST_ITEMS = 2048  # messages, parts of one, prompts

Text: TypeAlias = Annotated[str, AfterValidator(encodable)]
Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class StreamOptions(Strict):
    include_usage: bool = False


class TextPart(Strict):
    type: Literal["text"]
    text: Text


class Message(Strict):
    """One of a conversation. What the model thought for an earlier answer may come back, and does not count."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Text | Annotated[list[TextPart], Field(max_length=MOST_ITEMS, fail_fast=True)]
    refusal: None = None
    reasoning_content: Text | None = Field(None, description="Left out of the prompt, as `reasoning` is.")
    reasoning: Text | None = None

    def as_template(self) -> dict[str, str]:
        """What chat templates know: they call the developer the system."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class ResponseFormat(Strict):
    type: Literal["text"]


class ChatTemplateKwargs(Strict):
    """What the chat template gets, in vLLM's and SGLang's form."""

    enable_thinking: bool | None = None
