"""Protobuf values, through Google's protobuf."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fletchlog.errors import InvalidArgumentError
from fletchlog.interop import require
from fletchlog.serde.columns import cast, converted, mapped, number
from fletchlog.serde.outcome import OneByOne, Reasons, arrow, by_halves, encode_each, framed

if TYPE_CHECKING:
    import pyarrow as pa

_TIMESTAMP = "google.protobuf.Timestamp"
_PER_SECOND = 1_000_000
_MOST = 2**63
_ARROW = {
    "DOUBLE": "float64", "FLOAT": "float32", "BOOL": "bool_", "STRING": "string", "ENUM": "string", "BYTES": "binary",
    "INT64": "int64", "SINT64": "int64", "SFIXED64": "int64", "UINT64": "uint64", "FIXED64": "uint64",
    "INT32": "int32", "SINT32": "int32", "SFIXED32": "int32", "UINT32": "uint32", "FIXED32": "uint32",
}  # fmt: skip


@dataclass(frozen=True)
class Protobuf(OneByOne[Any]):
    """One Protobuf message per record.

    Args:
        message: The message's class, as `protoc` makes it.

    Arrow types: message struct with its fields in the order of their declaration, repeated list, map map, enum string (the name; the number
    where the schema has no name), `google.protobuf.Timestamp` timestamp[us] in UTC, the numbers as they are. A field that can tell that it was
    not set (message, `optional`, `oneof`) is null then, any other one has its default. Types that contain themselves have no Arrow type. `encode`
    leaves null fields out, and refuses timestamps outside of the years 1 to 9999, which Protobuf does not have.

    Under Confluent's wire format the indexes of the message in its file follow the schema id: give it to `Confluent`, which reads
    and writes them.

    Raises:
        fletchlog.errors.InvalidArgumentError: Not a message class, or one without an Arrow type.
    """

    message: Any

    def __post_init__(self) -> None:
        if not hasattr(self.message, "DESCRIPTOR"):
            raise InvalidArgumentError(f"Protobuf takes a message class that protoc has made, got {self.message!r:.60}")
        self.type  # noqa: B018 - a message that cannot work fails here, not at the first record

    @cached_property
    def type(self) -> pa.DataType:
        """Arrow type of the result."""
        return _struct(self.message.DESCRIPTOR, ())

    @cached_property
    def _raw(self) -> pa.DataType:
        """The type with timestamps as numbers."""
        return mapped(self.type, lambda part, _: arrow().int64() if arrow().types.is_timestamp(part) else None)

    @property
    def after_schema_id(self) -> _Indexed:
        """The same in Confluent's wire format, behind the schema id."""
        return _Indexed(self)

    def decode(self, column: pa.BinaryArray) -> tuple[pa.Array, Reasons]:
        """See `Deserializer.decode`."""
        error_class = require("google.protobuf.message", "serde").DecodeError
        reasons: Reasons = {}
        values: list[Any] = [None] * len(column)
        for row, data in enumerate(column.to_pylist()):
            if data is None:
                continue
            try:
                values[row] = _value(self.message.FromString(data))
            except (error_class, ValueError, OverflowError) as error:
                reasons[row] = f"not a {self.message.DESCRIPTOR.full_name}: {error}" + framed(data)
        array, raw = arrow().array, self._raw
        return by_halves(len(values), self.type, lambda start, stop: converted(array(values[start:stop], raw), self.type, number), reasons), reasons

    def encode(self, column: pa.Array) -> tuple[pa.BinaryArray, Reasons]:
        """See `Serializer.encode`."""
        reasons: Reasons = {}
        made, why = encode_each(cast(column, self.type, reasons, lambda part: converted(part, self._raw, number)), self._bytes)
        return made, why | reasons

    def _bytes(self, value: Any) -> bytes:
        message = self.message()
        _fill(message, value)
        made: bytes = message.SerializeToString(deterministic=True)
        return made


@dataclass(frozen=True)
class _Indexed(OneByOne[Any]):
    """A message behind its indexes: their number and each of them as zigzag varints, or one byte 0 for the first message of a file."""

    inner: Protobuf

    @property
    def type(self) -> pa.DataType:
        return self.inner.type

    def decode(self, column: pa.BinaryArray) -> tuple[pa.Array, Reasons]:
        mine, descriptor = self._path(), self.inner.message.DESCRIPTOR
        reasons: Reasons = {}
        rest: list[bytes | None] = []
        for row, data in enumerate(column.to_pylist()):
            found, at = (None, 0) if data is None else _indexes(data)
            if data is not None and found is None:
                reasons[row] = f"no message indexes of Confluent's wire format: their number and each of them, before the {descriptor.full_name}"
            elif found is not None and found != mine:
                is_one = _has_message(descriptor.file, found)
                missing = f"its message indexes are {found}, {descriptor.file.name} has no such message: are there indexes before the {descriptor.full_name}?"
                reasons[row] = f"another message of its file than {descriptor.full_name}" if is_one else missing
            rest.append(data[at:] if found == mine else None)
        made, why = self.inner.decode(arrow().array(rest, arrow().binary()))
        return made, reasons | why

    def encode(self, column: pa.Array) -> tuple[pa.BinaryArray, Reasons]:
        made, reasons = self.inner.encode(column)
        return require("pyarrow.compute", "serde").binary_join_element_wise(self.prefix(), made, b""), reasons

    def prefix(self) -> bytes:
        """The indexes as bytes."""
        path = self._path()
        return b"\0" if path == [0] else b"".join(map(_varint, [len(path), *path]))

    def _path(self) -> list[int]:
        path: list[int] = []
        descriptor = self.inner.message.DESCRIPTOR
        while descriptor is not None:
            outer = descriptor.containing_type
            beside = descriptor.file.message_types_by_name.values() if outer is None else outer.nested_types
            path.insert(0, [other.full_name for other in beside].index(descriptor.full_name))
            descriptor = outer
        return path


