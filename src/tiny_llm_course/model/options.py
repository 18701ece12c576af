"""Options of the commands that run a model."""

from __future__ import annotations

from typing import Annotated

import typer

from tiny_llm_given.serving.parameters import MOST_STOPS
from tiny_llm_models import BUNDLED

from ..base.packages import PACKAGES
from .loaded_model import BITS, DTYPES, LAYERS

__all__ = [
    "COURSE_SAMPLING",
    "DEFAULT_MODEL",
    "MAX_TOKENS",
    "MAX_TOKENS_THINKING",
    "Bits",
    "Dtype",
    "Fast",
    "Impl",
    "Layers",
    "MaxTokens",
    "MinP",
    "Model",
    "Prompt",
    "Raw",
    "RepetitionPenalty",
    "Seed",
    "Stop",
    "System",
    "Temp",
    "Think",
    "Threads",
    "TopK",
    "TopP",
]

DEFAULT_MODEL = "story"
COURSE_SAMPLING = {"temperature": 0.7, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
MAX_TOKENS, MAX_TOKENS_THINKING = 400, 4096  # the defaults of --max-tokens


def _default(name: str) -> str:
    """Return the help text about the default of a sampling setting."""
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
    typer.Option(metavar="TEXT", help="The text that the model reads. Default: the piped text, or else an example."),
]
Raw = Annotated[
    bool | None,
    typer.Option(
        "--raw/--chat",
        help="--raw: the model continues the prompt. --chat: the model answers the prompt as a message. "
        "Default: --chat if the checkpoint has a chat template.",
    ),
]
System = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT", help="A message before the conversation that tells the model how to answer. Default: none."
    ),
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
        help="Let the model think before it answers, if its chat template can turn thinking on (Qwen3). The thinking "
        "goes to stderr, dimmed on a terminal. Default: no thinking, unless the model always thinks.",
    ),
]
Temp = Annotated[
    float | None,
    typer.Option(
        help="How random the choice of tokens is. 0 or more; 0 takes the likeliest token each time. Default: "
        + _default("temperature")
    ),
]
TopK = Annotated[
    int | None,
    typer.Option(
        help="Choose among this many of the likeliest tokens. 0 or more; 0 means all. Default: " + _default("top_k")
    ),
]
TopP = Annotated[
    float | None,
    typer.Option(
        help="Choose among the likeliest tokens that together have this probability. Above 0; 1 means all. Default: "
        + _default("top_p")
    ),
]
MinP = Annotated[
    float | None,
    typer.Option(
        help="Choose among tokens at least this many times as likely as the likeliest. 0 to 1; 0 means all. Default: "
        + _default("min_p")
    ),
]
RepetitionPenalty = Annotated[
    float | None,
    typer.Option(
        help="Lower the probability of tokens that have occurred before. 0.01 to 10; 1 changes nothing. Default: "
        + _default("repetition_penalty")
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(help="The same seed gives the same text again. 0 to 2**64 - 1. Default: a new seed each time."),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TEXT", help=f"End the output before this text. May be given up to {MOST_STOPS} times. Default: none."
    ),
]
Impl = Annotated[
    str, typer.Option(metavar="|".join(PACKAGES), help="The code to run: the reference's, or yours in src/tiny_llm.")
]
Dtype = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"Number type of the weights: {', '.join(DTYPES)}. Default: the checkpoint's own on a GPU; float32 on "
        "the CPU, where half precision is slower and less exact.",
    ),
]
Bits = Annotated[
    int | None,
    typer.Option(
        metavar="|".join(map(str, BITS)),
        help="Quantise the model's weights after loading, to this many bits each, in groups of 64 weights. Default: "
        "the checkpoint's format.",
    ),
]
Layers = Annotated[
    str,
    typer.Option(
        metavar="|".join(LAYERS),
        help="plain: week 1's layers. kernels: week 2's kernels, where they are written. tuned: the course's fastest "
        "layers. auto: tuned in float32 on the CPU, if the reference's kernels are compiled (build-ext-ref) and "
        "bfloat16 represents the weights; otherwise, and for your own code, plain. With kernels or tuned, a quantised "
        "checkpoint's weights stay packed.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Number of threads on which kernels run; plain layers have none. Default: TINY_LLM_THREADS, or one per "
        "processor.",
    ),
]
Fast = Annotated[
    bool,
    typer.Option(
        "--fast",
        help="With --layers tuned: allow products that round activations to 8 bits, as llama.cpp does, where such "
        "products are faster. To choose the number type, set TINY_LLM_ARITHMETIC to float32, bfloat16 or int8.",
    ),
]
