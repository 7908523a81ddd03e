"""Limits for Avro values: a few bytes can encode any number of items, or any depth.

fastavro follows what a value says. An array gives its number of items, and items of no bytes (null, a record without fields) cost the sender
nothing; a type that contains itself can be nested as deep as a value is long, which overflows the stack. Values of schemas in which either can happen
are checked before they are read. A schema may also name a type many times: the number of types after replacement is limited as well.
"""

from __future__ import annotations

from typing import Any

MAX_TYPES = 100_000
MAX_EMPTY_ITEMS = 1000
MAX_DEPTH = 128
_FIXED = {"null": 0, "boolean": 1, "float": 4, "double": 8}


class Walk:
    """Walks over values of a parsed schema whose named types are `names`."""

    def __init__(self, schema: Any, names: dict[str, Any]) -> None:
        self._schema = schema
        self._names = names
        self._data = b""
        self._at = 0
        self._empty = 0

    @property
    def needed(self) -> bool:
        """Whether a value can be larger than its bytes allow, or nested without end."""
        return self._risky(self._schema, (), set())

    def takes_no_bytes(self) -> bool:
        """Whether the whole value does."""
        return self._empty_type(self._schema, ())

    def refused(self, data: bytes) -> str | None:
        """Why a value is not read; None for one that may be, malformed ones among them."""
        self._data, self._at, self._empty = data, 0, 0
        try:
            self._skip(self._schema, 0)
        except _RefusedError as refused:
            return str(refused)
        except (IndexError, KeyError):
            pass  # cut off, or no such branch: the reader reports it
        return None

    def _resolved(self, schema: Any) -> Any:
        """A list for a union, else a dict with the name of the type as `type`."""
        if isinstance(schema, str):
            return self._names.get(schema) or {"type": schema}
        if isinstance(schema, dict) and (isinstance(schema["type"], list | dict) or schema["type"] in self._names):
            return self._resolved(schema["type"])
        return schema

    def _parts(self, schema: Any) -> list[Any]:
        if isinstance(schema, list):
            return schema
        return [schema[name] for name in ("items", "values") if name in schema] + [field["type"] for field in schema.get("fields", ())]

    def types(self) -> int:
        """The number of types once every name is replaced. A schema can double it with every line."""
        return self._types(self._schema, {})

    def _types(self, schema: Any, known: dict[str, int]) -> int:
        schema = self._resolved(schema)
        name = None if isinstance(schema, list) else schema.get("name")
        if name in known:
            return known[name]
        if name is not None:
            known[name] = 1  # within itself
        found = 1 + sum(self._types(part, known) for part in self._parts(schema))
        if name is not None:
            known[name] = found
        return found

    def _risky(self, schema: Any, inside: tuple[str, ...], done: set[str]) -> bool:
        schema = self._resolved(schema)
        name = None if isinstance(schema, list) else schema.get("name")
        if name is not None:
            if name in inside or name in done:
                return name in inside
            inside = (*inside, name)
        if not isinstance(schema, list) and schema["type"] == "array" and self._empty_type(schema["items"], ()):
            return True
        found = any(self._risky(part, inside, done) for part in self._parts(schema))
        if name is not None:
            done.add(name)
        return found

    def _empty_type(self, schema: Any, inside: tuple[str, ...]) -> bool:
        schema = self._resolved(schema)
        if isinstance(schema, list):
            return False
        if schema["type"] in ("record", "error"):
            name = schema["name"]
            return name not in inside and all(self._empty_type(field["type"], (*inside, name)) for field in schema["fields"])
        return bool(schema["type"] == "null" or (schema["type"] == "fixed" and schema["size"] == 0))

    def _skip(self, schema: Any, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise _RefusedError(f"it is nested more than {MAX_DEPTH} levels deep")
        schema = self._resolved(schema)
        if isinstance(schema, list):
            branch = self._long()
            if branch < 0:
                raise IndexError
            self._skip(schema[branch], depth + 1)
            return
        kind = schema["type"]
        if kind in _FIXED:
            self._forward(_FIXED[kind])
        elif kind in ("int", "long", "enum"):
            self._long()
        elif kind in ("bytes", "string"):
            self._forward(self._long())
        elif kind == "fixed":
            self._forward(schema["size"])
        elif kind in ("array", "map"):
            self._blocks(schema, depth)
        else:
            for field in schema["fields"]:
                self._skip(field["type"], depth + 1)

    def _blocks(self, schema: dict[str, Any], depth: int) -> None:
        in_map = schema["type"] == "map"
        item = schema["values" if in_map else "items"]
        empty = not in_map and self._empty_type(item, ())
        while (count := self._long()) != 0:
            if count < 0:
                count = -count
                self._long()
            if empty:
                self._empty += count
                if self._empty > MAX_EMPTY_ITEMS:
                    raise _RefusedError(f"its arrays have more than {MAX_EMPTY_ITEMS:,} items that take no bytes")
                continue
            for _ in range(count):
                if in_map:
                    self._forward(self._long())
                self._skip(item, depth + 1)

    def _forward(self, count: int) -> None:
        self._at += count
        if count < 0 or self._at > len(self._data):
            raise IndexError

    def _long(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:  # noqa: PLR2004 - the bit that says that more bytes follow
                return (value >> 1) ^ -(value & 1)


class _RefusedError(Exception):
    pass
