"""The vocabulary of a language: words for the people, things and places of stories, and the forms of these words."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from random import Random
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from .grammar import Plot
from .notation import Notation

__all__ = ["LANGUAGES", "Entity", "Lexeme", "Lexicon", "NobodyLeftError", "capitalised", "lexicon", "words_of"]

LANGUAGES = ("english", "japanese")
SORTS = ("person", "thing", "spot", "place")
WORD = re.compile(r"\{(\w+)\}( ?)")  # a word in a form, and the space after it
_ARTICLE = re.compile(r"\{a\} (?=(\w+))")
_OPTIONAL = frozenset({"a", "look"})  # words that a form may use even for an entity that lacks them
_LOOKS = {"person": 0.4, "thing": 0.85}  # the share of entities with a look


def words_of(value: str | list[str]) -> list[str]:
    """Return the words of an entry in a file. The entry is a text with spaces between words, or a list if a word
    contains a space."""
    return value.split() if isinstance(value, str) else value


def capitalised(text: str) -> str:
    """Return the text with its first letter as a capital. A quotation mark may come before this letter."""
    start = text[:1] == '"'
    return text[:start] + text[start : start + 1].upper() + text[start + 1 :]


class NobodyLeftError(ValueError):
    """The error raised when a story already has all entities of a group."""


@dataclass(frozen=True, eq=False)
class Lexeme:
    """A kind of person, a noun for a thing, or a spot or place. Entities are made from lexemes."""

    sort: str
    groups: frozenset[str]
    words: Mapping[str, str]  # the kind or the noun, the preposition (at), and words that follow from these
    looks: tuple[str, ...] = ()
    gender: str = ""  # for a kind of person with only one gender
    nameless: bool = False

    @property
    def key(self) -> str:
        """Return the kind or noun, which names the lexeme."""
        return self.words["kind" if self.sort == "person" else "noun"]


@dataclass(frozen=True, eq=False)
class Entity:
    """A person, thing, spot or place in one story.

    words: the words in its forms: a person's name, kind, look, gender and pronouns; a thing's noun and look; the noun
    and preposition (at) of a spot or place. While a story is parsed, words that are not known yet are left out. For a
    person without a look, `look` is "".
    """

    sort: str
    words: Mapping[str, str]

    def __getitem__(self, word: str) -> str:
        return self.words.get(word, "")

    @property
    def key(self) -> str:
        """Return the kind or noun, which is unique among the story's entities of the same sort."""
        return self["kind" if self.sort == "person" else "noun"]


