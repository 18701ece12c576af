"""Run a checkpoint on fixed prompts, and record its answers, its speed, the machine, and whether mlx-lm agrees.

The result is a JSON file, which you can put into an issue. `./course python scripts/record_checkpoint.py
Qwen/Qwen3-0.6B` downloads the model if necessary. The model answers each prompt with the likeliest tokens. If the chat
template can turn thinking on, the model answers each prompt once more, with thinking. mlx-lm then reads the prompts
and answers. If almost all tokens of the answers are also mlx-lm's likeliest tokens, the course has read the checkpoint
correctly.
"""

import gc
import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from tiny_llm_course.base.machine import about  # noqa: E402
from tiny_llm_course.base.reporting import reporting  # noqa: E402
from tiny_llm_course.generation.session import Reply, Session, Settings  # noqa: E402
from tiny_llm_course.model.loaded_model import PLAIN, Wanted  # noqa: E402
from tiny_llm_course.model.options import Bits, Layers, MaxTokens  # noqa: E402
from tiny_llm_course.ui.errors import CommandError, show_note  # noqa: E402

GREEDY = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0, "seed": None}
QUESTIONS = (
    "What is a KV cache? Answer in two sentences.",
    "日本の首都はどこですか。一文で答えてください。",
    "A farmer has 17 sheep. All but 9 run away. How many sheep are left?",
)
GROUP = 64  # weights per group, if --bits quantises the model


def main(
    model: Annotated[str, typer.Argument(metavar="NAME_OR_PATH", help="A model on the Hugging Face Hub, or a folder.")],
    bits: Bits = None,
    layers: Layers = PLAIN,
    max_tokens: MaxTokens = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Default: the model's name with .json.")] = None,
) -> None:
    with reporting():
        out = out or Path(f"{Path(model).name}.json")
        if not out.parent.is_dir():
            raise CommandError("batch_no_folder", file=out)
        record = _record(Wanted("tiny_llm_ref", model, bits=bits, layers=layers), max_tokens)
        out.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        show_note(f"\nwrote {out}: please put the contents of this file into an issue")


def _record(wanted: Wanted, max_tokens: int | None) -> dict[str, Any]:
    runs: list[dict[str, Any]] = []
    prompts: list[list[int]] = []
    replies: list[Reply] = []
    for think in (None, True):
        session = Session(Settings(wanted, max_tokens, [], GREEDY, think))
        for question in QUESTIONS:
            show_note(f"\n> {question}{' (thinking)' if session.thinks else ''}")
            prompts.append(_encoded(session, question))
            replies.append(session.reply(prompts[-1]) if session.has_chat_template else session.write_on(prompts[-1]))
            show_note(replies[-1].line)
            runs.append({"question": question, "thinks": session.thinks, **_of_reply(replies[-1])})
        path, dtype, can_choose = session.path, session.dtype, session.thinking.can_choose
        del session
        gc.collect()
        if not can_choose:
            break
    same = _same_in_mlx_lm(path, wanted.bits, dtype, prompts, replies)
    show_note(f"\nmlx-lm agrees on {sum(same)} of {sum(run['tokens'] for run in runs)} tokens")
    packages = ("mlx", "mlx-lm", "transformers", "tokenizers", "numpy")
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    return {
        "model": wanted.model,
        **about(shlex.join(["./course", "python", *sys.argv]), *packages),
        "dtype": str(dtype),
        "config": {name: value for name, value in config.items() if not isinstance(value, list)},
        "runs": [{**run, "same_in_mlx_lm": count} for run, count in zip(runs, same, strict=True)],
    }


def _encoded(session: Session, question: str) -> list[int]:
    return session.encode_chat(None, [question]) if session.has_chat_template else session.encode(question)


def _of_reply(reply: Reply) -> dict[str, Any]:
    speed = (len(reply.times) - 1) / (reply.times[-1] - reply.times[0]) if len(reply.times) > 1 else None
    return {
        "thinking": reply.thinking,
        "text": reply.text,
        "ended": reply.ended,
        "prompt_tokens": reply.prompt_tokens,
        "tokens": len(reply.tokens),
        "first_token_seconds": round(reply.times[0] - reply.start, 3) if reply.times else None,
        "tokens_per_second": speed and round(speed, 2),
    }


def _same_in_mlx_lm(
    path: Path, bits: int | None, dtype: Any, prompts: list[list[int]], replies: list[Reply]
) -> list[int]:
    """Return, for each reply, how many of its tokens are also mlx-lm's likeliest tokens after the same context."""
    import mlx.core as mx
    import mlx.nn
    import mlx_lm.utils

    model, _ = mlx_lm.utils.load_model(path)
    model.set_dtype(dtype)
    if bits is not None:
        mlx.nn.quantize(model, GROUP, bits)
    found = []
    for prompt, reply in zip(prompts, replies, strict=True):
        best = mx.argmax(model(mx.array([prompt + reply.tokens]))[0, len(prompt) - 1 : -1], axis=-1)
        found.append(int((best == mx.array(reply.tokens)).sum()) if reply.tokens else 0)
    return found


if __name__ == "__main__":
    main.__doc__ = __doc__
    typer.run(main)
