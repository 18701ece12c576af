"""The commands that generate text: `tiny-llm main` and `tiny-llm chat`."""

from __future__ import annotations

import io
import os
import stat
import sys
from contextlib import nullcontext
from typing import Annotated

import typer

from tiny_llm_models import BUNDLED

from ..base.packages import DEFAULT_IMPL, PACKAGES, package_of
from ..base.reporting import reporting
from ..learner.workspace import Workspace
from ..model.loaded_model import AUTO, PLAIN, Wanted
from ..model.options import (
    DEFAULT_MODEL,
    Bits,
    Dtype,
    Fast,
    Impl,
    Layers,
    MaxTokens,
    MinP,
    Model,
    Prompt,
    Raw,
    RepetitionPenalty,
    Seed,
    Stop,
    System,
    Temp,
    Think,
    Threads,
    TopK,
    TopP,
)
from ..ui import CommandError, Lang, Messages, show_note
from .chat import Chat
from .fill import Filled, fill_in
from .session import Reply, Session, Settings

__all__ = ["chat", "main"]

DEFAULT_PROMPT = "Tell me a short story."


Fill = Annotated[
    bool,
    typer.Option(
        "--fill",
        help="With --impl mine: run the reference's code for the tasks that you have not written yet. Your files do "
        "not change.",
    ),
]


def main(
    model: Model = DEFAULT_MODEL,
    prompt: Prompt = None,
    system: System = None,
    think: Think = None,
    max_tokens: MaxTokens = None,
    temp: Temp = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: RepetitionPenalty = None,
    seed: Seed = None,
    stop: Stop = None,
    impl: Impl = DEFAULT_IMPL,
    raw: Raw = None,
    dtype: Dtype = None,
    bits: Bits = None,
    layers: Layers = AUTO,
    threads: Threads = None,
    fast: Fast = False,
    fill: Fill = False,
    lang: Lang = None,
) -> None:
    """Let a model continue a prompt, or answer it. The text goes to stdout, everything else to stderr."""
    with reporting(lang):
        _prepare_streams()
        sampling = _sampling(temp, top_k, top_p, min_p, repetition_penalty, seed)
        filled = _fill_in(impl) if fill else None
        wanted = Wanted(package_of(impl), model, dtype, bits, layers, threads, fast, fill)
        settings = Settings(wanted, max_tokens, stop or [], sampling, think)
        for option, given in (("--system", system), ("--think", think)):
            if raw and given is not None:
                raise CommandError("chat_of_raw", option=option)
        text = _read_prompt(prompt)
        with filled.explaining() if filled else nullcontext():
            session = Session(settings)
            prompt_tokens = _encode(session, text, system, raw)
            chats = session.has_chat_template and not raw
            reply = session.reply(prompt_tokens) if chats else session.write_on(prompt_tokens)
        show_note(f"\n{reply.table}")
        if session.sampling:
            show_note(session.sampling)
        if session.lacks_kernels and model in BUNDLED and len(reply.tokens) > 1:
            show_note(Messages()("speed_when_built"))
        if filled:
            show_note(filled.told(settings.needs))
        if reply.interrupted:
            raise typer.Exit(130)
        if impl == "mine":
            _comment(session, settings, prompt_tokens, reply)


def chat(
    model: Model = DEFAULT_MODEL,
    system: System = None,
    think: Think = None,
    max_tokens: MaxTokens = None,
    temp: Temp = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: RepetitionPenalty = None,
    seed: Seed = None,
    stop: Stop = None,
    impl: Impl = DEFAULT_IMPL,
    dtype: Dtype = None,
    bits: Bits = None,
    layers: Layers = AUTO,
    threads: Threads = None,
    fast: Fast = False,
    fill: Fill = False,
    lang: Lang = None,
) -> None:
    """Talk with a model. Each line of stdin is a message or a command; /help lists the commands."""
    with reporting(lang) as words:
        _prepare_streams()
        sampling = _sampling(temp, top_k, top_p, min_p, repetition_penalty, seed)
        filled = _fill_in(impl) if fill else None
        wanted = Wanted(package_of(impl), model, dtype, bits, layers, threads, fast, fill)
        settings = Settings(wanted, max_tokens, stop or [], sampling, think)
        with filled.explaining() if filled else nullcontext():
            session = Session(settings)
        if not session.has_chat_template:
            raise CommandError("no_chat_template")
        if session.sampling:
            show_note(session.sampling)
        if filled:
            show_note(filled.told(settings.needs))
        with filled.explaining() if filled else nullcontext():
            Chat(session, system, words).run()


def _fill_in(impl: str) -> Filled:
    """Fill in a learner's stubs for --fill. Raise a CommandError if the stubs cannot be filled in."""
    if impl != "mine":
        raise CommandError("fill_not_mine", impl=impl)
    return fill_in(Workspace(), Messages())


def _comment(session: Session, settings: Settings, prompt: list[int], reply: Reply) -> None:
    """Say whether the reference writes the same text as the learner's code and, if there is no cache, why the speed is
    low."""
    words, wanted = Messages(), settings.wanted
    if "ref" in PACKAGES and settings.is_greedy and wanted.model in BUNDLED and wanted.layers in (AUTO, PLAIN):
        from .compare import compared  # imported here, since compare.py imports MLX

        comparison = compared(wanted, prompt, reply.tokens, session.ends_itself(reply))
        show_note(comparison.told(words), style="green" if comparison.yours is None else "yellow")
    if not session.has_cache and len(reply.tokens) > 1:
        show_note(words("speed_without_cache"))


def _sampling(
    temp: float | None,
    top_k: int | None,
    top_p: float | None,
    min_p: float | None,
    repetition_penalty: float | None,
    seed: int | None,
) -> dict[str, float | int | None]:
    """Return the arguments of `make_sampler`, with None for each argument that was not given."""
    return {
        "temperature": temp,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "seed": seed,
    }


def _prepare_streams() -> None:
    """Make stdin read UTF-8, whatever the locale, and make stdout print a question mark for each character that its
    encoding lacks."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _read_prompt(prompt: str | None) -> str:
    """Return --prompt. If --prompt is missing, return the text on stdin or, if stdin is a terminal or /dev/null, an
    example prompt."""
    if prompt is None and stat.S_ISCHR(os.fstat(sys.stdin.fileno()).st_mode):
        show_note(Messages()("prompt_example", prompt=DEFAULT_PROMPT))
        return DEFAULT_PROMPT
    text = sys.stdin.read().removesuffix("\n") if prompt is None else prompt
    if not text:
        raise CommandError("prompt_empty")
    return text


def _encode(session: Session, prompt: str, system: str | None, raw: bool | None) -> list[int]:
    wants_chat = "--system" if system is not None else "--chat" if raw is False else None
    if wants_chat and not session.has_chat_template:
        raise CommandError("chat_needs_template", option=wants_chat)
    chats = session.has_chat_template and not raw
    tokens = session.encode_chat(system, [prompt]) if chats else session.encode(prompt)
    if len(tokens) >= session.context:
        raise CommandError("prompt_too_long", context=session.context, count=len(tokens))
    return tokens
