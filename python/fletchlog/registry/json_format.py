"""JSON Schemas: what of them is checked, and how `$ref` is resolved. Two are compared in `json_diff.py`."""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urldefrag, urljoin

from fletchlog.registry.formats import Parsed
from fletchlog.registry.json_diff import Comparison

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fletchlog.registry.formats import Referred

TYPES = frozenset(("null", "boolean", "object", "array", "number", "integer", "string"))
# keywords whose value is a schema, a list of schemas, or an object of schemas
ONE = ("additionalItems", "additionalProperties", "contains", "else", "if", "not", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties")
LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
OBJECTS = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
_NUMBERS = ("maximum", "minimum", "multipleOf")
_COUNTS = ("maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties")


class JsonSchema(Parsed):
    """A JSON Schema, of any draft."""

    def __init__(self, text: str, referred: Sequence[Referred]) -> None:
        """Parses it.

        Raises:
            ValueError: It is no JSON, a keyword has a value that it cannot have, or a `$ref` leads nowhere.
        """
        self.root = _loaded(text)
        self._resources: dict[str, Any] = {}
        # of `json_diff`: a schema by the id of the combination that has it alone
        self.merged: dict[int, Any] = {}
        for one in referred:
            other = _loaded(one.text)
            self._resources[one.name] = other
            self._index(other, one.name)
        self._base = self._index(self.root, "")
        for at, schema, base in _walk(self.root, "#", self._base):
            _check(schema, at)
            if isinstance(schema, dict) and isinstance(schema.get("$ref"), str):
                self.target(schema["$ref"], base)

    @cached_property
    def canonical(self) -> str:
        """See `Parsed.canonical`: without space between tokens, keys in their order."""
        return json.dumps(self.root, separators=(",", ":"), ensure_ascii=False)

    @cached_property
    def normalized(self) -> str:
        """See `Parsed.normalized`: keys sorted."""
        return json.dumps(self.root, separators=(",", ":"), ensure_ascii=False, sort_keys=True)

    def problems_reading(self, written: Parsed) -> list[str]:
        """See `Parsed.problems_reading`."""
        assert isinstance(written, JsonSchema)  # noqa: S101 - schemas of one type are compared
        return Comparison(written, self).problems()

    def unchecked_reading(self, written: Parsed) -> list[str]:
        """See `Parsed.unchecked_reading`."""
        assert isinstance(written, JsonSchema)  # noqa: S101 - the same
        return Comparison(written, self).unchecked()

    @property
    def base(self) -> str:
        """What `$ref` of the root is relative to."""
        return self._base

    def target(self, ref: str, base: str) -> tuple[Any, str]:
        """What a `$ref` leads to, and what `$ref` in it is relative to.

        Raises:
            ValueError: It leads nowhere.
        """
        full = urljoin(base, ref)
        place, fragment = urldefrag(full)
        for name in (full, place, ref, urldefrag(ref)[0]):
            if name in self._resources:
                found = self._resources[name]
                if name in (full, ref) or not fragment:
                    return found, place
                return _pointed(found, fragment, ref), place
        if place in (base, ""):
            return _pointed(self.root, fragment, ref), base
        raise ValueError(f"$ref {ref} leads nowhere: no reference has the name {place}")

    def _index(self, schema: Any, base: str) -> str:
        """Remembers what has an id or an anchor. The base of the schema."""
        first = base
        self._resources.setdefault(base, schema)
        for at, inner, at_base in _walk(schema, "#", base):
            if not isinstance(inner, dict):
                continue
            name = inner.get("$id", inner.get("id"))
            if isinstance(name, str):
                full = urljoin(at_base, name)
                self._resources.setdefault(urldefrag(full)[0] if not name.startswith("#") else full, inner)
                if at == "#":
                    first = urldefrag(full)[0]
            if isinstance(inner.get("$anchor"), str):
                self._resources.setdefault(f"{at_base}#{inner['$anchor']}", inner)
        return first


def _loaded(text: str) -> Any:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"it is no JSON: {error}") from error
    if not isinstance(found, dict | bool):
        raise ValueError("a JSON Schema is an object, true or false")  # noqa: TRY004 - of the text, not of an argument
    return found


def _walk(schema: Any, at: str, base: str) -> Iterator[tuple[str, Any, str]]:
    """Every schema in a schema: where it is, itself, and the base of its `$ref`."""
    if isinstance(schema, dict) and isinstance(schema.get("$id"), str) and not schema["$id"].startswith("#"):
        base = urldefrag(urljoin(base, schema["$id"]))[0]
    yield at, schema, base
    if not isinstance(schema, dict):
        return
    items = schema.get("items")
    lists = {name: schema.get(name) for name in LISTS} | ({"items": items} if isinstance(items, list) else {})
    ones = {name: schema.get(name) for name in ONE} | ({} if isinstance(items, list) else {"items": items})
    for name, inner in ones.items():
        if name in schema:
            yield from _walk(inner, f"{at}/{name}", base)
    for name, found in lists.items():
        for number, inner in enumerate(found if isinstance(found, list) else ()):
            yield from _walk(inner, f"{at}/{name}/{number}", base)
    for name in OBJECTS:
        found = schema.get(name)
        for key, inner in (found if isinstance(found, dict) else {}).items():
            yield from _walk(inner, f"{at}/{name}/{key}", base)


def _check(schema: Any, at: str) -> None:
    """Keywords have values that they can have."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise ValueError(f"{at} is no schema: {json.dumps(schema)}")  # noqa: TRY004 - of the text, not of an argument
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if not isinstance(kinds, list) or not all(isinstance(kind, str) and kind in TYPES for kind in kinds):
        raise ValueError(f"{at}/type is {json.dumps(schema['type'])}; types are {', '.join(sorted(TYPES))}")
    for names, right, what in (
        (_NUMBERS, lambda value: isinstance(value, int | float) and not isinstance(value, bool), "a number"),
        (_COUNTS, lambda value: isinstance(value, int | float) and not isinstance(value, bool) and value >= 0, "a number from 0 on"),
        (LISTS, lambda value: isinstance(value, list) and value, "a list of schemas"),
        (OBJECTS, lambda value: isinstance(value, dict), "an object of schemas"),
        (("enum",), lambda value: isinstance(value, list), "a list"),
        (("required",), lambda value: isinstance(value, bool) or (isinstance(value, list) and all(isinstance(name, str) for name in value)), "a list of names"),
        (("pattern", "$ref", "title", "description"), lambda value: isinstance(value, str), "a text"),
        (("uniqueItems",), lambda value: isinstance(value, bool), "true or false"),
    ):
        for name in names:
            if name in schema and not right(schema[name]):
                raise ValueError(f"{at}/{name} is {json.dumps(schema[name])}; it is {what}")


def _pointed(schema: Any, fragment: str, ref: str) -> Any:
    """What a JSON Pointer leads to."""
    found = schema
    if fragment and not fragment.startswith("/"):
        raise ValueError(f"$ref {ref} leads nowhere: nothing has the anchor {fragment}")
    for part in unquote(fragment).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        else:
            raise ValueError(f"$ref {ref} leads nowhere: there is no {key!r}")
    return found
