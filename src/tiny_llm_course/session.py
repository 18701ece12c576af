"""A loaded model that streams text to stdout, and what is to be said of each run."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from time import perf_counter
from typing import Any

from .engine import Engine, Wanted, open_stubs
from .language import Messages, phrase
from .needs import has_cache, needs_of_text
from .params import PARAMS
from .problems import CommandError, needing, one_of
from .syllabus import TaskId
from .terminal import left

__all__ = ["DEFAULT_IMPL", "PACKAGES", "Reply", "Session", "Settings", "package_of"]

PACKAGES = {"ref": "tiny_llm_ref", "mine": "tiny_llm"}
if find_spec("tiny_llm_ref") is None:  # an instructor withheld it
    del PACKAGES["ref"]
DEFAULT_IMPL = next(iter(PACKAGES))
_OPTIONS = {"temperature": "--temp"}  # where they are not named as the argument is
_CONTROL = {code: "\ufffd" for code in [*range(32), *range(127, 160)] if chr(code) not in "\n\t"}


def package_of(impl: str) -> str:
    """The package that --impl names.

    Raises:
        CommandError: it names none.
    """
    if impl not in PACKAGES:
        raise CommandError("wrong_value", option="--impl", expected=one_of(PACKAGES), got=impl)
    return PACKAGES[impl]


@dataclass(frozen=True)
class Settings:
    """What `main` and `chat` are both asked for.

    Raises:
        CommandError: an option is out of range.
    """

    wanted: Wanted
    max_tokens: int
    stops: list[str]
    sampling: dict[str, Any]  # make_sampler's arguments

    def __post_init__(self) -> None:
        if self.max_tokens < 0:
            raise CommandError(
                "wrong_value", option="--max-tokens", expected=phrase("at_least", least=0), got=self.max_tokens
            )
        asked = [*self.sampling.items(), *(("stop", stop) for stop in self.stops)]
        for name, value in asked:
            if value is not None and not PARAMS[name].holds(value):
                option = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
                raise CommandError("wrong_value", option=option, expected=PARAMS[name].expected, got=value)

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is taken each time."""
        return bool(self.sampling["temperature"] == 0 and self.sampling["repetition_penalty"] == 1)

    @cached_property
    def needs(self) -> set[TaskId]:
        """The tasks whose code runs."""
        wanted = self.wanted
        is_cached = wanted.is_filled or has_cache(open_stubs(wanted.package))
        return needs_of_text(wanted.bits is not None, wanted.layers, self.is_greedy, is_cached)


@dataclass
class Reply:
    """What one run of the generation loop said, and when."""

    prompt_tokens: int
    text: str = ""
    ended: str = ""  # why
    interrupted: bool = False
    exhausted: bool = False  # whether the loop ended by itself
    start: float = field(default_factory=perf_counter)
    times: list[float] = field(default_factory=list)  # of each new token
    tokens: list[int] = field(default_factory=list)

    def watch(self, tokens: Iterable[int]) -> Iterator[int]:
        """Pass tokens on and note when they came."""
        for token in tokens:
            self.times.append(perf_counter())
            self.tokens.append(token)
            yield token
        self.exhausted = True

    @property
    def line(self) -> str:
        """The statistics in short."""
        counts = {"read": self.prompt_tokens, "written": len(self.times), "ended": self.ended}
        if not self._speed:
            return Messages()("reply_line", **counts)
        return Messages()("reply_line_speed", speed=self._speed, **counts)

    @property
    def table(self) -> str:
        """The statistics in full."""
        words = Messages()
        wait = self.times[0] - self.start if self.times else 0
        first = words("reply_first", seconds=f"{wait:.2f}") if self.times else ""
        rows = [
            ("reply_prompt", self.prompt_tokens, "reply_tokens", _speed(self.prompt_tokens, wait), first),
            ("reply_generated", len(self.times), "reply_tokens", self._speed, self.ended),
            ("reply_memory", round(_peak_memory()), "reply_megabytes", "", ""),
        ]
        return "\n".join(
            f"{left(words(label), 10)} {number:>6} {words(unit)} {speed:>14}   {note}".rstrip()
            for label, number, unit, speed, note in rows
        )

    @property
    def _speed(self) -> str:
        """Of the tokens after the first, which alone waits for the prompt."""
        return _speed(len(self.times) - 1, self.times[-1] - self.times[0]) if self.times else ""


