"""Schemas of Protobuf: from classes, texts and bytes to descriptors, and what they declare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fletchlog import _core
from fletchlog.errors import InvalidArgumentError
from fletchlog.interop import require

if TYPE_CHECKING:
    from collections.abc import Iterator

# the name of a text that has none
_TEXT = "schema.proto"


@dataclass(frozen=True)
class Field:
    """A field of a message.

    Attributes:
        name: Its name.
        number: Its number.
        type: Its type as the schema writes it: "int32", "string", .., "message", "group", "enum".
        type_name: The full name of its message or enum, else "".
        label: "optional", "required" or "repeated".
        oneof: The name of its oneof, if the schema has it in one.
        is_optional: Whether the schema says `optional` in proto3.
    """

    name: str
    number: int
    type: str
    type_name: str
    label: str
    oneof: str | None
    is_optional: bool


@dataclass(frozen=True)
class Message:
    """A message. `is_map_entry`: it is what a field `map<K, V>` stands for."""

    full_name: str
    fields: tuple[Field, ...]
    is_map_entry: bool
    reserved_names: tuple[str, ...]
    reserved_numbers: tuple[range, ...]


@dataclass(frozen=True)
class Enum:
    """An enum: names and numbers in the order of their declaration."""

    full_name: str
    values: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Compiled:
    """What one .proto file declares, without the files that it imports.

    Attributes:
        package: Its package, or "".
        syntax: "proto2", "proto3" or "editions".
        imports: The files that it imports.
        messages: Its messages by full name, each before those in it, in the order of their declaration.
        enums: Its enums by full name.
        services: Full names of its services.
        descriptors: A serialised `FileDescriptorSet`: it and all that it imports, each after what it imports.
    """

    package: str
    syntax: str
    imports: tuple[str, ...]
    messages: dict[str, Message]
    enums: dict[str, Enum]
    services: tuple[str, ...]
    descriptors: bytes


def compiled(text: str, references: Mapping[str, str] | None = None) -> Compiled:
    """What the text of a .proto file declares.

    Args:
        text: proto2 or proto3.
        references: What it imports: names, as an import writes them, and texts. The files of `google/protobuf` are known.

    Raises:
        fletchlog.errors.InvalidArgumentError: Not such a text, with what is wrong and its line; or a missing import.
    """
    made = descriptors({_TEXT: text, **(references or {})})
    file = _files(made)[-1]
    messages: dict[str, Message] = {}
    enums: dict[str, Enum] = {}
    for message, full_name in _messages(file):
        messages[full_name] = _message(message, full_name)
        enums.update((name, _enum(enum, name)) for enum in message.enum_type for name in [f"{full_name}.{enum.name}"])
    prefix = f"{file.package}." if file.package else ""
    enums.update((name, _enum(enum, name)) for enum in file.enum_type for name in [prefix + enum.name])
    services = tuple(prefix + service.name for service in file.service)
    return Compiled(file.package, file.syntax or "proto2", tuple(file.dependency), messages, enums, services, made)


def descriptors(schema: str | bytes | Mapping[str, str]) -> bytes:
    """The serialised `FileDescriptorSet` of a schema: see `Protobuf`. The file of the message is the last."""
    if isinstance(schema, bytes):
        return schema
    texts = {_TEXT: schema} if isinstance(schema, str) else dict(schema) if isinstance(schema, Mapping) else {}
    if not texts or not all(isinstance(part, str) for pair in texts.items() for part in pair):
        raise InvalidArgumentError(f"a Protobuf schema is a text, texts by file names, or bytes of a FileDescriptorSet, got {schema!r:.60}")
    return _core.protobuf_descriptors(texts, next(iter(texts)))


def of_class(descriptor: Any) -> tuple[bytes, str]:
    """The serialised `FileDescriptorSet` of a message class, and its full name."""
    files: dict[str, bytes] = {}

    def add(file: Any) -> None:
        if file.name not in files:
            files[file.name] = file.serialized_pb
            for other in file.dependencies:
                add(other)

    add(descriptor.file)
    return b"".join(b"\x0a" + _varint(len(file)) + file for file in files.values()), descriptor.full_name


def first_message(made: bytes) -> str:
    """The full name of the first message of the last file."""
    return name_at(made, [0])


def name_at(made: bytes, indexes: list[int]) -> str:
    """The full name of a message of the last file by Confluent's message indexes."""
    file = _files(made)[-1]
    beside: Any = file.message_type
    name: str = file.package
    for index in indexes:
        if not 0 <= index < len(beside):
            raise InvalidArgumentError(f"the Protobuf schema has no message with the indexes {indexes}")
        name = f"{name}.{beside[index].name}" if name else beside[index].name
        beside = beside[index].nested_type
    return name


def index_bytes(made: bytes, full_name: str) -> bytes:
    """Confluent's message indexes of a message as bytes: their number and each of them as zigzag varints, or one byte 0 for the first message of its file."""
    path = next(path for file in _files(made) for path, name in _paths(file.message_type, file.package) if name == full_name)
    return b"\0" if path == [0] else b"".join(_varint(number << 1) for number in [len(path), *path])


def _paths(messages: Any, outer: str) -> Iterator[tuple[list[int], str]]:
    """Indexes and full names of messages and all those in them."""
    for index, message in enumerate(messages):
        full_name = f"{outer}.{message.name}" if outer else message.name
        yield [index], full_name
        yield from (([index, *path], name) for path, name in _paths(message.nested_type, full_name))


def _files(made: bytes) -> list[Any]:
    found = require("google.protobuf.descriptor_pb2", "serde").FileDescriptorSet
    try:
        files = list(found.FromString(made).file)
    except require("google.protobuf.message", "serde").DecodeError as error:
        raise InvalidArgumentError(f"not the bytes of a FileDescriptorSet: {error}") from None
    if not files:
        raise InvalidArgumentError("a FileDescriptorSet without files declares no message")
    return files


def _messages(file: Any) -> Iterator[tuple[Any, str]]:
    """Descriptors and full names of all messages of a file, each before those in it."""

    def below(messages: Any, outer: str) -> Iterator[tuple[Any, str]]:
        for message in messages:
            full_name = f"{outer}.{message.name}" if outer else message.name
            yield message, full_name
            yield from below(message.nested_type, full_name)

    yield from below(file.message_type, file.package)


def _message(message: Any, full_name: str) -> Message:
    kinds = require("google.protobuf.descriptor_pb2", "serde").FieldDescriptorProto
    fields = tuple(
        Field(
            field.name,
            field.number,
            kinds.Type.Name(field.type).removeprefix("TYPE_").lower(),
            field.type_name.removeprefix("."),
            kinds.Label.Name(field.label).removeprefix("LABEL_").lower(),
            message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") and not field.proto3_optional else None,
            field.proto3_optional,
        )
        for field in message.field
    )
    reserved = tuple(range(part.start, part.end) for part in message.reserved_range)
    return Message(full_name, fields, message.options.map_entry, tuple(message.reserved_name), reserved)


def _enum(enum: Any, full_name: str) -> Enum:
    return Enum(full_name, tuple((value.name, value.number) for value in enum.value))


def _varint(number: int) -> bytes:
    made = bytearray()
    while number >= 1 << 7:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])
