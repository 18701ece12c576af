"""Thinking: the text that some models write before an answer, between the tags <think> and </think>. Given."""

from typing import Any, Literal

from .generate import StreamingDetokenizer

__all__ = ["Thinking", "Thoughts"]


class Thinking:
    """The way in which a checkpoint thinks, according to its chat template.

    can_choose: whether the template has a switch for thinking, Qwen3's `enable_thinking`. always: whether the template
    has no such switch and begins each answer with `<think>`, as in QwQ and Qwen3-Thinking-2507.
    tokenizer: mlx-lm's tokenizer, which knows the names of both tags.
    """

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer
        self._opens = {False: False, True: False}  # with thinking off and on: whether the prompt ends in `<think>`
        self.can_choose = self.always = False
        if tokenizer.has_thinking and tokenizer.has_chat_template:
            prompts = {thinks: self._prompt(thinks).rstrip() for thinks in (False, True)}
            self._opens = {thinks: prompt.endswith(tokenizer.think_start) for thinks, prompt in prompts.items()}
            self.can_choose = prompts[False] != prompts[True]
            self.always = self._opens[False] and not self.can_choose

    def choose(self, wanted: bool | None) -> bool:
        """Return whether the model is to think. wanted: the client's choice, or None. For None, the model thinks
        only if its thinking cannot be turned off.

        Raises:
            ValueError: the checkpoint cannot do what the client wants.
        """
        if wanted and not (self.can_choose or self.always):
            raise ValueError("expected a checkpoint whose chat template can turn thinking on, got one without thinking")
        if wanted is False and self.always:
            raise ValueError("expected a checkpoint whose thinking can be turned off, got one that always thinks")
        return self.always or bool(wanted)

    def thoughts(self, thinks: bool) -> "Thoughts":
        """Return a reader for one answer. thinks: the value of `enable_thinking` with which `apply_chat_template` made
        the prompt."""
        return Thoughts(self._tokenizer, self._opens[thinks])

    def _prompt(self, thinks: bool) -> str:
        """Return the prompt of a short sample conversation without a tag in its message."""
        said = [{"role": "user", "content": "Hello"}]
        prompt = self._tokenizer.apply_chat_template(
            said, add_generation_prompt=True, tokenize=False, enable_thinking=thinks
        )
        return str(prompt)


class Thoughts:
    """A reader that separates the tokens of the thinking from the tokens of the answer.

    is_open: whether the thinking has begun and has not ended. count: the number of thinking tokens so far, including
    both tags and the blank tokens after the thinking.
    """

    def __init__(self, tokenizer: Any, is_open: bool):
        self.count = 0
        self._tokenizer = tokenizer
        self._start, self._end = (_single(tokenizer, name) for name in ("think_start_tokens", "think_end_tokens"))
        self._state: Literal["before", "open", "after", "answer"] = "open" if is_open else "before"
        self._text = StreamingDetokenizer(tokenizer)
        self._has_text = False
        self._blank = ""  # whitespace that is held back, because the thinking may end after it

    @property
    def is_open(self) -> bool:
        return self._state == "open"

    def take(self, token: int) -> str | None:
        """Return the new text of the thinking, or None if the token belongs to the answer. The text has no whitespace
        at the beginning and end of the thinking."""
        if self._state == "answer" or (self._state == "before" and token != self._start):
            self._state = "answer"
            return None
        if self._state == "after" and self._tokenizer.decode([token]).strip():
            self._state = "answer"
            return None
        self.count += 1
        if self._state == "after":
            return ""
        if token == self._start:  # a model may repeat the tag that ends its prompt
            self._state = "open"
            return ""
        if token == self._end:
            self._state = "after"
            return self._trimmed(self._text.finish())
        return self._trimmed(self._text.add(token))

    def _trimmed(self, text: str) -> str:
        text = self._blank + text if self._has_text else text.lstrip()
        shown = text.rstrip()
        self._has_text, self._blank = self._has_text or bool(shown), text[len(shown) :]
        return shown


def _single(tokenizer: Any, name: str) -> int | None:
    """Return a tag's token. Return None if the tokenizer has no such tag, or if the tag takes several tokens. (In
    all models of Qwen2 and Qwen3, a tag is one token.)"""
    tokens = getattr(tokenizer, name)
    return tokens[0] if tokens and len(tokens) == 1 else None
