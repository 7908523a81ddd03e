"""Avro schemas: parsed and compared by Apache's library, printed as Java's `Schema#toString` prints them."""

from __future__ import annotations

import json
import re
import threading
import warnings
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fletchlog.interop import require
from fletchlog.registry.formats import Parsed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fletchlog.registry.formats import Referred

PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
NAMED = ("record", "error", "enum", "fixed")
# Attributes with a meaning, by what has them; all others are properties, which are printed after these.
_OF_SCHEMA = frozenset(("type", "name", "namespace", "doc", "fields", "symbols", "default", "size", "items", "values", "aliases"))
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_FIELD = frozenset(("name", "type", "doc", "default", "order", "aliases"))
# Filters of warnings are those of the process.
_FILTERS = threading.Lock()


class AvroSchema(Parsed):
    """An Avro schema."""

    def __init__(self, text: str, referred: Sequence[Referred], *, is_new: bool = False) -> None:
        """Parses it; with `is_new` defaults have to match the types of their fields, as in Confluent's registry.

        Raises:
            ValueError: It is no Avro schema.
        """
        errors = require("avro.errors", "registry")
        self._json = _loaded(text)
        self._names: dict[str, None] = {}
        try:
            # Java's parser checks names, and no namespaces: as `_check_names` does
            names = require("avro.name", "registry").Names(validate_names=False)
            for one in referred:
                _made(_loaded(one.text), names)
            self._names = dict.fromkeys(names.names)
            # the library takes a name inside a schema, and not alone
            alone = names.get_name(self._json, None) if isinstance(self._json, str) and self._json not in PRIMITIVES else None
            self.parsed = alone or _made(self._json, names)
        except errors.AvroException as error:
            raise ValueError(str(error)) from error
        except (TypeError, AttributeError, KeyError) as error:
            raise ValueError(f"it is no Avro schema: {error}") from error
        if is_new:
            _check_names(self._json)
            for where, schema, default in _defaults(self.parsed):
                if not _matches(schema, default):
                    raise ValueError(f"Invalid default for field {where}: {json.dumps(default)} not a {schema}")

    @cached_property
    def canonical(self) -> str:
        """See `Parsed.canonical`."""
        return _text(_Printer(self._names).schema(self._json, ""))

    @cached_property
    def normalized(self) -> str:
        """See `Parsed.normalized`: full names, properties sorted."""
        return _text(_Printer(self._names, normal=True).schema(self._json, ""))

    def problems_reading(self, written: Parsed) -> list[str]:
        """See `Parsed.problems_reading`: by Avro's rules of schema resolution."""
        compatibility = require("avro.compatibility", "registry")
        assert isinstance(written, AvroSchema)  # noqa: S101 - schemas of one type are compared
        found = compatibility.ReaderWriterCompatibilityChecker().get_compatibility(self.parsed, written.parsed)
        if found.compatibility is compatibility.SchemaCompatibilityType.compatible:
            return []
        kinds = [kind.value.upper() for kind in found.incompatibilities] or ["INCOMPATIBLE"]
        where, why = ", ".join(sorted(found.locations)), "; ".join(sorted(found.messages))
        return [f"{{errorType:'{kind}', description:'The schema cannot read data of the other one at {where}', additionalInfo:'{why}'}}" for kind in kinds]


def _made(schema: Any, names: Any) -> Any:
    """The library's object. A logical type that does not fit is left out, as in Java, without a warning."""
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore", require("avro.errors", "registry").IgnoredLogicalType)
        return require("avro.schema", "registry").make_avsc_object(schema, names, validate_names=False)


def _loaded(text: str) -> Any:
    """The JSON of a schema; a bare name is one too, as for Java's parser."""
    try:
        return json.loads(text)
    except ValueError as error:
        if text.strip() in PRIMITIVES:
            return text.strip()
        raise ValueError(f"it is no JSON: {error}") from error


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


