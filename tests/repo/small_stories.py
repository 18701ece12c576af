"""A language of two persons and one thing, for tests of plots."""

from __future__ import annotations

from random import Random
from typing import Any

from tiny_llm_models.storyteller import Lexicon, tell

__all__ = ["small", "told"]


def small(tell_lines: list[Any], language: str = "english", **more: Any) -> Lexicon:
    """Return a lexicon with one plot, named p, about Tom and Ben, or Anna, and a red ball."""
    words = {
        "introducing": ["a", "some"],
        "genders": {"male": {"he": "he", "him": "him"}, "female": {"he": "she", "him": "her"}},
        "names": {"male": "Tom Ben", "female": "Anna Zoe"},
        "kinds": {"boy": "hero male", "man": "other male", "girl": "guest female"},
        "looks": {"hero": "little"},
        "things": {"toy": {"nouns": "ball doll", "looks": "red blue"}},
        "spots": {"inside": {"in": "box", "on": "shelf"}},
        "places": {"outside": {"in": "park"}},
        "colours": {"red": "red", "blue": "blue"},
        "forms": {
            "person": {
                "name": "{name}",
                "a": "{a} {look} {kind} named {name}",
                "some": "{a} {kind}",
                "he": "{he}",
                "him": "{him}",
            },
            "thing": {"name": "the {noun}", "a": "{a} {look} {noun}", "full": "the {look} {noun}", "it": "it"},
            "spot": {"name": "the {noun}", "at": "{at} the {noun}"},
            "place": {"name": "the {noun}", "at": "{at} the {noun}"},
        },
    }
    plot = {"tell": tell_lines, "end": ["The end came."], "questions": [], "gists": [], **more}
    cast = {"hero": "hero", "other": "other", "guest": "guest", "ball": "toy", "box": "inside", "park": "outside"}
    plot.setdefault("cast", {role: group for role, group in cast.items() if role in str(tell_lines) or role == "hero"})
    rules = {"rules": {"joy who": ["{who/he} laughed."]}, "phrases": {"once": ["once"], "loop": ["<loop>"]}}
    return Lexicon(language, words, rules, {"p": plot}, scenes={})


def told(lines: list[Any], seeds: int = 40, **more: Any) -> set[str]:
    """Return the different texts of this plot."""
    return {tell(small(lines, **more), Random(seed)).text for seed in range(seeds)}