def _indexes(data: bytes) -> tuple[list[int] | None, int]:
    """The indexes that a value begins with, and how many bytes they take; None if there are none. A 0 alone is short for [0]."""
    count, at = _read_varint(data, 0)
    if count == 0:
        return [0], at
    path: list[int] = []
    while count is not None and 0 <= len(path) < count:
        index, at = _read_varint(data, at)
        if index is None or index < 0:
            return None, 0
        path.append(index)
    return path or None, at


def _read_varint(data: bytes, at: int) -> tuple[int | None, int]:
    """A zigzag varint of at most 32 bits, and where it ends; None if there is none."""
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            return None, at
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 1 << 7:
            return (value >> 1) ^ -(value & 1), at
    return None, at


def _has_message(file: Any, path: list[int]) -> bool:
    beside = list(file.message_types_by_name.values())
    for index in path:
        if index >= len(beside):
            return False
        beside = list(beside[index].nested_types)
    return True


def _varint(number: int) -> bytes:
    """A number that is not negative, as a zigzag varint."""
    number <<= 1
    made = bytearray()
    while number >= 1 << 7:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _struct(descriptor: Any, inside: tuple[str, ...]) -> Any:
    if descriptor.full_name in inside:
        raise InvalidArgumentError(f"the Protobuf message {descriptor.full_name} contains itself; Arrow has no such type")
    return arrow().struct([arrow().field(field.name, _type(field, (*inside, descriptor.full_name))) for field in descriptor.fields])


def _type(field: Any, inside: tuple[str, ...]) -> Any:
    pa = arrow()
    if _is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return pa.map_(_type(key, inside), _type(value, inside))
    if field.message_type is None:
        names = {getattr(field, f"TYPE_{name}"): kind for name, kind in _ARROW.items()}
        one = getattr(pa, names[field.type])()
    elif field.message_type.full_name == _TIMESTAMP:
        one = pa.timestamp("us", "UTC")
    else:
        one = _struct(field.message_type, inside)
    return pa.list_(one) if field.is_repeated else one


def _value(message: Any) -> dict[str, Any]:
    """A message as `pyarrow.array` takes it."""
    made: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            made[field.name] = None
            continue
        value = getattr(message, field.name)
        if _is_map(field):
            entry = field.message_type.fields_by_name["value"]
            made[field.name] = [(key, _one(entry, value[key])) for key in value]
        else:
            made[field.name] = [_one(field, item) for item in value] if field.is_repeated else _one(field, value)
    return made


def _one(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        if field.message_type.full_name == _TIMESTAMP:
            micros = value.seconds * _PER_SECOND + value.nanos // 1000
            if not -_MOST <= micros < _MOST:
                raise ValueError(f"a Timestamp of {value.seconds} seconds is beyond timestamp[us]")
            return micros
        return _value(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return value


def _fill(message: Any, value: dict[str, Any]) -> None:
    for field in message.DESCRIPTOR.fields:
        given = value.get(field.name)
        if given is None:
            continue
        if _is_map(field):
            entry = field.message_type.fields_by_name["value"]
            into = getattr(message, field.name)
            for key, item in given.items():
                if entry.message_type is None:
                    into[key] = _scalar(entry, item)
                else:
                    _fill_one(entry, into[key], item)
        elif field.message_type is not None:
            into = getattr(message, field.name)
            if field.is_repeated:
                for item in given:
                    _fill_one(field, into.add(), item)
            else:
                into.SetInParent()
                _fill_one(field, into, given)
        elif field.is_repeated:
            getattr(message, field.name).extend(_scalar(field, item) for item in given)
        else:
            setattr(message, field.name, _scalar(field, given))


def _fill_one(field: Any, message: Any, value: Any) -> None:
    if value is None:
        raise ValueError(f"a null within {field.full_name}: Protobuf has none in lists and maps")
    if field.message_type.full_name == _TIMESTAMP:
        message.FromMicroseconds(value)
    else:
        _fill(message, value)


def _scalar(field: Any, value: Any) -> Any:
    if value is None:
        raise ValueError(f"a null within {field.full_name}: Protobuf has none in lists and maps")
    if field.enum_type is None:
        return value
    known = field.enum_type.values_by_name.get(value)
    if known is not None:
        return known.number
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"{field.enum_type.full_name} has no value {value!r:.60}") from None