class Lexicon:
    """The words, forms and plots of a language."""

    def __init__(
        self,
        language: str,
        words: Mapping[str, Any],
        rules: Mapping[str, Any],
        plots: Mapping[str, Any],
        scenes: Mapping[str, Any],
    ):
        self.language = language
        self.space = " " if language == "english" else ""
        self.questions: dict[str, Any] = rules.get("questions", {})
        self.chat: dict[str, Any] = rules.get("chat", {})
        self.forms: dict[str, dict[str, list[str]]] = {
            sort: {name: [form] if isinstance(form, str) else form for name, form in words["forms"][sort].items()}
            for sort in SORTS
        }
        self.introducing = frozenset(words["introducing"])
        self.subjects = frozenset(words.get("subjects", ()))
        self.colours: dict[str, str] = words["colours"]
        self.genders: dict[str, dict[str, str]] = words["genders"]
        self.names = {gender: words_of(words["names"][gender]) for gender in self.genders}
        self.gender_of = {name: gender for gender, names in self.names.items() for name in names}
        self.lexemes = list(_lexemes(words))
        self.strange: dict[str, list[str]] = {key: words_of(value) for key, value in words.get("strange", {}).items()}
        self._groups: dict[str, tuple[Lexeme, ...]] = {}
        self._articles = {word: a for a, some in words.get("articles", {}).items() for word in words_of(some)}
        self.notation = Notation(rules["rules"], rules["phrases"])
        self.plots: dict[str, Plot] = {name: self.notation.plot(name, plot) for name, plot in plots.items()}
        self.scenes = [self.notation.plot(name, scene) for name, scene in scenes.items() if name != "looks"]
        self.spot_looks = words_of(scenes.get("looks", []))  # only scenes use these looks

    def group(self, group: str) -> tuple[Lexeme, ...]:
        """Return the lexemes of a group, of several groups ("toy|hat"), or of a sort ("thing").

        Raises:
            ValueError: there is no such group, or the groups have different sorts.
        """
        if group not in self._groups:
            groups = set(group.split("|"))
            found = tuple(lexeme for lexeme in self.lexemes if groups & {lexeme.sort, *lexeme.groups})
            if missing := groups - {each for lexeme in found for each in (lexeme.sort, *lexeme.groups)}:
                raise ValueError(f"expected a group of words.toml, got {sorted(missing)[0]!r}")
            if len({lexeme.sort for lexeme in found}) > 1:
                raise ValueError(f"expected groups of one sort, got {group!r}")
            self._groups[group] = found
        return self._groups[group]

    def sort(self, group: str) -> str:
        """Return the sort of a group: person, thing, spot or place."""
        return self.group(group)[0].sort

    def draw(
        self, group: str, random: Random, taken: Iterable[Entity] = (), wish: Mapping[str, str] | None = None
    ) -> Entity:
        """Draw an entity of this group that differs from the entities in `taken`.

        wish: words that the entity must have.

        Raises:
            NobodyLeftError: there is no such entity.
        """
        wish, taken = wish or {}, [other for other in taken if other.sort == self.sort(group)]
        used = {other.key for other in taken}
        fits = [one for one in self.group(group) if not wish or self._complete(one, wish) is not None]
        free = [one for one in fits if one.key not in used]
        if not free:
            raise NobodyLeftError(f"expected another {group} than {sorted(used)} with {dict(wish)}, but there is none")
        lexeme = random.choice(free)
        words = dict(lexeme.words)
        if lexeme.sort == "person":
            words["name"] = wish.get("name") or self._name(lexeme, random, [other["name"] for other in taken])
        if lexeme.sort in ("person", "thing"):
            looked = bool(lexeme.looks) and random.random() < _LOOKS[lexeme.sort]
            words["look"] = wish.get("look") or (random.choice(lexeme.looks) if looked else "")
        complete = self._complete(lexeme, words)
        assert complete is not None
        return Entity(lexeme.sort, complete)

    def complete(self, group: str, known: Mapping[str, str]) -> dict[str, str] | None:
        """Return these words and the words that follow from them. Return None if no lexeme of the group has all these
        words."""
        for lexeme in self.group(group):
            if (words := self._complete(lexeme, known)) is not None:
                return words
        return None

    def _complete(self, lexeme: Lexeme, known: Mapping[str, str]) -> dict[str, str] | None:
        """Complete the words for one lexeme. Return None if the known words contradict the lexeme.

        The lexeme's own words are added if all words that identify the lexeme are known.
        """
        own = lexeme.words
        telling = [word for word in ("kind", "noun", "at") if word in own]
        if any(known.get(word, own[word]) != own[word] for word in telling):
            return None
        if (known.get("look") and known["look"] not in lexeme.looks) or (lexeme.nameless and known.get("name")):
            return None
        follows: dict[str, str] = {}
        if is_it := all(word in known for word in telling):
            follows = {**own, **({"name": ""} if lexeme.nameless else {})}
        gender = self.gender_of.get(known.get("name", ""), lexeme.gender if is_it else "")
        if gender and lexeme.gender not in ("", gender):
            return None
        if gender:
            follows |= {"gender": gender, **self.genders[gender]}
        if known.get("look") in self.colours:
            follows["colour"] = self.colours[known["look"]]
        if any(known.get(word, value) != value for word, value in follows.items()):
            return None
        return {**follows, **known}

    def form(self, entity: Entity, form: str) -> str:
        """Return the text of a form. A word that the entity lacks is left out, with the space after it."""
        return self.fill(self.pattern(entity, form), entity)

    def pattern(self, entity: Entity, form: str) -> str:
        """Return the first of a form's patterns for which the entity has all words. If there is none, return the last
        pattern."""
        patterns = self.patterns(entity.sort, form)
        return next((each for each in patterns if all(entity[word] for word in needed(each))), patterns[-1])

    def fill(self, pattern: str, entity: Entity) -> str:
        """Return the text of a form's pattern for this entity."""

        def word(match: re.Match[str]) -> str:
            if match[1] == "a" and not entity["a"]:
                return match[0]
            return entity[match[1]] and entity[match[1]] + match[2]

        return _ARTICLE.sub(lambda match: self.article(match[1]) + " ", WORD.sub(word, pattern))

    def patterns(self, sort: str, form: str) -> list[str]:
        """Return the patterns of a form.

        Raises:
            ValueError: the sort has no such form.
        """
        if form not in self.forms[sort]:
            raise ValueError(f"expected a form of a {sort}, one of {sorted(self.forms[sort])}, got {form!r}")
        return self.forms[sort][form]

    def is_subject(self, form: str) -> bool | None:
        """Tell whether a form marks the subject of its sentence. Return None if no form of the language marks the
        subject."""
        return form in self.subjects if self.subjects else None

    def article(self, word: str) -> str:
        """Return the article "a" or "an" for this word."""
        return self._articles.get(word) or ("an" if word[:1] in "aeiou" else "a")

    def _name(self, lexeme: Lexeme, random: Random, taken: list[str]) -> str:
        """Draw a name that is easy to tell from the names in `taken`.

        No name contains another name. In English, the names have different initials if possible.
        """
        if lexeme.nameless:
            return ""
        names = self.names[lexeme.gender or random.choice(list(self.names))]
        free = [name for name in names if not any(name in other or other in name for other in taken if other)]
        initials = {other[:1] for other in taken} if self.language == "english" else set()
        return random.choice([name for name in free if name[:1] not in initials] or free)


