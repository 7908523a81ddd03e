"""Confluent's wire format: magic byte 0 and four bytes of schema id (big-endian), or 1 and the 16 bytes of a GUID, then the value."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from copy import copy
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from threading import RLock
from typing import TYPE_CHECKING, Any
from uuid import UUID

from fletchlog import _core
from fletchlog.errors import InvalidArgumentError
from fletchlog.interop import require
from fletchlog.registry.client import Registry
from fletchlog.registry.schemas import RegistrySchemas, Written, guid_header
from fletchlog.serde.avro import Avro, UnresolvableError
from fletchlog.serde.outcome import Deserializer, Reasons, arrow, of_bytes, value_of
from fletchlog.serde.protobuf import Protobuf
from fletchlog.serde.typed import Paths, decoded, paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa

    from fletchlog.registry.client import RegisteredSchema
    from fletchlog.registry.schemas import SubjectName

_PREFIX = 5
_GUID_PREFIX = 17
# so that threads ask once as well
_ASKING = RLock()
_MOST = 2**31 - 1
# ids of values that are no such values may be any number
_UNKNOWN_KEPT = 100_000


@dataclass(frozen=True)
class Confluent:
    """Values that begin with the id of their schema, as Confluent's serializers write them.

    Args:
        schemas: Mapping or callable from schema id (or the `uuid.UUID` of a schema, where values or headers have GUIDs) to an Avro schema (JSON text or what
            it parses to) or to any deserializer of the rest of the value (`Json(...)`, `JsonSchema(...)`, `Protobuf(...)`). It is asked once per id. An id
            it does not know (LookupError, or None) makes the value malformed; every other exception is passed on, so that an outage of a registry is not
            taken for bad data. With confluent-kafka's client: `lambda schema_id: client.get_schema(schema_id).schema_str`. Answers are kept as long as
            this object exists, "unknown" too (of the last 100,000 unknown ids): once a missing schema has been registered, decode with a new
            `Confluent`. Without it `registry` is asked.
        reader_schema: Avro schema that all are resolved to; with `registry` also a `Protobuf`, `Json` or `JsonSchema` whose type all get, each
            read by its own schema. Without it all ids in a column must give the same type.
        schema_id: The id that `encode` writes before each value, which it encodes with the schema of that id.
        registry: A schema registry: its URL, several, or a `Registry` (with authentication, TLS, ..). It is asked once per id; an outage is a
            `fletchlog.errors.SchemaRegistryUnavailableError` and no bad data.
        schema: With `registry`: what `encode` writes: the text of a schema, what it parses to, or a message class of protoc. It is registered when the
            first value is encoded. None: the newest version of the subject is written.
        kind: Type of `schema`: "AVRO", "JSON" or "PROTOBUF".
        topic: The topic that is written to: the subject is then `TOPIC-value`.
        is_key: Keys are written: the subject is `TOPIC-key`.
        subject: The subject, where it has another name.
        strategy: How the subject is named: "topic", "record" (full name of the record), "topic-record" (`TOPIC-` and that).
        auto_register: Whether `schema` is registered; False: it has to be registered already.
        normalize: Whether the registry normalizes `schema`.
        message: Full name of the Protobuf message that values are read as; None: the first one of its file.
        in_header: `encode` writes no id before the value: the record says its schema in the header that `header()` returns.

    A column of many schema ids is read in one pass, each value by its own schema. `deserialize` uses a column `headers` (`include_headers=True`), and consumers
    and `records()` the headers of a record: where it has the header `__value_schema_id` (`__key_schema_id` for keys) that newer serializers write, it says the
    schema, and the value has no prefix.

    Raises:
        fletchlog.errors.InvalidArgumentError: Schemas that are neither, a reader schema that cannot work, or an id that is no number of 31 bits. Reading and
            writing: a schema that cannot work, with its id.
    """

    schemas: Mapping[Any, Any] | Callable[[Any], Any] | None = None
    reader_schema: Any = None
    schema_id: int | None = None
    _: KW_ONLY
    registry: Registry | str | Sequence[str] | None = None
    schema: Any = None
    kind: str = "AVRO"
    topic: str | None = None
    is_key: bool = False
    subject: str | None = None
    strategy: SubjectName = "topic"
    auto_register: bool = True
    normalize: bool = False
    message: str | None = None
    in_header: bool = False
    _known: dict[int | bytes, Deserializer] = field(default_factory=dict, init=False, repr=False, compare=False)
    _unknown: dict[int | bytes, None] = field(default_factory=dict, init=False, repr=False, compare=False)
    _fields: Paths | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.registry is not None:
            if self.schemas is not None:
                raise InvalidArgumentError("give Confluent schemas or a registry, not both")
            client = self.registry if isinstance(self.registry, Registry) else Registry(self.registry)
            object.__setattr__(self, "registry", client)
            object.__setattr__(self, "schemas", RegistrySchemas(client, self.message, self.reader_schema))
            self._written  # noqa: B018 - a strategy that does not exist fails here
        if not callable(self.schemas) and not isinstance(self.schemas, Mapping):
            raise InvalidArgumentError(f"Confluent takes a mapping or a callable from schema ids to schemas, got {self.schemas!r:.60}")
        if self.schema_id is not None and not 0 <= self.schema_id <= _MOST:
            raise InvalidArgumentError(f"schema_id is {self.schema_id}; ids are 0 to {_MOST:,}")
        self.type  # noqa: B018 - a reader schema that cannot work fails here, not at the first record

    def __getstate__(self) -> dict[str, Any]:
        # what a registry has given may be made of classes that cannot be pickled, and is asked for again
        made: dict[str, Any] = {"_registered": None, "_known": {}, "_unknown": {}} if self.registry is not None else {}
        return {name: made.get(name, value) for name, value in self.__dict__.items() if name != "_registered"}

    @cached_property
    def type(self) -> pa.DataType | None:
        """Arrow type of the result, None without a reader schema."""
        return None if self.reader_schema is None else self._declared.type

    @cached_property
    def _declared(self) -> Any:
        """What reads by the reader schema, or nothing."""
        declared: Any = self.reader_schema
        if not hasattr(declared, "decode"):
            declared = Avro("null") if declared is None else Avro(declared, declared)
        elif self.registry is None:
            raise InvalidArgumentError("reader_schema is an Avro schema; an object that decodes needs a registry")
        elif declared.type is None:
            raise InvalidArgumentError(f"reader_schema is {declared!r:.60}, which gives no type of its own")
        return declared if self._fields is None or self.reader_schema is None else declared.pruned(self._fields)

    def pruned(self, fields: Iterable[str | Sequence[str]]) -> Confluent:
        """The same values with these fields alone: see `Avro.pruned`. With a reader schema, deserializers that cannot leave fields out decode all of them.

        Raises:
            fletchlog.errors.InvalidArgumentError: There is no such field in the reader schema. Reading: in the schema of an id, or its deserializer cannot
                leave fields out and there is no reader schema.
        """
        made = copy(self)
        for name in ("type", "_declared"):
            made.__dict__.pop(name, None)
        made.__dict__.update(_fields=paths(fields), _known={}, _unknown={})
        made.type  # noqa: B018 - a field that does not exist fails here
        return made

    def decode(self, column: pa.BinaryArray) -> tuple[pa.Array, Reasons]:
        """See `Deserializer.decode`."""
        pa = arrow()
        found = {schema_id: self._deserializer(schema_id) for schema_id in _core.schema_ids(pa.record_batch([column], ["v"]))}
        known = {schema_id: inner for schema_id, inner in found.items() if inner is not None}
        if all(isinstance(inner, _Malformed) or getattr(inner, "value_reader", None) is not None for inner in known.values()):
            return self._in_one_pass(column, known)
        return self._by_schema(column)

    def _in_one_pass(self, column: pa.BinaryArray, known: dict[int | bytes, Any]) -> tuple[pa.Array, Reasons]:
        """Each value by its own schema's reader, into the same columns."""
        self._common({schema_id: inner.type for schema_id, inner in known.items()})
        malformed = {schema_id: inner.reason for schema_id, inner in known.items() if isinstance(inner, _Malformed)}
        readers = {schema_id: inner.value_reader for schema_id, inner in known.items() if schema_id not in malformed}
        like = next(iter(readers.values()), None) or self._declared.value_reader
        return decoded(_core.confluent_reader(like, list(readers.items()), list(malformed.items())), column)

    def _by_schema(self, column: pa.BinaryArray) -> tuple[pa.Array, Reasons]:
        """The values of each schema together, by any deserializers, and then each to its row."""
        pa = arrow()
        values = column.to_pylist()
        reasons: Reasons = {}
        rows_of: dict[int | bytes, list[int]] = defaultdict(list)
        for row, value in enumerate(values):
            if value is None:
                continue
            frame = _frame(value)
            if frame is None:
                begin = value[:_PREFIX].hex() or "nothing"
                reasons[row] = f"not in Confluent's wire format: magic byte 0 and four bytes of schema id expected, or 1 and a GUID; it begins with {begin}"
            else:
                rows_of[frame[0]].append(row)
                values[row] = value[frame[1] :]
        parts: list[Any] = []
        rows: list[int] = []
        types: dict[int | bytes, Any] = {}
        for schema_id, mine in rows_of.items():
            inner = self._deserializer(schema_id)
            if inner is None:
                reasons.update(dict.fromkeys(mine, f"schema {_shown(schema_id)} is unknown"))
                continue
            part, why = inner.decode(pa.array([values[row] for row in mine], pa.binary()))
            reasons.update({mine[row]: reason for row, reason in why.items()})
            types[schema_id] = part.type
            parts.append(part)
            rows += mine
        arrow_type = self._common(types)
        place = dict(zip(rows, range(len(rows)), strict=True))
        index = [place.get(row) for row in range(len(column))]
        return _taken(pa.concat_arrays(parts) if parts else pa.nulls(0, arrow_type), index), reasons

    def with_headers(self, column: pa.BinaryArray, headers: pa.Array, name: str) -> pa.BinaryArray:
        """The values of a column `name` with what their records have in the header of schema ids before them, for `decode`.

        Raises:
            fletchlog.errors.InvalidArgumentError: `headers` is no list of structs of a key and a value.
        """
        pa = arrow()
        try:
            headers = headers.cast(pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
        except pa.ArrowException as error:
            raise InvalidArgumentError(f"the column 'headers' is {headers.type}, not a list of structs of key and value: {error}") from None
        table = _core.with_schema_headers(pa.record_batch([column, headers], ["v", "headers"]), f"__{name}_schema_id")
        return pa.record_batch(table).column(0)

    def encode(self, column: pa.Array) -> tuple[pa.BinaryArray, Reasons]:
        """See `Serializer.encode`.

        Raises:
            fletchlog.errors.InvalidArgumentError: No `schema_id`, or one that is unknown or whose schema only reads.
        """
        prefix, inner = self._writer()
        made, reasons = inner.encode(column)
        compute = require("pyarrow.compute", "serde")
        return compute.binary_join_element_wise(prefix, made, b""), reasons

    def of_bytes(self, data: bytes) -> Any:
        """One value from its bytes.

        Raises:
            ValueError: It cannot be decoded.
        """
        frame = _frame(data)
        inner = None if frame is None else self._deserializer(frame[0])
        return value_of(self, data) if frame is None or inner is None else of_bytes(inner)(data[frame[1] :])

    def __call__(self, value: Any) -> bytes:
        """The bytes of one value, as `encode` makes them.

        Raises:
            fletchlog.errors.InvalidArgumentError: It cannot be encoded; or as for `encode`.
        """
        prefix, inner = self._writer()
        made: bytes = prefix + inner(value)
        return made

    async def prepare(self, values: Iterable[bytes | None] = ()) -> None:
        """Asks the registry in a thread for what the next calls need, so that they do not block the event loop.

        Args:
            values: Values that will be decoded: the schemas of their ids are fetched. Without them the schema that is written is registered.

        Raises:
            fletchlog.errors.SchemaRegistryError: As encoding and decoding.
        """
        ids = {int.from_bytes(value[1:_PREFIX], "big") for value in values if value and len(value) >= _PREFIX and value[0] == 0}
        await asyncio.to_thread(lambda: [self._deserializer(schema_id) for schema_id in ids] if ids else self._writer())

    def header(self) -> tuple[str, bytes]:
        """The header that says the schema of a record, `__value_schema_id` or `__key_schema_id`, for `in_header`.

        Raises:
            fletchlog.errors.InvalidArgumentError: No registry, or one that has no GUIDs.
        """
        if not isinstance(self.registry, Registry):
            raise InvalidArgumentError("a GUID comes from a registry: give Confluent(registry=URL, schema=...)")
        registered, inner = self._registered
        if registered.guid is None:
            raise InvalidArgumentError(f"{self.registry} gives no GUIDs; write without in_header")
        name, value = guid_header(registered.guid, is_key=self.is_key)
        path = getattr(inner, "prefix", None)
        return name, value if path is None else value + path()

    @cached_property
    def _written(self) -> Written:
        """What is written with a registry."""
        return Written(self.schema, self.kind, self.subject, self.topic, self.is_key, self.strategy, self.auto_register, self.normalize)

    @cached_property
    def _registered(self) -> tuple[RegisteredSchema, Any]:
        """The schema in the registry, and what encodes values of it."""
        assert isinstance(self.registry, Registry)  # noqa: S101 - the caller has checked it
        registered = self._written.registered(self.registry)
        if hasattr(self.schema, "DESCRIPTOR"):
            return registered, Protobuf(self.schema).after_schema_id
        # encoding knows no reader schema
        inner = RegistrySchemas(self.registry, self.message).serializer(registered)
        return registered, getattr(inner, "after_schema_id", inner)

    def _writer(self) -> tuple[bytes, Any]:
        """What each value begins with, and what encodes the rest."""
        if self.registry is not None and self.schema_id is None:
            registered, own = self._registered
            if self.in_header:
                return b"", getattr(own, "inner", own)
            return b"\0" + (registered.id or 0).to_bytes(4, "big"), own
        if self.schema_id is None:
            raise InvalidArgumentError("which schema is written? Give Confluent(schemas, schema_id=ID)")
        inner: Any = self._deserializer(self.schema_id)
        if inner is None or not hasattr(inner, "encode"):
            what = "is unknown" if inner is None else f"has a {type(inner).__name__}, which only decodes"
            raise InvalidArgumentError(f"schema id {self.schema_id} {what}")
        return b"\0" + self.schema_id.to_bytes(4, "big"), inner

    def _common(self, types: dict[int | bytes, pa.DataType]) -> pa.DataType:
        declared = self.type
        (first, arrow_type), *rest = types.items() or [(None, arrow().null() if declared is None else declared)]
        for other, its in rest:
            if its != arrow_type:
                raise InvalidArgumentError(
                    f"schema ids {_number(first)} and {_number(other)} give different types ({arrow_type} and {its}); give a reader_schema that both resolve to"
                )
        if declared is not None and arrow_type != declared:
            raise InvalidArgumentError(
                f"schema id {_number(first)} gives {arrow_type}, the reader schema {declared}; let the deserializer of that id give the same type"
            )
        return arrow_type

    def _deserializer(self, schema_id: int | bytes) -> Deserializer | None:
        if schema_id in self._known:
            return self._known[schema_id]
        with _ASKING:
            return self._asked(schema_id)

    def _asked(self, schema_id: int | bytes) -> Deserializer | None:
        if schema_id in self._unknown:
            return None
        if schema_id not in self._known:
            try:
                asked = UUID(bytes=schema_id) if isinstance(schema_id, bytes) else schema_id
                found = self.schemas(asked) if callable(self.schemas) else (self.schemas or {})[asked]
            except LookupError:
                found = None
            except UnresolvableError as error:
                # the fault of whoever wrote with that schema, so of these values only
                found = _Malformed(str(error), self.type)
            if found is None:
                if len(self._unknown) >= _UNKNOWN_KEPT:
                    del self._unknown[next(iter(self._unknown))]
                self._unknown[schema_id] = None
                return None
            if not hasattr(found, "decode") or not hasattr(found, "type"):
                try:
                    found = Avro(found, self.reader_schema)
                except UnresolvableError as error:
                    found = _Malformed(str(error), self.type)
                except InvalidArgumentError as error:
                    raise InvalidArgumentError(f"schema {_shown(schema_id)}: {error}") from error
            found = self._of_fields(found, schema_id)
            self._known[schema_id] = getattr(found, "after_schema_id", found)
        return self._known[schema_id]

    def _of_fields(self, found: Any, schema_id: int | bytes) -> Any:
        """A deserializer of the fields that are wanted."""
        if self._fields is None or isinstance(found, _Malformed):
            return found
        if not hasattr(found, "pruned") and self.type is not None:
            return _Selected(found, self.type)
        if not hasattr(found, "pruned"):
            raise InvalidArgumentError(f"schema {_shown(schema_id)} has a {type(found).__name__}, which cannot leave fields out; read all of them")
        try:
            return found.pruned(self._fields)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"schema {_shown(schema_id)}: {error}") from error


