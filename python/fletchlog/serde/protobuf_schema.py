"""Schemas of Protobuf: from classes, texts and bytes to descriptors, and the messages in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fletchlog import _core
from fletchlog.errors import InvalidArgumentError
from fletchlog.interop import require
from fletchlog.serde.outcome import refuse_name_of_file

if TYPE_CHECKING:
    from collections.abc import Iterator

# the name of a text that has none
_TEXT = "schema.proto"


def descriptors(schema: str | bytes | Mapping[str, str]) -> bytes:
    """The serialised `FileDescriptorSet` of a schema: see `Protobuf`. The file of the message is the last."""
    if isinstance(schema, bytes):
        return schema
    refuse_name_of_file(schema)
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
    """The full name of the first message of the last file.

    Raises:
        fletchlog.errors.InvalidArgumentError: The file has no message.
    """
    file = _files(made)[-1]
    if not file.message_type:
        raise InvalidArgumentError("the Protobuf schema has no message")
    name: str = file.message_type[0].name
    return f"{file.package}.{name}" if file.package else name


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


def _varint(number: int) -> bytes:
    made = bytearray()
    while number >= 1 << 7:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])
