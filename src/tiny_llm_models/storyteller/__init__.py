"""A program that tells stories in English and Japanese, and checks stories: it makes the models' training text."""

from .lexicon import LANGUAGES, Entity, Lexicon, lexicon
from .story import Story
from .telling import tell
from .wishes import Wish

__all__ = ["LANGUAGES", "Entity", "Lexicon", "Story", "Wish", "lexicon", "tell"]
