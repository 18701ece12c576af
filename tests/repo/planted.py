"""Plants faults in right stories, to test the checker. Each fault has the name under which the checker must find it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from tiny_llm_models.storyteller import Story

__all__ = ["Planted", "planted_faults"]

_SWAPPED = {"he": "she", "she": "he", "his": "her", "him": "her", "himself": "herself", "herself": "himself"}
_SWAPPED |= {word.capitalize(): other.capitalize() for word, other in _SWAPPED.items()}
_PRONOUNS = rf"\b(?:{'|'.join(_SWAPPED)})\b"


@dataclass(frozen=True)
class Planted:
    """A text with one fault of this kind. how: a description of the change."""

    kind: str
    how: str
    text: str


Edit = Callable[[Story, list[str], Random], "list[str] | None"]  # the lines with the fault; None: not in this story


def planted_faults(stories: Sequence[Story], count: int, random: Random) -> Iterator[Planted]:
    """Yield this many faults, taking all kinds in turn."""
    edits = [(kind, edit) for kind, kinds in _EDITS.items() for edit in kinds]
    number = 0
    while number < count:
        for kind, edit in edits:
            for _ in range(len(stories)):
                if found := _plant(random.choice(stories), kind, edit, random):
                    yield found
                    number += 1
                    break


def _plant(story: Story, kind: str, edit: Edit, random: Random) -> Planted | None:
    """Return the story with a fault of this kind. Return None if the story has no place for it."""
    lines = edit(story, [line.text for line in story.lines], random)
    if not lines or lines == [line.text for line in story.lines]:
        return None
    return Planted(kind, edit.__name__.strip("_"), story.lexicon.space.join(lines))


def _is_english(story: Story) -> bool:
    return story.lexicon.language == "english"


def _anywhere(lines: list[str], random: Random, change: Callable[[str], str]) -> list[str]:
    number = random.randrange(len(lines))
    return [change(line) if i == number else line for i, line in enumerate(lines)]


def _broken(story: Story, lines: list[str], random: Random) -> list[str]:
    def change(line: str) -> str:
        place = random.randrange(len(line))
        return line[:place] + random.choice("\ufffd\ufffd\x07\x00\ud83d") + line[place + random.randint(0, 1) :]

    return _anywhere(lines, random, change)


def _other_script(story: Story, lines: list[str], random: Random) -> list[str]:
    foreign = ["猫", "トム", "ボール", "そして"] if _is_english(story) else ["cat", "Tom", "ball", "then"]

    def change(line: str) -> str:
        place = random.choice([match.start() for match in re.finditer(r"\b\w", line)])
        return line[:place] + random.choice(foreign) + line[place:]

    return _anywhere(lines, random, change)


def _no_word(story: Story, lines: list[str], random: Random) -> list[str] | None:
    """Put a word that does not exist into a line: "timethere", "redphy"; in Japanese, a few katakana instead of a
    noun."""
    if not _is_english(story):
        nonsense = "".join(random.choice("ヌペヂゼポヨ") for _ in range(3))
        return _replaced_once(story, lines, random.choice(["name", "noun"]), lambda word: nonsense, random)

    def change(line: str) -> str:
        words = list(re.finditer(r"[A-Za-z]{3,}", line))
        if len(words) < 2:
            return line
        word, other = random.sample(words, 2)
        said = random.choice([word[0] + other[0].lower(), word[0][:3] + "phy", word[0] + "elbel"])
        return line[: word.start()] + said + line[word.end() :]

    return _anywhere(lines, random, change)


def _shuffled(story: Story, lines: list[str], random: Random) -> list[str]:
    """Put a sentence's words into another order."""

    def change(line: str) -> str:
        words = re.findall(r"\S+" if _is_english(story) else "[ぁ-ん]+|[ァ-ヺー]+|[一-鿿々]+|.", line[:-1])
        if len(words) < 5:
            return line
        order = words[:]
        while order == words:
            random.shuffle(order)
        return story.lexicon.space.join(order) + line[-1]

    return _anywhere(lines, random, change)


def _without_introduction(story: Story, lines: list[str], random: Random) -> list[str] | None:
    return _dropped(story, lines, random, "person")


def _without_thing(story: Story, lines: list[str], random: Random) -> list[str] | None:
    return _dropped(story, lines, random, "thing")


def _dropped(story: Story, lines: list[str], random: Random, sort: str) -> list[str] | None:
    """Drop the line that introduces a person or a thing that a later line names."""
    found, seen = [], set[str]()
    for number, line in enumerate(story.lines):
        new = {each.role for each in line.named} - seen
        seen |= new
        new &= {role for role, entity in story.cast.items() if entity.sort in ("person", "thing")}
        if len(new) == 1 and story.cast[role := new.pop()].sort == sort:
            called = story.cast[role]["name"] or story.cast[role]["noun"] or story.cast[role]["kind"]
            if any(called in later for later in lines[number + 1 :]):
                found.append(number)
    if not found:
        return None
    number = random.choice(found)
    return lines[:number] + lines[number + 1 :]


def _renamed(story: Story, lines: list[str], random: Random) -> list[str] | None:
    """Call a person by another name once, after the line that introduces the person."""
    taken = [story.cast[role]["name"] for role in story.roles("person")]
    names = [name for names in story.lexicon.names.values() for name in names if name not in taken]
    return _replaced_once(story, lines, "name", lambda name: random.choice(names), random)


def _one_name(story: Story, lines: list[str], random: Random) -> list[str] | None:
    names = [story.cast[role]["name"] for role in story.roles("person") if story.cast[role]["name"]]
    if len(names) < 2:
        return None
    one, other = random.sample(names, 2)
    return [_replace(line, one, other) for line in lines]


