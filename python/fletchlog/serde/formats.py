"""Formats of keys and values by plain options: what the shell and Spark name them with, and other doors to come.

>>> from fletchlog.serde import formats
>>> asked = formats.parse({"format": "json", "schema": "amount bigint"}, lambda name: f"value.{name}")
>>> asked.deserializer().type
StructType(struct<amount: int64>)
>>> formats.parse({"format": "jsn"}, lambda name: f"value.{name}")
Traceback (most recent call last):
fletchlog.errors.InvalidArgumentError: value.format is jsn; expected one of string, bytes, json, ...; did you mean json?
"""

from __future__ import annotations

import base64
import difflib
import functools
import importlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fletchlog.errors import InvalidArgumentError
from fletchlog.interop import require
from fletchlog.registry.client import RegisteredSchema, Registry
from fletchlog.registry.schemas import RegistrySchemas
from fletchlog.serde import ddl
from fletchlog.serde.avro import Avro
from fletchlog.serde.confluent import Confluent
from fletchlog.serde.json import Json
from fletchlog.serde.json_schema import JsonSchema
from fletchlog.serde.primitive import Boolean, Double, Float, Integer, Long, Short, String
from fletchlog.serde.protobuf import Protobuf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pyarrow as pa

    Named = Callable[[str], str]
    """From the name of an option here to what the user knows it as."""

_PLAIN: dict[str, Any] = {"string": String, "short": Short, "integer": Integer, "long": Long, "float": Float, "double": Double, "boolean": Boolean}
REGISTRY = "schema.registry"
# Options of the client of a schema registry, behind its own name.
_CLIENT = ("auth", "token", "ca", "certificate", "key")
# format -> the options that it has to have, and those that it may have
_OPTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "string": ((), ()),
    "bytes": ((), ()),
    "json": ((), ("schema",)),
    "json-schema": (("schema",), ("reader_schema",)),
    "avro": (("schema",), ("reader_schema",)),
    "protobuf": ((), ("schema", "message")),
    **dict.fromkeys(("short", "integer", "long", "float", "double", "boolean"), ((), ())),
    "confluent": ((REGISTRY,), ("reader_schema",)),
}
# The same with a registry: values begin with the id of their schema.
_REGISTERED = ((REGISTRY,), ("schema", "reader_schema", "message", "subject", *(f"{REGISTRY}.{name}" for name in _CLIENT)))
NAMES = tuple(_OPTIONS)
OPTIONS = ("format", "schema", "reader_schema", "message", "subject", REGISTRY, *(f"{REGISTRY}.{name}" for name in _CLIENT))
REGISTERED = ("avro", "json", "json-schema", "protobuf", "confluent")
# With a registry, what is written is of one of these types.
_KINDS = {"avro": "AVRO", "json": "JSON", "json-schema": "JSON", "protobuf": "PROTOBUF"}
# What the engine reads by a description (`Format.description`), without Python.
DESCRIBED = ("avro", "protobuf", "json", "json-schema", "string", "short", "integer", "long", "float", "double", "boolean")
_CLASS = "a message class that protoc has made, as MODULE.CLASS: shop_pb2.Order"
_NEEDED = {
    "schema": {"avro": "an Avro schema, as JSON", "json-schema": "a JSON Schema"},
    REGISTRY: {"confluent": "the URL of a schema registry, http://HOST:8081"},
}


