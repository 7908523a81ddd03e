"""Typed columns of a scan, lazy or not: which bytes have to be read and decoded for the columns that are asked for."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from fletchlog import serde
from fletchlog.errors import InvalidArgumentError
from fletchlog.serde._deserialize import POLICIES
from fletchlog.serde.outcome import OneByOne, arrow, check_objects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from concurrent.futures import Future

    import pyarrow as pa

    from fletchlog.serde._deserialize import OnError
    from fletchlog.serde.outcome import Deserializer
    from fletchlog.types import TimestampUnit

    # ways to fields of a struct: names, from the top; the empty one is the whole
    Paths = frozenset[tuple[str, ...]]

_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
_UNITS = ("us", "ms")
A = TypeVar("A")
B = TypeVar("B")


class Source(NamedTuple):
    """Where a column comes from: a column of the log, and a field of its decoded value, if it is one."""

    raw: str
    field: str | None = None
    error: bool = False


@dataclass(frozen=True)
class Typed:
    """How `key` and `value` are decoded.

    Attributes:
        deserializers: By column.
        on_error: As for `serde.deserialize`.
        unnest: Whether each field of a struct is a column, `value.FIELD`.
    """

    deserializers: Mapping[str, Deserializer]
    on_error: OnError = "raise"
    unnest: bool = False

    def __post_init__(self) -> None:
        check_known("on_error", self.on_error, POLICIES)
        check_objects(dict(self.deserializers), "decode")
        for name, deserializer in self.deserializers.items():
            if deserializer.type is None:
                raise InvalidArgumentError(
                    f"the type of {name} depends on the values; a scan needs it before: give the deserializer a schema, such as Json(SCHEMA) or "
                    "Confluent(registry=URL, reader_schema=SCHEMA)"
                )

    def schema(self, raw: pa.Schema) -> pa.Schema:
        """The columns of the log as they are after decoding."""
        pa = arrow()
        fields: list[Any] = []
        for field in raw:
            deserializer = self.deserializers.get(field.name)
            if deserializer is None:
                fields.append(field)
            elif self.unnest and (inner := struct_fields(deserializer)):
                fields += [pa.field(f"{field.name}.{one.name}", one.type) for one in inner]
            else:
                fields.append(pa.field(field.name, deserializer.type))
        if self.on_error == "collect":
            error = pa.struct([("reason", pa.string()), ("data", pa.binary())])
            fields += [pa.field(f"{name}_error", error) for name in self.deserializers if name in raw.names]
        return pa.schema(fields)

    def source(self, column: str) -> Source:
        """Where a column of the schema comes from."""
        return self._sources.get(column, Source(column))

    @cached_property
    def _sources(self) -> dict[str, Source]:
        found = {f"{name}_error": Source(name, error=True) for name in self.deserializers if self.on_error == "collect"}
        for name, deserializer in self.deserializers.items():
            if self.unnest:
                found |= {f"{name}.{field.name}": Source(name, field.name) for field in struct_fields(deserializer)}
        return found

    def decodes(self, columns: Iterable[str]) -> bool:
        """Whether one of these columns has to be decoded."""
        return any(self.source(column).raw in self.deserializers for column in columns)

    def decoder(self, columns: Iterable[str], fields: Mapping[str, Paths]) -> Decoder:
        """What decodes batches of the log to these columns."""
        sources = {column: self.source(column) for column in columns}
        wanted: dict[str, Deserializer] = {}
        for name, deserializer in self.deserializers.items():
            of_this = [source for source in sources.values() if source.raw == name]
            if not of_this:
                continue
            # an error may be in any field
            if any(source.error for source in of_this):
                wanted[name] = deserializer
                continue
            paths: set[tuple[str, ...]] = set()
            for column, source in sources.items():
                if source.raw == name:
                    start = () if source.field is None else (source.field,)
                    paths |= {start + path for path in fields.get(column, [()])}
            wanted[name] = pruned(deserializer, frozenset(paths))
        return Decoder(sources, wanted, self.on_error)


@dataclass(frozen=True)
class Decoder:
    """Decodes batches of the log."""

    sources: Mapping[str, Source]
    deserializers: Mapping[str, Deserializer]
    on_error: OnError

    def schema(self, whole: pa.Schema) -> pa.Schema:
        """The columns; a struct whose other fields are left out has the fields that are decoded."""
        pa = arrow()
        inner = {raw: {one.name: one.type for one in struct_fields(deserializer)} for raw, deserializer in self.deserializers.items()}
        made: list[Any] = []
        for name, source in self.sources.items():
            deserializer = None if source.error else self.deserializers.get(source.raw)
            if deserializer is None:
                made.append(whole.field(name))
            elif source.field is None:
                made.append(pa.field(name, deserializer.type))
            else:
                made.append(pa.field(name, inner[source.raw][source.field]))
        return pa.schema(made)

    def needs(self) -> list[str]:
        """What decoding reads besides keys and values: the place of a row, which an error names, and headers, if a deserializer looks into them."""
        if not self.deserializers:
            return []
        place = ["topic", "partition", "offset"] if self.on_error == "raise" else []
        return [*place, "headers"] if any(hasattr(one, "with_headers") for one in self.deserializers.values()) else place

    def threads(self, most: int) -> int:
        """How many threads decode: one if nothing is decoded, or by an object that is not of `fletchlog.serde`, which may know one thread only."""
        ours = self.deserializers and all(isinstance(one, serde.Confluent | OneByOne) for one in self.deserializers.values())
        return most if ours else 1

    def decoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of a batch of the log, in their order.

        Raises:
            fletchlog.errors.RecordDeserializationError: As `serde.deserialize`.
        """
        pa = arrow()
        if self.deserializers:
            batch = serde.deserialize(batch, key=self.deserializers.get("key"), value=self.deserializers.get("value"), on_error=self.on_error)
        structs = {raw: fields_of(batch.column(raw)) for raw in {source.raw for source in self.sources.values() if source.field is not None}}
        made: dict[str, Any] = {}
        for name, source in self.sources.items():
            if source.field is None:
                made[name] = batch.column(name)
            elif (column := structs[source.raw].get(source.field)) is not None:
                made[name] = column
            else:
                raise InvalidArgumentError(f"the deserializer of {source.raw} has no field {source.field!r} any more")
        if not made:
            return batch.select([])
        return pa.RecordBatch.from_arrays(list(made.values()), names=list(made))


