"""What every deserializer and serializer returns, and the search for the rows that cannot be decoded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from fletchlog import interop
from fletchlog.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from fletchlog._core import ObjectReader, ObjectWriter, ValueReader, ValueWriter

Reasons = dict[int, str]
"""Row number -> why its value cannot be decoded, or encoded."""


# magic byte 0 and the schema id
_FRAME = 5


class Deserializer(Protocol):
    """Anything with these two can be given to `deserialize`.

    One that the engine reads for also has `value_reader`, a `fletchlog._core.ValueReader` of single values (None if there is none), by which `Confluent` reads
    columns of many schemas.
    """

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


def of_bytes(deserializer: Deserializer) -> Callable[[bytes], Any]:
    """For `Consumer(key_deserializer=, value_deserializer=)`: a function from the bytes of one value to the value."""
    own: Callable[[bytes], Any] | None = getattr(deserializer, "of_bytes", None)
    return own or partial(value_of, deserializer)


def value_of(deserializer: Deserializer, data: bytes) -> Any:
    """The value with these bytes; ValueError with the reason if there is none."""
    column, reasons = deserializer.decode(arrow().array([data], arrow().binary()))
    if reasons:
        raise ValueError(reasons[0])
    return column[0].as_py(maps_as_pydicts="strict")


T = TypeVar("T")


class OneByOne(Generic[T]):
    """One value and its bytes: serializers of a `Producer`, which it calls, and deserializers of a `Consumer`.

    The engine reads and writes the classes and types that it knows; all else goes by columns of one value, which also say what is wrong.
    """

    @cached_property
    def _object_reader(self: Any) -> ObjectReader | None:
        reader: ValueReader | None = getattr(self, "value_reader", None)
        return None if reader is None else reader.objects()

    @cached_property
    def _object_writer(self: Any) -> ObjectWriter | None:
        writer: ValueWriter | None = getattr(self, "value_writer", None)
        return None if writer is None else writer.objects(arrow().schema([("v", self.type)]))

    def of_bytes(self: Any, data: bytes) -> T:
        """One value from its bytes.

        Raises:
            ValueError: It cannot be decoded.
        """
        if self._object_reader is not None:
            try:
                return self._object_reader.decode(data)  # type: ignore[no-any-return]
            except (ValueError, TypeError, OverflowError):
                pass  # by way of a column, which gives the reason
        made: T = value_of(self, data)
        return made

    def __call__(self: Any, value: T) -> bytes:
        """The bytes of one value.

        Raises:
            fletchlog.errors.InvalidArgumentError: It cannot be encoded.
        """
        try:
            made: bytes | None = None if self._object_writer is None else self._object_writer.encode(value)
        except ValueError as error:
            raise InvalidArgumentError(f"{type(self).__name__} cannot encode {value!r:.60}: {error}") from None
        return self._by_column(value) if made is None else made

    def _by_column(self: Any, value: T) -> bytes:
        pa = arrow()
        try:
            _refuse_other_keys(value, self.type)
            column, reasons = self.encode(pa.array([value], self.type))
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            # pyarrow says so where a str is expected, too
            why = str(error) if "binary" in str(self.type) else str(error).replace("Expected bytes", "expected str")
            if "conversion to struct type" in why:
                why += f"; a dict is needed where the type has fields: {self.type}"
            raise InvalidArgumentError(f"{type(self).__name__} cannot encode {value!r:.60}: {why}") from None
        if reasons:
            raise InvalidArgumentError(f"{type(self).__name__} cannot encode {value!r:.60}: {reasons[0]}")
        made: bytes = column[0].as_py()
        return made


def _refuse_other_keys(value: Any, arrow_type: Any, path: str = "") -> None:
    """Refuses keys of dicts that the type has no field for: pyarrow leaves them out."""
    types = arrow().types
    if isinstance(value, Mapping) and arrow_type is not None and types.is_struct(arrow_type):
        names = [field.name for field in arrow_type]
        for key, item in value.items():
            if isinstance(key, str):
                if key not in names:
                    raise ValueError(no_field(key, names, path))
                _refuse_other_keys(item, arrow_type.field(key).type, f"{path}/{key}")
    elif isinstance(value, Mapping) and arrow_type is not None and types.is_map(arrow_type):
        for item in value.values():
            _refuse_other_keys(item, arrow_type.item_type, f"{path}/value")
    elif isinstance(value, list | tuple) and arrow_type is not None and hasattr(arrow_type, "value_type"):
        for item in value:
            _refuse_other_keys(item, arrow_type.value_type, f"{path}/items")


def no_field(name: str, names: list[str], path: str) -> str:
    """Why a value cannot be written: a field would be lost."""
    return f"there is no field {name!r}{f' at {path}' if path else ''}; fields are {', '.join(names) or 'none'}"


def framed(data: bytes) -> str:
    """For the end of a reason: that a value looks as if it began with a schema id."""
    return " (it begins as in Confluent's wire format: give the deserializer to Confluent)" if len(data) > _FRAME and data[0] == 0 else ""


def without(column: pa.BinaryArray, reasons: Reasons) -> pa.BinaryArray:
    """The column with null in the rows that have a reason."""
    if not reasons:
        return column
    return arrow().array([None if row in reasons else data for row, data in enumerate(column.to_pylist())], arrow().binary())


def refuse_name_of_file(schema: Any) -> None:
    """Refuses the name of a file where the text of a schema is taken."""
    if isinstance(schema, os.PathLike) or (isinstance(schema, str) and schema.endswith((".avsc", ".json", ".proto"))):
        raise InvalidArgumentError(f"a schema is given as its text, not as the name of a file: Path({os.fspath(schema)!r}).read_text()")


def check_objects(given: dict[str, Any], method: str) -> None:
    """Raises if one is not an object of a class such as `Json`, for example the class itself."""
    for name, one in given.items():
        if isinstance(one, type | str | bytes) or not hasattr(one, method):
            hint = f"; give {name}={one.__name__}()" if isinstance(one, type) else ""
            raise InvalidArgumentError(f"{name}= takes an object that can {method}, such as serde.Json(), got {one!r:.60}{hint}")


def rows_of(data: Any) -> Any:
    """A RecordBatch as it is, all else that has columns as a Table.

    Raises:
        fletchlog.errors.InvalidArgumentError: It has no columns.
    """
    pa = arrow()
    if isinstance(data, pa.RecordBatch | pa.Table):
        return data
    if hasattr(data, "_raise_failure"):
        return interop.to_pyarrow(data)
    try:
        if not hasattr(data, "__arrow_c_stream__") and hasattr(data, "__arrow_c_array__"):
            return pa.Table.from_batches([pa.record_batch(data)])
        return interop.to_pyarrow(data)
    except (TypeError, pa.ArrowInvalid) as error:
        kinds = "what poll and scan return, a pyarrow.Table, a frame of pandas or polars, or another object with __arrow_c_stream__"
        raise InvalidArgumentError(f"a {type(data).__qualname__} has no columns to read: {error}; give {kinds}") from None


def arrow() -> Any:
    """The module pyarrow."""
    return interop.require("pyarrow", "serde")


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
