"""The Arrow type of the values that follow a JSON Schema, where it gives one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fletchlog.serde.outcome import arrow

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

_SCALARS = {"string": "string", "integer": "int64", "boolean": "bool_", "number": "float64", "null": "null"}


class _OpenError(Exception):
    """The schema does not say which type it is."""


def type_of(schema: Any, references: Mapping[str, Any]) -> pa.DataType | None:
    """The Arrow type; None if the schema, or a part of it, takes values of several kinds or contains itself."""
    try:
        return _Types(schema, references).of(schema, ())
    except _OpenError:
        return None


class _Types:
    def __init__(self, root: Any, references: Mapping[str, Any]) -> None:
        self._root = root
        self._references = references

    def of(self, schema: Any, inside: tuple[str, ...]) -> pa.DataType:
        if not isinstance(schema, dict):
            raise _OpenError
        if "$ref" in schema:
            return self._referred(schema["$ref"], inside)
        for several in ("oneOf", "anyOf", "allOf"):
            if several in schema:
                return self._only(schema[several], inside)
        kinds = schema.get("type")
        kinds = {kinds} if isinstance(kinds, str) else set(kinds or ()) - {"null"}
        if kinds == {"integer", "number"}:
            kinds = {"number"}
        if len(kinds) != 1:
            raise _OpenError
        (kind,) = kinds
        if kind == "object":
            return self._object(schema, inside)
        if kind == "array":
            return arrow().list_(self.of(schema.get("items"), inside))
        if kind not in _SCALARS:
            raise _OpenError
        made: pa.DataType = getattr(arrow(), _SCALARS[kind])()
        return made

    def _object(self, schema: dict[str, Any], inside: tuple[str, ...]) -> pa.DataType:
        pa = arrow()
        if schema.get("properties"):
            return pa.struct([pa.field(name, self.of(part, inside)) for name, part in schema["properties"].items()])
        if isinstance(schema.get("additionalProperties"), dict):
            return pa.map_(pa.string(), self.of(schema["additionalProperties"], inside))
        raise _OpenError

    def _only(self, schemas: Any, inside: tuple[str, ...]) -> pa.DataType:
        """The type of several schemas of which all but one take null only."""
        others = [schema for schema in schemas if not (isinstance(schema, dict) and schema.get("type") == "null")]
        if len(others) != 1:
            raise _OpenError
        return self.of(others[0], inside)

    def _referred(self, name: str, inside: tuple[str, ...]) -> pa.DataType:
        if name in inside:
            raise _OpenError
        if not name.startswith("#"):
            # a part of another schema refers to its own parts by names that are not the root's
            if name not in self._references:
                raise _OpenError
            other = self._references[name]
            return _Types(other, self._references).of(other, (*inside, name))
        part = self._root
        for step in name.removeprefix("#").split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(part, dict) or key not in part:
                raise _OpenError
            part = part[key]
        return self.of(part, (*inside, name))
