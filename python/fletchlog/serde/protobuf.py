"""Protobuf values, as columns by the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fletchlog import _core
from fletchlog.errors import InvalidArgumentError
from fletchlog.serde.avro import UnresolvableError
from fletchlog.serde.protobuf_schema import descriptors, first_message, index_bytes, of_class
from fletchlog.serde.typed import ByEngine, paths, type_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from fletchlog.serde.typed import Paths


@dataclass(frozen=True)
class Protobuf(ByEngine[Any]):
    """One Protobuf message per record: proto2, proto3 and editions.

    Args:
        message: The message's class, as `protoc` makes it; or with `schema` its full name, such as "shop.Order". None is the first message of
            the schema.
        schema: What declares the message where there is no class. Text of a .proto file (proto2 or proto3); a mapping from file names, as an import
            writes them, to texts, of which the first is the file of the message and the others are what it imports; or the bytes of a
            `FileDescriptorSet`, as `protoc --include_imports --descriptor_set_out` writes it. The files of `google/protobuf` need not be given.

    Arrow types: message struct with its fields in the order of their declaration, repeated list, map map, enum string (the name; the number
    where the schema has no name), `google.protobuf.Timestamp` timestamp[us] in UTC, the numbers as they are. Other well-known types are the messages
    that they are: `Duration` has seconds and nanos, a wrapper such as `Int32Value` a value, `Any` a type_url and a value. A field that can tell that it was
    not set (message, `optional`, `oneof`, all of proto2) is null then, any other one has its default. Types that contain themselves, such as
    `Struct`, have no Arrow type. `encode`
    leaves null fields out, and refuses timestamps outside of the years 1 to 9999, which Protobuf does not have.

    Bytes are read as Google's Python library reads them: the last of several values counts and messages are merged, unknown fields, extensions and
    unknown numbers of closed enums are skipped, messages are nested in at most 100 levels. A string that is not UTF-8 is malformed in proto2 too.
    `encode` writes what `SerializeToString(deterministic=True)` writes.

    Under Confluent's wire format the indexes of the message in its file follow the schema id: give it to `Confluent`, which reads
    and writes them.

    Raises:
        fletchlog.errors.InvalidArgumentError: Not a message class, not a schema, no such message, or one without an Arrow type.
    """

    message: Any = None
    schema: str | bytes | Mapping[str, str] | None = None
    _fields: Paths | None = field(default=None, init=False, repr=False)
    # the descriptors with which values were written, if they are others
    _written: bytes | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.value_reader  # noqa: B018 - a message that cannot work fails here, not at the first record

    def __getstate__(self) -> dict[str, Any]:
        # readers and writers are made again
        return {"message": self.message, "schema": self.schema, "_fields": self._fields, "_written": self._written}

    def pruned(self, fields: Iterable[str | Sequence[str]]) -> Protobuf:
        """The same values with these fields alone, for queries that need few: what is left out is skipped, not decoded.

        Args:
            fields: Each a name, or the names on the way to it (`"address.zip"` or `("address", "zip")`). Lists and maps have none: `"lines.price"` is a
                field of each item, or of each value. The order is that of the message.

        Raises:
            fletchlog.errors.InvalidArgumentError: There is no such field.
        """
        made = self._with(_fields=paths(fields))
        made.value_reader  # noqa: B018 - a field that does not exist fails here
        return made

    def written_with(self, descriptors: bytes) -> Protobuf:
        """The same for values of Confluent's wire format that were written with another schema: its file says which message an index means.

        Raises:
            UnresolvableError: It has no message of this name.
        """
        made = self._with(_written=descriptors)
        try:
            made.reader(indexed=True)
        except InvalidArgumentError as error:
            raise UnresolvableError(str(error)) from None
        return made

    def _with(self, **other: Any) -> Protobuf:
        made = Protobuf.__new__(Protobuf)
        made.__dict__.update(self.__getstate__() | other)
        return made

    @cached_property
    def type(self) -> pa.DataType:
        """Arrow type of the result."""
        return type_of(self.value_reader)

    @cached_property
    def declared(self) -> tuple[bytes, str]:
        """A serialised `FileDescriptorSet`, and the full name of the message."""
        if self.schema is None:
            if not hasattr(self.message, "DESCRIPTOR"):
                raise InvalidArgumentError(f"Protobuf takes a message class that protoc has made, or a name and a schema, got {self.message!r:.60}")
            return of_class(self.message.DESCRIPTOR)
        declared = descriptors(self.schema)
        if self.message is not None and not isinstance(self.message, str):
            raise InvalidArgumentError(f"message is {self.message!r:.60}; with a schema it is the full name of a message")
        return declared, self.message or first_message(declared)

    @cached_property
    def value_reader(self) -> _core.ValueReader:
        """What the engine reads columns with."""
        return self.reader(indexed=False)

    def reader(self, *, indexed: bool) -> _core.ValueReader:
        """A new reader; `indexed`: of values behind Confluent's message indexes."""
        declared, message = self.declared
        reader = _core.protobuf_reader(declared, message, indexes_of=(self._written or declared) if indexed else None)
        return reader if self._fields is None else reader.pruned(self._fields)

    @cached_property
    def value_writer(self) -> _core.ValueWriter:
        """What the engine writes columns with."""
        return _core.protobuf_writer(*self.declared)

    @property
    def after_schema_id(self) -> _Indexed:
        """The same in Confluent's wire format, behind the schema id."""
        return _Indexed(self)


@dataclass(frozen=True)
class _Indexed(ByEngine[Any]):
    """A message behind its indexes: their number and each of them as zigzag varints, or one byte 0 for the first message of a file."""

    inner: Protobuf

    def __getstate__(self) -> dict[str, Any]:
        return {"inner": self.inner}

    @property
    def type(self) -> pa.DataType:
        return self.inner.type

    @cached_property
    def value_reader(self) -> _core.ValueReader:
        return self.inner.reader(indexed=True)

    @cached_property
    def value_writer(self) -> _core.ValueWriter:
        return _core.protobuf_writer(*self.inner.declared, indexed=True)

    def prefix(self) -> bytes:
        """The indexes as bytes."""
        return index_bytes(*self.inner.declared)
