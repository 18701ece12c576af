"""The model card, in both languages: a description of a checkpoint and its training, and the measured figures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

from .origin import origin_row, read_origin
from .recipes import CONTEXT, Recipe, Stage

matplotlib.use("svg")
from matplotlib import pyplot

__all__ = ["tables", "write_card"]


# The rows and columns of the tables, keyed as in evaluation.json, with an English and a Japanese label each.
_LANGUAGES = {"english": ("English", "英語"), "japanese": ("Japanese", "日本語")}
_LENGTHS = {"short": ("up to 200", "200 以下"), "long": ("850 to 950", "850〜950")}
_STORIES = {
    "stories": ("stories", "物語の数"),
    "without faults": ("**without a fault**", "**誤りのない物語**"),
    "4 bit": ("the same with 4-bit weights", "同、重みを 4 ビットにした場合"),
    "greedy": ("at temperature 0, without a fault", "温度 0 で誤りのない物語"),
    "ended": ("ended within 400 tokens", "400 トークン以内に終わった物語"),
    "tokens": ("mean length in tokens", "平均長（トークン）"),
    "bigrams": ("different bigrams of two stories", "2 つの物語で異なるバイグラム"),
    "bigrams of held-out stories": ("the same for the program's stories", "同、プログラムが語る物語"),
    "copies": (
        "with more than 60 tokens in a row copied from the training text",
        "学習に使った文章を 60 トークンを超えて写した物語",
    ),
    "least plot": ("share of the rarest plot", "最も少ない筋の割合"),
    "most plot": ("share of the most frequent plot", "最も多い筋の割合"),
}
_REQUESTS = {
    "requests": ("requests", "リクエストの数"),
    "honoured": ("**every detail honoured**", "**すべての条件を満たした割合**"),
    "without faults": ("story without a fault", "物語に誤りがない割合"),
}
_ANSWERS = {
    "right": ("**exact answers**", "**完全一致の正答率**"),
    "right in 4 bit": ("the same with 4-bit weights", "同、重みを 4 ビットにした場合"),
    "what is there": ("exact answers to “what is there?”", "「何があるか」への正答率"),
    "not said": (
        "answered “The story does not say.” when that is right",
        "答えがない質問に「書いてありません」と答えた割合",
    ),
    "does not say": (
        "answered “The story does not say.” when that is wrong",
        "答えがある質問に「書いてありません」と答えた割合",
    ),
    "last place": ("baseline: the place that the story mentions last", "比較：物語で最後に出た場所を答える"),
    "without the stories": ("baseline: the model without the story", "比較：物語を与えずにモデルに尋ねる"),
    "questions": ("questions", "質問の数"),
    "tokens": ("mean length of the prompt, in tokens", "プロンプトの平均長（トークン）"),
}
_KINDS = {
    "where": ("where it is now", "今どこにあるか"),
    "first": ("where it was first", "最初どこにあったか"),
    "holder": ("who has it", "誰が持っているか"),
    "person": ("where a person went", "ある人がどこへ行ったか"),
    "content": ("what is there", "そこに何があるか"),
    "colour": ("what color it is", "何色か"),
    "plot": ("what happened, and why", "何が起きたか、なぜか"),
}
_PERPLEXITY = {
    "bfloat16": ("as stored (bfloat16)", "保存時のまま（bfloat16）"),
    "8 bit": ("8 bit", "8 ビット"),
    "4 bit": ("4 bit", "4 ビット"),
}
_AGREEMENT = {"agreement": ("greedy choice agrees with `story`", "最も確率の高いトークンが `story` と一致する割合")}

# How the training of the weights in the repository differed from the recipe.
_ROUNDED = (
    " For the weights in this folder, the stages ended by the clock, so their numbers of documents are rounded.",
    "なお、このフォルダーの重みでは、各段階を時間で区切ったため、文書の件数は概数です。",
)
_TWICE = (
    _ROUNDED[0] + " Before the last stage, these weights had a short stage of 8,000 documents, in which all words of a "
    "story counted the same, too. Copies were searched in the text of the last stage.",
    _ROUNDED[1] + "また、最後の段階の前に、物語のどの語も同じ重みにした 8,000 件の短い段階がありました。"
    "写しの有無は、最後の段階の文章だけを対象に調べています。",
)
_SHORT = (
    _ROUNDED[0] + " These weights did not have the last stage.",
    _ROUNDED[1] + "また、最後の段階は省いています。",
)
_HISTORY = {"story": _TWICE, "story-draft": _SHORT, "story-qwen2": _SHORT}

_Labels = dict[str, tuple[str, str]]


def write_card(folder: Path, name: str, recipe: Recipe, stages: Sequence[Stage]) -> None:
    """Write README.md, README.ja.md and loss.svg from evaluation.json, training.jsonl and origin.toml."""
    figures = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
    log = (folder / "training.jsonl").read_text(encoding="utf-8")
    steps = [json.loads(line) for line in log.splitlines()]
    origin = read_origin(folder)
    _draw(steps, name, folder / "loss.svg")
    for language, suffix in enumerate(("", ".ja")):
        template = (Path(__file__).parent / f"card{suffix}.md").read_text(encoding="utf-8")
        text = template.format(
            name=name,
            parameters=f"{figures['parameters']:,}",
            megabytes=round((folder / "model.safetensors").stat().st_size / 1e6, 1),
            context=CONTEXT,
            documents=[f"{round(stage.documents * stage.passes / recipe.every):,}" for stage in stages],
            questions=stages[1].mix.questions,
            rates=", ".join(f"{recipe.learning_rate * stage.rate:g}" for stage in stages),
            recipe=recipe,
            architecture=recipe.model_type.capitalize(),
            steps=f"{steps[-1]['step']:,}",
            tokens=_count(steps[-1]["tokens"], language),
            time=_time(_seconds(steps), language),
            more=_more(recipe, language) + _HISTORY.get(name, ("", ""))[language],
            machine=", ".join(dict.fromkeys(step["machine"] for step in steps)),
            origin=origin_row(origin, language),
            seed=figures["seed"],
            settings=figures["settings"],
            **tables(figures, language),
            samples=_samples(figures["free stories"]),
        )
        (folder / f"README{suffix}.md").write_text(text, encoding="utf-8")


def tables(figures: dict[str, Any], language: int) -> dict[str, str]:
    """Return the card's tables, keyed by their names in the template. language: 0 is English, 1 is Japanese."""
    by_case = {_case(case, language): _answers(figures, case) for case in figures["answers"]}
    kinds = {
        column: {kind: found["right"] for kind, found in values["by kind"].items()}
        for column, values in by_case.items()
    }
    perplexities = {
        key: {precision: f"{value:.3f}" for precision, value in values.items()}
        for key, values in figures["perplexity"].items()
    }
    if agreement := figures.get("agreement"):
        perplexities = {key: {**values, "agreement": agreement[key]} for key, values in perplexities.items()}

    def by_language(columns: dict[str, Any], labels: _Labels) -> str:
        return _table({_LANGUAGES[key][language]: column for key, column in columns.items()}, labels, language)

    return {
        "stories": by_language({key: _stories(found) for key, found in figures["free stories"].items()}, _STORIES),
        "requests": by_language(figures["requests"], _REQUESTS),
        "answers": _table(by_case, _ANSWERS, language),
        "kinds": _table(kinds, _KINDS, language),
        "perplexity": by_language(perplexities, _PERPLEXITY | (_AGREEMENT if agreement else {})),
    }