def _other_gender(story: Story, lines: list[str], random: Random) -> list[str] | None:
    names = [re.escape(name) for role in story.roles("person") if (name := story.cast[role]["name"])]
    pattern = _PRONOUNS if _is_english(story) else "|".join(f"(?<={name})(?:くん|ちゃん)" for name in names)
    swapped = _SWAPPED if _is_english(story) else {"くん": "ちゃん", "ちゃん": "くん"}
    found = [(i, match) for i, line in enumerate(lines) for match in re.finditer(pattern, line)]
    if not found:
        return None
    number, match = random.choice(found)
    line = lines[number]
    return [*lines[:number], line[: match.start()] + swapped[match[0]] + line[match.end() :], *lines[number + 1 :]]


def _other_thing(story: Story, lines: list[str], random: Random) -> list[str] | None:
    """Replace a thing with another thing that suits the same role."""
    nouns = {story.cast[role]["noun"]: story.plot.cast[role] for role in story.roles("thing")}
    taken = {entity["noun"] for entity in story.cast.values()}

    def other(noun: str) -> str:
        others = [one.key for one in story.lexicon.group(nouns[noun]) if one.key not in taken]
        return random.choice(others) if others else noun

    return _replaced_once(story, lines, "noun", other, random, "thing")


def _other_spot(story: Story, lines: list[str], random: Random) -> list[str] | None:
    """Replace a spot or place that an earlier line names with another one."""
    roles = [*story.roles("spot"), *story.roles("place")]
    nouns = {story.cast[role]["noun"]: (story.plot.cast[role], story.cast[role]["at"]) for role in roles}

    def other(noun: str) -> str:
        group, at = nouns[noun]
        found = [one.key for one in story.lexicon.group(group) if one.words["at"] == at and one.key not in nouns]
        return random.choice(found) if found else noun

    return _replaced_once(story, lines, "noun", other, random, "spot place")


def _other_colour(story: Story, lines: list[str], random: Random) -> list[str] | None:
    """Give a thing another colour after the line that introduces it."""
    looks = {story.cast[role]["look"] for role in story.roles("thing")}

    def other(noun: str) -> str:
        colour = random.choice([one for one in story.lexicon.colours if one not in looks])
        return f"{colour}{story.lexicon.space}{noun}"

    return _replaced_once(story, lines, "noun", other, random, "thing")


def _other_order(story: Story, lines: list[str], random: Random) -> list[str] | None:
    """Move a line past at least one other line."""
    start = random.randrange(1, len(lines))
    rest = lines[:start] + lines[start + 1 :]
    place = random.choice([i for i in range(1, len(rest)) if abs(i - start) > 0])
    return [*rest[:place], lines[start], *rest[place:]]


def _twice(story: Story, lines: list[str], random: Random) -> list[str]:
    number = random.randrange(len(lines))
    place = random.randrange(number, len(lines)) + 1
    return [*lines[:place], lines[number], *lines[place:]]


def _to_themselves(story: Story, lines: list[str], random: Random) -> list[str] | None:
    """Let a person give something to themselves."""
    found = []
    for number, line in enumerate(story.lines):
        for _, was, where in re.findall(r"(\w+): (\w+) > (\w+)", line.source):
            names = [story.cast[role]["name"] for role in (was, where) if role in story.cast]
            if len(names) == 2 and all(name and name in line.text for name in names):
                found.append((number, names))
    if not found:
        return None
    number, names = random.choice(found)
    random.shuffle(names)
    return [_replace(line, *names) if i == number else line for i, line in enumerate(lines)]


def _cut(story: Story, lines: list[str], random: Random) -> list[str]:
    return lines[: random.randrange(1, len(lines))]


def _cut_within(story: Story, lines: list[str], random: Random) -> list[str]:
    number = random.randrange(1, len(lines))
    line = lines[number].rstrip('.!?"。！？」')
    return [*lines[:number], line[: random.randrange(max(1, len(line) // 2), len(line))]]


def _cut_after_speech(story: Story, lines: list[str], random: Random) -> list[str] | None:
    """Keep a person's speech, but drop the words that say who speaks."""
    found = [(i, match.end()) for i, line in enumerate(lines) for match in re.finditer(r'(?<=\S)"(?= )|」(?=.)', line)]
    if not found:
        return None
    number, place = random.choice(found)
    return [*lines[:number], lines[number][:place]]


def _replaced_once(
    story: Story, lines: list[str], word: str, other: Callable[[str], str], random: Random, sorts: str = "person thing"
) -> list[str] | None:
    """Replace a word for a person or a thing, in one line that names them after the first such line."""
    found = []
    for role, entity in story.cast.items():
        if entity.sort in sorts.split() and entity[word]:
            naming = [i for i, line in enumerate(story.lines) if any(each.role == role for each in line.named)]
            found += [(i, entity[word]) for i in naming[1:] if _replace(lines[i], entity[word], "") != lines[i]]
    if not found:
        return None
    number, said = random.choice(found)
    return [_replace(line, said, other(said)) if i == number else line for i, line in enumerate(lines)]


def _replace(line: str, word: str, other: str) -> str:
    edge = r"\b" if word.isascii() else ""
    return re.sub(f"{edge}{re.escape(word)}{edge}", other, line)


_EDITS: dict[str, list[Edit]] = {
    "broken-character": [_broken],
    "wrong-script": [_other_script],
    "unknown-word": [_no_word],
    "unknown-sentence": [_shuffled],
    "not-introduced": [_without_introduction],
    "two-names": [_renamed],
    "same-name": [_one_name],
    "wrong-pronoun": [_other_gender],
    "thing-from-nowhere": [_other_thing, _without_thing],
    "contradiction": [_other_spot, _other_colour, _other_order, _twice, _to_themselves],
    "no-end": [_cut, _cut_within, _cut_after_speech],
}
