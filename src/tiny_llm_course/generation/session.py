"""A loaded model that streams text to stdout, and the notes and statistics that are printed for each run."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from time import perf_counter
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from tiny_llm_given.serving.parameters import Parameters

from ..base.reporting import needing
from ..model.expectations import EXPECTED_STOP, first_wrong
from ..model.loaded_model import LoadedModel, Wanted
from ..model.needs import has_cache, needs_of_text, open_stubs
from ..model.options import COURSE_SAMPLING, MAX_TOKENS, MAX_TOKENS_THINKING
from ..model.package_protocols import Sampler, Thinking, Thoughts
from ..tasks.syllabus import TaskId
from ..ui import CommandError, Messages, left, phrase
from .shown_thinking import ShownThinking
from .streaming import output

if TYPE_CHECKING:
    import mlx.core as mx

__all__ = ["Reply", "Session", "Settings"]

_OPTIONS = {"temperature": "--temp"}  # options whose names differ from their arguments' names, keyed by argument
FILTERS = {"top_k", "top_p", "min_p"}  # settings without effect at temperature 0


@dataclass(frozen=True)
class Settings:
    """The settings that `main` and `chat` share.

    Raises:
        CommandError: an option is out of range.
    """

    wanted: Wanted
    max_tokens: int | None
    stops: list[str]
    sampling: dict[str, Any]  # arguments of make_sampler; None: the checkpoint's value or, without one, the course's
    think: bool | None = None

    def __post_init__(self) -> None:
        if (self.max_tokens or 0) < 0:
            raise CommandError(
                "wrong_value", option="--max-tokens", expected=phrase("at_least", least=0), got=self.max_tokens
            )
        try:
            Parameters.model_validate({**self.sampling, "stop": self.stops})
        except ValidationError as error:
            wrong = first_wrong(Parameters, error, {"stop": EXPECTED_STOP})
            name = wrong.place.partition("[")[0]
            option = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
            raise CommandError("wrong_value", option=option, expected=wrong.expected, got=wrong.got) from None

    @property
    def given(self) -> dict[str, Any]:
        """Return the sampling settings that the user gave."""
        return {name: value for name, value in self.sampling.items() if value is not None}

    @property
    def is_greedy(self) -> bool:
        """Tell whether the settings always choose the likeliest token, provided that the checkpoint has no sampling
        settings of its own."""
        return _is_greedy(COURSE_SAMPLING | self.given)

    @cached_property
    def needs(self) -> set[TaskId]:
        """Return the tasks whose code runs with these settings."""
        wanted = self.wanted
        is_cached = wanted.is_filled or has_cache(open_stubs(wanted.package))
        return needs_of_text(wanted.bits is not None, wanted.layers, self.is_greedy, is_cached)


@dataclass
class Reply:
    """The text of one run of the generation loop, and the time of each token."""

    prompt_tokens: int
    max_tokens: int
    thoughts: Thoughts | None = None  # separates the thinking from the answer; None: the reply has no thinking
    text: str = ""  # the answer
    thinking: str = ""
    ended: str = ""  # why the reply ended, in words
    interrupted: bool = False
    exhausted: bool = False  # whether the generation loop ended by itself
    start: float = field(default_factory=perf_counter)
    tokens: list[int] = field(default_factory=list)  # the new tokens
    times: list[float] = field(default_factory=list)  # the time at which each token came, in seconds

    def watch(self, tokens: Iterable[int]) -> Iterator[int]:
        """Yield the same tokens, and record the time at which each token came."""
        for token in tokens:
            self.times.append(perf_counter())
            self.tokens.append(token)
            yield token
        self.exhausted = True

    @property
    def line(self) -> str:
        """Return the statistics in one line."""
        words, ended = Messages(), self.ended
        if self._num_thinking:
            ended += words("reply_thought", count=self._num_thinking)
        counts = {"read": self.prompt_tokens, "written": len(self.times), "ended": ended}
        if not self._speed:
            return words("reply_line", **counts)
        return words("reply_line_speed", speed=self._speed, **counts)

    @property
    def table(self) -> str:
        """Return the statistics as a table."""
        words = Messages()
        wait = self.times[0] - self.start if self.times else 0
        first = words("reply_first", seconds=f"{wait:.2f}") if self.times else ""
        rows = [
            ("reply_prompt", self.prompt_tokens, "reply_tokens", _speed(self.prompt_tokens, wait), first),
            ("reply_generated", len(self.times), "reply_tokens", self._speed, self.ended),
            *([("reply_thinking", self._num_thinking, "reply_of_these", "", "")] if self._num_thinking else []),
            ("reply_memory", round(_peak_memory()), "reply_megabytes", "", ""),
        ]
        return "\n".join(
            f"{left(words(label), 10)} {number:>6} {words(unit)} {speed:>14}   {note}".rstrip()
            for label, number, unit, speed, note in rows
        )

    @property
    def _num_thinking(self) -> int:
        """Return the number of thinking tokens."""
        return self.thoughts.count if self.thoughts else 0

    @property
    def _speed(self) -> str:
        """Return the speed of all tokens but the first, since only the first token waits for the prompt."""
        return _speed(len(self.times) - 1, self.times[-1] - self.times[0]) if self.times else ""


class Session:
    """A loaded model and its tokenizer.

    thinks: whether the model thinks before it answers. thinking: the way in which the checkpoint thinks. sampling: a
    sentence about the sampling settings that come from the checkpoint, or "". path: the path of the checkpoint.
    dtype: the dtype in which the model computes.
    """

    def __init__(self, settings: Settings):
        package = settings.wanted.package
        self._settings = settings
        with needing(settings.needs):
            sampler, self._generate = import_module(f"{package}.sampler"), import_module(f"{package}.generate")
            _sampler(sampler, COURSE_SAMPLING | settings.given)  # raises a stub's error before a model is loaded
            self._engine = LoadedModel(settings.wanted)
            advised = {k: v for k, v in self._engine.sampling.items() if k not in settings.given}
            sampling = COURSE_SAMPLING | advised | settings.given
            self._sampler = _sampler(sampler, sampling)
        self._check_finite = import_module("tiny_llm_given.finite").check_finite
        has_choice = sampling["temperature"] > 0
        self.sampling = _in_words({k: v for k, v in advised.items() if has_choice or k not in FILTERS})
        self._tokenizer = self._engine.tokenizer
        self.thinking: Thinking = import_module(f"{package}.thinking").Thinking(self._tokenizer)
        self.thinks = self._choose_thinking(settings.think)
        self.context: int = self._engine.model.config.max_position_embeddings
        self.max_tokens = self._most(MAX_TOKENS_THINKING if self.thinks else MAX_TOKENS)
        self.has_chat_template: bool = self._tokenizer.has_chat_template
        self.path = self._engine.path
        self.dtype = self._engine.dtype

    def encode(self, text: str) -> list[int]:
        """Return the text's tokens. Raise a CommandError if the text has bytes that are not UTF-8."""
        _check_text(text)
        return list(self._tokenizer.encode(text))

    def encode_chat(self, system: str | None, said: list[str]) -> list[int]:
        """Return the tokens of a conversation that the user began and the model is to answer."""
        _check_text(system or "", *said)
        messages = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(said)]
        if system is not None:
            messages.insert(0, {"role": "system", "content": system})
        how = {"add_generation_prompt": True, "enable_thinking": self.thinks}
        return list(self._tokenizer.apply_chat_template(messages, **how))

    def reply(self, prompt: list[int]) -> Reply:
        """Print the model's answer to stdout and its thinking to stderr, while they are generated. Ctrl-C ends the
        reply."""
        return self._reply(Reply(len(prompt), self.max_tokens, self.thinking.thoughts(self.thinks)), prompt)

    def write_on(self, prompt: list[int]) -> Reply:
        """Print the model's continuation of a text to stdout while it is generated. Ctrl-C ends the reply."""
        return self._reply(Reply(len(prompt), self._most(MAX_TOKENS)), prompt)

    def _reply(self, reply: Reply, prompt: list[int]) -> Reply:
        thinking, shown = ShownThinking(), output(sys.stdout)
        try:
            tokens = reply.watch(self._engine.tokens(prompt, self._checked_sampler, reply.max_tokens))
            with needing(self._settings.needs):
                answer = tokens if reply.thoughts is None else thinking.without(tokens, reply.thoughts)
                for text in self._generate.stream_text(answer, self._tokenizer, self._settings.stops):
                    reply.text += text
                    shown.add(text)
            shown.end()
            reply.ended = self._ending(reply)
        except KeyboardInterrupt:
            reply.interrupted, reply.ended = True, Messages()("interrupted")
        finally:
            thinking.end()
            reply.thinking = thinking.text
            if reply.text and not reply.text.endswith("\n"):
                print(flush=True)
        return reply

    def _checked_sampler(self, logits: mx.array, tokens: mx.array) -> mx.array:
        """Choose the next tokens. Raise a FloatingPointError if the logits are not finite."""
        self._check_finite(logits)
        return self._sampler(logits, tokens)

    @property
    def has_cache(self) -> bool:
        """Tell whether tokens are generated with a KV cache."""
        return self._engine.has_cache

    @property
    def lacks_kernels(self) -> bool:
        """Tell whether the layers are plain because no kernels are compiled."""
        return self._engine.lacks_kernels

    def ends_itself(self, reply: Reply) -> bool:
        """Tell whether the model ended its text itself, before the text reached a limit."""
        length = len(reply.tokens)
        return reply.exhausted and length < reply.max_tokens and reply.prompt_tokens + length < self.context

    def _most(self, default: int) -> int:
        """Return how many tokens an answer may have."""
        return default if self._settings.max_tokens is None else self._settings.max_tokens

    def _choose_thinking(self, think: bool | None) -> bool:
        try:
            return bool(self.thinking.choose(think))
        except ValueError:
            raise (CommandError("cannot_think") if think else CommandError("always_thinks")) from None

    def _ending(self, reply: Reply) -> str:
        words = Messages()
        if not reply.exhausted:
            return words("reply_stopped")
        if len(reply.times) == reply.max_tokens:
            more = words("reply_give_more", count=max(2 * reply.max_tokens, MAX_TOKENS_THINKING))
            return words("reply_most") + self._advice(reply, more)
        if reply.prompt_tokens + len(reply.times) == self.context:
            return words("reply_full", context=self.context) + self._advice(reply, words("reply_ask_less"))
        return words("reply_end")

    def _advice(self, reply: Reply, more: str) -> str:
        """Return advice for a reply that has no answer yet."""
        if reply.thoughts is None or not reply.thoughts.is_open:
            return ""
        words = Messages()
        without = words("reply_without") if self.thinking.can_choose else ""
        return words("reply_unanswered", advice=more + without)


def _in_words(sampling: dict[str, Any]) -> str:
    settings = ", ".join(f"{name} {value}" for name, value in sampling.items())
    return Messages()("reply_sampling", settings=settings) if settings else ""


def _sampler(module: Any, sampling: dict[str, Any]) -> Sampler:
    """Return the package's sampler, or `greedy` if both choose the same tokens, so that day 6 works before day 7 is
    written."""
    made: Sampler = module.greedy if _is_greedy(sampling) else module.make_sampler(**sampling)
    return made


def _is_greedy(sampling: dict[str, Any]) -> bool:
    return bool(sampling["temperature"] == 0 and sampling["repetition_penalty"] == 1)


def _check_text(*texts: str) -> None:
    if any("\ud800" <= letter <= "\udfff" for letter in "".join(texts)):  # surrogates: bytes that are not UTF-8
        raise CommandError("text_not_utf8")


def _speed(tokens: int, seconds: float) -> str:
    return f"{tokens / seconds:.1f} tok/s" if tokens and seconds else ""


def _peak_memory() -> float:
    """Return the peak memory of this process's arrays, in megabytes."""
    import mlx.core as mx

    return mx.get_peak_memory() / 1e6
