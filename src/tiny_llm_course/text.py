"""The commands that make text: `tiny-llm main` and `tiny-llm chat`."""

from __future__ import annotations

import io
import os
import stat
import sys
from contextlib import nullcontext
from typing import Annotated

import typer

from tiny_llm_models import BUNDLED

from .chat import Chat
from .engine import BITS, DTYPES, LAYERS, Wanted
from .fill import Filled, fill_in
from .language import Lang, Messages
from .problems import CommandError, reporting, say
from .session import (
    COURSE_SAMPLING,
    DEFAULT_IMPL,
    MAX_TOKENS,
    MAX_TOKENS_THINKING,
    PACKAGES,
    Reply,
    Session,
    Settings,
    package_of,
)
from .workspace import Workspace

__all__ = ["chat", "main"]

DEFAULT_MODEL = "story"
DEFAULT_PROMPT = "Tell me a short story."


def _default(name: str) -> str:
    """Of a setting of the sampler."""
    return f"the checkpoint's (generation_config.json), or else {COURSE_SAMPLING[name]}."


Model = Annotated[
    str,
    typer.Option(
        metavar="NAME_OR_PATH",
        help=f"A model that comes with the course ({', '.join(BUNDLED)}), a checkpoint directory, or a name on the "
        "Hugging Face Hub such as Qwen/Qwen3-0.6B, downloaded on first use.",
    ),
]
Prompt = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="What the model gets to read. Default: what is piped in, or else an example."),
]
Raw = Annotated[
    bool | None,
    typer.Option(
        "--raw/--chat",
        help="--raw: the model writes on where the prompt ends. --chat: it answers the prompt as a message. "
        "Default: --chat if the checkpoint has a chat template.",
    ),
]
System = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Tells the model, before the conversation, how to answer. Default: nothing."),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        help=f"How many tokens to write at most, thinking included. 0 or more. Default: {MAX_TOKENS}, or "
        f"{MAX_TOKENS_THINKING} if the model thinks."
    ),
]
Think = Annotated[
    bool | None,
    typer.Option(
        "--think/--no-think",
        help="Let the model think before it answers, if its chat template can turn that on (Qwen3). The thinking goes "
        "to stderr, dimmed on a terminal. Default: no thinking, unless the model always thinks.",
    ),
]
Temp = Annotated[
    float | None,
    typer.Option(
        help="How daring the choice of words is: 0 takes the likeliest token each time. 0 or more. Default: "
        + _default("temperature")
    ),
]
TopK = Annotated[
    int | None,
    typer.Option(
        help="Choose among this many likeliest tokens. 0 or more; 0: among all. Default: " + _default("top_k")
    ),
]
TopP = Annotated[
    float | None,
    typer.Option(
        help="Choose among the likeliest tokens that together have this probability. Above 0, up to 1: all. Default: "
        + _default("top_p")
    ),
]
MinP = Annotated[
    float | None,
    typer.Option(
        help="Choose among tokens at least this many times as likely as the likeliest. 0 (all) to 1. Default: "
        + _default("min_p")
    ),
]
RepetitionPenalty = Annotated[
    float | None,
    typer.Option(
        help="Makes tokens that occurred less likely to come again. Above 0; 1 changes nothing. Default: "
        + _default("repetition_penalty")
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(help="The same seed gives the same text again. 0 to 2**64 - 1. Default: a new one each time."),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(metavar="TEXT", help="End before this text. May be given several times. Default: none."),
]
Impl = Annotated[
    str, typer.Option(metavar="|".join(PACKAGES), help="Whose code runs: the reference, or yours in src/tiny_llm.")
]
Dtype = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"Number format of the weights: {', '.join(DTYPES)}. Default: the checkpoint's own on a GPU; float32 on "
        "the CPU, where half precision is slower and less exact.",
    ),
]
Bits = Annotated[
    int | None,
    typer.Option(
        metavar="|".join(map(str, BITS)),
        help="Quantise the model's weights after loading, in groups of 64. Default: as the checkpoint has them.",
    ),
]
Layers = Annotated[
    str,
    typer.Option(
        metavar="|".join(LAYERS),
        help="plain: week 1's layers. kernels: week 2's, as far as they are written. tuned: the course's fastest, for "
        "4 bits. For the last two a quantised checkpoint's weights stay packed.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="On how many threads kernels run (--layers kernels, tuned). Default: TINY_LLM_THREADS, or one for each "
        "processor.",
    ),
]
Fill = Annotated[
    bool,
    typer.Option(
        "--fill",
        help="With --impl mine: the reference's code runs wherever yours is still to be written. Your files stay as "
        "they are.",
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
    layers: Layers = LAYERS[0],
    threads: Threads = None,
    fill: Fill = False,
    lang: Lang = None,
) -> None:
    """Let a model write on from a prompt, or answer it. The text goes to stdout, all else to stderr."""
    with reporting(lang):
        _prepare_streams()
        sampling = _sampling(temp, top_k, top_p, min_p, repetition_penalty, seed)
        filled = _fill_in(impl) if fill else None
        wanted = Wanted(package_of(impl), model, dtype, bits, layers, threads, fill)
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
        say(f"\n{reply.table}")
        if session.sampling:
            say(session.sampling)
        if filled:
            say(filled.told(settings.needs))
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
    layers: Layers = LAYERS[0],
    threads: Threads = None,
    fill: Fill = False,
    lang: Lang = None,
) -> None:
    """Talk with a model. Each line of stdin is a message; /help lists what else can be typed."""
    with reporting(lang) as words:
        _prepare_streams()
        sampling = _sampling(temp, top_k, top_p, min_p, repetition_penalty, seed)
        filled = _fill_in(impl) if fill else None
        wanted = Wanted(package_of(impl), model, dtype, bits, layers, threads, fill)
        settings = Settings(wanted, max_tokens, stop or [], sampling, think)
        with filled.explaining() if filled else nullcontext():
            session = Session(settings)
        if not session.has_chat_template:
            raise CommandError("no_chat_template")
        if session.sampling:
            say(session.sampling)
        if filled:
            say(filled.told(settings.needs))
        with filled.explaining() if filled else nullcontext():
            Chat(session, system, words).run()


