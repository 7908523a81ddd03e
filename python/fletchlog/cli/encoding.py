"""What `produce` encodes: keys and values of rows, as a format says (`--value-format avro`)."""

from __future__ import annotations

import base64
import datetime as dt
import json
from typing import TYPE_CHECKING, Any

from fletchlog.cli.common import CommandError
from fletchlog.cli.typed import JsonTexts, is_bytes, text_type

if TYPE_CHECKING:
    import pyarrow as pa

    from fletchlog.serde.formats import Format

# Their bytes are those of the text, as without a format.
_AS_TEXT = frozenset({"string", "bytes"})


class Encoder:
    """Encodes the columns of what was read: JSON texts, as rows of text are, or typed columns of Parquet and Arrow.

    Attributes:
        kinds: The Arrow types of keys and values that are encoded, by `key` and `value`; None: what the JSON shows.
    """

    def __init__(self, topic: str, key: Format | None, value: Format | None) -> None:
        from fletchlog.errors import InvalidArgumentError

        self.kinds: dict[str, Any] = {}
        self._by_name: dict[str, Any] = {}
        for name, given in (("key", key), ("value", value)):
            if given is None or given.name in _AS_TEXT:
                continue
            try:
                made, self.kinds[name] = given.serializer(topic, is_key=name == "key"), given.written_type(topic, is_key=name == "key")
                self._by_name[name] = JsonTexts(made) if hasattr(made, "judged") and made.type is None else made
            except InvalidArgumentError as error:
                raise CommandError(str(error)) from None

    def encoded(self, table: pa.Table) -> tuple[pa.Table, tuple[int, str] | None]:
        """The records with bytes, up to the first that cannot be encoded; its row, and why."""
        import pyarrow as pa

        from fletchlog.errors import InvalidArgumentError

        wrong: tuple[int, str] | None = None
        for name, serializer in self._by_name.items():
            if name not in table.column_names:
                continue
            column = pa.concat_arrays(table[name].chunks) if table[name].num_chunks else pa.nulls(0)
            try:
                is_text = isinstance(serializer, JsonTexts) or not is_bytes(column)
                typed, reasons = (column, {}) if is_text else _of_json(column, self.kinds[name])
                made, why = serializer.encode(typed)
            except (InvalidArgumentError, pa.ArrowException) as error:
                raise CommandError(f"the {name}s cannot be encoded: {error}") from None
            for row, reason in (why | reasons).items():
                found = (row, f"its {name} cannot be encoded: {reason}")
                wrong = min(wrong or found, found)
            table = table.set_column(table.schema.get_field_index(name), name, made)
        return (table if wrong is None else table.slice(0, wrong[0])), wrong


def _of_json(column: pa.Array, kind: pa.DataType | None) -> tuple[pa.Array, dict[int, str]]:
    """JSON texts as a typed column; bytes in them are base64."""
    import pyarrow as pa

    from fletchlog.serde import Json
    from fletchlog.serde.columns import converted

    made, reasons = Json(None if kind is None else text_type(kind)).decode_whole(column.cast(pa.binary()))
    if kind is None or made.type == kind:
        return made, reasons
    try:
        return converted(made, kind, _leaf), reasons
    except ValueError:
        # one by one: a text that is no base64
        parts = []
        for row in range(len(made)):
            try:
                parts.append(converted(made[row : row + 1], kind, _leaf))
            except ValueError as error:
                reasons[row] = str(error)
                parts.append(pa.nulls(1, kind))
        return pa.concat_arrays(parts), reasons


def _leaf(part: pa.Array, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if part.type == kind:
        return part
    if pa.types.is_string(part.type) and not pa.types.is_string(kind):
        return pa.array([None if text is None else base64.b64decode(text, validate=True) for text in part.to_pylist()], pa.binary()).cast(kind)
    return part.cast(kind)


def json_text(item: Any, kind: pa.DataType | None, *, of_text: bool) -> bytes | None:
    """A field, or the fields of a row, as JSON for `Encoder`; null is null.

    Args:
        item: The field.
        kind: Its type, if it is known.
        of_text: Whether its fields are texts, as those of csv: they become what the type says.

    Raises:
        ValueError: It has no JSON, or is no text of its type.
    """
    made = _of_text(item, kind) if of_text and kind is not None else item
    return None if made is None else json.dumps(made, ensure_ascii=False, allow_nan=False, default=_plain).encode()


def cell_text(text: str, kind: pa.DataType | None) -> str:
    """The JSON that `consume` shows by this text in csv: a text is itself, all else is JSON. Without a type it is JSON if it can be.

    Raises:
        ValueError: It is no JSON.
    """
    import pyarrow as pa

    if kind is not None and pa.types.is_string(kind):
        return json.dumps(text, ensure_ascii=False)
    try:
        json.loads(text)
    except ValueError:
        if kind is not None:
            raise
        return json.dumps(text, ensure_ascii=False)
    return text


def _of_text(item: Any, kind: Any) -> Any:
    import pyarrow as pa

    types = pa.types
    if isinstance(item, dict):
        known = {field.name: field.type for field in kind} if types.is_struct(kind) else {}
        return {name: _of_text(text, known[name]) if name in known else text for name, text in item.items()}
    if item is None or types.is_dictionary(kind) or types.is_string(text_type(kind)) or types.is_large_string(kind):
        return item
    text = item.strip()
    if not text:
        return None
    if types.is_boolean(kind) and text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if types.is_integer(kind):
        return int(text)
    if types.is_floating(kind):
        return float(text)
    if types.is_nested(kind):
        return json.loads(text)
    return text


def _plain(item: Any) -> str:
    """What JSON does not know: bytes as base64, times in ISO 8601, decimals."""
    if isinstance(item, bytes):
        return base64.b64encode(item).decode()
    if isinstance(item, dt.datetime | dt.time):
        # a type of milliseconds takes no more digits
        digits = "microseconds" if item.microsecond % 1000 else "milliseconds" if item.microsecond else "seconds"
        return item.isoformat(timespec=digits)
    return str(item)
