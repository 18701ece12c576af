"""Turns the updates of a call's requests into the answer that the client gets. Given."""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

from tiny_llm_given.serving.answers import ChatAnswer, ChatChunk, CompletionAnswer, CompletionChunk, Sent

from .async_engine import Counts, Update
from .sampling_params import Logprob, Logprobs

__all__ = ["ChatWriter", "CompletionWriter", "Writer", "joined"]

_Json = dict[str, Any]


def joined(updates: Sequence[Update]) -> Update:
    """Join all updates of a choice into one update."""
    thinking = [each.thinking for each in updates if each.thinking is not None]
    logprobs = [each.logprobs for each in updates if each.logprobs is not None]
    return Update(
        tuple(chain.from_iterable(each.tokens for each in updates)),
        "".join(each.text for each in updates),
        updates[-1].finish_reason,
        thinking="".join(thinking) if thinking else None,
        logprobs=[*chain.from_iterable(logprobs)] if logprobs else None,
        counts=updates[-1].counts,
    )


class Writer:
    """A writer of the answer to a call, whole or in chunks. All chunks have the same id, time (`created`, in seconds
    since 1970) and model name. The pydantic models in `answers.py` check the result."""

    whole: tuple[type[Sent], str]  # the pydantic model of a whole answer, and the answer's name in OpenAI's API
    part: tuple[type[Sent], str]

    def __init__(self, id: str, created: int, model: str, tokenizer: Any):
        self._about = {"id": id, "created": created, "model": model}
        self._tokenizer = tokenizer

    def answer(self, choices: Sequence[Update]) -> Sent:
        """Return the whole answer."""
        counts = sum((each.counts for each in choices if each.counts), start=Counts())
        return self._sent(*self.whole, [self._choice(i, each) for i, each in enumerate(choices)], counts)

    def begin(self, index: int) -> Sent | None:
        """Return the event with which a choice's stream begins. Return None if there is no such event."""
        return None

    def chunk(self, index: int, update: Update) -> Sent:
        """Return a stream's event for an update of a choice."""
        return self._sent(*self.part, [self._delta(index, update)])

    def end(self, counts: Counts) -> Sent:
        """Return a stream's last event, which reports the token counts to a client that asked for usage."""
        return self._sent(*self.part, [], counts)

    def _sent(self, kind: type[Sent], name: str, choices: Sequence[_Json], counts: Counts | None = None) -> Sent:
        found = {**self._about, "object": name, "choices": choices}
        return kind.model_validate(found if counts is None else {**found, "usage": _usage(counts)})

    def _choice(self, index: int, update: Update) -> _Json:
        """Return a whole choice in the form of OpenAI's API."""
        raise NotImplementedError

    def _delta(self, index: int, update: Update) -> _Json:
        """Return an update of a choice in the form of OpenAI's API."""
        raise NotImplementedError

    def _text(self, token: int) -> str:
        return str(self._tokenizer.decode([token], skip_special_tokens=False))


class CompletionWriter(Writer):
    whole, part = (CompletionAnswer, "text_completion"), (CompletionChunk, "text_completion")

    def __init__(self, *about: Any):
        super().__init__(*about)
        self._offsets: Counter[int] = Counter()  # the length of each choice's text so far, in characters

    def _choice(self, index: int, update: Update) -> _Json:
        logprobs = None if update.logprobs is None else self._logprobs(index, update.logprobs)
        return {"index": index, "text": update.text, "finish_reason": update.finish_reason, "logprobs": logprobs}

    _delta = _choice

    def _logprobs(self, index: int, logprobs: Sequence[Logprobs]) -> _Json:
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


class ChatWriter(Writer):
    whole, part = (ChatAnswer, "chat.completion"), (ChatChunk, "chat.completion.chunk")

    def begin(self, index: int) -> Sent | None:
        delta = {"role": "assistant", "content": ""}
        return self._sent(*self.part, [{"index": index, "delta": delta, "finish_reason": None, "logprobs": None}])

    def _choice(self, index: int, update: Update) -> _Json:
        message = {"role": "assistant", "content": update.text, "refusal": None, **_reasoning(update.thinking)}
        logprobs = self._logprobs(update.logprobs)
        return {"index": index, "message": message, "finish_reason": update.finish_reason, "logprobs": logprobs}

    def _delta(self, index: int, update: Update) -> _Json:
        delta = _reasoning(update.thinking or None)
        if update.text:
            delta["content"] = update.text
        logprobs = self._logprobs(update.logprobs)
        return {"index": index, "delta": delta, "finish_reason": update.finish_reason, "logprobs": logprobs}

    def _logprobs(self, logprobs: Sequence[Logprobs] | None) -> _Json | None:
        if logprobs is None:
            return None
        content = [self._entry(each.chosen) | {"top_logprobs": [*map(self._entry, each.top)]} for each in logprobs]
        return {"content": content, "refusal": None}

    def _entry(self, found: Logprob) -> _Json:
        piece = self._tokenizer.convert_ids_to_tokens(found.token)
        return {"token": self._text(found.token), "logprob": found.logprob, "bytes": _bytes_of(piece)}


def _reasoning(thinking: str | None) -> _Json:
    """Return the thinking as two fields, `reasoning_content` (DeepSeek's name) and `reasoning` (vLLM's newer name).
    OpenAI's API has no field for thinking."""
    return {} if thinking is None else {"reasoning_content": thinking, "reasoning": thinking}


def _usage(counts: Counts) -> _Json:
    return {
        "prompt_tokens": counts.prompt,
        "completion_tokens": counts.output,
        "total_tokens": counts.prompt + counts.output,
        "prompt_tokens_details": {"cached_tokens": counts.cached},
        "completion_tokens_details": {
            "accepted_prediction_tokens": counts.accepted,
            "rejected_prediction_tokens": counts.drafted - counts.accepted,
            "reasoning_tokens": counts.thinking,
        },
    }


def _bytes_of(piece: str) -> list[int] | None:
    """Return the bytes that a token's name stands for in a byte-level vocabulary. Return None if a character of the
    name stands for no byte."""
    table = _byte_names()
    return [table[letter] for letter in piece] if all(letter in table for letter in piece) else None


@cache
def _byte_names() -> dict[str, int]:
    """Return the byte that each character stands for, keyed by character. A printable byte is written as the character
    with the same code point. The other bytes are written as the characters from code point 256 on, in order.

    Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.2.
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}
