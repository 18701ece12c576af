"""What clients send, as tokens: made away from the event loop. Given."""

import asyncio
import copy
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ..chat_template import ChatTemplate
from ..thinking import Thinking
from .chat_prompt import ChatPrompt
from .room import Room

__all__ = ["Prompts"]

_T = TypeVar("_T")


class Prompts:
    """Parses bodies, fills in the chat template and encodes, each in a thread of its own.

    A thread does one piece of work after the other. Work that has not begun is dropped when nobody waits for it any
    more; work that has begun ends soon, because `Room` and `ChatTemplate` limit it.
    """

    def __init__(self, tokenizer: Any, max_length: int):
        self._encoder = copy.deepcopy(tokenizer)  # the engine's thread has the other: one may not do both at once
        self._template = ChatTemplate(self._encoder)
        self._of_engine = tokenizer
        self._thinking: Thinking | None = None
        self._room = Room(self._encoder, max_length)
        self._threads = {name: ThreadPoolExecutor(1, name) for name in ("parse", "fill-in", "encode")}
        self.size = len(tokenizer)

    async def parse(self, work: Callable[[], _T]) -> _T:
        """What some work makes of a body that is long."""
        return await self._in_thread("parse", work)

    async def encode(self, prompt: str | Sequence[int]) -> tuple[list[int], str]:
        """A prompt as tokens and as text. Raises TooLongError; ValueError where a token is none of the model's."""
        return await self._in_thread("encode", lambda: self._encode(prompt))

    def _encode(self, prompt: str | Sequence[int]) -> tuple[list[int], str]:
        if isinstance(prompt, str):
            self._room.check_text(prompt)
            return list(self._encoder.encode(prompt)), prompt
        self._room.check_tokens(len(prompt))
        if max(prompt) >= self.size:
            raise ValueError(f"prompt: expected token ids below {self.size}, got {max(prompt)}")
        return list(prompt), str(self._encoder.decode(prompt))

    async def encode_chat(self, messages: Sequence[Mapping[str, str]], thinks: bool) -> list[int]:
        """A conversation as tokens. Raises TooLongError; ValueError where there is no template for it."""
        made = await self._in_thread("fill-in", lambda: ChatPrompt.of(self._template, messages, thinks=thinks))
        return await self._in_thread("encode", lambda: made.encode(self._encoder, self._room))

    async def thinking(self) -> Thinking:
        """How the checkpoint thinks, for the engine's thread. Raises ValueError where its chat template fails."""
        if self._thinking is None:
            template = ChatTemplate(self._of_engine)
            self._thinking = await self._in_thread("fill-in", lambda: Thinking(template))
        return self._thinking

    async def _in_thread(self, name: str, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads[name], work)
