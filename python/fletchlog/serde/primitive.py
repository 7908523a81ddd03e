"""Kafka's own serializers and deserializers of strings, numbers and booleans, on whole columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from fletchlog import _core
from fletchlog.serde.outcome import T, arrow
from fletchlog.serde.typed import ByEngine, schema_of

if TYPE_CHECKING:
    import pyarrow as pa


class _Primitive(ByEngine[T]):
    """Values as one of Kafka's serializers writes them."""

    _arrow: ClassVar[str]
    size: ClassVar[int | None] = None
    """The bytes of an item in a list."""

    def __getstate__(self) -> dict[str, Any]:
        return {}

    @property
    def type(self) -> pa.DataType:
        """Arrow type of the result."""
        return arrow().type_for_alias(self._arrow)

    @cached_property
    def value_reader(self) -> _core.ValueReader:
        """What reads one value."""
        return _core.primitive_reader(schema_of(self.type))

    @cached_property
    def value_writer(self) -> _core.ValueWriter:
        """What writes one value."""
        return _core.primitive_writer(schema_of(self.type))


@dataclass(frozen=True)
class String(_Primitive[str]):
    """UTF-8 text <-> string. Bytes that are not UTF-8 become U+FFFD, exactly where Java puts it, so no value is malformed.

    Kafka: StringDeserializer#deserialize, StringSerializer#serialize.
    """

    _arrow = "string"


@dataclass(frozen=True)
class Short(_Primitive[int]):
    """2 bytes, big-endian <-> int16. Kafka: ShortDeserializer, ShortSerializer."""

    _arrow = "int16"
    size = 2


@dataclass(frozen=True)
class Integer(_Primitive[int]):
    """4 bytes, big-endian <-> int32. Kafka: IntegerDeserializer, IntegerSerializer."""

    _arrow = "int32"
    size = 4


@dataclass(frozen=True)
class Long(_Primitive[int]):
    """8 bytes, big-endian <-> int64. Kafka: LongDeserializer, LongSerializer."""

    _arrow = "int64"
    size = 8


@dataclass(frozen=True)
class Float(_Primitive[float]):
    """4 bytes of IEEE 754, big-endian <-> float. Kafka: FloatDeserializer, FloatSerializer."""

    _arrow = "float"
    size = 4


@dataclass(frozen=True)
class Double(_Primitive[float]):
    """8 bytes of IEEE 754, big-endian <-> double. Kafka: DoubleDeserializer, DoubleSerializer."""

    _arrow = "double"
    size = 8


@dataclass(frozen=True)
class Boolean(_Primitive[bool]):
    """A byte, 0 or 1 <-> bool; another byte is malformed. Kafka: BooleanDeserializer, BooleanSerializer."""

    _arrow = "bool"
