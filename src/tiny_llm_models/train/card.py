"""The model card: what a checkpoint is, how it was made, and the figures measured on it, in both languages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib

from .recipes import CONTEXT, STAGES, Recipe

matplotlib.use("svg")
from matplotlib import pyplot

__all__ = ["tables", "write_card"]


# What the tables show: a key of evaluation.json, and its name in each of LANGUAGES.
_LANGUAGES = {"english": ("English", "英語"), "japanese": ("Japanese", "日本語")}
_LENGTHS = {"short": ("up to 200", "200以下"), "long": ("850 to 950", "850〜950")}
_ANSWERS = {
    "right": ("**exact answers**", "**完全一致の正答率**"),
    "right in 4 bit": ("the same with 4-bit weights", "同、重みを4ビットにした場合"),
    "last place": ("baseline: the last place in the story", "比較：物語で最後に出た場所を答える"),
    "most frequent answer": (
        "baseline: the most frequent answer to that kind of question",
        "比較：その種類の質問で最も多い答えを返す",
    ),
    "without the story": ("the model without the story", "物語を与えずにモデルに尋ねる"),
    "questions": ("questions", "質問数"),
    "tokens": ("mean length of the prompt, in tokens", "プロンプトの平均長（トークン）"),
}
_KINDS = {
    "where": ("where it is now", "今どこにあるか"),
    "first": ("where it was first", "最初どこにあったか"),
    "holder": ("who has it", "誰が持っているか"),
    "person": ("where somebody went", "誰かがどこへ行ったか"),
    "content": ("what is there", "そこに何があるか"),
    "colour": ("its color", "何色か"),
}
_PERPLEXITY = {
    "bfloat16": ("as stored (bfloat16)", "保存時のまま（bfloat16）"),
    "8 bit": ("8 bit", "8ビット"),
    "4 bit": ("4 bit", "4ビット"),
}
_AGREEMENT = {"agreement": ("greedy choice agrees with `story`", "貪欲な選択が`story`と一致する割合")}
_STORIES = {
    "stories": ("stories", "物語の数"),
    "tokens": ("mean length in tokens", "平均長（トークン）"),
    "ended": ("ended by themselves within 400 tokens", "400トークン以内に自分で終わった割合"),
    "distinct-2 between stories": ("distinct-2 between two stories", "2つの物語の間のdistinct-2"),
    "the same, of held-out stories": ("the same, between held-out stories", "同、未使用の物語どうし"),
    "distinct-2 of all": ("distinct-2 of all stories together", "全体のdistinct-2"),
    "the same of all, of held-out stories": ("the same, of held-out stories", "同、未使用の物語"),
    "no copy": (
        "without a copy of more than 60 tokens from the training text",
        "訓練文と60トークンを超えて一致する箇所がない割合",
    ),
}

_Labels = dict[str, tuple[str, str]]


def write_card(folder: Path, name: str, recipe: Recipe) -> None:
    """Write README.md, README.ja.md and loss.svg from evaluation.json and training.jsonl."""
    figures = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
    log = (folder / "training.jsonl").read_text(encoding="utf-8")
    steps = [json.loads(line) for line in log.splitlines()]
    _draw(steps, name, folder / "loss.svg")
    for language, suffix in enumerate(("", ".ja")):
        template = (Path(__file__).parent / f"card{suffix}.md").read_text(encoding="utf-8")
        text = template.format(
            name=name,
            parameters=f"{figures['parameters']:,}",
            context=CONTEXT,
            documents=[f"{stage.documents // recipe.every:,}" for stage in STAGES],
            stages=STAGES,
            recipe=recipe,
            architecture=recipe.model_type.capitalize(),
            steps=f"{steps[-1]['step']:,}",
            machine=figures["machine"],
            **tables(figures, language),
            samples=_samples(figures["free stories"]),
        )
        (folder / f"README{suffix}.md").write_text(text, encoding="utf-8")


def tables(figures: dict[str, Any], language: int) -> dict[str, str]:
    """The card's tables by their names in the template. language: 0 English, 1 Japanese."""
    by_case = {_case(case, language): values for case, values in figures["answers"].items()}
    kinds = {case: values["by kind"] for case, values in by_case.items()}
    perplexities = {
        key: {precision: f"{value:.3f}" for precision, value in values.items()}
        for key, values in figures["perplexity"].items()
    }
    if agreement := figures.get("agreement"):
        perplexities = {key: {**values, "agreement": agreement[key]} for key, values in perplexities.items()}

    def by_language(columns: dict[str, Any], labels: _Labels) -> str:
        return _table({_LANGUAGES[key][language]: column for key, column in columns.items()}, labels, language)

    return {
        "answers": _table(by_case, _ANSWERS, language),
        "kinds": _table(kinds, _KINDS, language),
        "perplexity": by_language(perplexities, _PERPLEXITY | (_AGREEMENT if agreement else {})),
        "stories": by_language(figures["free stories"], _STORIES),
    }


def _case(case: str, language: int) -> str:
    spoken, length = case.split()
    return f"{_LANGUAGES[spoken][language]}, {_LENGTHS[length][language]}"


def _table(columns: dict[str, dict[str, Any]], labels: _Labels, language: int) -> str:
    """columns: what stands at the top of each, and its values by the keys of labels."""
    rows = [
        ["", *columns],
        ["---", *["---:"] * len(columns)],
        *([names[language], *(_number(c.get(key, "–")) for c in columns.values())] for key, names in labels.items()),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _number(value: float | str) -> str:
    """Shares, which are floats, in per cent."""
    return f"{100 * value:.1f} %" if isinstance(value, float) else str(value)


def _samples(stories: dict[str, Any]) -> str:
    return "\n\n".join(f"> {sample}" for language in stories.values() for sample in language["samples"])


def _draw(steps: list[dict[str, float]], name: str, path: Path) -> None:
    """The losses of stories and of answers, step by step."""
    pyplot.rcParams["svg.hashsalt"] = name  # the same picture each time
    figure, axes = pyplot.subplots(figsize=(7, 3.5))
    for key, label in (("loss", "stories"), ("answers", "answers")):
        axes.plot([step["step"] for step in steps], [step[key] for step in steps], label=label, linewidth=1)
    axes.set(xlabel="step", ylabel="loss per token (nats)", title=name, yscale="log")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
