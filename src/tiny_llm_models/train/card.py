"""The model card: what a checkpoint is, how it was made, and the figures measured on it, in both languages."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

from .data import DOCUMENTS
from .recipes import CONTEXT, Recipe

matplotlib.use("svg")
from matplotlib import pyplot

__all__ = ["write_card"]


@dataclass(frozen=True)
class _Wording:
    """One language's names of what the tables show."""

    file: str
    template: str
    languages: dict[str, str]
    lengths: dict[str, str]
    kinds: dict[str, str]
    answers: dict[str, str]
    precisions: dict[str, str]
    stories: dict[str, str]
    agreement: str


ENGLISH = _Wording(
    file="README.md",
    template="card.md",
    languages={"english": "English", "japanese": "Japanese"},
    lengths={"short": "up to 200", "long": "850 to 950"},
    kinds={
        "where": "where it is now",
        "first": "where it was first",
        "holder": "who has it",
        "person": "where somebody went",
        "content": "what is there",
        "colour": "its color",
    },
    answers={
        "right": "**exact answers**",
        "right in 4 bit": "the same with 4-bit weights",
        "last place": "baseline: the last place in the story",
        "most frequent answer": "baseline: the most frequent answer to that kind of question",
        "without the story": "the model without the story",
        "questions": "questions",
        "tokens": "mean length of the prompt, in tokens",
    },
    precisions={"bfloat16": "as stored (bfloat16)", "8 bit": "8 bit", "4 bit": "4 bit"},
    stories={
        "stories": "stories",
        "tokens": "mean length in tokens",
        "ended": "ended by themselves within 400 tokens",
        "distinct-2 between stories": "distinct-2 between two stories",
        "the same, of held-out stories": "the same, between held-out stories",
        "distinct-2 of all": "distinct-2 of all stories together",
        "the same of all, of held-out stories": "the same, of held-out stories",
        "no copy": "without a copy of more than 60 tokens from the training text",
    },
    agreement="greedy choice agrees with `story`",
)
JAPANESE = _Wording(
    file="README.ja.md",
    template="card.ja.md",
    languages={"english": "英語", "japanese": "日本語"},
    lengths={"short": "200以下", "long": "850〜950"},
    kinds={
        "where": "今どこにあるか",
        "first": "最初どこにあったか",
        "holder": "誰が持っているか",
        "person": "誰かがどこへ行ったか",
        "content": "そこに何があるか",
        "colour": "何色か",
    },
    answers={
        "right": "**完全一致の正答率**",
        "right in 4 bit": "同、重みを4ビットにした場合",
        "last place": "比較：物語で最後に出た場所を答える",
        "most frequent answer": "比較：その種類の質問で最も多い答えを返す",
        "without the story": "物語を与えずにモデルに尋ねる",
        "questions": "質問数",
        "tokens": "プロンプトの平均長（トークン）",
    },
    precisions={"bfloat16": "保存時のまま（bfloat16）", "8 bit": "8ビット", "4 bit": "4ビット"},
    stories={
        "stories": "物語の数",
        "tokens": "平均長（トークン）",
        "ended": "400トークン以内に自分で終わった割合",
        "distinct-2 between stories": "2つの物語の間のdistinct-2",
        "the same, of held-out stories": "同、未使用の物語どうし",
        "distinct-2 of all": "全体のdistinct-2",
        "the same of all, of held-out stories": "同、未使用の物語",
        "no copy": "訓練文と60トークンを超えて一致する箇所がない割合",
    },
    agreement="貪欲な選択が`story`と一致する割合",
)


def write_card(folder: Path, name: str, recipe: Recipe, log: Path) -> None:
    """Write README.md, README.ja.md and loss.svg from evaluation.json and the training's log."""
    figures = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
    steps = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    _draw(steps, name, folder / "loss.svg")
    for wording in (ENGLISH, JAPANESE):
        template = (Path(__file__).parent / wording.template).read_text(encoding="utf-8")
        text = template.format(
            name=name,
            parameters=f"{figures['parameters']:,}",
            context=CONTEXT,
            documents=DOCUMENTS,
            recipe=recipe,
            architecture=recipe.model_type.capitalize(),
            steps=f"{steps[-1]['step']:,}",
            machine=figures["machine"],
            answers=_answers(figures["answers"], wording),
            kinds=_kinds(figures["answers"], wording),
            perplexity=_perplexity(figures, wording),
            stories=_stories(figures["free stories"], wording),
            samples=_samples(figures["free stories"]),
        )
        (folder / wording.file).write_text(text, encoding="utf-8")


def _answers(answers: dict[str, Any], wording: _Wording) -> str:
    header = [_case(case, wording) for case in answers]
    rows = [[label, *(_number(case[key]) for case in answers.values())] for key, label in wording.answers.items()]
    return _table(["", *header], rows)


def _kinds(answers: dict[str, Any], wording: _Wording) -> str:
    header = [_case(case, wording) for case in answers]
    rows = [
        [label, *(_number(case["by kind"].get(kind, "–")) for case in answers.values())]
        for kind, label in wording.kinds.items()
    ]
    return _table(["", *header], rows)


def _perplexity(figures: dict[str, Any], wording: _Wording) -> str:
    rows = [
        [label, *(f"{figures['perplexity'][key][language]:.3f}" for language in wording.languages)]
        for key, label in wording.precisions.items()
    ]
    if "agreement" in figures:
        rows.append([wording.agreement, *(_number(figures["agreement"][language]) for language in wording.languages)])
    return _table(["", *wording.languages.values()], rows)


def _stories(stories: dict[str, Any], wording: _Wording) -> str:
    rows = [
        [label, *(_number(stories[language][key]) for language in wording.languages)]
        for key, label in wording.stories.items()
    ]
    return _table(["", *wording.languages.values()], rows)


def _samples(stories: dict[str, Any]) -> str:
    return "\n\n".join(f"> {sample}" for language in stories.values() for sample in language["samples"])


def _case(case: str, wording: _Wording) -> str:
    language, length = case.split()
    return f"{wording.languages[language]}, {wording.lengths[length]}"


def _number(value: float | str) -> str:
    """Shares, which are floats, in per cent."""
    return f"{100 * value:.1f} %" if isinstance(value, float) else str(value)


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


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
