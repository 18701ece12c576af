"""Describes, in both languages, which value a pydantic model expected when it refused a wrong value. The description
comes from the model's schema."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from tiny_llm_given.serving.parameters import LONGEST_STOP, MOST_STOPS

from ..ui import Phrase, one_of, phrase

__all__ = ["EXPECTED_STOP", "WrongValue", "first_wrong", "shown"]

EXPECTED_STOP = phrase("expects_stop", most=MOST_STOPS, longest=LONGEST_STOP)
_Schema = dict[str, Any]
_SHOWN = 40  # the most characters of a wrong value that are shown
_KINDS = {
    "string": phrase("expects_any_text"),
    "boolean": phrase("expects_bool"),
    "array": phrase("expects_list"),
    "object": phrase("expects_object"),
}


class WrongValue(NamedTuple):
    """A value that a pydantic model refused. place: the place of the value, such as `steps[3].time`. names: if the
    model does not know the value's name, the names that the model allows in this place; otherwise empty."""

    place: str
    expected: Phrase
    got: object
    names: Sequence[str] = ()


def first_wrong(kind: type[BaseModel], error: ValidationError, known: Mapping[str, Phrase] | None = None) -> WrongValue:
    """Return the first wrong value. known: descriptions of expected values, where the schema alone says too little. A
    description of a field and the field's items is keyed by the field's name, a description of an object by the
    object's class."""
    first = error.errors(include_url=False, include_context=False)[0]
    walk = _Walk(kind.model_json_schema(), known or {})
    for part in first["loc"]:
        if first["type"] == "extra_forbidden" and part == first["loc"][-1]:
            names = [*walk.schema["properties"]]
            return WrongValue(f"{walk.place}.{part}".lstrip("."), one_of(names), first["input"], names)
        if not walk.enter(part):
            break
    got = None if first["type"] == "missing" else first["input"]
    return WrongValue(walk.place, walk.expected or _expected(walk.schema), got)


def shown(value: object) -> str:
    """Return a value in JSON, shortened if it is long."""
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


class _Walk:
    """A walk from a model's schema to a value's schema. expected: the description of the expected value, or None if
    `known` has none."""

    def __init__(self, schema: _Schema, known: Mapping[str, Phrase]):
        self.schema, self.place = schema, ""
        self.expected: Phrase | None = None
        self._definitions, self._known = schema.get("$defs", {}), known

    def enter(self, part: int | str) -> bool:
        """Go on to the schema of an item or a field. Return False if `part` is the name of a union's branch,
        where the walk ends."""
        fields, others = self.schema.get("properties", {}), self.schema.get("additionalProperties")
        if isinstance(part, int) and "items" in self.schema:
            inner, place = self.schema["items"], f"{self.place}[{part}]"
        elif part in fields:
            inner, place = fields[part], f"{self.place}.{part}".lstrip(".")
            self.expected = self._known.get(str(part))
        elif isinstance(others, dict):
            inner, place = others, f"{self.place}[{shown(part)}]"
        else:
            return False
        self.schema, self.place = self._resolved(inner), place
        if "properties" in self.schema:
            self.expected = self._known.get(self.schema["title"])
        return True

    def _resolved(self, schema: _Schema) -> _Schema:
        """Follow references, and leave out null as an alternative."""
        if "$ref" in schema:
            return self._resolved(self._definitions[schema["$ref"].rpartition("/")[2]])
        choices = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
        return self._resolved(choices[0]) if len(choices) == 1 else schema


def _expected(schema: _Schema) -> Phrase:
    """Return a phrase that says which values a schema allows."""
    if "enum" in schema:
        return one_of(schema["enum"])
    if "minLength" in schema:
        return phrase("expects_text")
    least, most = schema.get("minimum"), schema.get("maximum")
    if schema["type"] == "integer":
        if (end := schema.get("exclusiveMaximum")) is None:
            return phrase("expects_whole", least=least)
        return phrase("expects_whole_to", least=least, most=f"2**{end.bit_length() - 1} - 1")
    if schema["type"] != "number":
        return _KINDS[schema["type"]]
    if "exclusiveMinimum" in schema:
        return phrase("expects_number_above", above=schema["exclusiveMinimum"], most=most)
    if most is None:
        return phrase("expects_number", least=least)
    return phrase("expects_number_to", least=least, most=most)
