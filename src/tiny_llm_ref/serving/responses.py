"""The server's answers, in the form of OpenAI's API. Given."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

from .request import FinishReason
from .sampling_params import Logprob, Logprobs

__all__ = ["Answer", "ChatAnswer", "CompletionAnswer", "Piece", "Usage"]

_Json = dict[str, Any]


@dataclass(frozen=True)
class Piece:
    """A piece of a choice's answer, or the whole answer. thinking: the new text of the thinking; None if there is none.
    reason: why the choice is over; None if it goes on. logprobs: the log-probabilities of the text's tokens; None if
    the client did not ask for them."""

    text: str = ""
    thinking: str | None = None
    reason: FinishReason | None = None
    logprobs: Sequence[Logprobs] | None = None

    @classmethod
    def joined(cls, pieces: "Sequence[Piece]") -> "Piece":
        """Join all pieces of a choice into one."""
        thinking = [each.thinking for each in pieces if each.thinking is not None]
        logprobs = [each.logprobs for each in pieces if each.logprobs is not None]
        return cls(
            "".join(each.text for each in pieces),
            "".join(thinking) if thinking else None,
            next((each.reason for each in pieces if each.reason), None),
            [*chain.from_iterable(logprobs)] if logprobs else None,
        )


@dataclass(frozen=True)
class Usage:
    """The numbers of tokens of a call. cached: how many of the prompt's tokens did not have to be computed. drafted,
    accepted: how many tokens were guessed, and how many guesses were accepted. reasoning: how many of the output's
    tokens are thinking."""

    prompt: int = 0
    output: int = 0
    cached: int = 0
    drafted: int = 0
    accepted: int = 0
    reasoning: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        """Add the usage of several choices."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Usage(*(one + another for one, another in pairs))

    def as_json(self) -> _Json:
        details = {"accepted_prediction_tokens": self.accepted, "reasoning_tokens": self.reasoning}
        details["rejected_prediction_tokens"] = self.drafted - self.accepted
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.output,
            "total_tokens": self.prompt + self.output,
            "prompt_tokens_details": {"cached_tokens": self.cached},
            "completion_tokens_details": details,
        }


class Answer:
    """The answer to a call: whole, or in chunks. All its parts have the same id, creation time (in seconds since 1970)
    and model."""

    whole: str
    chunk: str

    def __init__(self, id: str, created: int, model: str, tokenizer: Any):
        self._about = {"id": id, "created": created, "model": model}
        self._tokenizer = tokenizer

    def complete(self, choices: Sequence[_Json], usage: Usage) -> _Json:
        return {**self._about, "object": self.whole, "choices": list(choices), "usage": usage.as_json()}

    def part(self, choices: Sequence[_Json], usage: Usage | None = None) -> _Json:
        """Return an event of a stream. usage: the usage of the call, for the last event, which has no choices, if the
        client asked for it."""
        found = {**self._about, "object": self.chunk, "choices": list(choices)}
        return found if usage is None else {**found, "usage": usage.as_json()}

    def begin(self, index: int) -> _Json | None:
        """Return the first part of a choice's stream; None if the stream begins with the text."""
        return None

    def choice(self, index: int, piece: Piece) -> _Json:
        """Return a whole choice."""
        raise NotImplementedError

    def delta(self, index: int, piece: Piece) -> _Json:
        """Return the part of a stream that adds a piece to a choice."""
        return self.choice(index, piece)

    def _text(self, token: int) -> str:
        return str(self._tokenizer.decode([token], skip_special_tokens=False))


class CompletionAnswer(Answer):
    whole = chunk = "text_completion"

    def __init__(self, *about: Any):
        super().__init__(*about)
        self._offsets: Counter[int] = Counter()  # the length of each choice's text so far, in letters

    def choice(self, index: int, piece: Piece) -> _Json:
        logprobs = None if piece.logprobs is None else self._logprobs(index, piece.logprobs)
        return {"index": index, "text": piece.text, "finish_reason": piece.reason, "logprobs": logprobs}

    def _logprobs(self, index: int, logprobs: Sequence[Logprobs]) -> Mapping[str, Any]:
        texts, offsets = [self._text(each.chosen.token) for each in logprobs], []
        for text in texts:
            offsets.append(self._offsets[index])
            self._offsets[index] += len(text)
        return {
            "tokens": texts,
            "token_logprobs": [each.chosen.logprob for each in logprobs],
            "top_logprobs": [{self._text(top.token): top.logprob for top in each.top} for each in logprobs],
            "text_offset": offsets,
        }


class ChatAnswer(Answer):
    whole, chunk = "chat.completion", "chat.completion.chunk"

    def choice(self, index: int, piece: Piece) -> _Json:
        message = {"role": "assistant", "content": piece.text, "refusal": None, **_reasoning(piece)}
        logprobs = self._logprobs(piece.logprobs)
        return {"index": index, "message": message, "finish_reason": piece.reason, "logprobs": logprobs}

    def begin(self, index: int) -> _Json | None:
        delta = {"role": "assistant", "content": ""}
        return {"index": index, "delta": delta, "finish_reason": None, "logprobs": None}

    def delta(self, index: int, piece: Piece) -> _Json:
        delta = {**({"content": piece.text} if piece.text else {}), **(_reasoning(piece) if piece.thinking else {})}
        logprobs = self._logprobs(piece.logprobs)
        return {"index": index, "delta": delta, "finish_reason": piece.reason, "logprobs": logprobs}

    def _logprobs(self, logprobs: Sequence[Logprobs] | None) -> _Json | None:
        if logprobs is None:
            return None
        content = [self._entry(each.chosen) | {"top_logprobs": [*map(self._entry, each.top)]} for each in logprobs]
        return {"content": content, "refusal": None}

    def _entry(self, found: Logprob) -> _Json:
        piece = self._tokenizer.convert_ids_to_tokens(found.token)
        return {"token": self._text(found.token), "logprob": found.logprob, "bytes": _bytes_of(piece)}


def _reasoning(piece: Piece) -> _Json:
    """Return the thinking under the two names that servers and clients use: DeepSeek's, and vLLM's newer one. OpenAI's
    API has no field for thinking."""
    return {} if piece.thinking is None else {"reasoning_content": piece.thinking, "reasoning": piece.thinking}


def _bytes_of(piece: str) -> list[int] | None:
    """Return the bytes that a token's name stands for in a byte-level vocabulary; None if it is another kind of
    name."""
    table = _byte_names()
    return [table[letter] for letter in piece] if all(letter in table for letter in piece) else None


@cache
def _byte_names() -> dict[str, int]:
    """Return the byte that each letter stands for: a printable byte is its own letter, and the other bytes have the
    letters from 256 on, in order.

    Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.2.
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}
