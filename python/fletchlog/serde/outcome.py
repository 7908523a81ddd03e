"""What every deserializer and serializer returns, and the search for the rows that cannot be decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from fletchlog.errors import InvalidArgumentError
from fletchlog.interop import require

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

Reasons = dict[int, str]
"""Row number -> why its value cannot be decoded, or encoded."""


# magic byte 0 and the schema id
_FRAME = 5


class Deserializer(Protocol):
    """Anything with these two can be given to `deserialize`."""

    @property
    def type(self) -> pa.DataType | None:
        """Arrow type of the result; None if it depends on the values."""

    def decode(self, column: pa.BinaryArray) -> tuple[pa.Array, Reasons]:
        """Decodes one value per row. A null stays null; a row with a reason is null in the result."""


class Serializer(Protocol):
    """Anything with this can be given to `serialize`."""

    def encode(self, column: pa.Array) -> tuple[pa.BinaryArray, Reasons]:
        """Encodes one value per row. A null stays null; a row with a reason is null in the result.

        Raises:
            pyarrow.ArrowException: The column has a type that can never be encoded so.
        """


class OneByOne:
    """Serializers as `Producer(key_serializer=, value_serializer=)` calls them: one value, its bytes."""

    def __call__(self: Any, value: Any) -> bytes:
        """The bytes of one value.

        Raises:
            fletchlog.errors.InvalidArgumentError: It cannot be encoded.
        """
        pa = arrow()
        try:
            column, reasons = self.encode(pa.array([value], self.type))
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise InvalidArgumentError(f"{type(self).__name__} cannot encode {value!r:.60}: {error}") from None
        if reasons:
            raise InvalidArgumentError(f"{type(self).__name__} cannot encode {value!r:.60}: {reasons[0]}")
        made: bytes = column[0].as_py()
        return made


def encode_each(column: pa.Array, encode: Callable[[Any], bytes]) -> tuple[pa.BinaryArray, Reasons]:
    """Encodes row by row; what `encode` raises is the reason of the row."""
    made: list[bytes | None] = []
    reasons: Reasons = {}
    for row, cell in enumerate(column):
        try:
            made.append(encode(cell.as_py(maps_as_pydicts="strict")) if cell.is_valid else None)
        except Exception as error:  # noqa: BLE001 - a library raises whatever its parts raise
            reasons[row] = f"{type(error).__name__}: {error}".rstrip(": ")
            made.append(None)
    return arrow().array(made, arrow().binary()), reasons


def cast(column: pa.Array, arrow_type: pa.DataType, reasons: Reasons, then: Callable[[pa.Array], pa.Array] = lambda part: part) -> pa.Array:
    """A column to encode as another type, then given to `then`; rows that cannot be cast become null and get a reason.

    Raises:
        pyarrow.ArrowException: The column's type can never be cast to that type.
    """

    def one(part: pa.Array) -> pa.Array:
        if part.type != arrow_type:
            part = part.cast(arrow_type)
            # casts of nested nulls make arrays that are not valid
            part.validate()
        return then(part)

    return by_halves(len(column), one(column[:0]).type, lambda start, stop: one(column[start:stop]), reasons)


def framed(data: bytes) -> str:
    """For the end of a reason: that a value looks as if it began with a schema id."""
    return " (it begins as in Confluent's wire format: give the deserializer to Confluent)" if len(data) > _FRAME and data[0] == 0 else ""


def arrow() -> Any:
    """The module pyarrow."""
    return require("pyarrow", "serde")


def by_halves(rows: int, arrow_type: pa.DataType, attempt: Callable[[int, int], pa.Array], reasons: Reasons) -> pa.Array:
    """Decodes rows [0, rows) with as few calls of `attempt(start, stop)` as possible.

    `attempt` raises if any of its rows cannot be decoded; then each half is tried alone, down to single rows, which become null
    and get a reason. So one bad row costs about log2(rows) calls more, and every good row is kept.
    """
    pa = arrow()
    parts: list[Any] = []

    def decode(start: int, stop: int) -> None:
        try:
            parts.append(attempt(start, stop))
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            if stop - start <= 1:
                parts.append(pa.nulls(stop - start, arrow_type))
                reasons.setdefault(start, str(error))
                return
            middle = (start + stop) // 2
            decode(start, middle)
            decode(middle, stop)

    decode(0, rows)
    try:
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
    except pa.ArrowInvalid as error:
        # each row fits, but a dictionary has too few codes for all of them
        raise InvalidArgumentError(f"the values do not fit into one column of {arrow_type}: {error}") from None
