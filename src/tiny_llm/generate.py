"""From logits to text: the generation loop, and text that can be printed while the model is still generating."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Protocol, TypeAlias

import mlx.core as mx

from tiny_llm_given.config import ModelConfig

from .kv_cache import Cache, KVCache
from .qwen2 import CausalLM

__all__ = [
    "Decoder",
    "Sampler",
    "StopStrings",
    "StreamingDetokenizer",
    "generate",
    "generate_ahead",
    "generate_simple",
    "next_logits",
    "stream_text",
]

Sampler: TypeAlias = Callable[[mx.array, mx.array], mx.array]  # logits B x V, tokens so far B x L -> next tokens B


class Decoder(Protocol):
    """The part of a tokenizer that streaming needs."""

    def decode(self, tokens: list[int], /, skip_special_tokens: bool) -> str: ...


def generate_simple(
    model: CausalLM,
    prompt: Sequence[int],
    sampler: Sampler,
    max_tokens: int = 256,
    eos_token_ids: Collection[int] = (),
) -> Iterator[int]:
    """Yield the tokens that follow the prompt, as Python ints, each before the model computes the next token.

    At each step, run the model on the whole sequence.
    prompt: token ids, at least one. sampler: a function from the logits after the last token (1 x V) and all tokens so
    far (1 x L), including the prompt, to the next token.
    The loop ends before it yields one of eos_token_ids; after max_tokens tokens; or when the sequence fills the model's
    context (`model.config.max_position_embeddings`).

    Raises:
        ValueError: the prompt is empty, leaves no room in the context or has an id outside the vocabulary; max_tokens
            is negative. `_check_prompt` (given) raises these errors when the caller asks for the first token.

    Task: w1d6.1
    """
    _check_prompt(prompt, max_tokens, model.config)
    raise NotImplementedError(
        "Week 1 Day 6 Task 1: generate_simple is yours to write. Chapter: Generating text. Test: ./course test w1d6.1"
    )


def next_logits(model: CausalLM, tokens: mx.array, cache: Cache) -> mx.array:
    """Run the model on `tokens`, which follow the tokens in the cache. Return only the logits after the last token.

    Shapes: tokens: B x L -> B x V. Pass only the last hidden vectors, B x 1 x E, to `model.logits`.

    Task: w2d1.3
    """
    raise NotImplementedError(
        "Week 2 Day 1 Task 3: next_logits is yours to write. Chapter: The KV cache. Test: ./course test w2d1.3"
    )


def generate(
    model: CausalLM,
    prompt: Sequence[int],
    sampler: Sampler,
    max_tokens: int = 256,
    eos_token_ids: Collection[int] = (),
    cache: Cache | None = None,
) -> Iterator[int]:
    """Yield the same tokens as `generate_simple`, but run the model on each token only once.

    The model runs on the whole prompt first (prefill), then on one new token at a time (decode), each time through
    `next_logits`. The model never runs on the last token, because no further token is needed.
    cache: an empty cache, which this function fills; None means a new `KVCache`. Everything else is as in
    `generate_simple`, including the errors of `_check_prompt`.

    Task: w2d1.3
    """
    _check_prompt(prompt, max_tokens, model.config)
    raise NotImplementedError(
        "Week 2 Day 1 Task 3: generate is yours to write. Chapter: The KV cache. Test: ./course test w2d1.3"
    )


def generate_ahead(
    model: CausalLM,
    prompt: Sequence[int],
    sampler: Sampler,
    max_tokens: int = 256,
    eos_token_ids: Collection[int] = (),
    cache: Cache | None = None,
) -> Iterator[int]:
    """Yield the same tokens as `generate`, but read each token only after submitting the next step.

    A step is a call to `next_logits` and to the sampler, and computes one token. `mx.async_eval` submits a step to MLX
    and does not wait for the result. The next step uses the array with the previous step's token, even if that token is
    not computed yet. So MLX can compute the next step while Python reads a token and the caller prints it.
    When token t is yielded, steps 1 to t + 1 have been submitted, but no step for a token beyond max_tokens or beyond
    the context. Reading a token waits only for the step that computes it. An operation on the array, such as
    `token[0]`, would be computed only after the next step, so read the array that you submitted.
    By the time an end-of-sequence token is read, one more step has been submitted for nothing, so the cache holds one
    token more than after `generate`.
    sampler: as in `generate`, but the sampler's arguments may not be computed yet. Everything else is as in `generate`.

    Task: w2d1.4
    """
    _check_prompt(prompt, max_tokens, model.config)
    raise NotImplementedError(
        "Week 2 Day 1 Task 4: generate_ahead is yours to write. Chapter: The KV cache. Test: ./course test w2d1.4"
    )


class StreamingDetokenizer:
    """A detokenizer, which turns tokens into text as the tokens come.

    A character may be spread over several tokens (Japanese, emoji). Until the character's last byte has come, the
    decoded text ends with U+FFFD, the replacement character. Hold this U+FFFD back: show no broken characters.
    The results of `add` and `finish`, joined, are the text of all tokens decoded at once, without special tokens.
    The cost of `add` must not grow with the length of the text returned so far.
    Decoding may drop a space at the beginning, so a token that is decoded alone can lose its space. A new byte may also
    turn whole characters right before it into U+FFFD again, until the byte's own character is whole. Do not return such
    characters a second time.

    Task: w1d6.2
    """

    def __init__(self, tokenizer: Decoder):
        raise NotImplementedError(
            "Week 1 Day 6 Task 2: StreamingDetokenizer.__init__ is yours to write. "
            "Chapter: Generating text. "
            "Test: ./course test w1d6.2"
        )

    def add(self, token: int) -> str:
        """Return the text that this token completes; the text may be empty."""
        raise NotImplementedError(
            "Week 1 Day 6 Task 2: StreamingDetokenizer.add is yours to write. "
            "Chapter: Generating text. "
            "Test: ./course test w1d6.2"
        )

    def finish(self) -> str:
        """Return the text that was held back, including broken characters. Call this method after the last token."""
        raise NotImplementedError(
            "Week 1 Day 6 Task 2: StreamingDetokenizer.finish is yours to write. "
            "Chapter: Generating text. "
            "Test: ./course test w1d6.2"
        )


class StopStrings:
    """A filter for a text that comes in pieces: it cuts the text off before the first stop string.

    The first stop string is the one that is complete first or, if several end at the same character, the one that
    begins first. Text that may begin a stop string is held back until later text completes or excludes this string.
    The results of `add` and `finish`, joined, are the text before the first stop string, or the whole text if there is
    none. `found` says whether a stop string was found.

    Raises:
        ValueError: a stop string is empty, or `stops` is one string instead of several. `_check_stops` (given) raises
            this error.

    Task: w1d6.3
    """

    def __init__(self, stops: Sequence[str] = ()):
        _check_stops(stops)
        raise NotImplementedError(
            "Week 1 Day 6 Task 3: StopStrings.__init__ is yours to write. "
            "Chapter: Generating text. "
            "Test: ./course test w1d6.3"
        )

    def add(self, text: str) -> str:
        """Return the text that certainly comes before any stop string; "" after a stop string has been found."""
        raise NotImplementedError(
            "Week 1 Day 6 Task 3: StopStrings.add is yours to write. "
            "Chapter: Generating text. "
            "Test: ./course test w1d6.3"
        )

    def finish(self) -> str:
        """Return the text that was held back. No more text comes, so the held-back text cannot become a stop string."""
        raise NotImplementedError(
            "Week 1 Day 6 Task 3: StopStrings.finish is yours to write. "
            "Chapter: Generating text. "
            "Test: ./course test w1d6.3"
        )


def stream_text(tokens: Iterable[int], tokenizer: Decoder, stops: Sequence[str] = ()) -> Iterator[str]:
    """Yield the tokens' text once its characters are whole, up to the first stop string; then take no more tokens.

    If the tokens end in the middle of a character, that character is left out.
    """
    detokenizer, stop_strings = StreamingDetokenizer(tokenizer), StopStrings(stops)
    for token in tokens:
        if text := stop_strings.add(detokenizer.add(token)):
            yield text
        if stop_strings.found:
            return
    if text := stop_strings.finish():
        yield text


def _check_prompt(prompt: Sequence[int], max_tokens: int, config: ModelConfig) -> None:
    if len(prompt) == 0:
        raise ValueError("prompt: expected at least one token, got none")
    if len(prompt) >= config.max_position_embeddings:
        raise ValueError(
            f"prompt: expected fewer tokens than the context of {config.max_position_embeddings}, got {len(prompt)}"
        )
    if not all(0 <= token < config.vocab_size for token in prompt):
        raise ValueError(
            f"prompt: expected token ids from 0 to {config.vocab_size - 1}, got {min(prompt)} to {max(prompt)}"
        )
    if max_tokens < 0:
        raise ValueError(f"max_tokens: expected 0 or more, got {max_tokens}")


def _check_stops(stops: Sequence[str]) -> None:
    if isinstance(stops, str) or not all(stops):
        raise ValueError(f"stops: expected a sequence of non-empty strings, got {stops!r}")
