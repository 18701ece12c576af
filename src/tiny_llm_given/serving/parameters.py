"""The parameters of a request, whether it comes from HTTP, a line of `batch`, or options of `main`. Given.

Only this module says which values a parameter may have.
"""

from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field

from .messages import MOST_ITEMS, MOST_NAMES, Message, Strict, Text

__all__ = [
    "LONGEST_STOP",
    "MOST_STOPS",
    "MaxTokens",
    "Messages",
    "Parameters",
    "SomeText",
    "Temperature",
    "TokenId",
]

MOST_STOPS, LONGEST_STOP = 4, 256  # stop strings, as many as OpenAI allows; characters in each string
_NUM_SEEDS = 2**64  # how many seeds `mx.random.key` tells apart
_LEAST = 1e-6  # logits divided by much less would overflow in float32


def _stop(text: str) -> str:
    if not text:
        raise ValueError("expected at least one character, got none")
    if len(text) > LONGEST_STOP:
        raise ValueError(f"expected {LONGEST_STOP} characters at most, got {len(text)}")
    return text


def _listed(stop: Any) -> Any:
    return [stop] if isinstance(stop, str) else stop


SomeText: TypeAlias = Annotated[Text, Field(min_length=1)]
TokenId: TypeAlias = Annotated[int, Field(ge=0)]
MaxTokens: TypeAlias = Annotated[int, Field(ge=1)]
Temperature: TypeAlias = Annotated[float, Field(ge=0)]
Messages: TypeAlias = Annotated[list[Message], Field(min_length=1, max_length=MOST_ITEMS, fail_fast=True)]
_Stop: TypeAlias = Annotated[
    Text, AfterValidator(_stop), Field(json_schema_extra={"minLength": 1, "maxLength": LONGEST_STOP})
]
_Several: TypeAlias = Annotated[list[_Stop], Field(max_length=MOST_STOPS, fail_fast=True)]
_Stops: TypeAlias = Annotated[_Several, BeforeValidator(_listed, json_schema_input_type=_Stop | _Several)]


class Parameters(Strict):
    """The parameters that say how a request's tokens are chosen, and when the request ends. OpenAI's API lacks top_k,
    min_p, repetition_penalty, stop_token_ids and ignore_eos, but many servers have these parameters."""

    max_tokens: MaxTokens | None = Field(None, description="Of each choice.")
    temperature: Temperature = 1.0
    top_k: int = Field(0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    min_p: float = Field(0.0, ge=0, le=1)
    repetition_penalty: float = Field(1.0, ge=0.01, le=10)
    seed: int | None = Field(None, ge=0, lt=_NUM_SEEDS)
    stop: _Stops = Field(default_factory=list)
    stop_token_ids: list[TokenId] = Field(default_factory=list, max_length=MOST_NAMES, fail_fast=True)
    ignore_eos: bool = False

    def arguments(self, choice: int = 0) -> dict[str, Any]:
        """Return the arguments of `SamplingParams`. Each of several choices draws with a seed of its own."""
        found = {name: getattr(self, name) for name in Parameters.model_fields}
        return found | {
            "temperature": self.temperature if self.temperature >= _LEAST else 0.0,
            "top_p": max(self.top_p, _LEAST),
            "seed": None if self.seed is None else (self.seed + choice) % _NUM_SEEDS,
        }