def _frame(value: bytes) -> tuple[int | bytes, int] | None:
    """The schema id that a value begins with, and where the rest begins."""
    if len(value) >= _PREFIX and value[0] == 0:
        return int.from_bytes(value[1:_PREFIX], "big", signed=True), _PREFIX
    if len(value) >= _GUID_PREFIX and value[0] == 1:
        return value[1:_GUID_PREFIX], _GUID_PREFIX
    return None


def _shown(schema_id: int | bytes) -> str:
    return f"{'GUID' if isinstance(schema_id, bytes) else 'id'} {_number(schema_id)}"


def _number(schema_id: int | bytes | None) -> str:
    return str(UUID(bytes=schema_id) if isinstance(schema_id, bytes) else schema_id)


@dataclass(frozen=True)
class _Malformed:
    """The deserializer of a schema whose values cannot be read."""

    reason: str
    type: pa.DataType | None

    def decode(self, column: pa.BinaryArray) -> tuple[pa.Array, Reasons]:
        return arrow().nulls(len(column), self.type), dict.fromkeys(range(len(column)), self.reason)


@dataclass(frozen=True)
class _Selected:
    """A deserializer that decodes more fields than are wanted."""

    inner: Deserializer
    type: pa.DataType

    def decode(self, column: pa.BinaryArray) -> tuple[pa.Array, Reasons]:
        made, reasons = self.inner.decode(column)
        return _of_type(made, self.type), reasons


def _of_type(array: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    """The fields of a struct that a type has."""
    pa = arrow()
    if array.type == arrow_type or not (pa.types.is_struct(arrow_type) and pa.types.is_struct(array.type)):
        return array
    parts = [_of_type(array.field(one.name), one.type) for one in arrow_type]
    return pa.StructArray.from_arrays(parts, fields=list(arrow_type), mask=array.is_null())


def _taken(column: pa.Array, index: list[int | None]) -> pa.Array:
    """Rows of a column by their numbers, null where there is none."""
    pa = arrow()
    try:
        return column.take(pa.array(index, pa.int64()))
    except pa.ArrowNotImplementedError:
        # pyarrow takes nothing from views of strings
        return pa.concat_arrays([column[:0], *(pa.nulls(1, column.type) if row is None else column[row : row + 1] for row in index)])
