"""A program that tells and checks stories in English and Japanese, and so writes the models' training text."""

from .lexicon import LANGUAGES, Entity, Lexicon, lexicon
from .story import Story
from .telling import tell
from .wishes import Wish

__all__ = ["LANGUAGES", "Entity", "Lexicon", "Story", "Wish", "lexicon", "tell"]
