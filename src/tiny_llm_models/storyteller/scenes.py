"""Scenes: a few plain sentences in which things change hands and places. Only documents with questions have scenes.

Stories follow plots, but people who try a model also ask about sentences such as "Mia put the red key in the old box."
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from .lexicon import Entity, Lexicon

__all__ = ["furnished"]

_LOOKED = 0.4  # the share of spots and things that receive a new look


def furnished(
    lexicon: Lexicon, random: Random, recast: Callable[[Entity], Entity] | None = None
) -> Callable[[Entity], Entity]:
    """Return a function for `telling.scene` that gives looks to a scene's things and spots, as in "the old box".

    recast: a function that is applied to each entity first.
    """
    looks = sorted({look for lexeme in lexicon.lexemes if lexeme.sort == "thing" for look in lexeme.looks})

    def changed(entity: Entity) -> Entity:
        entity = recast(entity) if recast else entity
        words = dict(entity.words)
        if random.random() < _LOOKED:
            if entity.sort == "spot":
                words["noun"] = f"{random.choice(lexicon.spot_looks)}{lexicon.space}{words['noun']}"
            elif entity.sort == "thing":
                words["look"] = random.choice(looks)
                words["colour"] = lexicon.colours.get(words["look"], "")
        return Entity(entity.sort, words)

    return changed
