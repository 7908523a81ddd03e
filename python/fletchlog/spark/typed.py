"""Keys and values in a format (`value.format`): what the options say, which columns they give, and the columns themselves."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fletchlog.errors import InvalidArgumentError, RecordDeserializationError
from fletchlog.serde import deserialize, formats, serialize
from fletchlog.spark.arrow_types import aligned, selected, spark_type
from fletchlog.spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

    from fletchlog.spark.options import SourceOptions

    Paths = list[list[str]]
    """Fields, each the names on the way to it."""

NAMES = ("key", "value")
POLICIES = {"fail": "raise", "null": "null", "column": "collect"}
ERROR = "_error"
# What the options of a registry's client begin with.
OF_REGISTRY = tuple(f"{column}.{formats.REGISTRY}." for column in NAMES)
_READING = {
    "format": (
        "`bytes`",
        (
            "What {0}s are: `string`, `json`, `json-schema`, `avro`, `protobuf`, `short`, `integer`, `long`, `float`, `double`, `boolean`, "
            "`confluent` (with a registry). The column `{0}` has that type."
        ),
    ),
    "schema": ("", "The Avro schema, JSON Schema or .proto file of the {0}s, its text; for `json` their type as Spark writes it, `id bigint, name string`."),
    "reader_schema": ("", "Avro: the schema that {0}s are resolved to. `json-schema`: the type of the {0}s, as Spark writes it."),
    "message": (
        "",
        (
            "Protobuf: the full name of the message in `{0}.schema` or in the registry, `shop.Order` (default: the first one); without them the class "
            "that protoc has made, `shop_pb2.Order`, in a module that executors find."
        ),
    ),
    "schema.registry": (
        "",
        (
            "URL of a schema registry: {0}s begin with the id of their schema. The column has the type of `{0}.reader_schema`, or of the newest version of the "
            "subject: of Avro, Protobuf or JSON Schema. The header `__{0}_schema_id` of a record may have the schema's GUID instead of the id. Executors ask "
            "the registry for each schema."
        ),
    ),
    "schema.registry.*": ("", "`auth` (USER:PASSWORD), `token`, `ca`, `certificate` and `key` (files) for the registry."),
    "subject": ("`TOPIC-{0}`", "The subject in the registry. Needed if several topics are read and there is no `{0}.reader_schema`."),
}
_POLICY = (
    "`fail`",
    (
        "What cannot be decoded ends the query (`fail`), is null (`null`), or is null with the reason and the bytes in the additional column `{0}_error` "
        "(`column`)."
    ),
)
_FIELDS = ("", "Fields of the {0}s that are read, `id, customer.name`; the others are left out. A schema that is given to the reader does the same.")


def known(*, reading: bool) -> dict[str, tuple[str, str]]:
    """The options with their defaults and meanings, for the pages and for what a misspelt one may have meant."""
    rows = _READING | ({"on_error": _POLICY, "fields": _FIELDS} if reading else {})
    return {f"{column}.{name}": (default, meaning.format(column)) for column in reversed(NAMES) for name, (default, meaning) in rows.items()}


@dataclass(frozen=True)
class Typed:
    """A column of keys or values with a type.

    Attributes:
        column: `key` or `value`.
        format: Its format.
        on_error: As `serde.deserialize` takes it.
        fields: The option `fields`; None: all of them.
    """

    column: str
    format: formats.Format
    on_error: str = "raise"
    fields: tuple[tuple[str, ...], ...] | None = None

    def columns(self) -> dict[str, DataType]:
        """The columns of the frame.

        Raises:
            OptionError: A type that Spark does not have, or that depends on the values; a field that does not exist.
        """
        from pyspark.sql.types import BinaryType, StringType, StructField, StructType

        arrow_type = _deserializer(self.format).type
        if arrow_type is None:
            option = "schema" if self.format.name == "json" else "reader_schema"
            raise OptionError(
                f"option {self.column}.format is {self.format.name}, which needs {self.column}.{option} in Spark: a type, `id bigint, name string`"
            )
        made = {self.column: spark_type(arrow_type, self.column)}
        if self.fields is not None:
            made[self.column] = _only(made[self.column], self.fields, f"option {self.column}.fields")
        if self.on_error == "collect":
            made[self.column + ERROR] = StructType([StructField("reason", StringType()), StructField("data", BinaryType())])
        return made

    def resolved(self, topic: str | None) -> Typed:
        """The same with one type for all values, which a registry may have.

        Raises:
            OptionError: There is none.
            fletchlog.errors.SchemaRegistryError: The registry does not answer, or has no such subject.
        """
        try:
            return replace(self, format=self.format.resolved(topic, is_key=self.column == "key"))
        except InvalidArgumentError as error:
            raise OptionError(str(error)) from None


def parse(given: Mapping[str, str], *, reading: bool) -> tuple[Typed, ...]:
    """The columns that options give a type.

    Raises:
        OptionError: They do not fit each other, or cannot work.
    """
    made = []
    for name in given:
        if name.startswith(OF_REGISTRY) and name.partition(".")[2] not in formats.OPTIONS:
            raise OptionError(
                f"unknown option {name}; there are {', '.join(one for one in formats.OPTIONS if formats.REGISTRY in one)} of {name.partition('.')[0]}"
            )
    for column in NAMES:
        named = functools.partial("option {}.{}".format, column)
        try:
            found = formats.parse({name: given.get(f"{column}.{name}") for name in formats.OPTIONS}, named)
            policy = formats.policy(given.get(f"{column}.on_error"), f"option {column}.on_error", POLICIES)
        except InvalidArgumentError as error:
            raise OptionError(str(error)) from None
        fields = given.get(f"{column}.fields") if reading else None
        if found is None or found.name == "bytes":
            for name in ("on_error", "fields"):
                if f"{column}.{name}" in given:
                    raise OptionError(f"option {column}.{name} is for {column}s that are decoded: give {column}.format")
            continue
        paths = None if fields is None else tuple(tuple(part.strip() for part in path.split(".")) for path in fields.split(","))
        made.append(Typed(column, found, policy, paths))
    return tuple(made)


def check_described(typed: tuple[Typed, ...]) -> None:
    """Refuses formats that only Python decodes.

    Raises:
        OptionError: Such a format, for `fletchlog-columnar`.
    """
    for one in typed:
        if one.format.name not in formats.DESCRIBED and not (one.format.registry and one.format.name == "confluent"):
            raise OptionError(
                f"option {one.column}.format: fletchlog-columnar decodes {', '.join(formats.DESCRIBED)}; read {one.format.name} with the format fletchlog"
            )


def described(options: SourceOptions) -> str:
    """For the tasks of `fletchlog-columnar`, which read by a description: `rust/jni/src/typed.rs` says how. Empty for tasks that Python reads.

    Raises:
        OptionError: A registry has no description of all values.
    """
    if not options.typed or not options.columnar:
        return ""
    try:
        readers = {one.column: one.format.description(options.only_topic, is_key=one.column == "key") for one in options.typed}
    except InvalidArgumentError as error:
        raise OptionError(str(error)) from None
    return json.dumps({one.column: {"reader": readers[one.column], "on_error": one.on_error, "headers": bool(one.format.registry)} for one in options.typed})


@functools.lru_cache(maxsize=16)
def _deserializer(wanted: formats.Format, fields: tuple[tuple[str, ...], ...] | None = None) -> Any:
    """A process makes it once: the rows of many tasks have the same format."""
    made = wanted.deserializer()
    return made.pruned([list(path) for path in fields]) if fields is not None and hasattr(made, "pruned") else made


@functools.lru_cache(maxsize=16)
def _serializer(wanted: formats.Format, topic: str | None, column: str) -> tuple[Any, Any]:
    """What encodes, and the type that it takes."""
    is_key = column == "key"
    return wanted.serializer(topic, is_key=is_key), wanted.written_type(topic, is_key=is_key)


def _only(full: DataType, paths: Iterable[tuple[str, ...]], option: str) -> DataType:
    """A struct with these fields alone."""
    from pyspark.sql.types import StructField, StructType

    by_name: dict[str, list[tuple[str, ...]]] = {}
    for path in paths:
        by_name.setdefault(path[0], []).append(path[1:])
    if not isinstance(full, StructType):
        raise OptionError(f"{option}: there is no field {next(iter(by_name))}, it is {full.simpleString()}")
    missing = by_name.keys() - set(full.names)
    if missing:
        raise OptionError(f"{option}: there is no field {min(missing)}; fields are {', '.join(full.names)}")
    kept = [field for field in full.fields if field.name in by_name]
    return StructType(
        [field if () in by_name[field.name] else StructField(field.name, _only(field.dataType, by_name[field.name], option), field.nullable) for field in kept]
    )


def is_part(asked: DataType, full: DataType) -> bool:
    """Whether a type that the user gives has only fields of another, with their types."""
    from pyspark.sql.types import StructType

    if isinstance(asked, StructType) and isinstance(full, StructType):
        return bool(asked.fields) and all(field.name in full.names and is_part(field.dataType, full[field.name].dataType) for field in asked.fields)
    return asked.simpleString() == full.simpleString()


def _paths(asked: DataType, full: DataType, inside: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The fields of the full type that the asked one has, as few as say it."""
    from pyspark.sql.types import StructType

    if not isinstance(asked, StructType) or not isinstance(full, StructType):
        return [inside]
    found = [path for field in asked.fields for path in _paths(field.dataType, full[field.name].dataType, (*inside, field.name))]
    whole = set(asked.names) == set(full.names) and all(len(path) == len(inside) + 1 for path in found)
    return [inside] if whole else found