def needed(pattern: str) -> Iterator[str]:
    """Yield the words that an entity must have for a pattern to be used."""
    return (match[1] for match in WORD.finditer(pattern) if match[1] not in _OPTIONAL)


def _lexemes(words: Mapping[str, Any]) -> Iterator[Lexeme]:
    defaults = words.get("defaults", {})
    for kind, value in words["kinds"].items():
        more = {"tags": value} if isinstance(value, str) else dict(value)
        tags = more.pop("tags").split()
        looks = dict.fromkeys(look for tag in tags for look in words_of(words["looks"].get(tag, [])))
        gender = next((tag for tag in tags if tag in words["genders"]), "")
        own = {**defaults.get("person", {}), **more, "kind": kind}
        yield Lexeme("person", frozenset(tags), own, tuple(looks), gender, "nameless" in tags)
    for group, value in words["things"].items():
        more = {**defaults.get("thing", {}), **value}
        nouns, suiting = words_of(more.pop("nouns")), tuple(words_of(more.pop("looks")))
        yield from (Lexeme("thing", frozenset([group]), {**more, "noun": noun}, suiting) for noun in nouns)
    for sort in ("spot", "place"):
        for group, prepositions in words[f"{sort}s"].items():
            for at, value in prepositions.items():
                more = {"nouns": value} if isinstance(value, str | list) else dict(value)
                shared = {**defaults.get(sort, {}), **words.get("prepositions", {}).get(at, {}), **more, "at": at}
                for noun in words_of(shared.pop("nouns")):
                    yield Lexeme(sort, frozenset([group]), {**shared, "noun": noun})


@cache
def lexicon(language: str) -> Lexicon:
    """Return the words and plots of "english" or "japanese".

    Raises:
        ValueError: the language is unknown, or one of its files has a mistake.
    """
    if language not in LANGUAGES:
        raise ValueError(f"expected one of {LANGUAGES}, got {language!r}")
    return Lexicon(language, *(_file(language, name) for name in ("words", "rules", "plots", "scenes")))


def _file(language: str, name: str) -> dict[str, Any]:
    path = files(__package__) / language / f"{name}.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{language}/{name}.toml: {error}") from error
