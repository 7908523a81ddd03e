"""Avro values, as whole columns."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fletchlog import _core
from fletchlog.errors import InvalidArgumentError
from fletchlog.serde.outcome import refuse_name_of_file
from fletchlog.serde.typed import ByEngine, Paths, paths, type_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

# how the message about schemas by which no value can be read begins
_UNRESOLVABLE = "no value of the Avro schema can be read"


class UnresolvableError(InvalidArgumentError):
    """No value of the schema can be read by the reader schema."""


@dataclass(frozen=True)
class Avro(ByEngine[Any]):
    """One value in Avro's binary encoding per record, without a header (for Confluent's wire format see `Confluent`).

    Args:
        schema: Avro schema the values were written with: JSON text, or what it parses to.
        reader_schema: Schema they are resolved to (renamed, added and removed fields, promotions); None: the same.

    Arrow types: record struct, array list, map map<string, ..>, enum and uuid string, fixed and bytes binary, `["null", x]` a nullable x,
    date date32, time-* time32[ms] or time64[us], timestamp-* timestamp in UTC, local-timestamp-* without zone, decimal decimal128 or
    decimal256. A union of several types is a struct with one field per branch that is not null: named by its type (`int`, `array`), or by the name of a
    record, an enum or a fixed; exactly one is set, and where the union is null, the struct is. Types that contain themselves have no Arrow type.

    An annotation that is not valid (a decimal without a precision, or whose scale is larger), unknown, or not Arrow's (a decimal of more than 76 digits,
    a duration) is ignored, as Avro's specification says: the values are those of the type below it. The defaults of the reader schema are values of
    their types; for a union, of the first branch they are a value of. Where the units of times or the scales of decimals differ between `schema` and
    `reader_schema`, values are converted; one that would lose by it is malformed.

    A type is read as the branch of a union of the reader that has the same type, else as the first branch that it can be read as. A symbol that an enum of
    the reader does not have is read as its default. A value must end where its schema ends. Any byte but 0 is true. A value whose arrays have more
    than 1,000 items that take no bytes, or which a type that contains itself (and that the reader schema leaves out) nests more than 128
    levels deep, is malformed: such values of a few bytes would take any amount of memory or stack.

    `encode` writes with `schema`; a column of another Arrow type is cast to its type first, and a field that the column lacks gets its default;
    so does a null where the type has none. A field that the schema lacks is refused. A column for a union of several types is such a struct, or has the
    type of one branch.

    Raises:
        fletchlog.errors.InvalidArgumentError: Not an Avro schema, one without an Arrow type, one nested too deep, a reader schema with a default that is
            not of its type or by which no value can be read, or one with more than 100,000 types once every name in it is replaced by its type, as in Arrow.
    """

    schema: Any
    reader_schema: Any = None
    _fields: Paths | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.value_reader  # noqa: B018 - a schema that cannot work fails here, not at the first record

    def __getstate__(self) -> dict[str, Any]:
        # what is parsed cannot be pickled, and is parsed again
        return {"schema": self.schema, "reader_schema": self.reader_schema, "_fields": self._fields}

    def pruned(self, fields: Iterable[str | Sequence[str]]) -> Avro:
        """The same values with these fields alone, for queries that need few: what is left out is skipped, not decoded.

        Args:
            fields: Each a name, or the names on the way to it (`"address.zip"` or `("address", "zip")`), of the reader's fields; a name of a record's field
                or a union's branch. Arrays and maps have none: `"lines.price"` is a field of each item.

        Raises:
            fletchlog.errors.InvalidArgumentError: There is no such field.
        """
        made = Avro.__new__(Avro)
        made.__dict__.update(self.__getstate__() | {"_fields": paths(fields)})
        made.value_reader  # noqa: B018 - a field that does not exist fails here
        return made

    @cached_property
    def type(self) -> pa.DataType:
        """Arrow type of the result."""
        return type_of(self.value_reader)

    @cached_property
    def value_reader(self) -> _core.ValueReader:
        """What the engine reads columns with."""
        reader_schema = None if self.reader_schema is None else _text(self.reader_schema)
        try:
            reader = _core.avro_reader(_text(self.schema), reader_schema)
        except InvalidArgumentError as error:
            if str(error).startswith(_UNRESOLVABLE):
                raise UnresolvableError(str(error)) from None
            raise
        return reader if self._fields is None else reader.pruned(self._fields)

    @cached_property
    def value_writer(self) -> _core.ValueWriter:
        """What the engine writes columns with."""
        return _core.avro_writer(_text(self.schema))


def _text(schema: Any) -> str:
    """A schema as JSON text."""
    refuse_name_of_file(schema)
    if isinstance(schema, str):
        return schema
    try:
        return json.dumps(schema)
    except RecursionError:
        raise InvalidArgumentError("not an Avro schema: it is nested too deep") from None
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"not an Avro schema: {error}") from None
