"""From the updates of a call's requests to what the client gets. Given."""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

from tiny_llm_given.serving.answers import (
    ChatAnswer,
    ChatChoice,
    ChatChunk,
    ChatLogprobs,
    ChatMessage,
    ChosenToken,
    CompletionAnswer,
    CompletionChoice,
    CompletionChunk,
    CompletionLogprobs,
    Delta,
    DeltaChoice,
    OutputDetails,
    PromptDetails,
    Sent,
    TokenLogprob,
    Usage,
)

from .async_engine import Counts, Update
from .sampling_params import Logprob, Logprobs

__all__ = ["ChatWriter", "CompletionWriter", "Writer", "joined"]


def joined(updates: Sequence[Update]) -> Update:
    """Return all updates of a choice as one."""
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
    """A writer of the answer to a call: whole, or in chunks. All its parts have the same id, created (seconds since
    1970) and model."""

    def __init__(self, id: str, created: int, model: str, tokenizer: Any):
        self._about: dict[str, Any] = {"id": id, "created": created, "model": model}
        self._tokenizer = tokenizer

    def answer(self, choices: Sequence[Update]) -> Sent:
        """Return the whole answer."""
        raise NotImplementedError

    def begin(self, index: int) -> Sent | None:
        """Return the event with which a choice's stream begins."""
        return None

    def chunk(self, index: int, update: Update) -> Sent:
        """Return an event of a stream, with what is new of a choice."""
        raise NotImplementedError

    def end(self, counts: Counts) -> Sent:
        """Return the event after all choices, for a client that asked for the usage."""
        raise NotImplementedError

    def _text(self, token: int) -> str:
        return str(self._tokenizer.decode([token], skip_special_tokens=False))


class CompletionWriter(Writer):
    def __init__(self, *about: Any):
        super().__init__(*about)
        self._about["object"] = "text_completion"
        self._offsets: Counter[int] = Counter()  # of each choice, in letters

    def answer(self, choices: Sequence[Update]) -> Sent:
        found = [self._choice(i, each) for i, each in enumerate(choices)]
        return CompletionAnswer(**self._about, choices=found, usage=_usage(_total(choices)))

    def chunk(self, index: int, update: Update) -> Sent:
        return CompletionChunk(**self._about, choices=[self._choice(index, update)])

    def end(self, counts: Counts) -> Sent:
        return CompletionChunk(**self._about, choices=[], usage=_usage(counts))

    def _choice(self, index: int, update: Update) -> CompletionChoice:
        logprobs = None if update.logprobs is None else self._logprobs(index, update.logprobs)
        return CompletionChoice(index=index, text=update.text, finish_reason=update.finish_reason, logprobs=logprobs)

    def _logprobs(self, index: int, logprobs: Sequence[Logprobs]) -> CompletionLogprobs:
        texts, offsets = [self._text(each.chosen.token) for each in logprobs], []
        for text in texts:
            offsets.append(self._offsets[index])
            self._offsets[index] += len(text)
        return CompletionLogprobs(
            tokens=texts,
            token_logprobs=[each.chosen.logprob for each in logprobs],
            top_logprobs=[{self._text(top.token): top.logprob for top in each.top} for each in logprobs],
            text_offset=offsets,
        )


class ChatWriter(Writer):
    def answer(self, choices: Sequence[Update]) -> Sent:
        found = [self._choice(i, each) for i, each in enumerate(choices)]
        return ChatAnswer(**self._about, object="chat.completion", choices=found, usage=_usage(_total(choices)))

    def begin(self, index: int) -> Sent | None:
        return self._chunk(index, Delta(role="assistant", content=""))

    def chunk(self, index: int, update: Update) -> Sent:
        found = ({"content": update.text} if update.text else {}) | _reasoning(update.thinking or None)
        return self._chunk(index, Delta(**found), update)

    def end(self, counts: Counts) -> Sent:
        return ChatChunk(**self._about, object="chat.completion.chunk", choices=[], usage=_usage(counts))

    def _chunk(self, index: int, delta: Delta, update: Update | None = None) -> ChatChunk:
        reason, logprobs = (None, None) if update is None else (update.finish_reason, self._logprobs(update.logprobs))
        choice = DeltaChoice(index=index, delta=delta, finish_reason=reason, logprobs=logprobs)
        return ChatChunk(**self._about, object="chat.completion.chunk", choices=[choice])

    def _choice(self, index: int, update: Update) -> ChatChoice:
        message = ChatMessage(role="assistant", content=update.text, refusal=None, **_reasoning(update.thinking))
        logprobs = self._logprobs(update.logprobs)
        return ChatChoice(index=index, message=message, finish_reason=update.finish_reason, logprobs=logprobs)

    def _logprobs(self, logprobs: Sequence[Logprobs] | None) -> ChatLogprobs | None:
        if logprobs is None:
            return None
        content = [
            ChosenToken(**self._entry(each.chosen), top_logprobs=[TokenLogprob(**self._entry(top)) for top in each.top])
            for each in logprobs
        ]
        return ChatLogprobs(content=content, refusal=None)

    def _entry(self, found: Logprob) -> dict[str, Any]:
        piece = self._tokenizer.convert_ids_to_tokens(found.token)
        return {"token": self._text(found.token), "logprob": found.logprob, "bytes": _bytes_of(piece)}


def _reasoning(thinking: str | None) -> dict[str, Any]:
    """Return the thinking under the two names that servers and clients know: DeepSeek's, and vLLM's newer one. OpenAI's
    API has no field for it."""
    return {} if thinking is None else {"reasoning_content": thinking, "reasoning": thinking}


def _total(choices: Sequence[Update]) -> Counts:
    return sum((each.counts for each in choices if each.counts), start=Counts())


def _usage(counts: Counts) -> Usage:
    return Usage(
        prompt_tokens=counts.prompt,
        completion_tokens=counts.output,
        total_tokens=counts.prompt + counts.output,
        prompt_tokens_details=PromptDetails(cached_tokens=counts.cached),
        completion_tokens_details=OutputDetails(
            accepted_prediction_tokens=counts.accepted,
            rejected_prediction_tokens=counts.drafted - counts.accepted,
            reasoning_tokens=counts.thinking,
        ),
    )


def _bytes_of(piece: str) -> list[int] | None:
    """Return the bytes of a token's name in a byte-level vocabulary; None where it is another kind of name."""
    table = _byte_names()
    return [table[letter] for letter in piece] if all(letter in table for letter in piece) else None


@cache
def _byte_names() -> dict[str, int]:
    """Return the letters that represent bytes: printable bytes represent themselves, the others have letters from 256
    on, in their order.

    Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.2.
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}
