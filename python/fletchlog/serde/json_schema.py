"""JSON values that follow a JSON Schema, through fastjsonschema."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fletchlog.errors import InvalidArgumentError
from fletchlog.interop import require
from fletchlog.serde.json import Json
from fletchlog.serde.outcome import Reasons, arrow, framed

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class JsonSchema:
    """One JSON value per record that follows a JSON Schema (draft 4, 6 or 7), as Confluent's JSON Schema serializer writes them behind the schema id.

    Args:
        schema: The JSON Schema: JSON text, or what it parses to.
        values: How the values become Arrow, see `Json`.

    A value that does not follow the schema is malformed; `encode` refuses it.

    Raises:
        fletchlog.errors.InvalidArgumentError: Not a JSON Schema.
    """

    schema: Any
    values: Json = field(default_factory=Json)

    def __post_init__(self) -> None:
        self._check  # noqa: B018 - a schema that cannot work fails here, not at the first record

    def __getstate__(self) -> dict[str, Any]:
        return {"schema": self.schema, "values": self.values}

    @cached_property
    def _check(self) -> Any:
        try:
            schema = json.loads(self.schema) if isinstance(self.schema, str) else self.schema
            return require("fastjsonschema", "serde").compile(schema)
        except ImportError:
            raise
        except Exception as error:  # noqa: BLE001 - a schema that is none makes it raise whatever its parts raise
            raise InvalidArgumentError(f"not a JSON Schema: {type(error).__name__}: {error}") from None

    @property
    def type(self) -> pa.DataType | None:
        """Arrow type of the result, None if it is inferred."""
        return self.values.type

    def decode(self, column: pa.BinaryArray) -> tuple[pa.Array, Reasons]:
        """See `Deserializer.decode`."""
        reasons, kept = self._judge(column)
        made, why = self.values.decode(kept)
        return made, reasons | why

    def encode(self, column: pa.Array) -> tuple[pa.BinaryArray, Reasons]:
        """See `Serializer.encode`."""
        made, why = self.values.encode(column)
        reasons, kept = self._judge(made)
        return kept, reasons | why

    def __call__(self, value: Any) -> bytes:
        """The bytes of one value.

        Raises:
            fletchlog.errors.InvalidArgumentError: It does not follow the schema, or has no JSON.
        """
        made = self.values(value)
        reason = self._refused(made)
        if reason is not None:
            raise InvalidArgumentError(f"JsonSchema cannot encode {value!r:.60}: {reason}")
        return made

    def _judge(self, column: pa.BinaryArray) -> tuple[Reasons, pa.BinaryArray]:
        """Why rows are refused, and the column with null in their place."""
        data = column.to_pylist()
        reasons = {row: reason for row, value in enumerate(data) if value is not None for reason in [self._refused(value)] if reason is not None}
        if not reasons:
            return reasons, column
        return reasons, arrow().array([None if row in reasons else value for row, value in enumerate(data)], arrow().binary())

    def _refused(self, data: bytes) -> str | None:
        try:
            # bytes would be taken for UTF-16 or UTF-32 by their zeros
            value = json.loads(data.decode())
        except UnicodeDecodeError:
            return "not JSON: it is not UTF-8" + framed(data)
        except (ValueError, RecursionError) as error:
            return f"not JSON: {error}" + framed(data)
        try:
            self._check(value)
        except Exception as error:  # noqa: BLE001 - besides its own errors it raises what a rule makes of a value
            return f"not as the JSON Schema says: {error}"
        return None
