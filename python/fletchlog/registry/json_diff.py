"""Whether a JSON Schema accepts every value that another one accepts, by the rules that Confluent publishes for its registry.

Content models: an object schema without `additionalProperties` is open (any further property), with `false` it is closed, with a schema or with
`patternProperties` it is partially open. What may be added or removed follows from that: a property is added to a closed model or removed from an
open one. Names of differences are Confluent's (`json.diff.Difference.Type`).

Not compared: `if`/`then`/`else`, `contains`, `propertyNames`, `format`, `unevaluatedItems`, `unevaluatedProperties`, `dependentSchemas`; `unchecked`
says where they differ.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from fletchlog.registry.formats import difference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fletchlog.registry.json_format import JsonSchema

ALL = frozenset(("null", "boolean", "object", "array", "number", "integer", "string"))
NOT_COMPARED = (
    *("if", "then", "else", "contains", "maxContains", "minContains", "propertyNames", "format", "unevaluatedItems", "unevaluatedProperties"),
    *("dependentSchemas", "contentEncoding", "contentMediaType"),
)
# what says nothing about values
ANNOTATIONS = frozenset(
    (
        "$id",
        "id",
        "$schema",
        "$comment",
        "$defs",
        "definitions",
        "title",
        "description",
        "default",
        "examples",
        "readOnly",
        "writeOnly",
        "deprecated",
        "$anchor",
    )
)
CRITERIA = ("allOf", "anyOf", "oneOf")
# (keyword, name of the difference, whether larger values accept more)
BOUNDS = {
    "string": (("maxLength", "MAX_LENGTH", True), ("minLength", "MIN_LENGTH", False)),
    "number": (
        *(("maximum", "MAXIMUM", True), ("minimum", "MINIMUM", False)),
        *(("exclusiveMaximum", "EXCLUSIVE_MAXIMUM", True), ("exclusiveMinimum", "EXCLUSIVE_MINIMUM", False)),
    ),
    "array": (("maxItems", "MAX_ITEMS", True), ("minItems", "MIN_ITEMS", False)),
    "object": (("maxProperties", "MAX_PROPERTIES", True), ("minProperties", "MIN_PROPERTIES", False)),
}


class _Place(NamedTuple):
    """A schema of one side, with what its `$ref` are relative to."""

    side: JsonSchema
    schema: Any
    base: str

    def at(self, schema: Any) -> _Place:
        """Another schema in the same file."""
        return self._replace(schema=schema)


class Comparison:
    """The old schema against the new one: the new one has to accept what the old one accepts."""

    def __init__(self, old: JsonSchema, new: JsonSchema) -> None:
        self._old, self._new = _Place(old, old.root, old.base), _Place(new, new.root, new.base)
        self._open: set[tuple[int, int]] = set()

    def problems(self) -> list[str]:
        """The differences that are not allowed, as Confluent's messages; empty: there are none."""
        found = self._compare(self._old, self._new, "#/")
        return [difference(kind, path) for kind, path in found]

    def unchecked(self) -> list[str]:
        """Where keywords differ that are not compared."""
        olds, news = (dict(_keywords(place.schema, "#")) for place in (self._old, self._new))
        return [f"not checked: {path} has changed" for path in sorted({*olds, *news}) if olds.get(path) != news.get(path)]

    def _compare(self, old: _Place, new: _Place, path: str) -> list[tuple[str, str]]:
        old, new = _alone(_resolved(old)), _alone(_resolved(new))
        pair = (id(old.schema), id(new.schema))
        if pair in self._open or _accepts_all(new.schema) or old.schema is False:
            return []
        if new.schema is False or _accepts_all(old.schema):
            return [("TYPE_CHANGED" if new.schema is False else "TYPE_NARROWED", path)]
        self._open.add(pair)
        try:
            return list(self._differences(old, new, path))
        finally:
            self._open.discard(pair)

    def _differences(self, old: _Place, new: _Place, path: str) -> Iterator[tuple[str, str]]:
        if combined := self._combined(old, new, path):
            yield from combined[0]
            return
        before, after = _types(old.schema), _types(new.schema)
        if not before <= after | ({"integer"} if "number" in after else set()):
            yield ("TYPE_NARROWED" if before & after else "TYPE_CHANGED"), path
            return
        yield from _enums(old.schema, new.schema, path)
        kinds = {"number" if kind == "integer" else kind for kind in before}
        for kind in sorted(kinds & BOUNDS.keys()):
            for keyword, name, larger in BOUNDS[kind]:
                yield from _bound(old.schema, new.schema, keyword, name, path, larger=larger)
        if "string" in kinds and "pattern" in new.schema and old.schema.get("pattern") != new.schema["pattern"]:
            yield ("PATTERN_CHANGED" if "pattern" in old.schema else "PATTERN_ADDED"), path + "pattern"
        if "number" in kinds:
            yield from _multiple(old.schema, new.schema, path)
        if "array" in kinds:
            yield from self._arrays(old, new, path)
        if "object" in kinds:
            yield from self._objects(old, new, path)
        # what is refused now was refused before
        refused = "not" in new.schema
        if refused and ("not" not in old.schema or self._compare(new.at(new.schema["not"]), old.at(old.schema["not"]), path)):
            yield "NOT_TYPE_EXTENDED", path + "not"

    def _combined(self, old: _Place, new: _Place, path: str) -> tuple[list[tuple[str, str]]] | None:
        """The differences of schemas of which one has `allOf`, `anyOf` or `oneOf`; None: neither has."""
        before, after = _criterion(old.schema), _criterion(new.schema)
        if before is None and after is None:
            return None
        if before is None or after is None:
            return (self._one_combined(old, new, before, after, path),)
        found: list[tuple[str, str]] = []
        if before != after and not (before == "allOf" or after == "anyOf"):
            return ([("COMBINED_TYPE_CHANGED", path)],)
        olds, news = [old.at(one) for one in _distinct(old.schema[before])], [new.at(one) for one in _distinct(new.schema[after])]
        matched = _matching(len(olds), len(news), lambda one, other: not self._compare(olds[one], news[other], f"{path}{after}/{other}/"))
        if after == "allOf":
            # each that is asked for now was asked for before
            if matched < len(news):
                found.append(("PRODUCT_TYPE_EXTENDED" if len(news) > len(olds) else "COMBINED_TYPE_SUBSCHEMAS_CHANGED", path + after))
        elif before == "allOf":
            if not matched:
                found.append(("COMBINED_TYPE_SUBSCHEMAS_CHANGED", path + after))
        elif matched < len(olds):
            found.append(("SUM_TYPE_NARROWED" if len(news) < len(olds) else "COMBINED_TYPE_SUBSCHEMAS_CHANGED", path + after))
        # what is beside the list
        rest = [{name: value for name, value in place.schema.items() if name not in (before, after)} for place in (old, new)]
        if not found and not _accepts_all(rest[1]):
            found += self._compare(old.at(rest[0]), new.at(rest[1]), path)
        return (found,)

    def _one_combined(self, old: _Place, new: _Place, before: str | None, after: str | None, path: str) -> list[tuple[str, str]]:
        """One is a combination, the other one is not."""
        if after is not None:
            rest = {name: value for name, value in new.schema.items() if name != after}
            first = [self._compare(old, new.at(one), f"{path}{after}/{number}/") for number, one in enumerate(new.schema[after])]
            found = [problem for problems in first for problem in problems] if after == "allOf" else min(first, key=len)
            return found + ([] if _accepts_all(rest) else self._compare(old, new.at(rest), path))
        rest = {name: value for name, value in old.schema.items() if name != before}
        alone = [self._compare(old.at(rest | one if isinstance(one, dict) else one), new, path) for one in old.schema[before]]
        if before == "allOf":
            return min(alone, key=len)
        return [problem for problems in alone for problem in problems]

    def _objects(self, old: _Place, new: _Place, path: str) -> Iterator[tuple[str, str]]:
        before, after = old.schema.get("properties", {}), new.schema.get("properties", {})
        required_before, required = _required(old.schema), _required(new.schema)
        yield from self._additional(old, new, path)
        yield from self._dependencies(old, new, path)
        # Confluent's rule looks at properties that both schemas name
        for name in sorted((required - required_before) & after.keys() & before.keys()):
            if not _has_default(after.get(name)):
                yield "REQUIRED_ATTRIBUTE_ADDED", f"{path}properties/{name}"
        for name in [*before, *(name for name in after if name not in before)]:
            at = f"{path}properties/{name}"
            if name not in after:
                yield from self._removed(old.at(before[name]), new, name, at)
            elif name not in before:
                yield from self._added(old, new.at(after[name]), name, at, required=name in required)
            else:
                yield from self._compare(old.at(before[name]), new.at(after[name]), at + "/")

    def _removed(self, old: _Place, new: _Place, name: str, at: str) -> Iterator[tuple[str, str]]:
        """A property that only the old schema has."""
        for covering in _covering(new.schema, name):
            if covering is True:
                return
            if covering is False:
                if _resolved(old).schema is not False:
                    yield "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", at
            elif self._compare(old, new.at(covering), at + "/"):
                yield "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", at

    def _added(self, old: _Place, new: _Place, name: str, at: str, *, required: bool) -> Iterator[tuple[str, str]]:
        """A property that only the new schema has."""
        closed = True
        for covering in _covering(old.schema, name):
            if covering is False:
                continue
            closed = False
            if covering is True:
                if not _accepts_all(_resolved(new).schema):
                    yield "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", at
                    return
            elif self._compare(old.at(covering), new, at + "/"):
                yield "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", at
                return
        if required and not _has_default(new.schema):
            yield ("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL" if closed else "REQUIRED_ATTRIBUTE_ADDED"), at

    def _additional(self, old: _Place, new: _Place, path: str) -> Iterator[tuple[str, str]]:
        """What further properties may be."""
        before, after = old.schema.get("additionalProperties", True), new.schema.get("additionalProperties", True)
        at = path + "additionalProperties"
        if before is not False and after is False:
            yield "ADDITIONAL_PROPERTIES_REMOVED", at
        elif before is not False and self._compare(old.at(before), new.at(after), at + "/"):
            yield "ADDITIONAL_PROPERTIES_NARROWED", at
        for pattern, schema in new.schema.get("patternProperties", {}).items():
            old_one = old.schema.get("patternProperties", {}).get(pattern, before)
            if old_one is not False and self._compare(old.at(old_one), new.at(schema), f"{path}patternProperties/{pattern}/"):
                yield "ADDITIONAL_PROPERTIES_NARROWED", f"{path}patternProperties/{pattern}"

    def _dependencies(self, old: _Place, new: _Place, path: str) -> Iterator[tuple[str, str]]:
        """What a property asks for beside it."""
        before, after = _dependencies(old.schema), _dependencies(new.schema)
        for name, asked in after.items():
            at = f"{path}dependencies/{name}"
            if isinstance(asked, list):
                known = before.get(name)
                if not isinstance(known, list):
                    yield "DEPENDENCY_ARRAY_ADDED", at
                elif not set(asked) <= set(known):
                    yield ("DEPENDENCY_ARRAY_EXTENDED" if set(known) <= set(asked) else "DEPENDENCY_ARRAY_CHANGED"), at
            elif name not in before or isinstance(before[name], list):
                yield "DEPENDENCY_SCHEMA_ADDED", at
            else:
                yield from self._compare(old.at(before[name]), new.at(asked), at + "/")

    def _arrays(self, old: _Place, new: _Place, path: str) -> Iterator[tuple[str, str]]:
        if new.schema.get("uniqueItems") and not old.schema.get("uniqueItems"):
            yield "UNIQUE_ITEMS_ADDED", path + "uniqueItems"
        (firsts, further), (new_firsts, new_further) = _items(old.schema), _items(new.schema)
        for number in range(max(len(firsts), len(new_firsts))):
            at = f"{path}items/{number}"
            if number >= len(new_firsts):
                if new_further is False and firsts[number] is not False:
                    yield "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", at
                elif new_further is not False and self._compare(old.at(firsts[number]), new.at(new_further), at + "/"):
                    yield "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", at
            elif number >= len(firsts):
                if further is not False and self._compare(old.at(further), new.at(new_firsts[number]), at + "/"):
                    open_ = "TO_OPEN_CONTENT_MODEL" if _accepts_all(further) else "NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
                    yield f"ITEM_ADDED_{open_}", at
            else:
                yield from self._compare(old.at(firsts[number]), new.at(new_firsts[number]), at + "/")
        if further is False:
            return
        if new_further is False:
            yield "ADDITIONAL_ITEMS_REMOVED", path + "additionalItems"
        elif not firsts and not new_firsts:
            yield from self._compare(old.at(further), new.at(new_further), path + "items/")
        elif self._compare(old.at(further), new.at(new_further), path + "additionalItems/"):
            yield "ADDITIONAL_ITEMS_NARROWED", path + "additionalItems"


