"""The language in which the course speaks to a learner, and the texts of its commands."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from .problems import CommandError
from .syllabus import Text
from .toml import read_toml

__all__ = ["LANGUAGES", "Lang", "Messages"]

LANGUAGES = ("en", "ja")

Lang = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(LANGUAGES), help="Language of hints and messages. Default: the locale's, or English."
    ),
]


class Messages:
    """The texts of messages.toml in one language.

    language: a key of LANGUAGES. None: the locale's, as LC_ALL, LC_MESSAGES or LANG name it, or English.

    Raises:
        CommandError: a language that the course does not speak.
    """

    def __init__(self, language: str | None = None):
        if language not in (None, *LANGUAGES):
            raise CommandError(f"--lang: expected one of {', '.join(LANGUAGES)}, got {language!r}")
        self.language = language or _of_locale()

    def __call__(self, key: str, **values: object) -> str:
        return _texts()[key][self.language].format(**values)

    @staticmethod
    def in_all(key: str, **values: object) -> Text:
        """A message in every language, for when it is not known which one it will be read in."""
        return {language: _texts()[key][language].format(**values) for language in LANGUAGES}

    def of(self, text: Text) -> str:
        """A text of the syllabus or the catalogue."""
        return text[self.language].strip("\n")


def _of_locale() -> str:
    name = next((value for key in ("LC_ALL", "LC_MESSAGES", "LANG") if (value := os.environ.get(key))), "")
    return "ja" if name.startswith("ja") else "en"


@cache
def _texts() -> dict[str, Text]:
    return read_toml(Path(__file__).with_name("messages.toml"))
