"""A command that checks stories with the storyteller's grammar: `python -m tiny_llm_models.check FILE`."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Annotated

import typer

from .storyteller import LANGUAGES, lexicon
from .storyteller.reading import FAULTS, Reading, read

__all__ = ["check", "language_of", "stories_in"]

_JAPANESE = re.compile("[ぁ-ヿ一-鿿]")
_LATIN = re.compile("[A-Za-z]")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


def language_of(story: str) -> str:
    """Return the language of a story, "english" or "japanese", according to the script of most of the story's
    letters."""
    return "japanese" if len(_JAPANESE.findall(story)) > len(_LATIN.findall(story)) else "english"


def stories_in(text: str, jsonl: bool) -> Iterator[str]:
    """Yield the stories of a file.

    jsonl: whether each line holds one story, as a JSON string or as a JSON object with the key "text". Otherwise, each
    paragraph is one story.

    Raises:
        ValueError: a line of JSON is neither a string nor such an object.
    """
    if not jsonl:
        for paragraph in re.split(r"\n\s*\n", text):
            lines = [line.strip(" \t\r") for line in paragraph.split("\n") if line.strip()]
            if lines:
                yield ("" if language_of(paragraph) == "japanese" else " ").join(lines)
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            story = _json(line, number)
            story = story.get("text") if isinstance(story, dict) else story
            if not isinstance(story, str):
                raise ValueError(f'line {number}: expected a string, or an object with a string "text"')
            yield story


@app.command(epilog="Faults: " + "; ".join(f"{kind}: {meaning}" for kind, meaning in FAULTS.items()))
def check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="stories, with a blank line between them; - reads stdin")],
    language: Annotated[str, typer.Option(help="english or japanese; by default each story's script decides")] = "",
    jsonl: Annotated[bool, typer.Option("--jsonl", help='one JSON string, or object with a "text", per line')] = False,
) -> None:
    """Print each fault of each story as FILE:STORY:SENTENCE: FAULT: EXPLANATION. Exit with 1 if there is a fault."""
    if language not in ("", *LANGUAGES):
        raise typer.BadParameter(f"expected one of {', '.join(LANGUAGES)}, got {language!r}", param_hint="--language")
    try:
        stories = list(stories_in(_text(file), jsonl))
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{file}: {error}", param_hint="FILE") from error
    if not stories:
        raise typer.BadParameter(f"{file}: expected at least one story", param_hint="FILE")
    readings = [read(lexicon(language or language_of(story)), story) for story in stories]
    for number, reading in enumerate(readings, 1):
        for fault in reading.faults:
            sentence = reading.sentences[fault.sentence] if reading.sentences else ""
            typer.echo(
                f"{file}:{number}:{fault.sentence + 1}: {fault.kind}: {fault.explanation} [{_printable(sentence)}]"
            )
    typer.echo(_summary(readings))
    if not all(reading.right for reading in readings):
        raise typer.Exit(1)


def _printable(text: str) -> str:
    """Replace each character that a terminal cannot show by U+FFFD."""
    return "".join(each if each.isprintable() else "\ufffd" for each in text)


def _summary(readings: list[Reading]) -> str:
    right = sum(reading.right for reading in readings)
    kinds = Counter(fault.kind for reading in readings for fault in reading.faults)
    faults = "".join(f"; {kind}: {count}" for kind, count in kinds.most_common())
    return f"{len(readings)} {'story' if len(readings) == 1 else 'stories'}, {right} without faults{faults}"


def _text(file: str) -> str:
    """Return the file's text. Bytes that are not UTF-8 become U+FFFD, which counts as a fault of the story."""
    if file == "-":
        return sys.stdin.buffer.read().decode("utf-8", errors="replace")
    with open(file, encoding="utf-8", errors="replace", newline="") as stream:
        return stream.read().replace("\r\n", "\n")


def _json(line: str, number: int) -> object:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {number}: {error}") from error


if __name__ == "__main__":
    app()
