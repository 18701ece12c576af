"""Stories in English and Japanese, and questions about them, from a seeded program: the models' training text."""

from .documents import Document, Mix, document, question_prompt
from .plots import tell_long_story, tell_story
from .questions import Question, ask
from .telling import Story
from .words import LANGUAGES, Words

__all__ = [
    "LANGUAGES",
    "Document",
    "Mix",
    "Question",
    "Story",
    "Words",
    "ask",
    "document",
    "question_prompt",
    "tell_long_story",
    "tell_story",
]
