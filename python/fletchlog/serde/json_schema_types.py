"""The Arrow type of the values that follow a JSON Schema, where it gives one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fletchlog.serde.outcome import arrow

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

_SCALARS = {"string": "string", "integer": "int64", "boolean": "bool_", "number": "float64", "null": "null"}
_KINDS = {str: "string", int: "integer", bool: "boolean", float: "number"}


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
        found = self._found(schema, inside)
        if found is None:
            raise _OpenError
        return found

    def _found(self, schema: Any, inside: tuple[str, ...]) -> pa.DataType | None:
        """The type; None of a schema that only restricts values, such as `required` alone."""
        if not isinstance(schema, dict):
            return None
        if "$ref" in schema:
            return self._referred(schema["$ref"], inside)
        found = self._own(schema, inside)
        for part in schema.get("allOf", ()):
            found = _merged(found, self._found(part, inside), either=False)
        for several in ("oneOf", "anyOf"):
            if several in schema:
                found = _merged(found, self._of_any(schema[several], inside, is_known=found is not None), either=False)
        return found

    def _own(self, schema: dict[str, Any], inside: tuple[str, ...]) -> pa.DataType | None:
        """The type without `allOf`, `anyOf` and `oneOf`."""
        named = schema.get("type", "object" if "properties" in schema else None)
        kinds = _kinds_of_values(schema) if named is None else {named} if isinstance(named, str) else set(named)
        kinds = kinds - {"null"} or kinds
        if kinds == {"integer", "number"}:
            kinds = {"number"}
        if not kinds:
            return None
        kind, *others = kinds
        if others:
            raise _OpenError
        if kind == "object" and schema.get("properties"):
            return arrow().struct([arrow().field(name, self.of(part, inside)) for name, part in schema["properties"].items()])
        if kind == "object":
            values = schema.get("additionalProperties")
            return arrow().map_(arrow().string(), self.of(values, inside)) if isinstance(values, dict) else None
        if kind == "array":
            items = self._found(schema.get("items"), inside)
            return None if items is None else arrow().list_(items)
        if kind not in _SCALARS:
            raise _OpenError
        made: pa.DataType = getattr(arrow(), _SCALARS[kind])()
        return made

    def _of_any(self, schemas: Any, inside: tuple[str, ...], *, is_known: bool) -> pa.DataType | None:
        """The type of values of any of these schemas; null is one of each type. A schema without a type restricts the one that `is_known`."""
        made = None
        for schema in schemas:
            if isinstance(schema, dict) and (schema.get("type") == "null" or _kinds_of_values(schema) == {"null"}):
                continue
            found = self._found(schema, inside)
            if found is None and not is_known:
                raise _OpenError
            made = _merged(made, found, either=True)
        return made

    def _referred(self, name: str, inside: tuple[str, ...]) -> pa.DataType | None:
        if name in inside:
            raise _OpenError
        if not name.startswith("#"):
            # a part of another schema refers to its own parts by names that are not the root's
            if name not in self._references:
                raise _OpenError
            other = self._references[name]
            return _Types(other, self._references)._found(other, (*inside, name))  # noqa: SLF001 - one of this class
        part = self._root
        for step in name.removeprefix("#").split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(part, dict) or key not in part:
                raise _OpenError
            part = part[key]
        return self._found(part, (*inside, name))


def _kinds_of_values(schema: dict[str, Any]) -> set[str]:
    """The types of the values that `const` or `enum` names."""
    if "const" not in schema and "enum" not in schema:
        return set()
    values = [schema["const"]] if "const" in schema else schema["enum"]
    # of objects and arrays they say nothing
    known = {"null" if value is None else _KINDS.get(type(value)) for value in values}
    return set() if None in known else {kind for kind in known if kind}


def _merged(one: pa.DataType | None, other: pa.DataType | None, *, either: bool) -> pa.DataType | None:
    """The type of values of both types, or of `either`: objects have the fields of both."""
    if one is None or other is None or one == other:
        return other if one is None else one
    pa = arrow()
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64() if either else pa.int64()
    kinds = pa.types
    if kinds.is_struct(one) and kinds.is_struct(other):
        fields = {field.name: field.type for field in one}
        for field in other:
            fields[field.name] = _merged(fields.get(field.name), field.type, either=either)
        return pa.struct(list(fields.items()))
    if kinds.is_list(one) and kinds.is_list(other):
        return pa.list_(_merged(one.value_type, other.value_type, either=either))
    raise _OpenError
