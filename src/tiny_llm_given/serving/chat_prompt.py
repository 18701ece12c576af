"""Turns a conversation into tokens, but never turns text in a message into a control token. Given."""

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from .room import Room

__all__ = ["ChatPrompt", "encode_chat"]


@dataclass(frozen=True)
class ChatPrompt:
    """A conversation, filled into the checkpoint's chat template up to the beginning of the answer.

    If content such as "<|im_end|>" became the token that ends a message, the author of the message could speak as the
    system. To prevent this, marks replace the names of control tokens in contents while the template is filled in.
    Later, these names are encoded as ordinary text.
    parts: the text before each of these names, and the text after the last name. names: the names, in order.
    """

    parts: Sequence[str]
    names: Sequence[str]

    @staticmethod
    def of(tokenizer: Any, messages: Sequence[Mapping[str, str]], *, thinks: bool = False) -> "ChatPrompt":
        """Make a prompt from messages. thinks: whether the model is to think first, if the template offers this
        choice.

        Raises:
            ValueError: the checkpoint has no chat template, or its chat template refuses these messages.
        """
        if not tokenizer.has_chat_template:
            raise ValueError("messages: expected a prompt, since this checkpoint has no chat template")
        names = sorted((str(token) for token in tokenizer.added_tokens_decoder.values()), key=len, reverse=True)
        control = re.compile("|".join(map(re.escape, names)) or "(?!)")
        mark = secrets.token_hex(16)  # no message can contain this mark
        found = [name for message in messages for name in control.findall(message["content"])]
        safe = [{**message, "content": control.sub(mark, message["content"])} for message in messages]
        parts = _filled_in(tokenizer, safe, thinks).split(mark)
        if len(parts) != len(found) + 1:
            raise ValueError(f"messages: the chat template repeats or drops contents, and one of them has {found[0]!r}")
        return ChatPrompt(parts, found)

    def encode(self, tokenizer: Any, room: Room | None = None) -> list[int]:
        """Return the tokens of the prompt. Raises TooLongError as soon as it is certain that the tokens do not fit."""
        if room is not None:
            room.check_text(*self.parts, *self.names)
        spelled = {
            name: tokenizer.encode(name, add_special_tokens=False, split_special_tokens=True)
            for name in set(self.names)
        }
        tokens: list[int] = []
        encode = partial(tokenizer.encode, add_special_tokens=False)
        for part, name in zip(self.parts, [*self.names, None], strict=True):
            tokens += encode(part) if room is None else room.encoded(encode, part)
            tokens += [] if name is None else spelled[name]
            if room is not None:
                room.check_tokens(len(tokens))
        return tokens


def encode_chat(tokenizer: Any, messages: Sequence[Mapping[str, str]], *, thinks: bool = False) -> list[int]:
    """Return the tokens of a `ChatPrompt`. Raises the same errors as `ChatPrompt.of`."""
    return ChatPrompt.of(tokenizer, messages, thinks=thinks).encode(tokenizer)


def _filled_in(tokenizer: Any, messages: Sequence[Mapping[str, str]], thinks: bool) -> str:
    from jinja2 import TemplateError

    try:
        return str(
            tokenizer.apply_chat_template(
                list(messages), add_generation_prompt=True, tokenize=False, enable_thinking=thinks
            )
        )
    except TemplateError as error:
        raise ValueError(f"messages: the checkpoint's chat template refuses them: {error}") from None
