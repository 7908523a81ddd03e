"""Kafka's own serializers and deserializers of strings and numbers, on whole columns."""

from __future__ import annotations

import array
import codecs
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fletchlog.interop import require
from fletchlog.serde.columns import cast, cast_whole
from fletchlog.serde.outcome import OneByOne, Reasons, T, arrow, by_halves

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class String(OneByOne[str]):
    """UTF-8 text <-> string. Bytes that are not UTF-8 become U+FFFD, exactly where Java puts it, so no value is malformed.

    Kafka: StringDeserializer#deserialize, StringSerializer#serialize.
    """

    @property
    def type(self) -> pa.DataType:
        """Arrow type of the result."""
        return arrow().string()

    def decode(self, column: pa.BinaryArray) -> tuple[pa.Array, Reasons]:
        """See `Deserializer.decode`."""
        pa = arrow()
        try:
            return column.cast(pa.string()), {}
        except pa.ArrowInvalid:
            text = [None if value is None else value.decode("utf-8", _JAVA) for value in column.to_pylist()]
            return pa.array(text, pa.string()), {}

    def encode(self, column: pa.Array) -> tuple[pa.BinaryArray, Reasons]:
        """See `Serializer.encode`."""
        reasons: Reasons = {}
        return cast(column, arrow().string(), reasons).cast(arrow().binary()), reasons


_JAVA = "fletchlog-java"
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?", re.DOTALL)


def _replace_as_java(error: UnicodeError) -> tuple[str, int]:
    """One U+FFFD per malformed sequence. What begins like an encoded surrogate is one sequence to Java, several to Python."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    sequence = _SURROGATE.match(error.object, error.start)
    return "\ufffd", sequence.end() if sequence else error.end


codecs.register_error(_JAVA, _replace_as_java)


class _Number(OneByOne[T]):
    """A number of fixed size in network byte order. Kafka: a value of another size is a SerializationException."""

    _size: ClassVar[int]
    _code: ClassVar[str]
    _arrow: ClassVar[str]

    @property
    def type(self) -> pa.DataType:
        """Arrow type of the result."""
        return arrow().type_for_alias(self._arrow)

    def decode(self, column: pa.BinaryArray) -> tuple[pa.Array, Reasons]:
        """See `Deserializer.decode`."""
        pa, compute = arrow(), require("pyarrow.compute", "serde")
        fits = compute.fill_null(compute.equal(compute.binary_length(column), self._size), fill_value=False)
        reasons: Reasons = {}
        if fits.true_count != len(column) - column.null_count:
            name = type(self).__name__
            reasons = {
                row: f"{name} takes {self._size} bytes, the value has {size}"
                for row, size in enumerate(compute.binary_length(column).to_pylist())
                if size not in (None, self._size)
            }
        # every row gets its bytes, or zeros for a null, so that they are one dense vector
        dense = compute.if_else(fits, column, pa.scalar(bytes(self._size), pa.binary())).cast(pa.binary(self._size))
        numbers = array.array(self._code)
        start = dense.offset * self._size
        numbers.frombytes(memoryview(dense.buffers()[1])[start : start + len(dense) * self._size])
        if sys.byteorder == "little":
            numbers.byteswap()
        result = pa.Array.from_buffers(self.type, len(column), [None, pa.py_buffer(numbers)])
        return (result if fits.true_count == len(column) else compute.if_else(fits, result, pa.scalar(None, self.type))), reasons

    def encode(self, column: pa.Array) -> tuple[pa.BinaryArray, Reasons]:
        """See `Serializer.encode`."""
        pa, compute = arrow(), require("pyarrow.compute", "serde")
        reasons: Reasons = {}
        fitting = by_halves(len(column), self.type, lambda start, stop: cast_whole(column[start:stop], self.type), reasons)
        numbers = array.array(self._code, fitting.fill_null(0).to_numpy().tobytes())
        if sys.byteorder == "little":
            numbers.byteswap()
        dense = pa.Array.from_buffers(pa.binary(self._size), len(column), [None, pa.py_buffer(numbers)]).cast(pa.binary())
        return (compute.if_else(fitting.is_valid(), dense, pa.scalar(None, pa.binary())) if fitting.null_count else dense), reasons


@dataclass(frozen=True)
class Short(_Number[int]):
    """2 bytes, big-endian <-> int16. Kafka: ShortDeserializer, ShortSerializer."""

    _size, _code, _arrow = 2, "h", "int16"


@dataclass(frozen=True)
class Integer(_Number[int]):
    """4 bytes, big-endian <-> int32. Kafka: IntegerDeserializer, IntegerSerializer."""

    _size, _code, _arrow = 4, "i", "int32"


@dataclass(frozen=True)
class Long(_Number[int]):
    """8 bytes, big-endian <-> int64. Kafka: LongDeserializer, LongSerializer."""

    _size, _code, _arrow = 8, "q", "int64"


@dataclass(frozen=True)
class Float(_Number[float]):
    """4 bytes of IEEE 754, big-endian <-> float. Kafka: FloatDeserializer, FloatSerializer."""

    _size, _code, _arrow = 4, "f", "float"


@dataclass(frozen=True)
class Double(_Number[float]):
    """8 bytes of IEEE 754, big-endian <-> double. Kafka: DoubleDeserializer, DoubleSerializer."""

    _size, _code, _arrow = 8, "d", "double"
