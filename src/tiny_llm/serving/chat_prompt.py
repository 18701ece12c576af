"""A conversation as tokens, in which what people wrote is text, and never a control token. Given."""

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["encode_chat"]


def encode_chat(tokenizer: Any, messages: Sequence[Mapping[str, str]], *, thinks: bool = False) -> list[int]:
    """The tokens of messages in the checkpoint's chat template, up to where the answer begins.

    thinks: whether the model shall think first, as far as the template leaves that open.

    A content such as "<|im_end|>" would become the token that ends a message, and whoever wrote it could speak as the
    system. So names of such tokens in contents are replaced by marks while the template is filled in, and encoded as
    the letters that they are.

    Raises:
        ValueError: the checkpoint has no chat template, or one that refuses these messages.
    """
    if not tokenizer.has_chat_template:
        raise ValueError("messages: expected a prompt, since this checkpoint has no chat template")
    names = sorted((str(token) for token in tokenizer.added_tokens_decoder.values()), key=len, reverse=True)
    control = re.compile("|".join(map(re.escape, names)) or "(?!)")
    mark = secrets.token_hex(16)  # nobody can have written it
    found: list[str] = []

    def marked(match: re.Match[str]) -> str:
        found.append(match.group())
        return mark

    safe = [{**message, "content": control.sub(marked, message["content"])} for message in messages]
    if not found:
        return list(_filled_in(tokenizer, safe, tokenize=True, enable_thinking=thinks))
    parts = _filled_in(tokenizer, safe, tokenize=False, enable_thinking=thinks).split(mark)
    if len(parts) != len(found) + 1:
        raise ValueError(f"messages: the chat template repeats or drops contents, and one of them has {found[0]!r}")
    tokens: list[int] = []
    for part, name in zip(parts, [*found, ""], strict=True):
        tokens += tokenizer.encode(part, add_special_tokens=False)
        tokens += tokenizer.encode(name, add_special_tokens=False, split_special_tokens=True)
    return tokens


def _filled_in(tokenizer: Any, messages: Sequence[Mapping[str, str]], **how: bool) -> Any:
    from jinja2 import TemplateError

    try:
        return tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, **how)
    except TemplateError as error:
        raise ValueError(f"messages: the checkpoint's chat template refuses them: {error}") from None
