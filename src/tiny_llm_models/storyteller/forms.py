"""Recognises the forms of entities in a text, even if some words of an entity are not known yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from .lexicon import WORD, Entity, Lexicon, capitalised, needed

__all__ = ["Forms", "Mismatch"]

_Items = tuple[tuple[str, str], ...]  # a form's pattern: words, each with the text after it, and text without a word
Mismatch = tuple[str, str]  # the kind of a fault, and an explanation
_BASE = {"person": ("name", "kind", "look"), "thing": ("noun", "look"), "spot": ("at", "noun"), "place": ("at", "noun")}
_FOLLOWS = {"person": ("gender",)}  # words that follow from the base words


class Forms:
    """The forms of a language's entities, as they occur in one text."""

    def __init__(self, lexicon: Lexicon, text: str):
        self._lexicon, self._text = lexicon, text
        self._texts: dict[tuple[Entity, str], str | None] = {}
        self._entities: dict[tuple[str, frozenset[tuple[str, str]]], Entity] = {}
        self._words: dict[tuple[int, str, str, bool], list[tuple[int, dict[str, str]]]] = {}
        self._found: dict[tuple[int, str, str, Entity | None, bool], list[tuple[int, Entity]]] = {}

    def text(self, entity: Entity, form: str) -> str | None:
        """Return the text of a form. Return None if the text depends on a word that is not known yet."""
        key = (entity, form)
        if key not in self._texts:
            patterns = self._lexicon.patterns(entity.sort, form)
            words = {match[1] for pattern in patterns for match in WORD.finditer(pattern)}
            complete = all(word in entity.words for word in (*_BASE[entity.sort], *_FOLLOWS.get(entity.sort, ())))
            unknown = not complete and any(word not in entity.words for word in words - {"a"})
            self._texts[key] = None if unknown else self._lexicon.form(entity, form)
        return self._texts[key]

    def said(self, entity: Entity) -> str:
        """Return the word that explanations use for a person or thing."""
        return entity["name"] or entity["noun"] or entity["kind"] or entity["look"]

    def at(self, place: int, group: str, form: str, known: Entity | None, capital: bool) -> list[tuple[int, Entity]]:
        """Return all readings of this form at this place. A reading is the index of the form's end, and the entity with
        the words that are known after the form."""
        key = (place, group, form, known, capital)
        if key not in self._found:
            self._found[key] = list(self._search(place, group, form, known, capital))
        return self._found[key]

    def anything(self, place: int, sort: str, form: str, capital: bool) -> list[tuple[int, dict[str, str]]]:
        """Return all readings of this form for any entity of a sort, even if the words contradict each other."""
        key = (place, sort, form, capital)
        if key not in self._words:
            group = sort
            patterns = [*self._lexicon.patterns(sort, form)]
            if sort == "thing":  # accepts "the blue ball" for "the ball"
                look = f"{{look}}{self._lexicon.space}{{noun}}"
                patterns += [
                    each.replace("{noun}", look) for each in patterns if "{noun}" in each and "look" not in each
                ]
            found = (way for each in patterns for way in self._pattern(_items(each), 0, place, group, {}, capital))
            self._words[key] = list(found)
        return self._words[key]

    def doubles(self, entity: Entity, others: Iterable[Entity]) -> tuple[Mismatch, ...]:
        """Return a mismatch if another entity of the story has the same name, kind or noun."""
        for other in others:
            for word in ("name", "kind", "noun"):
                if other.sort == entity.sort and entity[word] and entity[word] == other[word]:
                    kind = "same-name" if word == "name" else "contradiction"
                    return ((kind, f"two of the story's persons or things are called {entity[word]}"),)
        return ()

    def misfit(
        self, group: str, words: dict[str, str], others: Iterable[Entity]
    ) -> tuple[Entity, tuple[Mismatch, ...]]:
        """Return an entity with these words, and the reason why the entity does not fit into this group."""
        sort = self._lexicon.sort(group)
        every = sort
        complete = self._lexicon.complete(group, words) or self._lexicon.complete(every, words)
        if complete is None:  # if a boy has a girl's name, for example, the kind decides the gender
            kind = self._lexicon.complete(every, {"kind": words["kind"]}) if "kind" in words else None
            gender = (kind or {}).get("gender") or self._lexicon.gender_of.get(words.get("name", ""), "")
            complete = {**words, **({"gender": gender, **self._lexicon.genders[gender]} if gender else {})}
        entity = self._entity(sort, complete)
        doubles = self.doubles(entity, others)
        return entity, doubles or (("contradiction", f"{self.said(entity) or 'this'} does not fit here"),)

    def mismatches(self, known: Entity, words: Mapping[str, str], others: Iterable[Entity]) -> tuple[Mismatch, ...]:
        """Return the mismatches between a known entity and the words that name it."""
        different = [word for word, value in words.items() if word in known.words and known[word] != value]
        if any(word in _BASE[known.sort] for word in different):
            return (self._base_mismatch(known, Entity(known.sort, words), others),)
        if not different:
            new = known.sort == "thing" and words.get("look") and "look" not in known.words
            return (("contradiction", f"the story has not mentioned {words['look']}"),) if new else ()
        said = f"{words[different[0]]!r} for {self.said(known)}"
        return (("wrong-pronoun" if self._is_pronoun(different[0]) else "contradiction", said),)

    def clash(
        self, known: Entity, words: Mapping[str, str], others: Iterable[Entity]
    ) -> tuple[Entity, tuple[Mismatch, ...]] | None:
        """Return an entity with both the known and the new words, and the mismatch between these words. Return None if
        the words agree."""
        merged = {**known.words, **words}
        if merged == known.words or self._lexicon.complete(known.sort, merged):
            return None
        pronouns = any(self._is_pronoun(word) for word in known.words)
        base = {word: value for word, value in merged.items() if not self._is_pronoun(word)}
        entity, mismatches = self.misfit(known.sort, base, others)
        if mismatches[0][0] == "contradiction":
            mismatches = (
                ("wrong-pronoun" if pronouns else "contradiction", f"{self.said(entity)} is {entity['gender']}"),
            )
        return entity, mismatches

    def _is_pronoun(self, word: str) -> bool:
        return word == "gender" or any(word in pronouns for pronouns in self._lexicon.genders.values())

    def _base_mismatch(self, known: Entity, found: Entity, others: Iterable[Entity]) -> Mismatch:
        meant, said = self.said(known), self.said(found)
        taken = {other[word] for other in others if other.sort == known.sort for word in ("name", "noun")}
        if found["name"] and found["name"] != known["name"]:
            if found["name"] in taken:
                return "contradiction", f"{said} where only {meant} fits"
            return "two-names", f"{meant} is called {said}"
        if known.sort == "thing" and found["noun"] and found["noun"] != known["noun"] and found["noun"] not in taken:
            return "thing-from-nowhere", f"{said} where the story speaks of {meant}"
        look = f"{known['look'] or 'no look'} {meant} is {found['look'] or 'without look'}"
        same = found["noun"] == known["noun"] and known.sort in ("person", "thing")
        return "contradiction", look if same and "look" in found.words else f"{said} where only {meant} fits"

    def _search(
        self, place: int, group: str, form: str, known: Entity | None, capital: bool
    ) -> Iterator[tuple[int, Entity]]:
        sort = self._lexicon.sort(group)
        patterns, words = self._lexicon.patterns(sort, form), known.words if known else {}
        for number, pattern in enumerate(patterns):
            for end, found in self._pattern(_items(pattern), 0, place, group, dict(words), capital):
                complete = self._lexicon.complete(group, found)
                if complete is None or any(_may_be(earlier, complete) for earlier in patterns[:number]):
                    continue
                entity = self._entity(sort, complete)
                said = self._lexicon.fill(pattern, entity)
                if self._text.startswith(capitalised(said) if capital else said, place) and place + len(said) == end:
                    yield end, entity

    def _pattern(
        self, items: _Items, number: int, place: int, group: str, words: dict[str, str], capital: bool
    ) -> Iterator[tuple[int, dict[str, str]]]:
        """Yield the ways to read a pattern's items from item `number` on. A way is the index of the items' end, and the
        words that were read."""
        if number == len(items):
            yield place, words
            return
        word, literal = items[number]
        if not word:
            values = [literal]
        else:
            values = [words[word]] if word in words else self._values(group, word, place, capital)
        for value in values:
            said = value + literal if word and value else value
            if self._text.startswith(capitalised(said) if capital else said, place):
                more = {**words, word: value} if word and word != "a" else words
                still = capital and not said
                yield from self._pattern(items, number + 1, place + len(said), group, more, still)

    def _values(self, group: str, word: str, place: int, capital: bool) -> list[str]:
        by_initial, first = _initials(self._lexicon, group, word), self._text[place : place + 1]
        found = by_initial.get(first, []) + by_initial.get("", [])
        return found + by_initial.get(first.lower(), []) if capital and first != first.lower() else found

    def _entity(self, sort: str, words: dict[str, str]) -> Entity:
        """Return an entity with these words. The same words give the same object."""
        return self._entities.setdefault((sort, frozenset(words.items())), Entity(sort, words))


