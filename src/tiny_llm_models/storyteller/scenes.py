"""Scenes: a few plain sentences in which things change hands and places. Only documents with questions have them.

Stories keep to their plots; whoever tries a model asks about things like "Mia put the red key in the old box."
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from .lexicon import Entity, Lexicon

__all__ = ["furnished"]

_LOOKED = 0.4  # the share of spots and things that get a look of another


def furnished(
    lexicon: Lexicon, random: Random, recast: Callable[[Entity], Entity] | None = None
) -> Callable[[Entity], Entity]:
    """Furnish a scene for `telling.scene`: things of any look, and spots with one, such as "the old box". recast: comes
    first."""
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