class Session:
    """A loaded model and its tokenizer."""

    def __init__(self, settings: Settings):
        package = settings.wanted.package
        self._settings = settings
        with needing(settings.needs):
            self._generate = import_module(f"{package}.generate")
            self._sampler = _sampler(package, settings)
            self._engine = Engine(settings.wanted)
        self._tokenizer = self._engine.tokenizer
        self.context: int = self._engine.model.config.max_position_embeddings
        self.max_tokens = settings.max_tokens
        self.has_chat_template: bool = self._tokenizer.has_chat_template

    def encode(self, text: str) -> list[int]:
        """The text's tokens. Raises a CommandError if it is not a proper text."""
        _check_text(text)
        return list(self._tokenizer.encode(text))

    def encode_chat(self, system: str | None, said: list[str]) -> list[int]:
        """The tokens of a conversation that the user began and the model is to answer."""
        _check_text(system or "", *said)
        messages = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(said)]
        if system is not None:
            messages.insert(0, {"role": "system", "content": system})
        return list(self._tokenizer.apply_chat_template(messages, add_generation_prompt=True))

    def reply(self, prompt: list[int]) -> Reply:
        """Print what follows the prompt on stdout, as it comes; Ctrl-C ends it."""
        reply = Reply(len(prompt))
        try:
            tokens = reply.watch(self._engine.tokens(prompt, self._sampler, self.max_tokens))
            with needing(self._settings.needs):
                for text in self._generate.stream_text(tokens, self._tokenizer, self._settings.stops):
                    reply.text += text
                    _show(text)
            reply.ended = self._ending(reply)
        except KeyboardInterrupt:
            reply.interrupted, reply.ended = True, Messages()("interrupted")
        finally:
            if reply.text and not reply.text.endswith("\n"):
                _show("\n")
        return reply

    @property
    def has_cache(self) -> bool:
        """Whether tokens are generated with a KV cache."""
        return self._engine.has_cache

    def ends_itself(self, reply: Reply) -> bool:
        """Whether the model ended its text."""
        length = len(reply.tokens)
        return reply.exhausted and length < self.max_tokens and reply.prompt_tokens + length < self.context

    def _ending(self, reply: Reply) -> str:
        words = Messages()
        if not reply.exhausted:
            return words("reply_stopped")
        if len(reply.times) == self.max_tokens:
            return words("reply_most")
        if reply.prompt_tokens + len(reply.times) == self.context:
            return words("reply_full", context=self.context)
        return words("reply_end")


def _sampler(package: str, settings: Settings) -> Any:
    """The package's sampler; greedy where that is the same, so that day 6 runs before day 7 is written."""
    module = import_module(f"{package}.sampler")
    return module.greedy if settings.is_greedy else module.make_sampler(**settings.sampling)


def _check_text(*texts: str) -> None:
    if any("\ud800" <= letter <= "\udfff" for letter in "".join(texts)):  # what stands for bytes that are not UTF-8
        raise CommandError("text_not_utf8")


def _show(text: str) -> None:
    """Print at once. A terminal is spared the control characters that a model may produce."""
    print(text.translate(_CONTROL) if sys.stdout.isatty() else text, end="", flush=True)


def _speed(tokens: int, seconds: float) -> str:
    return f"{tokens / seconds:.1f} tok/s" if tokens and seconds else ""


def _peak_memory() -> float:
    """Of this process's arrays, in megabytes."""
    import mlx.core as mx

    return mx.get_peak_memory() / 1e6