def asked_of(typed: Typed, schema: StructType) -> Typed:
    """The same with the fields that a schema asks for."""
    full = spark_type(_deserializer(typed.format).type, typed.column)
    own = next((field.dataType for field in schema.fields if field.name.lower() == typed.column), None)
    if own is None:
        return typed
    paths = _paths(own, full)
    return replace(typed, fields=None if paths == [()] else tuple(paths))


class Decoder:
    """From the columns of a scan to those of a frame."""

    def __init__(self, typed: tuple[Typed, ...], schema: StructType, target: pa.Schema) -> None:
        asked = {field.name.lower() for field in schema.fields}
        self._typed = [asked_of(one, schema) for one in typed if {one.column, one.column + ERROR} & asked]
        self._target = {name.lower(): target.field(name).type for name in target.names}
        self.needed = [name for one in self._typed for name in (one.column, "topic", "partition")]
        # serializers of a registry may write which schema it is into a header
        self.needed += ["headers" for one in self._typed if one.format.registry]

    def decoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns by their names, in any order.

        Raises:
            RecordDeserializationError: What cannot be decoded, unless an option allows it.
        """
        for one in self._typed:
            try:
                deserializer: Any = {one.column: _deserializer(one.format, one.fields)}
                batch = deserialize(batch, **deserializer, on_error=one.on_error)  # type: ignore[arg-type]
            except RecordDeserializationError as error:
                text = f"{str(error).partition('; fix the')[0]}; the option {one.column}.on_error can be null or column"
                raise RecordDeserializationError(
                    text, topic_partition=error.topic_partition, offset=error.offset, column=error.column, data=error.data
                ) from None
            kind = self._target.get(one.column)
            if kind is not None:
                place = batch.schema.get_field_index(one.column)
                batch = batch.set_column(place, one.column, selected(batch.column(place), kind))
        return batch


class Encoder:
    """From the typed columns of a frame to bytes.

    Raises:
        OptionError: A column that the format can never encode.
    """

    def __init__(self, typed: tuple[Typed, ...], topic: str | None) -> None:
        self._typed = typed
        self._topic = topic

    def check(self, schema: StructType) -> None:
        """Refuses columns whose types cannot be encoded, before the first row.

        Raises:
            OptionError: A column of such a type.
        """
        import pyarrow as pa

        from fletchlog.spark.schema import arrow_schema

        found = arrow_schema(schema)
        for one in self._typed:
            for name in found.names:
                if name.lower() == one.column:
                    empty = pa.nulls(0, found.field(name).type)
                    self._encoded(one, pa.record_batch([empty], [one.column]))

    def encoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with bytes.

        Raises:
            OptionError: A value that the format cannot encode.
        """
        for one in self._typed:
            for name in batch.schema.names:
                if name.lower() == one.column:
                    made = self._encoded(one, pa_batch(batch.column(name), one.column))
                    batch = batch.set_column(batch.schema.get_field_index(name), name, made)
        return batch

    def _encoded(self, one: Typed, rows: pa.RecordBatch) -> Any:
        column = rows.column(0)
        try:
            serializer, kind = _serializer(one.format, self._topic, one.column)
            if kind is not None:
                column = aligned(column, kind, one.column)
            made = serialize(pa_batch(column, one.column), **{one.column: serializer})
        except (InvalidArgumentError, ValueError) as error:
            raise OptionError(f"column {one.column} cannot be written as {one.format.name}: {error}") from None
        return made.column(0)


def pa_batch(column: pa.Array, name: str) -> pa.RecordBatch:
    """One column as a batch."""
    import pyarrow as pa

    return pa.record_batch([column], [name])
