"""What this server answers, in the form of OpenAI's API. Given."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from .request import FinishReason
from .scores import Logprob, Scored

__all__ = ["Answer", "ChatAnswer", "CompletionAnswer", "Usage"]

_Json = dict[str, Any]


@dataclass(frozen=True)
class Usage:
    """Numbers of tokens. cached: those of the prompt that did not have to be computed. drafted, accepted: guesses."""

    prompt: int = 0
    output: int = 0
    cached: int = 0
    drafted: int = 0
    accepted: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        """Of several choices."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Usage(*(one + another for one, another in pairs))

    def as_json(self) -> _Json:
        guesses = {"accepted_prediction_tokens": self.accepted}
        guesses["rejected_prediction_tokens"] = self.drafted - self.accepted
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.output,
            "total_tokens": self.prompt + self.output,
            "prompt_tokens_details": {"cached_tokens": self.cached},
            "completion_tokens_details": guesses,
        }


class Answer:
    """To one call: whole, or in chunks. id, created (seconds since 1970), model: of all its parts."""

    whole: str
    chunk: str

    def __init__(self, id: str, created: int, model: str, tokenizer: Any):
        self._about = {"id": id, "created": created, "model": model}
        self._tokenizer = tokenizer

    def complete(self, choices: Sequence[_Json], usage: Usage) -> _Json:
        return {**self._about, "object": self.whole, "choices": list(choices), "usage": usage.as_json()}

    def part(self, choices: Sequence[_Json], usage: Usage | None = None) -> _Json:
        """One event of a stream. usage: of the last one, whose choices are none, if the client asked for it."""
        found = {**self._about, "object": self.chunk, "choices": list(choices)}
        return found if usage is None else {**found, "usage": usage.as_json()}

    def begin(self, index: int) -> _Json | None:
        """What a choice's stream begins with."""
        return None

    def choice(self, index: int, text: str, reason: FinishReason | None, scored: Sequence[Scored] | None) -> _Json:
        """A whole choice."""
        raise NotImplementedError

    def delta(self, index: int, text: str, reason: FinishReason | None, scored: Sequence[Scored] | None) -> _Json:
        """What is new of a choice."""
        return self.choice(index, text, reason, scored)

    def _text(self, token: int) -> str:
        return str(self._tokenizer.decode([token], skip_special_tokens=False))


class CompletionAnswer(Answer):
    whole = chunk = "text_completion"

    def __init__(self, *about: Any):
        super().__init__(*about)
        self._offsets: Counter[int] = Counter()  # of each choice, in letters

    def choice(self, index: int, text: str, reason: FinishReason | None, scored: Sequence[Scored] | None) -> _Json:
        logprobs = None if scored is None else self._logprobs(index, scored)
        return {"index": index, "text": text, "finish_reason": reason, "logprobs": logprobs}

    def _logprobs(self, index: int, scored: Sequence[Scored]) -> Mapping[str, Any]:
        texts, offsets = [self._text(each.chosen.token) for each in scored], []
        for text in texts:
            offsets.append(self._offsets[index])
            self._offsets[index] += len(text)
        return {
            "tokens": texts,
            "token_logprobs": [each.chosen.logprob for each in scored],
            "top_logprobs": [{self._text(top.token): top.logprob for top in each.top} for each in scored],
            "text_offset": offsets,
        }


class ChatAnswer(Answer):
    whole, chunk = "chat.completion", "chat.completion.chunk"

    def choice(self, index: int, text: str, reason: FinishReason | None, scored: Sequence[Scored] | None) -> _Json:
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"index": index, "message": message, "finish_reason": reason, "logprobs": self._logprobs(scored)}

    def begin(self, index: int) -> _Json | None:
        delta = {"role": "assistant", "content": ""}
        return {"index": index, "delta": delta, "finish_reason": None, "logprobs": None}

    def delta(self, index: int, text: str, reason: FinishReason | None, scored: Sequence[Scored] | None) -> _Json:
        delta = {"content": text} if text else {}
        return {"index": index, "delta": delta, "finish_reason": reason, "logprobs": self._logprobs(scored)}

    def _logprobs(self, scored: Sequence[Scored] | None) -> _Json | None:
        if scored is None:
            return None
        content = [self._entry(each.chosen) | {"top_logprobs": [*map(self._entry, each.top)]} for each in scored]
        return {"content": content, "refusal": None}

    def _entry(self, found: Logprob) -> _Json:
        piece = self._tokenizer.convert_ids_to_tokens(found.token)
        return {"token": self._text(found.token), "logprob": found.logprob, "bytes": _bytes_of(piece)}


def _bytes_of(piece: str) -> list[int] | None:
    """Of a token's name in a byte-level vocabulary; None where it is another kind of name."""
    table = _byte_names()
    return [table[letter] for letter in piece] if all(letter in table for letter in piece) else None


@cache
def _byte_names() -> dict[str, int]:
    """The letters that stand for bytes: printable ones for themselves, the others from 256 on, in their order.

    Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.2.
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}