class ScanDecoder(NamedTuple):
    """What `Broker.scan` and `Cluster.scan` decode their rows with.

    Attributes:
        typed: How keys and values are decoded.
        decoder: What makes the columns.
        schema: The columns: a `pyarrow.Schema`.
        reads: The columns that the engine reads for them.
    """

    typed: Typed
    decoder: Decoder
    schema: pa.Schema
    reads: list[str]

    def batches(self, read: Iterable[pa.RecordBatch], threads: int) -> Iterator[pa.RecordBatch]:
        """The rows of batches of the log, batch by batch; `threads` of them are decoded at a time, see `Decoder.threads`.

        Raises:
            fletchlog.errors.RecordDeserializationError: Under "raise", a key or value cannot be decoded.
        """
        from_arrays = arrow().RecordBatch.from_arrays
        for batch in in_order(self.decoder.decoded, read, self.decoder.threads(threads)):
            yield from_arrays(batch.columns, schema=self.schema)


def in_order(work: Callable[[A], B], items: Iterable[A], threads: int) -> Iterator[B]:
    """What `work` makes of each item, in the order of the items. With several threads, as many items are read ahead."""
    items = iter(items)
    # the first is often the only one
    for first in items:
        yield work(first)
        break
    if threads == 1:
        yield from map(work, items)
        return
    pool = ThreadPoolExecutor(threads, "fletchlog-decode")
    waiting: deque[Future[B]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def of_scan(given: tuple[Deserializer | None, Deserializer | None, OnError, bool], asked: tuple[Iterable[str] | None, bool, TimestampUnit]) -> ScanDecoder:
    """What decodes the rows of a scan with these options.

    Args:
        given: `key`, `value`, `on_error`, `unnest`.
        asked: `columns`, `include_headers`, `timestamp_unit`.

    Raises:
        fletchlog.errors.InvalidArgumentError: As for `fletchlog.scan_topic`.
        ImportError: pyarrow is missing.
    """
    (key, value, on_error, unnest), (columns, include_headers, timestamp_unit) = given, asked
    typed = Typed({name: one for name, one in (("key", key), ("value", value)) if one is not None}, on_error, unnest)
    # asked for by name, a scan has headers without include_headers, too
    whole = typed.schema(raw_schema(True, timestamp_unit))
    every = [name for name in whole.names if include_headers or name != "headers"]
    decoder = typed.decoder(every if columns is None else selected(columns, whole), {})
    reads = dict.fromkeys([*(source.raw for source in decoder.sources.values()), *decoder.needs()])
    return ScanDecoder(typed, decoder, decoder.schema(whole), list(reads))


def selected(columns: Iterable[str], whole: pa.Schema) -> tuple[str, ...]:
    """Names of columns, checked.

    Raises:
        fletchlog.errors.InvalidArgumentError: There is no such column, or one is twice there.
    """
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    if isinstance(columns, str) or len(set(names)) != len(names):
        raise InvalidArgumentError(f"columns are names, none twice, such as ['key', 'offset']; got {columns!r:.80}")
    there = dict.fromkeys(whole.names)
    for name in names:
        if name not in there:
            raise InvalidArgumentError(f"there is no column {name!r}; the columns are {', '.join(there)}")
    return names


def check_known(what: str, name: str, known: Iterable[str]) -> None:
    """Refuses a word that an option does not have.

    Raises:
        fletchlog.errors.InvalidArgumentError: It is none of them.
    """
    if name not in known:
        raise InvalidArgumentError(f"{what} is {name!r}; expected one of {', '.join(known)}")


def raw_schema(include_headers: bool, timestamp_unit: TimestampUnit) -> pa.Schema:
    """The columns of `fletchlog.scan`."""
    check_known("timestamp_unit", timestamp_unit, _UNITS)
    pa = arrow()
    types = (pa.binary(), pa.binary(), pa.string(), pa.int32(), pa.int64(), pa.timestamp(timestamp_unit, "UTC"), pa.int32())
    headers = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
    return pa.schema([*zip(_COLUMNS, types, strict=True), *([("headers", headers)] if include_headers else [])])


def struct_fields(deserializer: Deserializer) -> list[pa.Field]:
    """The fields of a struct; none, if it makes something else."""
    made = deserializer.type
    return list(made) if made is not None and arrow().types.is_struct(made) else []


def fields_of(column: pa.StructArray) -> dict[str, pa.Array]:
    """The columns of a struct by name; null where the struct is."""
    return {field.name: inner for field, inner in zip(column.type, column.flatten(), strict=True)}


def pruned(deserializer: Deserializer, paths: Paths) -> Deserializer:
    """A deserializer of only these fields, each named by the way to it, in the order of its type; of all, if it cannot be pruned or nothing is left out."""
    prune = getattr(deserializer, "pruned", None)
    names = {field.name for field in struct_fields(deserializer)}
    # not those within another one
    kept = sorted(path for path in paths if not any(path[:length] in paths for length in range(len(path))))
    if prune is None or not kept or not names.issuperset(path[0] if path else None for path in kept) or names == {path[0] for path in kept if len(path) == 1}:
        return deserializer
    made: Deserializer = prune([list(path) for path in kept])
    return made
