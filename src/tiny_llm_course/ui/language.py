"""The language in which the course speaks to a learner, and the texts of its commands."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from ..tasks.syllabus import Text
from ..tasks.toml import read_toml

__all__ = ["LANGUAGES", "Lang", "Messages", "Phrase", "phrase", "speaking"]

LANGUAGES = ("en", "ja")

Lang = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(LANGUAGES), help="Language of hints and messages. Default: the locale's language, or English."
    ),
]
_asked_for: list[str] = []  # --lang of the running commands; all threads see this list, unlike a context variable


@dataclass(frozen=True)
class Phrase:
    """A placeholder's value that is itself a text, shown in the message's language. A value can also be a list of
    phrases, whose texts are joined. Call `phrase` to make a phrase."""

    key: str
    values: Mapping[str, Any]


def phrase(key: str, /, **values: object) -> Phrase:
    """Return a text from messages.toml or errors.toml, for use in another text."""
    return Phrase(key, values)


class Messages:
    """The texts of messages.toml and errors.toml in one language.

    language: a key of LANGUAGES. None: the language of --lang, otherwise the locale's language (LC_ALL, LC_MESSAGES or
    LANG), otherwise English.
    """

    def __init__(self, language: str | None = None):
        self.language = language or (_asked_for[-1] if _asked_for else _of_locale())

    def __call__(self, key: str, /, **values: object) -> str:
        return _texts()[key][self.language].format(**{name: self._told(value) for name, value in values.items()})

    @staticmethod
    def load() -> None:
        """Read all texts now, because the command is about to replace their files."""
        _texts()

    @staticmethod
    def in_all(key: str, /, **values: object) -> Text:
        """Return a message in every language, keyed by language code, because the reader's language is not known
        yet."""
        return {language: Messages(language)(key, **values) for language in LANGUAGES}

    def of(self, text: Text) -> str:
        """Return a text of the syllabus or the catalogue in the language of these messages."""
        return text[self.language].strip("\n")

    def _told(self, value: object) -> object:
        if isinstance(value, Phrase):
            return self(value.key, **value.values)
        return self("and").join(str(self._told(part)) for part in value) if isinstance(value, list) else value


@contextmanager
def speaking(language: str | None) -> Iterator[Messages]:
    """Show all messages in this language while the block runs. With None, change nothing."""
    if language is None:
        yield Messages()
        return
    _asked_for.append(language)
    try:
        yield Messages()
    finally:
        _asked_for.pop()


def _of_locale() -> str:
    name = next((value for key in ("LC_ALL", "LC_MESSAGES", "LANG") if (value := os.environ.get(key))), "")
    return "ja" if name.startswith("ja") else "en"


@cache
def _texts() -> dict[str, Text]:
    folder = Path(__file__).parent
    return read_toml(folder / "messages.toml") | read_toml(folder / "errors.toml")