def _resolved(place: _Place) -> _Place:
    """What a `$ref` leads to, however many there are."""
    seen = set()
    while isinstance(place.schema, dict) and isinstance(place.schema.get("$ref"), str) and id(place.schema) not in seen:
        seen.add(id(place.schema))
        schema, base = place.side.target(place.schema["$ref"], place.base)
        place = _Place(place.side, schema, base)
    return place


def _alone(place: _Place) -> _Place:
    """A combination of one schema is that schema."""
    criterion = _criterion(place.schema) if isinstance(place.schema, dict) else None
    if criterion is None:
        return place
    (first, *others), rest = _distinct(place.schema[criterion]), {name: value for name, value in place.schema.items() if name != criterion}
    if others or not isinstance(first, dict) or "$ref" in first or (first.keys() & rest.keys()) - ANNOTATIONS:
        return place
    # the same object each time: schemas that contain themselves are found by it
    return place.at(place.side.merged.setdefault(id(place.schema), rest | first))


def _distinct(schemas: list[Any]) -> list[Any]:
    """Schemas without those that are there twice."""
    return [one for number, one in enumerate(schemas) if one not in schemas[:number]]


def _accepts_all(schema: Any) -> bool:
    """Whether a schema accepts every value for its form alone."""
    return schema is True or (isinstance(schema, dict) and not schema.keys() - ANNOTATIONS)


