"""A program that tells stories in English and Japanese, for the models' training text, and that checks stories."""

from .lexicon import LANGUAGES, Entity, Lexicon, lexicon
from .story import Story
from .telling import tell
from .wishes import Wish

__all__ = ["LANGUAGES", "Entity", "Lexicon", "Story", "Wish", "lexicon", "tell"]