def _fill_in(impl: str) -> Filled:
    """What --fill asks for. Raises a CommandError where that cannot be."""
    if impl != "mine":
        raise CommandError("fill_not_mine", impl=impl)
    return fill_in(Workspace(), Messages())


def _comment(session: Session, settings: Settings, prompt: list[int], reply: Reply) -> None:
    """Say of a learner's text whether the reference writes the same one, and of its speed whether that was expected."""
    words, wanted = Messages(), settings.wanted
    if "ref" in PACKAGES and settings.is_greedy and wanted.model in BUNDLED and wanted.layers == LAYERS[0]:
        from .compare import compared  # here, since it imports MLX

        found = compared(wanted, prompt, reply.tokens, session.ends_itself(reply))
        say(found.told(words), style="green" if found.yours is None else "yellow")
    if not session.has_cache and len(reply.tokens) > 1:
        say(words("speed_without_cache"))


def _sampling(
    temp: float | None,
    top_k: int | None,
    top_p: float | None,
    min_p: float | None,
    repetition_penalty: float | None,
    seed: int | None,
) -> dict[str, float | int | None]:
    """The arguments of `make_sampler`, as far as they were given."""
    return {
        "temperature": temp,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "seed": seed,
    }


def _prepare_streams() -> None:
    """Piped text is UTF-8, whatever the locale; what stdout's encoding lacks is shown as a question mark."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _read_prompt(prompt: str | None) -> str:
    """--prompt, or stdin, or, where that is a terminal or /dev/null, the example."""
    if prompt is None and stat.S_ISCHR(os.fstat(sys.stdin.fileno()).st_mode):
        say(Messages()("prompt_example", prompt=DEFAULT_PROMPT))
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
