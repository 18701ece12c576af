"""Values made by the schemas of an OpenAPI description: such as fit, and such as do not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

Schema = dict[str, Any]

KEYWORDS = {
    *("$ref", "anyOf", "const", "enum", "type", "title", "description", "default"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength"),
    *("minItems", "maxItems", "items", "properties", "required", "additionalProperties", "propertyNames", "pattern"),
    "maxProperties",
}
TYPES: dict[str, set[type]] = {
    "integer": {int},  # a number without a fraction, as it is written
    "number": {int, float},
    "string": {str},
    "boolean": {bool},
    "null": {type(None)},
    "array": {list},
    "object": {dict},
}
LONG = 10**30
NOTHING: tuple[Any, ...] = (None, "", [], {})  # as values of names that are not described: they ask for nothing
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.just(LONG)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
Values = st.SearchStrategy[Any]


def references(found: Any) -> Iterator[Schema]:
    """All of a description."""
    inner = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
    for each in inner:
        yield from references(each)
    if isinstance(found, dict) and "$ref" in found:
        yield found


class RequestSchemas:
    """The schemas of a description. A keyword that this does not know is an error."""

    def __init__(self, description: dict[str, Any]):
        self.description = description

    def resolved(self, schema: Schema) -> Schema:
        assert schema.keys() <= KEYWORDS, schema
        if "$ref" not in schema:
            return schema
        assert schema.keys() <= {"$ref", "default", "description"}, schema
        found: Any = self.description
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        return self.resolved(found)

    def parts(self, schema: Schema) -> Iterator[Schema]:
        """The schema and all within it."""
        yield (found := self.resolved(schema))
        inner = [*found.get("anyOf", []), *found.get("properties", {}).values()]
        inner += [each for name in ("items", "additionalProperties") if (each := found.get(name))]
        for each in inner:
            yield from self.parts(each)

    def fits(self, schema: Schema, value: Any) -> bool:
        schema = self.resolved(schema)
        if "anyOf" in schema:
            return any(self.fits(each, value) for each in schema["anyOf"])
        kind = schema.get("type")
        if kind is None:
            return True
        if type(value) not in TYPES[kind] or value not in schema.get("enum", [schema.get("const", value)]):
            return False
        if kind in ("integer", "number"):
            return self._is_within(schema, value)
        if kind == "array":
            items, most = schema["items"], schema.get("maxItems", len(value))
            return schema.get("minItems", 0) <= len(value) <= most and all(self.fits(items, each) for each in value)
        if kind == "object":
            return self._fits_object(schema, value)
        return kind != "string" or schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))

    def fitting(self, schema: Schema) -> Values:
        """Values that fit; small ones, where the schema leaves the choice."""
        schema = self.resolved(schema)
        if "anyOf" in schema:
            return st.one_of([self.fitting(each) for each in schema["anyOf"]])
        if "const" in schema or "enum" in schema:
            return st.sampled_from(schema.get("enum", [schema.get("const")]))
        kind, least = schema["type"], schema.get("minItems", 0)
        if kind == "array":
            return st.lists(self.fitting(schema["items"]), min_size=least, max_size=min(3, schema.get("maxItems", 3)))
        if kind == "object":
            return self._fitting_object(schema)
        if kind in ("integer", "number"):
            return self._fitting_number(schema)
        text = st.text(min_size=schema.get("minLength", 0), max_size=8)
        return {"string": text, "boolean": st.booleans(), "null": st.none()}[kind]

    def broken(self, schema: Schema) -> Values:
        """Values of which something does not fit: all of it, or a part."""
        schema = self.resolved(schema)
        found: list[Values] = [JSON, *map(self.broken, schema.get("anyOf", []))]
        if edges := [schema[name] for name in schema.keys() & {"minimum", "exclusiveMinimum"}]:
            found.append(st.sampled_from([value - step for value in edges for step in (0, 1, 0.5, LONG)]))
        if edges := [schema[name] for name in schema.keys() & {"maximum", "exclusiveMaximum"}]:
            found.append(st.sampled_from([value + step for value in edges for step in (0, 1, 0.5, LONG)]))
        if "maxLength" in schema:
            found.append(st.just("x" * (schema["maxLength"] + 1)))
        if "items" in schema:
            right = self.fitting(schema["items"])
            found.append(
                st.tuples(st.lists(right, max_size=2), self.broken(schema["items"])).map(lambda x: [*x[0], x[1]])
            )
            if "maxItems" in schema:
                found.append(right.map(lambda item: [item] * (schema["maxItems"] + 1)))
        if schema.get("type") == "object":
            found.append(self._broken_object(schema))
        return st.one_of(found).filter(lambda value: not self.fits(schema, value))

    @staticmethod
    def _is_within(schema: Schema, value: float) -> bool:
        return (
            schema.get("minimum", value) <= value <= schema.get("maximum", value)
            and ("exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"])
            and ("exclusiveMaximum" not in schema or value < schema["exclusiveMaximum"])
        )

    def _fits_object(self, schema: Schema, value: dict[str, Any]) -> bool:
        properties, others = schema.get("properties", {}), schema.get("additionalProperties", {})
        pattern = schema.get("propertyNames", {}).get("pattern", "")
        return (
            value.keys() >= set(schema.get("required", []))
            and len(value) <= schema.get("maxProperties", len(value))
            and all(re.search(pattern, name) for name in value)
            and all(self.fits(part, value[name]) for name, part in properties.items() if name in value)
            and all(self._fits_other(others, each) for name, each in value.items() if name not in properties)
        )

    def _fits_other(self, schema: Schema | bool, value: Any) -> bool:
        """Whether it may be the value of a name that is not described."""
        return bool(schema or value in NOTHING) if isinstance(schema, bool) else self.fits(schema, value)

    def _fitting_number(self, schema: Schema) -> Values:
        least, most = (schema.get(name, schema.get(f"exclusive{name.capitalize()}")) for name in ("minimum", "maximum"))
        if schema["type"] == "integer":
            found = st.integers(least, most) | st.integers(least or 0, (least or 0) + 15)
        else:
            found = st.floats(least, most, allow_nan=False) | st.sampled_from([least, most, 1])
        return found.filter(lambda value: self._is_within(schema, value))

    def _fitting_object(self, schema: Schema) -> Values:
        if "propertyNames" in schema:
            names = st.integers(0, 4000).map(str) | st.from_regex(schema["propertyNames"]["pattern"], fullmatch=True)
            return st.dictionaries(names, self.fitting(schema["additionalProperties"]), min_size=1, max_size=3)
        parts = {name: self.fitting(each) for name, each in schema["properties"].items()}
        required = schema.get("required", [])
        optional = [name for name in parts if name not in required]
        chosen = st.lists(st.sampled_from(optional), max_size=6, unique=True) if optional else st.just([])

        @st.composite
        def drawn(draw: Any) -> dict[str, Any]:
            return {name: draw(parts[name]) for name in [*required, *draw(chosen)]}

        return drawn()

    def _broken_object(self, schema: Schema) -> Values:
        right = self.fitting(schema)
        if "propertyNames" in schema:
            entries = st.tuples(st.text() | st.just("١"), JSON)
            many = right.map(
                lambda x: dict.fromkeys(map(str, range(schema["maxProperties"] + 1)), next(iter(x.values())))
            )
            return st.tuples(right, entries).map(lambda x: x[0] | dict([x[1]])) | many
        value = st.one_of([st.tuples(st.just(name), self.broken(part)) for name, part in schema["properties"].items()])
        more = st.tuples(st.text(), JSON.filter(lambda each: each not in NOTHING))
        found = st.tuples(right, value | more).map(lambda x: x[0] | dict([x[1]]))
        if required := schema.get("required"):
            less = st.tuples(right, st.sampled_from(required))
            found |= less.map(lambda x: {name: each for name, each in x[0].items() if name != x[1]})
        return found


def check_description(found: dict[str, Any], paths: list[str]) -> None:
    """By OpenAPI 3.1: what has to be there is there, and whatever is referred to."""
    assert re.fullmatch(r"3\.1\.\d+", found["openapi"])
    assert found["info"].keys() >= {"title", "version"}
    assert list(found["paths"]) == paths
    operations = [each for path in found["paths"].values() for name, each in path.items() if name != "parameters"]
    assert len({each["operationId"] for each in operations}) == len(paths)
    for operation in operations:
        contents = [each["content"] for each in operation["responses"].values()]
        assert all(each["description"] for each in operation["responses"].values())
        assert all(re.fullmatch("[2-5][0-9][0-9]", status) for status in operation["responses"])
        for media in [*contents, operation.get("requestBody", {"content": {}})["content"]]:
            assert all(list(RequestSchemas(found).parts(each["schema"])) for each in media.values())
    for path, about in found["paths"].items():
        assert [each["name"] for each in about.get("parameters", [])] == re.findall(r"{(\w+)}", path)
    for reference in references(found):
        assert RequestSchemas(found).resolved(reference)
    for schema in found["components"]["schemas"].values():
        assert list(RequestSchemas(found).parts(schema))
    known = found["components"].get("securitySchemes", {})
    used = [*found["security"], *(each for operation in operations for each in operation.get("security", []))]
    assert all(each.keys() <= known.keys() for each in used)
