"""The language in which the course speaks to a learner, and the texts of its commands."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

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
        ValueError: a language that the course does not speak.
    """

    def __init__(self, language: str | None = None):
        if language not in (None, *LANGUAGES):
            raise ValueError(f"--lang: expected one of {', '.join(LANGUAGES)}, got {language!r}")
        self.language = language or _of_locale()

    def __call__(self, key: str, **values: object) -> str:
        return _texts()[key][self.language].format(**values)

    def of(self, text: dict[str, str]) -> str:
        """A text of the syllabus or the catalogue."""
        return text[self.language].strip("\n")


def _of_locale() -> str:
    name = next((value for key in ("LC_ALL", "LC_MESSAGES", "LANG") if (value := os.environ.get(key))), "")
    return "ja" if name.startswith("ja") else "en"


@cache
def _texts() -> dict[str, dict[str, str]]:
    return tomllib.loads(Path(__file__).with_name("messages.toml").read_text(encoding="utf-8"))