@dataclass(frozen=True)
class Format:
    """A format of keys or values. It can be pickled, and makes the same objects in every process.

    Attributes:
        name: One of `NAMES`.
        schema: Avro schema, JSON Schema, text of a .proto file, or the type of JSON values in Spark's DDL.
        reader_schema: Avro schema that values are resolved to; for `json-schema` the type of the values, in Spark's DDL, if the schema does not give it.
        message: Protobuf: the message's class as `MODULE.CLASS`; with a schema or a registry the full name of the message, or None for the first one.
        subject: With a registry: the subject, if it is not that of the topic.
        registry: Arguments of `serde.Registry`; empty: values do not begin with the id of a schema.
        common: With a registry: what gives values of all schemas one type, where it is no Avro schema: the descriptors of a Protobuf schema, or a JSON Schema
            with what it refers to, as JSON.
        named: The options as the user knows them, for errors.
    """

    name: str
    schema: str | None = None
    reader_schema: str | None = None
    message: str | None = None
    subject: str | None = None
    registry: tuple[tuple[str, str], ...] = ()
    common: bytes | str | None = None
    named: tuple[tuple[str, str], ...] = ()

    def deserializer(self) -> Any:
        """An object of `fletchlog.serde` that decodes and encodes; None for `bytes`.

        Raises:
            fletchlog.errors.InvalidArgumentError: A schema or a message that cannot work; it names the option.
            ImportError: The package of the format is not installed.
        """
        if self.registry:
            return self._checked("reader_schema", self._confluent)
        made: Callable[[], Any] = {
            "bytes": lambda: None,
            "json": lambda: Json(self._ddl("schema", self.schema)),
            "json-schema": lambda: self._checked("schema", lambda: JsonSchema(self.schema, self._json_type())),
            "avro": self._avro,
            "protobuf": self._protobuf,
        }.get(self.name) or _PLAIN[self.name]
        return made()

    def serializer(self, topic: str | None, *, is_key: bool) -> Any:
        """As `deserializer`; with a registry one that registers the schema under the subject of the topic, or writes its newest version.

        Raises:
            fletchlog.errors.InvalidArgumentError: As `deserializer`, or `confluent`, which names no type of schema to write.
        """
        if not self.registry:
            return self.deserializer()
        options = dict(self.named)
        if self.name == "confluent" and self.schema is not None:
            raise InvalidArgumentError(f"{options['format']} is confluent; to write with {options['schema']} it is one of {', '.join(_KINDS)}")
        return Confluent(
            registry=self.client(),
            schema=self.schema,
            kind=_KINDS.get(self.name, "AVRO"),
            topic=topic,
            is_key=is_key,
            subject=self.subject,
            message=self.message,
        )

    def written_type(self, topic: str | None, *, is_key: bool) -> pa.DataType | None:
        """Arrow type of what the serializer takes; None: that depends on the values.

        Raises:
            fletchlog.errors.InvalidArgumentError: As `serializer`.
        """
        if not self.registry:
            made = self.deserializer()
            return None if made is None else made.type
        client = self.client()
        schemas = RegistrySchemas(client, self.message)
        if self.schema is None:
            made = schemas.serializer(client.version(self._subject(topic, is_key=is_key)))
        else:
            given = RegisteredSchema(None, _KINDS[self.name], self.schema)
            made = self._checked("schema", lambda: schemas.serializer(given))
        kind: pa.DataType | None = made.type
        return kind

    def _confluent(self) -> Confluent:
        return Confluent(registry=self.client(), reader_schema=self._reader_schema(), message=self.message)

    def _reader_schema(self) -> Any:
        """What all values are read as, for `Confluent`."""
        if isinstance(self.common, bytes):
            return Protobuf(self.message, self.common)
        if self.common is not None:
            return JsonSchema(**json.loads(self.common))
        if self.reader_schema is not None and self.name in ("json", "json-schema"):
            return self._json_type()
        return self.reader_schema

    def client(self) -> Registry:
        """A client of the registry."""
        given: dict[str, Any] = dict(self.registry)
        if "auth" in given:
            user, _, password = given["auth"].partition(":")
            given["auth"] = (user, password)
        return Registry(**given)

    def resolved(self, topic: str | None, *, is_key: bool) -> Format:
        """The same, where every value has one type: with a registry, that of the newest version of the subject, unless there is a reader schema.

        Raises:
            fletchlog.errors.InvalidArgumentError: No subject, or a JSON Schema that leaves the type open.
            fletchlog.errors.SchemaRegistryError: The registry has no such subject, or does not answer.
        """
        if not self.registry or self.reader_schema is not None:
            return self
        client = self.client()
        found = client.version(self._subject(topic, is_key=is_key))
        made = RegistrySchemas(client, self.message).serializer(found)
        if found.kind == "AVRO":
            return replace(self, reader_schema=_avro_text(made))
        if found.kind == "PROTOBUF":
            return replace(self, common=made.declared[0])
        if made.type is None:
            what = f"the JSON Schema of {found.subject}, version {found.version}, leaves the type of its values open"
            remedy = f"; give {dict(self.named)['reader_schema']}, the type in Spark's DDL, with the format json-schema"
            raise InvalidArgumentError(what + remedy)
        return replace(self, common=json.dumps({"schema": made.schema, "references": made.references}))

    def description(self, topic: str | None, *, is_key: bool) -> dict[str, Any]:
        """The reader as `rust/serde/src/description.rs` takes it, for one of `DESCRIBED`.

        With a registry it has the schemas of all versions of the subject, deleted ones too: producers register a schema before they
        write with it, so what is in the topic by now was written with one of them.

        Raises:
            fletchlog.errors.InvalidArgumentError: No subject, or one with schemas of several types.
            fletchlog.errors.SchemaRegistryError: The registry has no such subject, or does not answer.
        """
        if not self.registry:
            return {"format": self.name, **self._described()}
        subject = self._subject(topic, is_key=is_key)
        versions = self.client().versions(subject, deleted=True)
        made = [_registered(self.registry, self.message, subject, version) for version in versions]
        return {"format": "confluent", "readers": {known: self._read_as_one(one) for one in made for known in one.known_by}}

    def _read_as_one(self, written: _Written) -> dict[str, Any]:
        """The description of the reader of one schema, which gives what all of the subject give."""
        of = {bytes: "PROTOBUF", str: "JSON", type(None): "AVRO"}[type(self.common)]
        of = "JSON" if self.name in ("json", "json-schema") else of
        if written.kind != of:
            raise InvalidArgumentError(f"{written.what} is of type {written.kind}, and the others are read as {of}")
        if of == "AVRO":
            return {"format": "avro", "schema": written.schema, "reader_schema": self.reader_schema}
        if isinstance(self.common, bytes):
            message = Protobuf(self.message, self.common).declared[1]
            parts = {"descriptors": base64.b64encode(self.common).decode(), "written": base64.b64encode(written.schema).decode()}
            return {"format": "protobuf", "message": message, **parts}
        schema, references = json.loads(written.schema).values()
        return {
            "format": "json-schema",
            "schema": json.dumps(schema),
            "references": {name: json.dumps(one) for name, one in references.items()},
            "type": _described_type(self._reader_schema().type),
        }

    def _described(self) -> dict[str, Any]:
        """The parts of a description, of values that do not begin with the id of a schema."""
        if self.name == "avro":
            return {"schema": self.schema, "reader_schema": self.reader_schema}
        if self.name == "protobuf":
            descriptors, message = self.deserializer().declared
            return {"descriptors": base64.b64encode(descriptors).decode(), "message": message}
        if self.name in ("json", "json-schema"):
            return {"schema": self.schema, "type": _described_type(self.deserializer().type)}
        return {}

    def _subject(self, topic: str | None, *, is_key: bool) -> str:
        if self.subject is None and topic is None:
            options = dict(self.named)
            raise InvalidArgumentError(f"several topics are read: give {options['subject']}, or {options['reader_schema']}, for one type of all values")
        return self.subject or f"{topic}-{'key' if is_key else 'value'}"

    def _avro(self) -> Any:
        if self.reader_schema is not None:
            self._checked("schema", lambda: Avro(self.schema))
            return self._checked("reader_schema", lambda: Avro(self.schema, self.reader_schema))
        return self._checked("schema", lambda: Avro(self.schema))

    def _protobuf(self) -> Any:
        if self.schema is not None:
            return self._checked("schema", lambda: Protobuf(self.message, self.schema))
        if self.message is None:
            options = dict(self.named)
            raise InvalidArgumentError(
                f"{options['format']} is protobuf, which needs {options['schema']}: the text of a .proto file; or {options['message']}: {_CLASS}"
            )
        return self._checked("message", lambda: Protobuf(self._message()))

    def _json_type(self) -> Json | None:
        """None: the type that the JSON Schema gives."""
        return None if self.reader_schema is None else Json(self._ddl("reader_schema", self.reader_schema))

    def _ddl(self, option: str, text: str | None) -> Any:
        return None if text is None else self._checked(option, lambda: ddl.arrow_type(text))

    def _message(self) -> Any:
        module, _, name = (self.message or "").rpartition(".")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise InvalidArgumentError(f"{self.message} cannot be imported ({error}); it is {_CLASS}") from None

    def _checked(self, option: str, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{dict(self.named).get(option, option)}: {error}") from None


def _described_type(arrow_type: pa.DataType) -> Any:
    """A type as `rust/serde/src/description.rs` takes it."""
    types = require("pyarrow", "serde").types
    if types.is_struct(arrow_type):
        return {"struct": [[field.name, _described_type(field.type)] for field in arrow_type]}
    if types.is_map(arrow_type):
        return {"map": [_described_type(arrow_type.key_type), _described_type(arrow_type.item_type)]}
    return {"list": _described_type(arrow_type.value_type)} if types.is_list(arrow_type) else str(arrow_type)


def _avro_text(made: Any) -> str:
    """The schema of an `Avro`, as text."""
    return made.schema if isinstance(made.schema, str) else json.dumps(made.schema)


@dataclass(frozen=True)
class _Written:
    """A version of a subject: what its values are known by, its type and what reads them (see `Format.common`; Avro: the schema)."""

    what: str
    known_by: tuple[str, ...]
    kind: str
    schema: Any


@functools.lru_cache(maxsize=1000)
def _registered(registry: tuple[tuple[str, str], ...], message: str | None, subject: str, version: int) -> _Written:
    """A version, which never changes; streams ask for them in every batch."""
    client = Format("avro", registry=registry).client()
    found = client.version(subject, version, deleted=True)
    made = RegistrySchemas(client, message).serializer(found)
    if found.kind == "AVRO":
        schema: Any = _avro_text(made)
    else:
        schema = made.declared[0] if found.kind == "PROTOBUF" else json.dumps({"schema": made.schema, "references": made.references})
    known_by = [str(found.id or 0), *([] if found.guid is None else [found.guid])]
    return _Written(f"version {version} of {subject}", tuple(known_by), found.kind, schema)


def parse(given: Mapping[str, str | None], named: Named) -> Format | None:
    """The format that options name; None if there is none.

    Args:
        given: Some of `OPTIONS`, with their values; None: not given.
        named: From such a name to what the user knows the option as, for errors: `--value-schema`, `option value.schema`.

    Raises:
        fletchlog.errors.InvalidArgumentError: An unknown format, an option that is missing, that the format does not take, or that cannot work. It names the
            option as the user does.
        ImportError: The package of the format is not installed.
    """
    found = {name: given.get(name) for name in OPTIONS}
    name = found["format"]
    if name is None:
        other = next((option for option, value in found.items() if value is not None), None)
        if other is not None:
            raise InvalidArgumentError(f"{named(other)} is given without {named('format')}, which is one of {', '.join(NAMES)}")
        return None
    name = name.strip().lower()
    if name not in _OPTIONS:
        raise InvalidArgumentError(f"{named('format')} is {name}; expected one of {', '.join(NAMES)}{_nearest(name, NAMES)}")
    client = tuple((option.removeprefix(f"{REGISTRY}.").replace(REGISTRY, "url"), value) for option, value in found.items() if value and REGISTRY in option)
    needed, allowed = _REGISTERED if found[REGISTRY] is not None and (name in _KINDS or name == "confluent") else _OPTIONS[name]
    for option in OPTIONS[1:]:
        if option in needed and not found[option]:
            raise InvalidArgumentError(f"{named('format')} is {name}, which needs {named(option)}: {_NEEDED[option][name]}")
        if found[option] is not None and option not in (*needed, *allowed):
            takes = [named(one) for one in (*needed, *allowed)]
            raise InvalidArgumentError(f"{named(option)} is given, and {name} takes {' and '.join(takes) if takes else 'no schema'}")
    made = Format(
        name,
        found["schema"],
        found["reader_schema"],
        found["message"],
        found["subject"],
        client,
        named=tuple((option, named(option)) for option in OPTIONS),
    )
    made.deserializer()  # what cannot work fails here; a registry is not asked yet
    return made


def policy(given: str | None, name: str, words: Mapping[str, str]) -> Any:
    """What `on_error` of `serde.deserialize` is by an option, whose `words` are by the first if it is not given.

    Raises:
        fletchlog.errors.InvalidArgumentError: Another word.
    """
    word = next(iter(words)) if given is None else given.strip().lower()
    if word not in words:
        raise InvalidArgumentError(f"{name} is {given}; expected one of {', '.join(words)}{_nearest(word, words)}")
    return words[word]


def _nearest(word: str, words: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(words), n=1)
    return f"; did you mean {close[0]}?" if close else ""
