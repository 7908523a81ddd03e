"""What `serde.Confluent(registry=...)` asks a registry for: the deserializer of an id, and the id and serializer of what is written."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from uuid import UUID

from fletchlog.errors import InvalidArgumentError, SchemaRegistryError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fletchlog.registry.client import RegisteredSchema, Registry

SubjectName: TypeAlias = Literal["topic", "record", "topic-record"]
STRATEGIES = ("topic", "record", "topic-record")
_NOT_FOUND = 40403


@dataclass
class RegistrySchemas:
    """The schemas of a registry, as the deserializers of their values. All threads may call; it can be pickled.

    Attributes:
        registry: The client.
        message: Full name of the Protobuf message that values are; None: the first one of the schema's file.
        reader_schema: The Avro schema that values are resolved to, or a `Protobuf`, `Json` or `JsonSchema` that they are read as; None: each as its own.
    """

    registry: Registry
    message: str | None = None
    reader_schema: Any = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {"registry": self.registry, "message": self.message, "reader_schema": self.reader_schema}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def __call__(self, schema_id: int | str | UUID) -> Any:
        """The deserializer of an id or a GUID.

        Raises:
            LookupError: The registry has no such schema.
            SchemaRegistryError: Anything else, such as an outage: no bad data.
        """
        try:
            found = self.registry.schema(str(schema_id) if isinstance(schema_id, UUID) else schema_id)
        except SchemaRegistryError as error:
            if error.error_code == _NOT_FOUND:
                raise LookupError(str(error)) from None
            raise
        return self.serializer(found)

    def serializer(self, found: RegisteredSchema) -> Any:
        """What reads and writes values of a schema.

        Raises:
            UnresolvableError: They are of another type than they are to be read as.
        """
        from fletchlog.serde.avro import Avro, UnresolvableError
        from fletchlog.serde.json import Json
        from fletchlog.serde.json_schema import JsonSchema
        from fletchlog.serde.protobuf import Protobuf

        reader = self.reader_schema
        kinds = {Protobuf: "PROTOBUF", Json: "JSON", JsonSchema: "JSON"}
        wanted = kinds.get(type(reader), found.kind)
        if found.kind != wanted:
            raise UnresolvableError(f"schema id {found.id} is of type {found.kind}, and values are read as {wanted}")
        if found.kind == "AVRO":
            return Avro(_inlined(self.registry, found), reader)
        if found.kind == "JSON":
            references = {name: json.loads(one.text) for name, one in _referred(self.registry, found)}
            values = Json(reader.type) if type(reader) in kinds else None
            return JsonSchema(json.loads(found.text), values, references)
        if found.kind == "PROTOBUF":
            declared = _descriptors(self.registry, found)
            if not isinstance(reader, Protobuf):
                return Protobuf(self.message, declared)
            return reader.written_with(declared)
        raise InvalidArgumentError(f"schema id {found.id} is of type {found.kind}; AVRO, JSON and PROTOBUF can be read")


@dataclass(frozen=True)
class Written:
    """What is written: a schema under a subject.

    Args:
        schema: The text, or what it parses to; a message class of `protoc` for Protobuf; None: the newest version of the subject.
        kind: Its type.
        subject: The subject; None: by `topic` and the strategy.
        topic: The topic.
        is_key: Whether keys are written, not values.
        strategy: How subjects are named: "topic" (`orders-value`), "record" (full name of the record), "topic-record" (both).
        auto_register: Whether the schema is registered; False: it has to be.
        normalize: See `Registry.register`.
    """

    schema: Any = None
    kind: str = "AVRO"
    subject: str | None = None
    topic: str | None = None
    is_key: bool = False
    strategy: SubjectName = "topic"
    auto_register: bool = True
    normalize: bool = False

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise InvalidArgumentError(f"strategy is {self.strategy!r}; it is one of {', '.join(STRATEGIES)}")

    def registered(self, registry: Registry) -> RegisteredSchema:
        """The schema in the registry.

        Raises:
            fletchlog.errors.InvalidArgumentError: Neither a subject, nor what one is made of.
            fletchlog.errors.SchemaRegistryError: The registry refuses it, or does not answer.
        """
        if self.schema is None:
            return registry.version(self._subject())
        text, kind = self._text()
        if self.auto_register:
            return registry.registered(self._subject(), text, kind=kind, normalize=self.normalize)
        return registry.lookup(self._subject(), text, kind=kind, normalize=self.normalize)

    def _text(self) -> tuple[str, str]:
        if hasattr(self.schema, "DESCRIPTOR"):
            from fletchlog.registry.protobuf_print import descriptors, write

            file = descriptors().FileDescriptorProto()
            self.schema.DESCRIPTOR.file.CopyToProto(file)
            return write(file), "PROTOBUF"
        return self.schema if isinstance(self.schema, str) else json.dumps(self.schema), self.kind

    def _subject(self) -> str:
        """The name of the subject. Confluent: `TopicNameStrategy`, `RecordNameStrategy`, `TopicRecordNameStrategy`."""
        if self.subject is not None:
            return self.subject
        if self.strategy == "record":
            return self._record()
        if self.topic is None:
            raise InvalidArgumentError("which subject is written? Give Confluent(registry=..., schema=..., topic=TOPIC) or subject=")
        return f"{self.topic}-{self._record()}" if self.strategy == "topic-record" else f"{self.topic}-{'key' if self.is_key else 'value'}"

    def _record(self) -> str:
        """The full name of what is written."""
        if hasattr(self.schema, "DESCRIPTOR"):
            return str(self.schema.DESCRIPTOR.full_name)
        found = json.loads(self.schema) if isinstance(self.schema, str) and self.kind != "PROTOBUF" else self.schema
        if isinstance(found, dict):
            if self.kind == "JSON" and isinstance(found.get("title"), str):
                return str(found["title"])
            if isinstance(found.get("name"), str):
                space = found.get("namespace")
                return f"{space}.{found['name']}" if space and "." not in found["name"] else str(found["name"])
        raise InvalidArgumentError(f"the strategy {self.strategy} needs the name of a record, and the schema has none; give subject=")


def _referred(registry: Registry, schema: RegisteredSchema, form: str | None = None) -> Iterator[tuple[str, RegisteredSchema]]:
    """What a schema refers to, each after what it refers to itself, with its name."""
    seen: set[str] = set()

    def walk(one: RegisteredSchema) -> Iterator[tuple[str, RegisteredSchema]]:
        for reference in one.references:
            if reference.name not in seen:
                seen.add(reference.name)
                found = registry.version(reference.subject, reference.version, deleted=True, form=form)
                yield from walk(found)
                yield reference.name, found

    yield from walk(schema)


def _inlined(registry: Registry, schema: RegisteredSchema) -> Any:
    """An Avro schema with what it refers to in it, each where it is named first."""
    found = json.loads(schema.text)
    if not schema.references:
        return found
    known = {name: json.loads(one.text) for name, one in _referred(registry, schema)}
    done: set[str] = set()

    def inline(part: Any, space: str) -> Any:
        if isinstance(part, str):
            full = part if part in known or not space else f"{space}.{part}"
            if full not in known or full in done:
                return part
            done.add(full)
            inner = known[full]
            # without a namespace it would get that of where it is put
            return inline({"namespace": "", **inner} if isinstance(inner, dict) else inner, "")
        if isinstance(part, list):
            return [inline(branch, space) for branch in part]
        if not isinstance(part, dict):
            return part
        if "name" in part and isinstance(part.get("name"), str):
            space = part["name"].rpartition(".")[0] or part.get("namespace", space)
        made = dict(part)
        for name in ("type", "items", "values"):
            if name in made:
                made[name] = inline(made[name], space)
        if isinstance(made.get("fields"), list):
            made["fields"] = [{**one, "type": inline(one["type"], space)} for one in made["fields"]]
        return made

    return inline(found, "")


def _descriptors(registry: Registry, schema: RegisteredSchema) -> bytes:
    """The serialised `FileDescriptorSet` of a registered Protobuf schema and all that it refers to."""
    from fletchlog.registry.formats import Referred
    from fletchlog.registry.protobuf_format import ProtobufSchema

    form = "serialized"
    texts = [Referred(one, found.text) for one, found in _referred(registry, schema, form)]
    root = registry.schema(schema.id, form=form) if schema.id is not None else schema
    try:
        return ProtobufSchema(root.text, texts).descriptors
    except ValueError as error:
        remedy = "give Confluent(schemas={ID: Protobuf(MESSAGE_CLASS)}) with a class that protoc has made"
        raise InvalidArgumentError(f"schema id {schema.id} cannot be compiled: {error}; {remedy}") from error


def guid_header(guid: str, *, is_key: bool) -> tuple[str, bytes]:
    """The header that says which schema a record has, instead of the id before the value: magic byte 1 and the GUID's 16 bytes.

    Confluent: `HeaderSchemaIdSerializer`.
    """
    import uuid

    return f"__{'key' if is_key else 'value'}_schema_id", b"\x01" + uuid.UUID(guid).bytes
