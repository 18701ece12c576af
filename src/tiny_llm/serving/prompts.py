"""Turns the texts that clients send into tokens, outside the event loop. Given."""

import asyncio
import copy
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from tiny_llm_given.chat_template import ChatTemplate
from tiny_llm_given.serving.chat_prompt import ChatPrompt
from tiny_llm_given.serving.room import Room

from ..thinking import Thinking

__all__ = ["Prompts"]

_T = TypeVar("_T")
_LONG = 1 << 14  # characters or tokens


class Prompts:
    """Workers that parse bodies, fill in the chat template and encode texts, each in a thread of its own.

    A thread does one task after the other. A task that has not begun is dropped when nothing waits for it any more; a
    task that has begun ends soon, because `Room` limits the length of a text, and `ChatTemplate` limits the time for a
    conversation. Long texts have a thread of their own, so that short texts do not wait for long texts, and a tokenizer
    of their own, because only one thread may use a tokenizer at a time.
    """

    def __init__(self, tokenizer: Any, max_length: int):
        self._encoders = {name: copy.deepcopy(tokenizer) for name in ("encode", "encode-long")}
        self._template = ChatTemplate(self._encoders["encode"])
        self._of_engine = tokenizer
        self._thinking: Thinking | None = None
        self._room = Room(tokenizer, max_length)
        self._threads = {name: ThreadPoolExecutor(1, name) for name in ("parse", "fill-in", *self._encoders)}
        self.size = len(tokenizer)

    async def parse(self, work: Callable[[], _T]) -> _T:
        """Parse a long body in a thread."""
        return await self._in_thread("parse", work)

    async def encode(self, prompt: str | Sequence[int]) -> tuple[list[int], str]:
        """Return a prompt as tokens and as text. Raises TooLongError if the prompt is too long, and ValueError if a
        token is outside the model's vocabulary."""
        name = _encoder_for(len(prompt))
        return await self._in_thread(name, lambda: self._encode(self._encoders[name], prompt))

    def _encode(self, encoder: Any, prompt: str | Sequence[int]) -> tuple[list[int], str]:
        if isinstance(prompt, str):
            self._room.check_text(prompt)
            return self._room.encoded(encoder.encode, prompt), prompt
        self._room.check_tokens(len(prompt))
        if max(prompt) >= self.size:
            raise ValueError(f"prompt: expected token ids below {self.size}, got {max(prompt)}")
        return list(prompt), str(encoder.decode(prompt))

    async def encode_chat(self, messages: Sequence[Mapping[str, str]], thinks: bool) -> list[int]:
        """Return a conversation as tokens. Raises TooLongError if it is too long, or any error of `ChatPrompt.of`."""
        made = await self._in_thread("fill-in", lambda: ChatPrompt.of(self._template, messages, thinks=thinks))
        name = _encoder_for(sum(map(len, made.parts)))
        return await self._in_thread(name, lambda: made.encode(self._encoders[name], self._room))

    async def thinking(self) -> Thinking:
        """Return the checkpoint's `Thinking`, for use in the engine's thread. Raises ValueError if the chat template
        fails."""
        if self._thinking is None:
            return await self._in_thread("fill-in", self._look_at_thinking)
        return self._thinking

    def _look_at_thinking(self) -> Thinking:
        if self._thinking is None:
            template = ChatTemplate(self._of_engine)
            try:
                self._thinking = Thinking(template)
            finally:
                template.close()
        return self._thinking

    async def _in_thread(self, name: str, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads[name], work)


def _encoder_for(length: int) -> str:
    """Return the name of the thread that encodes a prompt. length: the prompt's length, in characters or tokens."""
    return "encode" if length < _LONG else "encode-long"
