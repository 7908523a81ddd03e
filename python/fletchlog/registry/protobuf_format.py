"""Protobuf schemas: parsed from text (or the base64 of a `FileDescriptorProto`, as confluent-kafka sends it), linked and checked by the `protobuf` library."""

from __future__ import annotations

import base64
import binascii
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fletchlog.interop import require
from fletchlog.registry.protobuf_diff import differences
from fletchlog.registry.protobuf_print import write
from fletchlog.registry.protobuf_text import descriptors, read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fletchlog.registry.formats import Parsed, Referred

# The name of a file that no reference names.
ROOT = "default"
# Files of Google's that every schema may import, without a reference.
GOOGLE = {
    "protobuf": ("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type", "wrappers"),
    "type": (
        *("calendar_period", "color", "date", "datetime", "dayofweek", "decimal", "expr", "fraction", "interval", "latlng", "localized_text", "money", "month"),
        *("phone_number", "postal_address", "quaternion", "timeofday"),
    ),
}
# Files of Confluent's, the same.
CONFLUENT = {
    "confluent/type/decimal.proto": """syntax = "proto3"; package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }""",
    "confluent/meta.proto": """syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";
        message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
        extend google.protobuf.FileOptions { Meta file_meta = 1088; }
        extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
        extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
        extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
        extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }""",
}


def parse_protobuf(text: str, references: Sequence[Referred]) -> tuple[Any, Any]:
    """A schema and what it refers to: its `FileDescriptorProto` as written, and the linked `FileDescriptor` of the `protobuf` library.

    Raises:
        ValueError: The text is no `.proto` file, an import has no reference, or the file contradicts itself or another one.
    """
    pool = require("google.protobuf.descriptor_pool", "serde").DescriptorPool()
    files = {one.name: _file(one.text, one.name) for one in references}
    root = _file(text, ROOT)
    added: set[str] = set()
    _link(pool, root, files, added)
    return root, pool.FindFileByName(root.name)


class ProtobufSchema:
    """A Protobuf schema."""

    def __init__(self, text: str, referred: Sequence[Referred]) -> None:
        """Parses it.

        Raises:
            ValueError: As for `parse_protobuf`.
        """
        self._file, self.linked = parse_protobuf(text, referred)

    @cached_property
    def canonical(self) -> str:
        """See `Parsed.canonical`: as text, in one layout, without comments."""
        return write(self._file)

    @cached_property
    def normalized(self) -> str:
        """See `Parsed.normalized`: full names of types; imports, options and fields sorted."""
        return write(self._resolved, normal=True)

    def formatted(self, form: str) -> str:
        """See `Parsed.formatted`: `serialized` is the base64 of the `FileDescriptorProto`."""
        if form == "serialized":
            return base64.b64encode(self._resolved.SerializeToString()).decode()
        return self.canonical

    def problems_reading(self, written: Parsed) -> list[str]:
        """See `Parsed.problems_reading`."""
        assert isinstance(written, ProtobufSchema)  # noqa: S101 - schemas of one type are compared
        return differences(written.linked, self.linked)

    def unchecked_reading(self, written: Parsed) -> list[str]:
        """See `Parsed.unchecked_reading`: everything is compared."""
        del written
        return []

    @property
    def _resolved(self) -> Any:
        """The file with full names of types, and with the options that only the text has."""
        made = descriptors().FileDescriptorProto()
        self.linked.CopyToProto(made)
        return made


def _file(text: str, name: str) -> Any:
    """A file from its text, or from the base64 of its `FileDescriptorProto`."""
    made = descriptors().FileDescriptorProto()
    try:
        made.ParseFromString(base64.b64decode(text, validate=True))
        if not made.ListFields():
            raise ValueError("nothing is in it")  # noqa: TRY301 - the same as no base64
    except (binascii.Error, require("google.protobuf.message", "serde").DecodeError, ValueError):
        try:
            made = read(text)
        except TypeError as error:
            raise ValueError(f"an option has a value of another type: {error}") from error
    made.name = name
    return made


def _link(pool: Any, file: Any, files: dict[str, Any], added: set[str]) -> None:
    """Adds a file to the pool, after what it imports."""
    if file.name in added:
        return
    added.add(file.name)
    for name in file.dependency:
        imported = files.get(name) or _built_in(name)
        if imported is None:
            raise ValueError(f'import "{name}": no reference has this name')
        _link(pool, imported, files, added)
    linked = descriptors().FileDescriptorProto()
    linked.CopyFrom(file)
    try:
        pool.AddSerializedFile(linked.SerializeToString())
        # what is wrong may only be seen when it is looked for
        pool.FindFileByName(file.name)
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(str(error)) from error


def _built_in(name: str) -> Any:
    """A file that every schema may import; None: there is no such."""
    if name in CONFLUENT:
        return _file(CONFLUENT[name], name)
    for package, kinds in GOOGLE.items():
        kind = name.removeprefix(f"google/{package}/").removesuffix(".proto")
        if name == f"google/{package}/{kind}.proto" and kind in kinds:
            made = descriptors().FileDescriptorProto()
            require(f"google.{package}.{kind}_pb2", "serde" if package == "protobuf" else "registry").DESCRIPTOR.CopyToProto(made)
            return made
    return None