def _answers(figures: dict[str, Any], case: str) -> dict[str, Any]:
    """Return one column of the table of answers."""
    return {**figures["answers"][case], **{key: figures[key][case]["right"] for key in ("what is there", "not said")}}


def _stories(found: dict[str, Any]) -> dict[str, Any]:
    """Return one column of the table of stories."""
    plots = found["plots"].values() or [0.0]
    more = {"4 bit": found["in 4 bit"]["without faults"], "greedy": found["greedy"]["without faults"]}
    return {**found, **more, "least plot": min(plots), "most plot": max(plots)}


def _seconds(steps: Sequence[dict[str, float]]) -> float:
    """Return the seconds that the training took, computed from its log."""
    tokens = [0, *(step["tokens"] for step in steps)]
    return sum((now - before) / step["speed"] for before, now, step in zip(tokens, tokens[1:], steps, strict=False))


def _time(seconds: float, language: int) -> str:
    """Return a time in hours, or in minutes or seconds if the time is short."""
    value, unit = seconds / 3600, ("hours", "時間")
    for units in (("minutes", "分"), ("seconds", "秒")):
        if value < 1.5:
            value, unit = 60 * value, units
    digits = 1 if unit[0] == "hours" else 0
    return f"{value:.{digits}f} {unit[language]}"


