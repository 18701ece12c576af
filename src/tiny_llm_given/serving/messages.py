"""Objects within a request, in the form of OpenAI's API and of servers of open models. Given.

Every list has a maximum length, and is checked only up to the first wrong item, so a list of a million wrong items
costs no more time than a list with one wrong item.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    WithJsonSchema,
    field_validator,
    model_validator,
)

__all__ = [
    "MOST_ITEMS",
    "MOST_NAMES",
    "ChatTemplateKwargs",
    "Effort",
    "Message",
    "Off",
    "ResponseFormat",
    "StreamOptions",
    "Strict",
    "Text",
    "TextPart",
    "encodable",
]


def encodable(text: str) -> str:
    """Return the text. Raise ValueError if the text contains half of a surrogate pair, which has no UTF-8 encoding."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("expected whole characters, got half of a surrogate pair") from None
    return text


def _is_off(value: bool) -> bool:
    if value:
        raise ValueError("expected false, got true")
    return value


Off: TypeAlias = Annotated[bool, AfterValidator(_is_off), WithJsonSchema({"type": "boolean", "const": False})]
Text: TypeAlias = Annotated[str, AfterValidator(encodable)]
MOST_ITEMS = 2048  # messages, parts of a message, prompts
MOST_NAMES = 1024  # names in an object, such as the tokens of logit_bias
_EMPTY_ASKS = {"web_search_options"}  # {} asks for a search with OpenAI's own settings
Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


class Strict(BaseModel):
    """An object that refuses unknown names, unless their values are null or empty and so ask for nothing."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @classmethod
    def asked(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields that ask for something. Drop null, and empty values of unknown names."""
        known = cls.model_fields.keys() | _EMPTY_ASKS
        return {name: v for name, v in given.items() if v is not None and (name in known or v not in ("", [], {}))}

    @model_validator(mode="before")
    @classmethod
    def _only_asked(cls, given: Any) -> Any:
        return cls.asked(given) if isinstance(given, dict) else given

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return a schema that allows null for each field that may be left out, because `asked` drops null."""
        found = handler(core)
        schema = handler.resolve_ref_schema(found)
        for name, field in schema["properties"].items():
            if name not in schema.get("required", []) and {"type": "null"} not in field.get("anyOf", []):
                about = {key: field.pop(key) for key in ("default", "description") if key in field}
                schema["properties"][name] = {"anyOf": [*field.get("anyOf", [field]), {"type": "null"}], **about}
        return found


class StreamOptions(Strict):
    include_usage: bool = False
    include_obfuscation: Off = False


class TextPart(Strict):
    type: Literal["text"]
    text: Text


class Message(Strict):
    """A message of a conversation. A client may send back an answer's thinking, which the server ignores."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Text | Annotated[list[TextPart], Field(max_length=MOST_ITEMS, fail_fast=True)] = Field(
        "", description="May be left out of an answer (assistant) only."
    )
    reasoning_content: Text | None = Field(None, description="Left out of the prompt, as `reasoning` is.")
    reasoning: Text | None = None

    @field_validator("content", mode="before")
    @classmethod
    def _check_parts(cls, content: Any) -> Any:
        for part in content if isinstance(content, list) else ():
            kind = part.get("type") if isinstance(part, dict) else None
            if isinstance(kind, str) and kind != "text":
                raise ValueError(f"only text parts are supported, got {kind!r}")
        return content

    @model_validator(mode="after")
    def _check_content(self) -> "Message":
        if self.role != "assistant" and "content" not in self.model_fields_set:
            raise ValueError("content: expected a text, got none")
        return self

    def as_template(self) -> dict[str, str]:
        """Return the message in the form that chat templates expect: the role "developer" becomes "system"."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class ResponseFormat(Strict):
    type: Literal["text"]


class ChatTemplateKwargs(Strict):
    """Arguments of the chat template, in vLLM's and SGLang's form."""

    enable_thinking: bool | None = None
