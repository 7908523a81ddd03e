"""Defaults of an Avro schema's fields: JSON in the schema, values like those of a decoder once they are used.

fastavro hands on a default as it is in the schema, and JSON has no bytes: those of `bytes`, `fixed` and decimals are a text, a character a byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fletchlog.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT = "fletchlog.default"
_BITS = {"int": 31, "long": 63}


def fields(schema: Any, names: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The fields of every record of a parsed schema whose named types are `names`, and the places of them."""
    pending = [schema, *names.values()]
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending += part
        elif isinstance(part, dict):
            pending += [part[key] for key in ("type", "items", "values") if key in part]
            for field in part.get("fields", ()):
                yield f"{part.get('name')}.{field['name']}", field
                pending.append(field["type"])


def decode_defaults(schema: Any, names: dict[str, Any], *, needed: bool) -> None:
    """Gives each field that has a JSON default (`DEFAULT`) the value of it as `default`.

    Args:
        schema: A parsed schema.
        names: Its named types.
        needed: Whether one that is not of its type is an error. The defaults of a writer are not used for reading, and old schemas have such.

    Raises:
        fletchlog.errors.InvalidArgumentError: A default is not of its type.
    """
    for place, field in fields(schema, names):
        if DEFAULT not in field:
            continue
        try:
            field["default"] = _decoded(field["type"], field[DEFAULT], names)
        except (ValueError, OverflowError) as error:
            if needed:
                raise InvalidArgumentError(f"the Avro schema has a default at {place} that is not of its type: {error}") from None


def _decoded(schema: Any, given: Any, names: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return _of_union(schema, given, names)
    if isinstance(schema, str):
        schema = names.get(schema) or {"type": schema}
    kind = schema["type"]
    if isinstance(kind, list | dict) or kind in names:
        return _decoded(kind, given, names)
    if kind in ("record", "error") and isinstance(given, dict):
        return {field["name"]: _of_field(field, given, names) for field in schema["fields"]}
    if kind == "array" and isinstance(given, list):
        return [_decoded(schema["items"], item, names) for item in given]
    if kind == "map" and isinstance(given, dict):
        return {key: _decoded(schema["values"], value, names) for key, value in given.items()}
    if kind in ("bytes", "fixed") and isinstance(given, str):
        return _bytes(given, schema.get("size") if kind == "fixed" else None)
    if _is_one(kind, given) and given in schema.get("symbols", (given,)):
        return float(given) if kind in ("float", "double") else given
    raise ValueError(f"{given!r:.60} is no {kind}")


def _of_union(branches: list[Any], given: Any, names: dict[str, Any]) -> Any:
    """As the first branch that the default is one of: before Avro 1.12 only the first of all was allowed."""
    for branch in branches:
        try:
            return _decoded(branch, given, names)
        except (ValueError, OverflowError):
            continue
    raise ValueError(f"{given!r:.60} is of no branch of the union")


def _of_field(field: dict[str, Any], given: dict[str, Any], names: dict[str, Any]) -> Any:
    if field["name"] not in given and DEFAULT not in field:
        raise ValueError(f"{given!r:.60} lacks the field {field['name']}")
    return _decoded(field["type"], given.get(field["name"], field.get(DEFAULT)), names)


def _bytes(given: str, size: int | None) -> bytes:
    try:
        made = given.encode("latin-1")
    except UnicodeEncodeError:
        raise ValueError(f"{given!r:.60} has characters above U+00FF, which are no bytes") from None
    if size is not None and len(made) != size:
        raise ValueError(f"{given!r:.60} is {len(made)} bytes, the fixed type has {size}")
    return made


def _is_one(kind: str, given: Any) -> bool:
    """Whether JSON's number, text, true, false or null is a value of a type without parts."""
    if kind in _BITS:
        return isinstance(given, int) and not isinstance(given, bool) and -(2 ** _BITS[kind]) <= given < 2 ** _BITS[kind]
    if kind in ("float", "double"):
        # Java takes texts as well, as JSON has no NaN
        return isinstance(given, int | float | str) and not isinstance(given, bool)
    return (kind in ("string", "enum") and isinstance(given, str)) or (kind == "boolean" and isinstance(given, bool)) or (kind == "null" and given is None)