def _count(tokens: float, language: int) -> str:
    """Return a number of tokens as text, rounded to millions."""
    if language == 0:
        return f"{tokens / 1e6:,.0f} million"
    units = round(tokens / 1e6) * 100  # units of 10,000, as Japanese counts
    large, small = divmod(units, 10_000)
    return f"{large} 億 {small:,} 万" if large else f"{small:,} 万"


def _more(recipe: Recipe, language: int) -> str:
    """Return the sentences about steps that only this model's training has."""
    parts = []
    if recipe.more_stories:
        own, rare = (2 * recipe.more_stories[kind] for kind in ("own", "rare"))  # in both languages
        parts.append(
            (
                f" The third stage also has stories of the model's own: after the second stage, the model told "
                f"{own:,} stories, and those in which the checker found no fault were added. At a "
                f"temperature below 1, a model tells frequent plots even more often. So before the last stage, the "
                f"plots of its stories were counted, and {rare:,} stories of the program were added "
                f"to the last stage, most of them with plots that the model told rarely. The finished weights are an "
                f"average: {100 * (1 - recipe.kept):.0f} % of the weights after the last stage and "
                f"{100 * recipe.kept:.0f} % of those before it.",
                f"第 3 段階には、第 2 段階を終えたモデル自身に語らせた {own:,} 編の物語のうち、"
                f"チェッカーが誤りを見つけなかったものも加えています。1 より低い温度では、よく出る筋がさらに多く"
                f"選ばれます。そこで最後の段階の前にモデルが語った筋を数え、まれな筋を中心に、プログラムの物語を "
                f"{rare:,} 編、最後の段階に加えました。完成した重みは、最後の段階の前の重み "
                f"{100 * recipe.kept:.0f} % と後の重み {100 * (1 - recipe.kept):.0f} % の加重平均です。",
            )
        )
    if recipe.teacher:
        parts.append(
            (
                f" Half of the loss of this model comes from the text, and half from the predictions of "
                f"`{recipe.teacher}` (distillation).",
                f"損失の半分は文章から、残りの半分は `{recipe.teacher}` の予測から計算しました（蒸留）。",
            )
        )
    return "".join(part[language] for part in parts)


def _case(case: str, language: int) -> str:
    spoken, length = case.split()
    return f"{_LANGUAGES[spoken][language]}, {_LENGTHS[length][language]}"


def _table(columns: dict[str, dict[str, Any]], labels: _Labels, language: int) -> str:
    """Return a Markdown table. columns: the values of each column, keyed by heading. The values have the same keys as
    `labels`."""
    rows = [
        ["", *columns],
        ["---", *["---:"] * len(columns)],
        *([names[language], *(_number(c.get(key, "–")) for c in columns.values())] for key, names in labels.items()),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _number(value: float | str) -> str:
    """Return a number as text. A float is a share, and is written as a percentage."""
    return f"{100 * value:.1f} %" if isinstance(value, float) else str(value)


def _samples(stories: dict[str, Any]) -> str:
    return "\n\n".join(f"> {sample}" for language in stories.values() for sample in language["samples"])


def _draw(steps: list[dict[str, float]], name: str, path: Path) -> None:
    """Draw the loss on stories and the loss on answers at each step."""
    pyplot.rcParams["svg.hashsalt"] = name  # makes the file reproducible
    figure, axes = pyplot.subplots(figsize=(7, 3.5))
    for key, label in (("loss", "stories"), ("answers", "answers")):
        axes.plot([step["step"] for step in steps], [step[key] for step in steps], label=label, linewidth=1)
    axes.set(xlabel="step", ylabel="loss per token (nats)", title=name, yscale="log")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
