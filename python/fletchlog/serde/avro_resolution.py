"""Whether values of one Avro schema can be read as another one at all, as Avro's rules of schema resolution say."""

from __future__ import annotations

from typing import Any

_PROMOTIONS = {"int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",), "string": ("bytes",), "bytes": ("string",)}
_NAMED = ("record", "error", "enum", "fixed")


class Resolution:
    """Two parsed schemas, each with its named types."""

    def __init__(self, writer: tuple[Any, dict[str, Any]], reader: tuple[Any, dict[str, Any]]) -> None:
        self._writer, self._writer_names = writer
        self._reader, self._reader_names = reader
        # reasons of records that were looked at; None while one is, for those within itself
        self._known: dict[tuple[str, str], str | None] = {}

    def reason(self) -> str | None:
        """Why no value can be read; None where some can."""
        return self._reason(self._writer, self._reader, "")

    def _reason(self, writer: Any, reader: Any, path: str) -> str | None:
        if isinstance(writer, list):
            return self._of_all([(branch, reader) for branch in writer], path)
        if isinstance(reader, list):
            return self._of_all([(writer, branch) for branch in reader], path)
        writer, reader = _resolved(writer, self._writer_names), _resolved(reader, self._reader_names)
        if isinstance(writer, list) or isinstance(reader, list):
            return self._reason(writer, reader, path)
        kind, wanted = writer["type"], reader["type"]
        if kind != wanted:
            return None if wanted in _PROMOTIONS.get(kind, ()) else f"{_shown(writer)}{_at(path)} is read as {_shown(reader)}"
        if kind in _NAMED and not _same_name(writer, reader):
            return f"{_shown(writer)}{_at(path)} is read as {_shown(reader)}, which has no such alias"
        if kind == "fixed" and writer["size"] != reader["size"]:
            return f"{_shown(writer)}{_at(path)} has {writer['size']} bytes in the schema and {reader['size']} in the reader_schema"
        if kind in ("array", "map"):
            part = "items" if kind == "array" else "values"
            return self._reason(writer[part], reader[part], f"{path}/{part}")
        return self._of_records(writer, reader, path) if kind in ("record", "error") else None

    def _of_all(self, pairs: list[tuple[Any, Any]], path: str) -> str | None:
        """The first reason, if every pair has one."""
        reasons = [self._reason(*pair, path) for pair in pairs]
        return None if None in reasons or not reasons else reasons[-1]

    def _of_records(self, writer: dict[str, Any], reader: dict[str, Any], path: str) -> str | None:
        names = (writer["name"], reader["name"])
        if names not in self._known:
            self._known[names] = None
            self._known[names] = self._of_fields(writer, reader, path)
        return self._known[names]

    def _of_fields(self, writer: dict[str, Any], reader: dict[str, Any], path: str) -> str | None:
        written = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            found = next((written[name] for name in (field["name"], *field.get("aliases", ())) if name in written), None)
            place = f"{path}/{field['name']}"
            if found is None and "default" not in field:
                return f"the field {place} is not in the schema, and has no default in the reader_schema"
            reason = None if found is None else self._reason(found["type"], field["type"], place)
            if reason is not None:
                return reason
        return None


def _resolved(schema: Any, names: dict[str, Any]) -> Any:
    """A list for a union, else a dict with the kind of the type as `type`."""
    if isinstance(schema, str):
        return names.get(schema) or {"type": schema}
    if isinstance(schema, dict) and (isinstance(schema["type"], list | dict) or schema["type"] in names):
        return _resolved(schema["type"], names)
    return schema


def _same_name(writer: dict[str, Any], reader: dict[str, Any]) -> bool:
    """As in fastavro and Java, namespaces are left out of it."""
    short = writer["name"].rpartition(".")[2]
    return short == reader["name"].rpartition(".")[2] or not {writer["name"], short}.isdisjoint(reader.get("aliases", ()))


def _shown(schema: dict[str, Any]) -> str:
    return f"{schema['type']} {schema['name']}" if "name" in schema else str(schema["type"])


def _at(path: str) -> str:
    return f" at {path}" if path else ""
