"""Records that `fletchlog consume` wrote, read back by `fletchlog produce`.

Rows are taken for such records when their fields are exactly those that `consume` writes: in text all of topic, partition, offset, timestamp, a key
and a value (`keyBase64`, `valueBase64` for bytes that are no text), and `headers` or not; in columns a value of bytes or text and nothing but those.
One field more or less, and a row is a row: it becomes the value, as JSON.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from fletchlog.cli import times
from fletchlog.cli.common import CommandError
from fletchlog.cli.encoding import cell_text
from fletchlog.cli.fields import Fields

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import pyarrow as pa

    Columns = tuple[pa.Table, int]
    """Records as columns, and the number of the first row."""

# the columns of csv
CSV = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_PLACE = frozenset({"topic", "partition", "offset", "timestamp"})
_DATA = (frozenset({"key", "keyBase64"}), frozenset({"value", "valueBase64"}))
_TEXT = _PLACE.union(*_DATA, {"headers"})
_COLUMNS = _PLACE | {"key", "value", "timestampType", "headers"}
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


class Record(NamedTuple):
    """A record to be sent.

    Attributes:
        key: Bytes or None.
        value: Bytes or None.
        timestamp: Milliseconds since 1970; None or -1: now.
        headers: Keys and values, or None.
        partition: None: by the key.
        number: Of its line, row or record in the input, from 1.
    """

    key: bytes | None
    value: bytes | None
    timestamp: int | None
    headers: list[dict[str, Any]] | None
    partition: int | None
    number: int


def is_record(names: Collection[str]) -> bool:
    """Whether a row of text with these fields is a record."""
    found = set(names)
    return found >= _PLACE and all(len(found & one) == 1 for one in _DATA) and found <= _TEXT


def are_records(schema: pa.Schema, typed: Collection[str] = ()) -> bool:
    """Whether rows with these columns are records; `key` and `value` may have any type if they are `typed`."""
    import pyarrow as pa

    kinds: Any = pa.types
    if "value" not in schema.names or not set(schema.names) <= _COLUMNS or len(set(schema.names)) != len(schema.names):
        return False
    data = [schema.field(name).type for name in ("key", "value") if name in schema.names and name not in typed]
    times = [schema.field(name).type for name in ("timestamp",) if name in schema.names]
    return all(any(test(kind) for test in (kinds.is_binary, kinds.is_large_binary, kinds.is_string, kinds.is_large_string)) for kind in data) and all(
        kinds.is_timestamp(kind) or kinds.is_integer(kind) for kind in times
    )


def from_columns(batch: pa.RecordBatch, *, partitions: bool, typed: Collection[str] = ()) -> pa.Table:
    """Records of columns. With `partitions` each keeps its partition; keys and values that are `typed` stay what they are.

    Raises:
        pyarrow.ArrowException: A row is no record.
    """
    import pyarrow as pa

    batch.validate(full=True)
    columns: dict[str, Any] = {name: batch[name] if name in typed else batch[name].cast(pa.binary()) for name in ("key", "value") if name in batch.schema.names}
    if "timestamp" in batch.schema.names:
        # of any unit, which the producer rounds down to milliseconds
        time = batch["timestamp"]
        columns["timestamp"] = time.cast(pa.int64()) if pa.types.is_integer(time.type) else time
    if "headers" in batch.schema.names:
        columns["headers"] = batch["headers"].cast(headers_type())
    if partitions and "partition" in batch.schema.names:
        columns["partition"] = batch["partition"].cast(pa.int32())
    return pa.table(columns)


def of_row(row: Mapping[str, Any], place: str, number: int, *, partitions: bool, typed: Mapping[str, pa.DataType | None], of_csv: bool = False) -> Record:
    """The record of a row of text. With `partitions` it keeps its partition. Of `typed`, `key` or `value`, it has the JSON, in csv as a text.

    Raises:
        CommandError: It is none.
    """
    if not is_record(row):
        raise CommandError(f"{place}: no record as `fletchlog consume` writes it; its fields are {', '.join(row)}; --as-rows makes each row a value")
    try:
        time = None if row["timestamp"] is None else milliseconds(row["timestamp"], place)
        partition = _partition(row["partition"])
        key, value = (_data(row, name, typed, of_csv=of_csv) for name in ("key", "value"))
        return Record(key, value, time, _headers(row.get("headers")), partition if partitions else None, number)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CommandError(f"{place}: no record as `fletchlog consume` writes it: {error}") from None


def _data(row: Mapping[str, Any], name: str, typed: Mapping[str, pa.DataType | None], *, of_csv: bool) -> bytes | None:
    """A key or a value."""
    if name not in typed:
        return _bytes(row, name)
    if name not in row:
        raise ValueError(f"its {name} is bytes, {name}Base64, which are not encoded")
    item = row[name]
    if item is None:
        return None
    return (row.text_of(name) if isinstance(row, Fields) else cell_text(item, typed[name]) if of_csv else json.dumps(item, ensure_ascii=False)).encode()


def _bytes(fields: Mapping[str, Any], name: str) -> bytes | None:
    """The bytes of a key or value."""
    if f"{name}Base64" in fields:
        return base64.b64decode(fields[f"{name}Base64"], validate=True)
    text = fields[name]
    if text is not None and not isinstance(text, str):
        raise ValueError(f"its {name} is neither text nor null")
    return None if text is None else text.encode()


def _partition(item: Any) -> int:
    # csv has texts
    number = int(item) if isinstance(item, str) and item.isascii() and item.isdecimal() else item
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**31:
        raise ValueError(f"there is no partition {item}")
    return number


def _headers(found: Any) -> list[dict[str, Any]] | None:
    headers = json.loads(found) if isinstance(found, str) else found
    if headers is None:
        return None
    made = [{"key": header["key"], "value": _bytes(header, "value")} for header in headers]
    if not all(isinstance(header["key"], str) for header in made):
        raise ValueError("a header's key is no text")
    for header in made:
        # half of a surrogate pair is no text that can be written
        header["key"].encode()
    return made


def headers_type() -> Any:
    """The type of a column of headers."""
    import pyarrow as pa

    return pa.list_(pa.struct([pa.field("key", pa.utf8()), pa.field("value", pa.binary())]))


def milliseconds(item: Any, place: str) -> int:
    """A field's time in milliseconds since 1970.

    Raises:
        CommandError: It is none.
    """
    import datetime as dt

    try:
        if isinstance(item, (int, float)) and not isinstance(item, bool):
            # a part of a millisecond is no time of Kafka's
            found = int(item) if item == int(item) else int(str(item))
        else:
            found = times.milliseconds(item) if isinstance(item, dt.datetime) else times.moment(str(item))
    except (ValueError, OverflowError):
        shown = "null" if item is None else repr(item)
        raise CommandError(f"{place}: {shown} is no timestamp: neither milliseconds since 1970 nor ISO 8601") from None
    if not _LOWEST <= found <= _HIGHEST:
        raise CommandError(f"{place}: the timestamp {found} has no place in 64 bits")
    return found
