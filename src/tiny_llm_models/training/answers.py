"""The share of questions that a model answers exactly right with greedy decoding."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from ..evaluation import Exam
from .sampling import GREEDY, Sampler

__all__ = ["answers", "share", "written"]

_ANSWER = 48  # the most tokens of an answer


def answers(sampler: Sampler, made: Sequence[Exam]) -> dict[str, Any]:
    """Return the share of exactly right answers, overall and for each kind of question, and figures for comparison."""
    told, alone = written(sampler, made), written(sampler, made, alone=True)
    questions, right = [exam.question for exam in made], defaultdict[str, list[bool]](list)
    for question, answer in zip(questions, told, strict=True):
        right[question.kind].append(answer == question.answer)
    return {
        "questions": len(made),
        "tokens": round(sum(exam.tokens for exam in made) / len(made)),
        "right": share([each for some in right.values() for each in some]),
        "does not say": share([answer == exam.unsaid for exam, answer in zip(made, told, strict=True)]),
        "without the stories": share([a == each.answer for each, a in zip(questions, alone, strict=True)]),
        "last place": share([each.last_mentioned == each.answer for each in questions if each.last_mentioned]),
        "by kind": {kind: {"questions": len(some), "right": share(some)} for kind, some in sorted(right.items())},
        "wrong": [
            f"{question.text} – {answer} ({question.answer})"
            for question, answer in zip(questions, told, strict=True)
            if answer != question.answer
        ][:10],
    }


def written(sampler: Sampler, made: Sequence[Exam], *, alone: bool = False) -> list[str]:
    """Return the model's answers. An unfinished answer ends in "…". alone: whether to ask without the stories."""
    prompts = [exam.alone if alone else exam.prompt for exam in made]
    return [text if ended else f"{text}…" for text, ended in sampler.continued(prompts, GREEDY, _ANSWER)]


def share(outcomes: Sequence[bool]) -> float:
    """Return the share of outcomes that are true, from 0 to 1."""
    return round(sum(outcomes) / len(outcomes), 4) if outcomes else 0.0
