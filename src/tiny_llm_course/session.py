"""A loaded model that streams text to stdout, and what is to be said of each run."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from time import perf_counter
from typing import Any

from .engine import Engine, Wanted
from .problems import CommandError

__all__ = ["DEFAULT_IMPL", "PACKAGES", "Reply", "Session", "Settings", "package_of"]

PACKAGES = {"ref": "tiny_llm_ref", "mine": "tiny_llm"}
if find_spec("tiny_llm_ref") is None:  # an instructor withheld it
    del PACKAGES["ref"]
DEFAULT_IMPL = next(iter(PACKAGES))
_OPTIONS = {"temperature": "--temp", "stops": "--stop"}  # where they are not named as the argument is
_CONTROL = {code: "\ufffd" for code in [*range(32), *range(127, 160)] if chr(code) not in "\n\t"}


def package_of(impl: str) -> str:
    """The package that --impl names.

    Raises:
        CommandError: it names none.
    """
    if impl not in PACKAGES:
        raise CommandError(f"--impl: expected one of {', '.join(PACKAGES)}, got {impl!r}")
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
            raise CommandError(f"--max-tokens: expected 0 or more, got {self.max_tokens}")
        if not 0 <= (self.sampling["seed"] or 0) < 2**64:
            raise CommandError(f"--seed: expected 0 to 2**64 - 1, got {self.sampling['seed']}")
        checks = PACKAGES[DEFAULT_IMPL]  # the reference's, if it is there, since a learner's code may have none
        try:
            with suppress(NotImplementedError):  # a stub: whether it is needed shows when text is generated
                import_module(f"{checks}.generate").StopStrings(self.stops)
                import_module(f"{checks}.sampler").make_sampler(**self.sampling)
        except ValueError as error:
            name, _, rest = str(error).partition(":")
            raise CommandError(f"{_OPTIONS.get(name, '--' + name.replace('_', '-'))}:{rest}; see --help") from None


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

    def watch(self, tokens: Iterable[int]) -> Iterator[int]:
        """Pass tokens on and note when they came."""
        for token in tokens:
            self.times.append(perf_counter())
            yield token
        self.exhausted = True

    @property
    def line(self) -> str:
        """The statistics in short."""
        speed = f" at {self._speed}" if self._speed else ""
        return f"{self.prompt_tokens} tokens in, {len(self.times)} out{speed}; {self.ended}"

    @property
    def table(self) -> str:
        """The statistics in full."""
        wait = self.times[0] - self.start if self.times else 0
        first = f" {_speed(self.prompt_tokens, wait):>14}   first token after {wait:.2f} s" if self.times else ""
        return (
            f"prompt     {self.prompt_tokens:>6} tokens{first}\n"
            f"generated  {len(self.times):>6} tokens {self._speed:>14}   {self.ended}\n"
            f"memory     {_peak_memory():>6.0f} MB at most"
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
        self._generate = import_module(f"{package}.generate")
        self._sampler = _sampler(package, settings.sampling)
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
            for text in self._generate.stream_text(tokens, self._tokenizer, self._settings.stops):
                reply.text += text
                _show(text)
            reply.ended = self._ending(reply)
        except KeyboardInterrupt:
            reply.interrupted, reply.ended = True, "interrupted"
        finally:
            if reply.text and not reply.text.endswith("\n"):
                _show("\n")
        return reply

    def _ending(self, reply: Reply) -> str:
        if not reply.exhausted:
            return "stop string found"
        if len(reply.times) == self.max_tokens:
            return "--max-tokens reached"
        if reply.prompt_tokens + len(reply.times) == self.context:
            return f"context of {self.context} tokens full"
        return "end of text"


def _sampler(package: str, sampling: dict[str, Any]) -> Any:
    """The package's sampler; greedy where that is the same, so that day 6 runs before day 7 is written."""
    module = import_module(f"{package}.sampler")
    if sampling["temperature"] == 0 and sampling["repetition_penalty"] == 1:
        return module.greedy
    return module.make_sampler(**sampling)


def _check_text(*texts: str) -> None:
    if any("\ud800" <= letter <= "\udfff" for letter in "".join(texts)):  # what stands for bytes that are not UTF-8
        raise CommandError("the text: expected UTF-8, got other bytes; convert it, for instance with iconv")


def _show(text: str) -> None:
    """Print at once. A terminal is spared the control characters that a model may produce."""
    print(text.translate(_CONTROL) if sys.stdout.isatty() else text, end="", flush=True)


def _speed(tokens: int, seconds: float) -> str:
    return f"{tokens / seconds:.1f} tok/s" if tokens and seconds else ""


def _peak_memory() -> float:
    """Of this process's arrays, in megabytes."""
    import mlx.core as mx

    return mx.get_peak_memory() / 1e6
