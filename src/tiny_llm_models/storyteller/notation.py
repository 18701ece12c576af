"""The parser of the notation in which plots are written. NOTATION.md explains the notation to authors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from .grammar import DEFAULT_FORM, Alternatives, Choice, Condition, Effect, Line, Plot, Slot, Steps, Text, Told

__all__ = ["Notation"]

_TOKEN = re.compile(r"\{(?P<slot>[^{}]*)\}|<(?P<phrase>\w+(?: \w+)*)>|(?P<mark>[(|)])|(?P<literal>[^{}<>(|)\[\]]+)")
_SLOT = re.compile(r"(?P<role>\w+)(?::(?P<group>[\w|]+))?(?:\.(?P<form>\w+))?(?P<short>/\w*)?")
_CALL = re.compile(r"<(\w+(?: \w+)*)>")
_CONDITIONS = re.compile(r"\[([^\]]*)\] ?")
_CONDITION = re.compile(r"(not )?(\w+)(?:: (\w+))?")
_EFFECT = re.compile(r"\+(?P<mark>\w+)|(?P<what>\w+): (?:(?P<was>\w+) > )?(?P<where>\w+)")


class Notation:
    """A parser of lines and plots.

    rules: lines that plots share. phrases: texts that lines share. The keys of both mappings are "name" or "name role
    role".
    """

    def __init__(self, rules: Mapping[str, Any], phrases: Mapping[str, Any]):
        self._rules = {key.split()[0]: (key.split()[1:], lines) for key, lines in rules.items()}
        self._phrases = {key.split()[0]: (key.split()[1:], texts) for key, texts in phrases.items()}
        self._open: list[str] = []  # the phrases and rules that are being parsed

    def plot(self, name: str, source: Mapping[str, Any]) -> Plot:
        """Parse a plot.

        Raises:
            ValueError: the plot does not follow the notation. The message names the plot.
        """
        if missing := {"cast", "tell", "end", "questions", "gists"} - set(source):
            raise ValueError(f"plot {name!r}: expected the keys {sorted(missing)} as well")
        try:
            steps = (*self.steps(source["tell"]), self.step(source["end"]))
            questions = ((self.line(question), self.line(answer)) for question, answer in source["questions"])
            return Plot(name, source["cast"], steps, tuple(questions), tuple(map(self.line, source["gists"])))
        except ValueError as error:
            raise ValueError(f"plot {name!r}: {error}") from error

    def steps(self, source: Sequence[Any]) -> Steps:
        """Parse a sequence of steps. A list within a sequence is a choice, and a list within a choice is a sequence."""
        if source[:1] == ["?"]:
            raise ValueError(f"expected '?' only at the start of a choice, but this list is a sequence: {source}")
        return tuple(map(self.step, source))

    def step(self, source: str | list[Any]) -> Line | Alternatives:
        """Parse one step: a line, or a list of alternatives."""
        if not source:
            raise ValueError("expected a line or a list of lines, got nothing")
        source = [source] if isinstance(source, str) else source
        optional = source[0] == "?"
        options = tuple(option for each in source[optional:] for option in self._options(each))
        if not options:
            raise ValueError("expected lines after '?'")
        if optional:
            return Alternatives(options, Told.OPTIONAL)
        if len(options) == 1 and len(options[0]) == 1:
            only = options[0][0]
            conditional = isinstance(only, Line) and only.conditions
            return Alternatives(options, Told.WHEN) if conditional else only
        return Alternatives(options, Told.ALWAYS)

    def line(self, source: str) -> Line:
        """Parse a line.

        Raises:
            ValueError: the line does not follow the notation.
        """
        conditions, rest = [], source
        if match := _CONDITIONS.match(source):
            conditions = [_condition(each, source) for each in match[1].split(", ")]
            rest = source[match.end() :]
        told, _, effects = rest.partition(" -> ")
        changes = tuple(_effect(each, source) for each in effects.split(", ") if each)
        try:
            return Line(self._text(told), tuple(conditions), changes, source)
        except ValueError as error:
            raise ValueError(f"{error}, in {source!r}") from error

    def _options(self, source: str | list[Any]) -> Iterator[Steps]:
        if not isinstance(source, str):
            if not source:
                raise ValueError("expected a line or a list of lines, got nothing")
            first, *rest = self.steps(source)
            if isinstance(first, Alternatives) and first.told is Told.WHEN:
                first = first.options[0][0]  # the first line's condition decides whether the sequence is told
            yield (first, *rest)
        elif (call := _CALL.fullmatch(source)) and call[1].split()[0] in self._rules:
            name, *roles = call[1].split()
            parameters, lines = self._rules[name]
            renamed = self._arguments(name, parameters, roles)
            with self._inside(name):
                for each in lines:
                    for option in self._options(each):
                        yield tuple(_rename_step(step, renamed) for step in option)
        else:
            yield (self.line(source),)

    def _text(self, source: str) -> Text:
        tokens = list(_tokens(source))
        text, end = self._until_mark(tokens, 0)
        if end < len(tokens):
            raise ValueError(f"expected '(' before {tokens[end]['mark']!r}")
        return text

    def _until_mark(self, tokens: list[re.Match[str]], place: int) -> tuple[Text, int]:
        """Return the text up to the '|' or ')' that ends the text, and the index of that token."""
        parts: list[str | Slot | Choice] = []
        while place < len(tokens) and tokens[place]["mark"] not in ("|", ")"):
            token = tokens[place]
            place += 1
            if token["literal"]:
                parts.append(token["literal"])
            elif token["phrase"]:
                parts.append(self._phrase(token["phrase"]))
            elif token["mark"]:
                choice, place = self._choice(tokens, place)
                parts.append(choice)
            else:
                parts.append(_slot(token["slot"]))
        return tuple(parts), place

    def _choice(self, tokens: list[re.Match[str]], place: int) -> tuple[Choice, int]:
        options, closed = [], False
        while not closed:
            option, place = self._until_mark(tokens, place)
            if place == len(tokens):
                raise ValueError("expected as many ')' as '('")
            options.append(option)
            closed, place = tokens[place]["mark"] == ")", place + 1
        return Choice(tuple(options)), place

    def _phrase(self, call: str) -> Choice:
        name, *roles = call.split()
        if name not in self._phrases:
            raise ValueError(f"expected the name of a phrase, got <{call}>")
        parameters, texts = self._phrases[name]
        renamed = self._arguments(name, parameters, roles)
        with self._inside(name):
            return Choice(tuple(_rename(self._text(text), renamed) for text in texts))

    def _arguments(self, name: str, parameters: Sequence[str], roles: Sequence[str]) -> dict[str, str]:
        if len(parameters) != len(roles):
            raise ValueError(f"expected <{' '.join([name, *parameters])}>, got <{' '.join([name, *roles])}>")
        return dict(zip(parameters, roles, strict=True))

    @contextmanager
    def _inside(self, name: str) -> Iterator[None]:
        """Mark a phrase or rule as being parsed within the `with` block. Raise a ValueError if the phrase or rule
        contains itself."""
        if name in self._open:
            raise ValueError(f"expected phrases that do not contain themselves, got <{name}> within itself")
        self._open.append(name)
        try:
            yield
        finally:
            self._open.pop()


def _rename(text: Text, roles: Mapping[str, str]) -> Text:
    def part(each: str | Slot | Choice) -> str | Slot | Choice:
        if isinstance(each, Slot):
            return replace(each, role=roles.get(each.role, each.role))
        return Choice(tuple(_rename(option, roles) for option in each.options)) if isinstance(each, Choice) else each

    return tuple(map(part, text))


def _rename_step(step: Line | Alternatives, roles: Mapping[str, str]) -> Line | Alternatives:
    def name(role: str) -> str:
        return roles.get(role, role)

    if isinstance(step, Alternatives):
        return replace(step, options=tuple(tuple(_rename_step(s, roles) for s in option) for option in step.options))
    conditions = (replace(each, what=name(each.what), where=name(each.where)) for each in step.conditions)
    effects = (replace(each, what=name(each.what), where=name(each.where), was=name(each.was)) for each in step.effects)
    return Line(_rename(step.text, roles), tuple(conditions), tuple(effects), step.source)


def _tokens(source: str) -> Iterator[re.Match[str]]:
    place = 0
    while place < len(source):
        if not (token := _TOKEN.match(source, place)):
            raise ValueError(f"expected text, {{role}}, <phrase> or (a|b) at {source[place:]!r}")
        yield token
        place = token.end()


def _slot(source: str) -> Slot:
    if not (match := _SLOT.fullmatch(source)):
        raise ValueError(f"expected {{role}}, {{role.form}}, {{role/short}} or {{role:group}}, got {{{source}}}")
    role, short = match["role"], match["short"]
    short = short if short is None else short[1:]
    return Slot(
        role[0].lower() + role[1:], match["form"] or DEFAULT_FORM, short, match["group"] or "", role[0].isupper()
    )


def _condition(source: str, line: str) -> Condition:
    if not (match := _CONDITION.fullmatch(source)):
        raise ValueError(
            f"expected a condition like 'kite: hero', 'not kite: hero' or 'mark', got {source!r} in {line!r}"
        )
    return Condition(match[2], match[3] or "", bool(match[1]))


def _effect(source: str, line: str) -> Effect:
    if not (match := _EFFECT.fullmatch(source)):
        expected = "'kite: hero', 'kite: hero > friend', 'hero: park' or '+mark'"
        raise ValueError(f"expected an effect like {expected}, got {source!r} in {line!r}")
    if match["mark"]:
        return Effect(match["mark"])
    return Effect(match["what"], match["where"], match["was"] or "")