def _criterion(schema: dict[str, Any]) -> str | None:
    """The list of schemas that a schema combines."""
    return next((name for name in CRITERIA if name in schema), None)


def _types(schema: dict[str, Any]) -> set[str]:
    """The types of the values that a schema accepts."""
    if "type" in schema:
        return {schema["type"]} if isinstance(schema["type"], str) else set(schema["type"])
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if values is None:
        return set(ALL)
    return {_type(value) for value in values}


def _type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, float) and value.is_integer():
        return "integer"
    return {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}[type(value)]


def _enums(old: dict[str, Any], new: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    before, after = (schema.get("enum", [schema["const"]] if "const" in schema else None) for schema in (old, new))
    if after is None:
        return
    if before is None:
        yield "ENUM_ARRAY_NARROWED", path + "enum"
    elif not all(value in after for value in before):
        yield ("ENUM_ARRAY_NARROWED" if all(value in before for value in after) else "ENUM_ARRAY_CHANGED"), path + "enum"


def _bound(old: dict[str, Any], new: dict[str, Any], keyword: str, name: str, path: str, *, larger: bool) -> Iterator[tuple[str, str]]:
    before, after = old.get(keyword), new.get(keyword)
    if isinstance(before, bool) or isinstance(after, bool):
        # of draft 4: whether `maximum` itself is excluded
        if after and not before:
            yield f"{name}_ADDED", path + keyword
        return
    if after is None or before == after:
        return
    if before is None:
        # a bound that no value can break, such as minLength 0, changes nothing
        if larger or after != 0 or keyword in ("minimum", "exclusiveMinimum"):
            yield f"{name}_ADDED", path + keyword
    elif (after < before) == larger:
        yield f"{name}_{'DECREASED' if larger else 'INCREASED'}", path + keyword


def _multiple(old: dict[str, Any], new: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    before, after = old.get("multipleOf"), new.get("multipleOf")
    if after is None or before == after:
        return
    if before is None:
        yield "MULTIPLE_OF_ADDED", path + "multipleOf"
    elif before % after != 0:
        yield ("MULTIPLE_OF_EXPANDED" if after % before == 0 else "MULTIPLE_OF_CHANGED"), path + "multipleOf"


def _required(schema: dict[str, Any]) -> set[str]:
    found = schema.get("required", [])
    return set(found) if isinstance(found, list) else set()


def _has_default(schema: Any) -> bool:
    return isinstance(schema, dict) and "default" in schema


def _covering(schema: dict[str, Any], name: str) -> list[Any]:
    """What a schema says of a property that it does not name: the schemas of the patterns that fit, or that of all others."""
    found = [inner for pattern, inner in schema.get("patternProperties", {}).items() if _fits(pattern, name)]
    further = schema.get("additionalProperties", True)
    return found or [True if _accepts_all(further) else further]


def _fits(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:
        return False


def _dependencies(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema.get("dependencies", {}), **schema.get("dependentRequired", {})}


def _items(schema: dict[str, Any]) -> tuple[list[Any], Any]:
    """The schemas of the first items, and that of all further ones."""
    items = schema.get("items", True)
    if "prefixItems" in schema:
        return schema["prefixItems"], items
    if isinstance(items, list):
        return items, schema.get("additionalItems", True)
    return [], items


def _matching(rows: int, columns: int, fits: Callable[[int, int], bool]) -> int:
    """How many rows can have a column of their own that fits (Kuhn's algorithm)."""
    possible = [[column for column in range(columns) if fits(row, column)] for row in range(rows)]
    taken: dict[int, int] = {}

    def place(row: int, tried: set[int]) -> bool:
        for column in possible[row]:
            if column not in tried:
                tried.add(column)
                if column not in taken or place(taken[column], tried):
                    taken[column] = row
                    return True
        return False

    return sum(place(row, set()) for row in range(rows))


def _keywords(schema: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The keywords that are not compared, with their places."""
    if isinstance(schema, dict):
        for name, value in schema.items():
            if name in NOT_COMPARED:
                yield f"{path}/{name}", value
            else:
                yield from _keywords(value, f"{path}/{name}")
    elif isinstance(schema, list):
        for number, value in enumerate(schema):
            yield from _keywords(value, f"{path}/{number}")
