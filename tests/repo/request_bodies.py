"""Bodies of requests, made from the schemas of an OpenAPI description: some are valid, others almost."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend

Schema = dict[str, Any]
NOTHING: tuple[Any, ...] = (None, "", [], {})  # as values of names that are not described: they ask for nothing
LONG = 10**30
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def _is_integer(checker: Any, value: Any) -> bool:
    return type(value) is int  # a number without a fraction, as it is written


def _check_others(validator: Any, allowed: Any, value: Any, schema: Schema) -> Iterator[ValidationError]:
    """Accept an unknown name if its value asks for nothing."""
    if validator.is_type(value, "object") and not allowed:
        others = {name: each for name, each in value.items() if name not in schema["properties"]}
        yield from (ValidationError(f"{name} is unknown") for name, each in others.items() if each not in NOTHING)
    else:
        yield from Draft202012Validator.VALIDATORS["additionalProperties"](validator, allowed, value, schema)


def _check_pattern(validator: Any, pattern: str, value: Any, schema: Schema) -> Iterator[ValidationError]:
    """Check a pattern by the rules of JSON Schema, where `$` is the very end."""
    if isinstance(value, str) and not re.search(pattern.replace("$", r"\Z"), value):
        yield ValidationError(f"{value!r} does not match {pattern}")


Validator = extend(
    Draft202012Validator,
    validators={"additionalProperties": _check_others, "pattern": _check_pattern},
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer),
)


class Described:
    """The schemas of a description, keyed by name."""

    def __init__(self, description: Schema):
        self._components = description["components"]
        self._validators: dict[str, Any] = {}

    def check(self, name: str, value: Any) -> None:
        """Raise ValidationError unless a value is valid for the schema with this name."""
        if name not in self._validators:
            self._validators[name] = Validator(self._whole(name))
        self._validators[name].validate(value)

    def fits(self, name: str, value: Any) -> bool:
        try:
            self.check(name, value)
        except ValidationError:
            return False
        return True

    def bodies(self, name: str) -> st.SearchStrategy[dict[str, Any]]:
        """Return bodies for the bundled model: most are valid, and the others are changed in one or two places."""
        right = self._fitting(self._components["schemas"][name])
        other = JSON | st.sampled_from([*_edges(self._components)])

        @st.composite
        def drawn(draw: Any) -> dict[str, Any]:
            body = draw(right) | {"model": "story", "max_tokens": draw(st.sampled_from([1, 1, 2, 2, 3, 3, 1025, LONG]))}
            if "max_completion_tokens" in body:
                body["max_completion_tokens"] = draw(st.sampled_from([body["max_tokens"], body["max_tokens"], None, 5]))
            for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
                _change(draw, body, other)
            if body.get("max_tokens") is None or _is_long(body["max_tokens"]):
                body["max_tokens"] = 3  # of a chat, the default is as many as there is room for
            return body

        return drawn()

    def _whole(self, name: str) -> Schema:
        return {**self._components["schemas"][name], "components": self._components}

    def _fitting(self, schema: Schema) -> st.SearchStrategy[Any]:
        """Return valid values, which are small if the schema leaves the choice."""
        if "$ref" in schema:
            return self._fitting(self._components["schemas"][schema["$ref"].rpartition("/")[2]])
        if "anyOf" in schema:
            return st.one_of([self._fitting(each) for each in schema["anyOf"]])
        if "const" in schema or "enum" in schema:
            return st.sampled_from(schema.get("enum", [schema.get("const")]))
        kind, least = schema["type"], schema.get("minItems", 0)
        if kind == "array":
            return st.lists(self._fitting(schema["items"]), min_size=least, max_size=3)
        if kind == "object":
            return self._fitting_object(schema)
        if kind in ("integer", "number"):
            return _fitting_number(schema)
        text = st.text(min_size=schema.get("minLength", 0), max_size=8)
        return {"string": text, "boolean": st.booleans(), "null": st.none()}[kind]

    def _fitting_object(self, schema: Schema) -> st.SearchStrategy[Any]:
        if "propertyNames" in schema:
            names = st.integers(0, 4000).map(str)
            return st.dictionaries(names, self._fitting(schema["additionalProperties"]), max_size=3)
        parts = {name: self._fitting(each) for name, each in schema["properties"].items()}
        optional = [name for name in parts if name not in schema.get("required", [])]
        chosen = st.lists(st.sampled_from(optional), max_size=6, unique=True) if optional else st.just([])
        return chosen.flatmap(
            lambda names: st.fixed_dictionaries({name: parts[name] for name in (*schema.get("required", []), *names)})
        )


def _is_long(count: Any) -> bool:
    """Tell whether this many tokens take noticeable time."""
    return type(count) is int and 3 < count <= 1024


def closed(description: Schema) -> Schema:
    """Return the description for a reader who accepts only the fields that the description names."""
    found = copy.deepcopy(description)
    for each in _parts(found["components"]):
        if isinstance(each.get("properties"), dict):
            each.setdefault("additionalProperties", False)
    return found


def _fitting_number(schema: Schema) -> st.SearchStrategy[Any]:
    least, most = (schema.get(name, schema.get(f"exclusive{name.capitalize()}")) for name in ("minimum", "maximum"))
    if schema["type"] == "integer":
        found = st.integers(least, most) | st.integers(least or 0, (least or 0) + 15)
    else:
        found = st.floats(least, most, allow_nan=False, allow_infinity=False) | st.sampled_from([least, most or 2, 1])
    return found.filter(Validator(schema).is_valid)


def _edges(schema: Schema) -> Iterator[Any]:
    """Yield values near each limit, and values without limits."""
    yield from (*NOTHING, True, False, 0, 1.0, LONG, -LONG, 1e308, 5e-324)
    for each in _parts(schema):
        for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            if isinstance(bound := each.get(name), (int, float)):
                yield from (bound + step for step in (0, 1, -1, 0.5))
        if isinstance(longest := each.get("maxLength"), int):
            yield from ("x" * longest, "x" * (longest + 1))
        if isinstance(most := each.get("maxItems"), int):
            yield from (item for count in (most, most + 1) for item in ([1] * count, ["x"] * count))


def _parts(found: Any) -> Iterator[Schema]:
    """Yield all objects in a schema, the schema included."""
    if isinstance(found, dict):
        yield found
    for each in found.values() if isinstance(found, dict) else found if isinstance(found, list) else ():
        yield from _parts(each)


def _change(draw: Any, body: dict[str, Any], other: st.SearchStrategy[Any]) -> None:
    """Change one place of a body: remove a value, replace it, or add one."""
    new = copy.deepcopy(draw(other))  # the same list may be drawn again
    place = draw(st.sampled_from([*_holders(body)]))
    if isinstance(place, list):
        place.insert(draw(st.integers(0, len(place))), new)
        return
    name = draw(st.sampled_from([*place]) | st.text(max_size=8)) if place else draw(st.text(max_size=8))
    if name in place and draw(st.booleans()):
        del place[name]
    else:
        place[name] = new


def _holders(found: Any) -> Iterator[Any]:
    """Yield all objects and lists in a body."""
    if isinstance(found, dict | list):
        yield found
        for each in found.values() if isinstance(found, dict) else found:
            yield from _holders(each)