class _Printer:
    """The JSON of a schema in the order of Java's `Schema#toJson`."""

    def __init__(self, names: dict[str, None], *, normal: bool = False) -> None:
        self._names, self._normal = names, normal

    def schema(self, given: Any, space: str) -> Any:
        """A schema inside a namespace."""
        if isinstance(given, str):
            return given if given in PRIMITIVES else self._reference(given, space)
        if isinstance(given, list):
            return [self.schema(branch, space) for branch in given]
        kind = given["type"]
        if kind in NAMED:
            return self._named(given, kind, space)
        if kind in ("array", "map"):
            inner = "items" if kind == "array" else "values"
            return {"type": kind, inner: self.schema(given[inner], space)} | self._properties(given, _OF_SCHEMA)
        if isinstance(kind, str) and kind in PRIMITIVES:
            properties = self._properties(given, _OF_SCHEMA)
            return {"type": kind} | properties if properties else kind
        # {"type": {"type": ..}} is what is in it
        return self.schema(kind, space)

    def _named(self, given: dict[str, Any], kind: str, outer: str) -> dict[str, Any]:
        name, space = _full(given["name"], given.get("namespace"), outer)
        full = f"{space}.{name}" if space else name
        self._names[full] = None
        made: dict[str, Any] = {"type": kind, "name": full if self._normal else name}
        if space != outer and not self._normal:
            made["namespace"] = space
        if given.get("doc") is not None:
            made["doc"] = given["doc"]
        if kind == "enum":
            made["symbols"] = given["symbols"]
            if "default" in given:
                made["default"] = given["default"]
        elif kind == "fixed":
            made["size"] = given["size"]
        else:
            made["fields"] = [self._field(one, space) for one in given.get("fields", [])]
        made |= self._properties(given, _OF_SCHEMA)
        if given.get("aliases"):
            made["aliases"] = given["aliases"]
        return made

    def _field(self, given: dict[str, Any], space: str) -> dict[str, Any]:
        made: dict[str, Any] = {"name": given["name"], "type": self.schema(given["type"], space)}
        if given.get("doc") is not None:
            made["doc"] = given["doc"]
        if "default" in given:
            made["default"] = given["default"]
        if given.get("order", "ascending") != "ascending":
            made["order"] = given["order"]
        if given.get("aliases"):
            made["aliases"] = given["aliases"]
        return made | self._properties(given, _OF_FIELD)

    def _properties(self, given: dict[str, Any], known: frozenset[str]) -> dict[str, Any]:
        found = {name: value for name, value in given.items() if name not in known}
        return dict(sorted(found.items())) if self._normal else found

    def _reference(self, name: str, space: str) -> str:
        """The name of a schema that is defined elsewhere: short where it is in the same namespace."""
        full = name if "." in name or not space or f"{space}.{name}" not in self._names else f"{space}.{name}"
        if self._normal:
            return full
        return full.removeprefix(f"{space}.") if space and full.rpartition(".")[0] == space else full


def _check_names(part: Any) -> None:
    """Names of schemas, fields and symbols are Avro's."""
    if isinstance(part, list):
        for branch in part:
            _check_names(branch)
    if not isinstance(part, dict):
        return
    named = [part["name"].rpartition(".")[2]] if part.get("type") in NAMED and isinstance(part.get("name"), str) else []
    fields = part["fields"] if part.get("type") in ("record", "error") else []
    for name in (*named, *(field["name"] for field in fields), *(part["symbols"] if part.get("type") == "enum" else ())):
        if not _NAME.fullmatch(name):
            raise ValueError(f"Illegal character in: {name}")
    for inner in (part.get("type"), part.get("items"), part.get("values"), *(field["type"] for field in fields)):
        _check_names(inner)


def _full(name: str, namespace: str | None, outer: str) -> tuple[str, str]:
    """Name and namespace of a named schema."""
    if "." in name:
        space, _, name = name.rpartition(".")
        return name, space
    return name, outer if namespace is None else namespace


def _defaults(parsed: Any, seen: set[int] | None = None, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The default of each field: where, schema, value."""
    seen = set() if seen is None else seen
    if id(parsed) in seen:
        return
    seen.add(id(parsed))
    for field in getattr(parsed, "fields", ()):
        where = f"{place}.{field.name}" if place else field.name
        if field.has_default:
            yield where, field.type, field.default
        yield from _defaults(field.type, seen, where)
    for inner in (getattr(parsed, "items", None), getattr(parsed, "values", None), *getattr(parsed, "schemas", ())):
        if inner is not None:
            yield from _defaults(inner, seen, place)


def _matches(schema: Any, value: Any) -> bool:
    """Whether a default is of a type. Java: `Schema#isValidDefault`."""
    kind = schema.type
    whole = isinstance(value, int) and not isinstance(value, bool)
    match kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long":
            bits = 31 if kind == "int" else 63
            return whole and -(1 << bits) <= value < 1 << bits
        case "float" | "double":
            return whole or isinstance(value, float) or value in ("NaN", "Infinity", "-Infinity")
        case "string" | "bytes" | "fixed" | "enum":
            return isinstance(value, str)
        case "array":
            return isinstance(value, list) and all(_matches(schema.items, item) for item in value)
        case "map":
            return isinstance(value, dict) and all(_matches(schema.values, item) for item in value.values())
        case "union" | "error_union":
            # the branch may be any one since Avro 1.12
            return any(_matches(branch, value) for branch in schema.schemas)
        case _:
            names = value if isinstance(value, dict) else None
            return names is not None and all(_matches(one.type, names[one.name]) if one.name in names else one.has_default for one in schema.fields)