def _may_be(pattern: str, words: Mapping[str, str]) -> bool:
    """Tell whether a pattern could be used for an entity with these words. An unknown word may have any value."""
    return all(words.get(word, "?") for word in needed(pattern))


@cache
def _items(pattern: str) -> _Items:
    """Split a pattern into pairs: a word and the space after it, or "" and the text up to the next word."""
    items: list[tuple[str, str]] = []
    place = 0
    for match in WORD.finditer(pattern):
        if match.start() > place:
            items.append(("", pattern[place : match.start()]))
        items.append((match[1], match[2]))
        place = match.end()
    return (*items, ("", pattern[place:])) if place < len(pattern) else tuple(items)


@cache
def _initials(lexicon: Lexicon, group: str, word: str) -> dict[str, list[str]]:
    """Return all values of a word in a group, keyed by first character. An empty value, for a word that may be missing,
    has the key ""."""
    lexemes = lexicon.group(group)
    if word == "name":
        values = {name for gender, names in lexicon.names.items() for name in names}
    elif word == "look":
        values = {"", *(look for lexeme in lexemes for look in lexeme.looks)}
    else:
        values = {lexeme.words[word] for lexeme in lexemes if word in lexeme.words}
        values |= {words[word] for words in lexicon.genders.values() if word in words}
        values |= {"a", "an"} if word == "a" else set()
    found: dict[str, list[str]] = {}
    for value in sorted(values, key=lambda value: (-len(value), value)):
        found.setdefault(value[:1], []).append(value)
    return found
