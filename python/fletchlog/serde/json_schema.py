"""JSON values that follow a JSON Schema."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fletchlog import _core
from fletchlog.errors import InvalidArgumentError
from fletchlog.serde.json import Json
from fletchlog.serde.json_schema_types import type_of
from fletchlog.serde.outcome import OneByOne, Reasons, framed, refuse_name_of_file, without
from fletchlog.serde.typed import batch_of, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa


@dataclass(frozen=True)
class JsonSchema(OneByOne[Any]):
    """One JSON value per record that follows a JSON Schema (draft 4, 6, 7, 2019-09 or 2020-12), as Confluent's JSON Schema serializer writes them.

    Args:
        schema: The JSON Schema: JSON text, or what it parses to. One without `$schema` is of draft 7.
        values: How the values become Arrow, see `Json`. None: as the type that the schema gives; of a schema that leaves a type open, as `Json()`.
        references: The schemas that it refers to, by the names that it has for them. Nothing is fetched.

    The type of a schema: object with properties struct, with additionalProperties alone map, array list, string string, integer int64, number double, boolean
    bool; null and another type that one; without `type` that of the values in `enum` or `const`. Objects of `allOf`, `anyOf` and `oneOf` are one struct
    with the fields of all, if a field has the same type in each. Formats and limits do not change a type. A schema leaves the type open where it takes
    values of several, or of any kind, or contains itself.

    A value that does not follow the schema is malformed; `encode` refuses it. Fields that the type lacks are left out when a value is read, and
    refused when it is written. Null fields are left out where the schema does not allow null (`type`, `enum`, `const`, `$ref`, `allOf`, `anyOf`,
    `oneOf`), and written as null elsewhere.

    Raises:
        fletchlog.errors.InvalidArgumentError: Not a JSON Schema, or one that refers to a schema that is not given.
    """

    schema: Any
    values: Json | None = None
    references: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._schema  # noqa: B018 - a schema that cannot work fails here, not at the first record
        self._values  # noqa: B018

    def __getstate__(self) -> dict[str, Any]:
        return {"schema": self.schema, "values": self.values, "references": dict(self.references)}

    @cached_property
    def _schema(self) -> _core.JsonSchema:
        return _core.JsonSchema(_text(self.schema), {name: _text(schema) for name, schema in self.references.items()})

    @cached_property
    def _values(self) -> Json:
        if self.values is not None:
            return self.values
        return Json(type_of(_parsed(self.schema), {name: _parsed(schema) for name, schema in self.references.items()}))

    @cached_property
    def _writer(self) -> _core.ValueWriter:
        return self._schema.writer()

    @property
    def type(self) -> pa.DataType | None:
        """Arrow type of the result, None if it is inferred."""
        return self._values.type

    @cached_property
    def value_reader(self) -> _core.ValueReader | None:
        """What reads one value; None if the type is inferred."""
        values = self._values.value_reader
        return None if values is None else self._schema.reader(values)

    @cached_property
    def _object_writer(self) -> _core.ObjectWriter | None:
        # what it has written is checked
        return None if self._values.value_writer is None else self._writer.objects(schema_of(self._values.type))

    def decode(self, column: pa.BinaryArray) -> tuple[pa.Array, Reasons]:
        """See `Deserializer.decode`."""
        reasons, kept = self.judged(column)
        made, why = self._values.decode(kept)
        return made, reasons | why

    def encode(self, column: pa.Array) -> tuple[pa.BinaryArray, Reasons]:
        """See `Serializer.encode`."""
        made, why = self._values.written(column, self._writer)
        reasons, kept = self.judged(made)
        return kept, reasons | why

    def pruned(self, fields: Iterable[str | Sequence[str]]) -> JsonSchema:
        """The same for these fields alone, see `Json.pruned`. Whole values must follow the schema."""
        return JsonSchema(self.schema, self._values.pruned(fields), self.references)

    def __call__(self, value: Any) -> bytes:
        """The bytes of one value.

        Raises:
            fletchlog.errors.InvalidArgumentError: It does not follow the schema, or has no JSON.
        """
        made = self._values(value) if self.type is None else super().__call__(value)
        refused = self._schema.refused_value(made)
        if refused is not None:
            raise InvalidArgumentError(f"JsonSchema cannot encode {value!r:.60}: {refused}")
        return made

    def of_bytes(self, data: bytes) -> Any:
        """One value from its bytes; where the schema leaves the type open, as of `Json()`.

        Raises:
            ValueError: It does not follow the schema.
        """
        if self.type is not None:
            return super().of_bytes(data)
        refused = self._schema.refused_value(data)
        if refused is not None:
            raise ValueError(refused + (framed(data) if refused.startswith("not JSON") else ""))
        return self._values.of_bytes(data)

    def judged(self, column: pa.BinaryArray) -> tuple[Reasons, pa.BinaryArray]:
        """Why rows do not follow the schema, and the column with null in their place."""
        reasons = dict(self._schema.refused(batch_of(column)))
        reasons = {row: reason + framed(column[row].as_py()) if reason.startswith("not JSON") else reason for row, reason in reasons.items()}
        return reasons, without(column, reasons)


def _text(schema: Any) -> str:
    refuse_name_of_file(schema)
    try:
        return schema if isinstance(schema, str) else json.dumps(schema)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"not a JSON Schema: {error}") from None


def _parsed(schema: Any) -> Any:
    return json.loads(schema) if isinstance(schema, str) else schema
