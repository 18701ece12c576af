"""Serves many requests at the same time, with a loaded model and week 3's cache, scheduler and engine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tiny_llm_models import draft_heads

from ..base.reporting import needing
from ..model.loaded_model import LoadedModel, Wanted, is_on_cpu
from ..model.needs import needs_of_serving, open_stubs
from ..model.package_protocols import Thinking
from ..tasks.syllabus import TaskId
from ..tasks.unsolved import Stub
from ..ui import CommandError, Messages, one_of, phrase, show_note
from .engine_protocols import Engine as ServingEngine
from .engine_protocols import Observer

__all__ = ["HEADS", "KINDS", "NGRAM", "Kind", "Options", "Serving", "kinds_of", "missing"]

NGRAM, HEADS = "ngram", "heads"  # in place of a model's name
SLOTS, BUDGET, PAGED_ATTENTION, PREFIXES, SPECULATION = 1, 2, 4, 5, 6  # days of week 3
MEMORY = 4  # a cache may take 1 / MEMORY of the machine's memory
NUMBER = 4  # the most bytes of an element in the cache
SAMPLING = TaskId(3, 2, 3)  # batched sampling
_NOT_RUN = ("latency", "batch_sampler")  # files with tasks of week 3 that requests do not need


@dataclass(frozen=True)
class Kind:
    """A cache of week 3. days: the days of week 3 whose code the cache runs."""

    name: str
    days: tuple[int, ...]


KINDS = (  # in the order of the course
    Kind("slots", (SLOTS,)),
    Kind("pages", (1, 3)),
    Kind("kernel-pages", (1, 3, PAGED_ATTENTION)),
    Kind("prefix", (1, 3, PREFIXES)),
    Kind("kernel-prefix", (1, 3, PAGED_ATTENTION, PREFIXES)),
)


@dataclass(frozen=True)
class Options:
    """The options for serving requests.

    cache: the name of one of KINDS, or None for the last one in KINDS whose tasks are all done. pages: the number of
    pages, or None for as many as the requests need. draft: the model that guesses, NGRAM for guesses from the text
    itself, HEADS for guesses of the model's draft heads, or None for no guesses. num_drafts: the maximum number of
    guesses per request that a step checks.

    Raises:
        CommandError: an option is out of range.
    """

    wanted: Wanted
    max_running: int = 16
    token_budget: int = 256
    cache: str | None = None
    pages: int | None = None
    page_size: int = 16
    is_checked: bool = False
    draft: str | None = None
    num_drafts: int = 4

    def __post_init__(self) -> None:
        for name in ("max_running", "page_size", "pages", "num_drafts"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise CommandError(
                    "wrong_value",
                    option=f"--{name.replace('_', '-')}",
                    expected=phrase("at_least", least=1),
                    got=value,
                )
        if self.token_budget < self.max_running:
            raise CommandError("budget_too_small", least=self.max_running, got=self.token_budget)
        known = [kind.name for kind in kinds_of(self.wanted.package)]
        if self.cache not in (None, *known):
            raise CommandError("wrong_value", option="--cache", expected=one_of(known), got=self.cache)
        if self.cache == "slots" and self.pages is not None:
            raise CommandError("pages_of_slots")


class Serving:
    """A loaded model, and the parts that serve requests with this model. Notes on stderr name the chosen cache.

    days: the days of week 3 whose tasks the command needs in addition to those of the cache. context: the
    maximum number of tokens in a request's prompt and output together. kind: the kind of the cache. sampling:
    the checkpoint's sampling settings.
    """

    def __init__(self, options: Options, words: Messages, days: Sequence[int] = ()):
        self.options, self._words, self._days = options, words, days
        self._package = options.wanted.package
        self._open = open_stubs(self._package)
        self.kind = self._choose()
        self.need(days, "./course serve")
        with needing(self.needs(self.kind.days)):
            self._loaded = LoadedModel(options.wanted, kernels=self._kernels())
        self.model, self.tokenizer = self._loaded.model, self._loaded.tokenizer
        self.context: int = self.model.config.max_position_embeddings
        self.sampling = self._loaded.sampling

    @cached_property
    def _thinking(self) -> Thinking:
        """Return the object that knows how the checkpoint thinks. `serve` does not need this property, because its
        server fills in the chat template in a process of its own."""
        made: Thinking = import_module(f"{self._package}.thinking").Thinking(self.tokenizer)
        return made

    def encode(self, prompt: str | Sequence[Mapping[str, str]]) -> list[int]:
        """Return the token ids of a text to continue, or of messages to answer. Thinking is off unless the model always
        thinks.

        Raises:
            ValueError: the prompt has messages, but there is no chat template, or the template refuses the messages.
        """
        if isinstance(prompt, str):
            return list(self.tokenizer.encode(prompt))
        thinks = self._thinking.choose(None)
        return list(
            import_module("tiny_llm_given.serving.chat_prompt").encode_chat(self.tokenizer, prompt, thinks=thinks)
        )

    def request(self, id: str, tokens: Sequence[int], params: Mapping[str, Any], *, is_chat: bool = False) -> Any:
        """Return a new `Request` of the package. The package's own checks may raise a ValueError. params: the arguments
        of `SamplingParams`. is_chat: whether the request's text is an answer, from which the thinking is separated."""
        module = self._module("request")
        settings = module.SamplingParams(**params)
        if is_chat:
            thoughts = self._thinking.thoughts(self._thinking.choose(None))
            text = self._module("thinking_stream").ThinkingStream(self.tokenizer, thoughts, settings.stop)
        else:
            text = module.TextStream(self.tokenizer, settings.stop)
        return module.Request(id, tokens, settings, text)

    def engine(self, longest: int | None = None, observers: Sequence[Observer] = ()) -> ServingEngine:
        """Return a new engine with an empty cache. longest: the maximum number of tokens in a request's prompt and
        output together. None: `context`."""
        longest, options = min(longest or self.context, self.context), self.options
        scheduler = self._scheduler(self._cache(self._loaded, longest))
        made: ServingEngine = self._module("engine").Engine(
            self.model, scheduler, observers, is_checked=options.is_checked, decoding=self._decoding(longest)
        )
        return made

    def _decoding(self, longest: int) -> Any:
        """Return the object that chooses tokens. The object chooses for all requests of a step together if the task of
        batched sampling is done, and uses guesses if the options name a draft."""
        is_batched = not any(stub.task == SAMPLING for stub in self._open)
        decoding = self._module("batch_sampler").BatchSampler() if is_batched else self._module("decoding").Decoding()
        if self.options.draft is None:
            return decoding
        make, length = self._module("speculative").Speculative, self._module("draft_length").AdaptiveLength()
        return make(self._drafter(longest), self.options.num_drafts, decoding, length)

    def _drafter(self, longest: int) -> Any:
        module, draft = self._module("drafters"), self.options.draft
        if draft == NGRAM:
            return module.NGramDrafter()
        if draft == HEADS:
            return self._heads()
        loaded = LoadedModel(replace(self.options.wanted, model=str(draft)), option="--draft")
        size, expected = (model.config.vocab_size for model in (loaded.model, self.model))
        if size != expected:
            raise CommandError("draft_vocabulary", expected=expected, got=size, draft=draft)
        return module.ModelDrafter(loaded.model, self._cache(loaded, longest))

    def _heads(self) -> Any:
        import mlx.core as mx

        path = draft_heads(self.options.wanted.model)
        if path is None:
            raise CommandError("no_draft_heads", model=self.options.wanted.model)
        heads = self._module("draft_heads").DraftHeads(mx.load(str(path)))
        return self._module("head_drafter").HeadDrafter(self.model, heads)

    def _module(self, name: str) -> Any:
        return import_module(f"{self._package}.serving.{name}")

    def need(self, days: Sequence[int], name: str) -> None:
        """Raise a CommandError if a task of these days of week 3 is open. name: the command or option that needs the
        task."""
        if missing(self._open, days):
            needs = self.needs(days)
            stubs = [stub for stub in self._open if stub.task in needs]
            raise _open(name, stubs)

    def needs(self, days: Sequence[int]) -> set[TaskId]:
        """Return the tasks of all weeks that must be done before requests can use the code of these days of week 3."""
        wanted = self.options.wanted
        speculation = (SPECULATION,) if self.options.draft is not None else ()
        return needs_of_serving(wanted.bits is not None, wanted.layers, {*days, *self._days, *speculation})

    def _choose(self) -> Kind:
        """Choose the cache that the user named. If the user named none, choose the last one in KINDS whose tasks are
        all done."""
        kinds = kinds_of(self._package)
        waiting = {kind: missing(self._open, kind.days) for kind in kinds}
        written = [kind for kind in kinds if not waiting[kind]]
        asked = [kind for kind in kinds if kind.name == self.options.cache] or written[-1:] or kinds[:1]
        kind = asked[0]
        self.need(kind.days, f"--cache {kind.name}")
        if self.options.draft is not None:
            self.need((SPECULATION,), "--draft")
        if self.options.cache is None and kind is not kinds[-1]:
            listed = ", ".join(f"{other.name} ({stub.task})" for other, stub in waiting.items() if stub)
            show_note(self._words("serving_not_written", names=listed, name=kind.name))
        return kind

    def _kernels(self) -> list[str]:
        """Return the names of the C++ kernels that requests call in addition to those of the layers."""
        if not is_on_cpu():
            return []
        return ["argmax", *["paged_attention"] * (PAGED_ATTENTION in self.kind.days)]

    def _cache(self, loaded: LoadedModel, longest: int) -> Any:
        options, config, layers = self.options, loaded.model.config, len(loaded.model.layers)
        position = 2 * layers * config.num_key_value_heads * config.head_dim * NUMBER  # bytes per position
        room = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MEMORY // position
        if self.kind.name == "slots":
            capacity = max(2, min(longest, room // options.max_running))
            self._tell("slots", capacity < longest, count=options.max_running, size=capacity)
            make = self._module("batched_cache").BatchedKVCache
            return make(layers, options.max_running, capacity, **loaded.attention())
        needed = -(-longest // options.page_size) * options.max_running
        pages = options.pages or max(1, min(needed, room // options.page_size))
        self._tell("pages", options.pages is None and pages < needed, count=pages, size=options.page_size)
        pool, module = self._module("page_pool").PagePool(pages, options.page_size), self._module("paged_cache")
        make_layer = partial(module.PagedKVCacheLayer, **loaded.attention())
        if PAGED_ATTENTION in self.kind.days:
            make_layer = module.KernelPagedKVCacheLayer
        prefixes = self._module("prefix_cache").PrefixCache(pool) if PREFIXES in self.kind.days else None
        return module.PagedKVCache(layers, pool, prefixes, make_layer)

    def _tell(self, unit: str, is_cut: bool, count: int, size: int) -> None:
        said = self._words(f"serving_{unit}", name=self.kind.name, count=count, size=size, positions=count * size)
        show_note(said + (self._words("serving_memory", part=MEMORY) if is_cut else ""))

    def _scheduler(self, cache: Any) -> Any:
        options, module = self.options, self._module("scheduler")
        preemption = None if self.kind.name == "slots" else module.PreemptNewest()
        if stub := missing(self._open, (BUDGET,)):
            show_note(self._words("serving_whole_prompts", task=stub.task))
            return module.Scheduler(cache, options.max_running, preemption=preemption)
        return module.Scheduler(cache, options.max_running, module.TokenBudget(options.token_budget), preemption)


def kinds_of(package: str) -> list[Kind]:
    """Return the kinds of caches of a package, including caches that are still stubs."""
    if find_spec(f"{package}.serving") is None:
        raise CommandError("no_serving", package=package, exit_code=1)
    return list(KINDS)


def missing(stubs: Sequence[Stub], days: Sequence[int]) -> Stub | None:
    """Return the first of these stubs that requests would reach in the code of these days of week 3. Stubs in Metal do
    not count, because a kernel whose task in Metal is open runs without Metal."""
    needed = (stub for stub in stubs if stub.task.week == 3 and stub.task.day in days)
    return next((stub for stub in needed if stub.file.suffix != ".metal" and stub.file.stem not in _NOT_RUN), None)


def _open(name: str, stubs: Sequence[Stub]) -> CommandError:
    """Return the error about open tasks. name: the command or option that needs these tasks. stubs: all stubs of these
    tasks."""
    first, count = stubs[0], len({stub.task for stub in stubs})
    file = f"{os.path.relpath(first.file)}:{first.line}"
    command = first.task.test_command
    return CommandError(
        "serving_open", name=name, task=first.task, file=file, command=command, count=count, exit_code=1
    )
