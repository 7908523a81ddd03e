"""Protobuf schemas: from text, or the base64 of a `FileDescriptorProto` (as confluent-kafka sends it), to descriptors.

protox parses and links them in the engine. The library `protobuf` reads the descriptors: what is compared and printed are its objects.
"""

from __future__ import annotations

import base64
import binascii
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from fletchlog import _core
from fletchlog.interop import require
from fletchlog.registry.formats import Parsed
from fletchlog.registry.protobuf_diff import differences
from fletchlog.registry.protobuf_print import descriptors, write

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from fletchlog.registry.formats import Referred

# The name of a file that no reference names.
ROOT = "default"
# Files of Google's that every schema may import, without a reference. protox knows those of google/protobuf.
_GOOGLE = "google/protobuf/"
_GOOGLE_TYPE = "google/type/"
_GOOGLE_TYPES = (
    *("calendar_period", "color", "date", "datetime", "dayofweek", "decimal", "expr", "fraction", "interval", "latlng", "localized_text", "money", "month"),
    *("phone_number", "postal_address", "quaternion", "timeofday"),
)
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


class ProtobufSchema(Parsed):
    """A Protobuf schema.

    Attributes:
        descriptors: A serialised `FileDescriptorSet`: the file and all that it imports, each after what it imports.
    """

    def __init__(self, text: str, referred: Sequence[Referred]) -> None:
        """Parses it.

        Raises:
            ValueError: The text is no `.proto` file, an import has no reference, or the file contradicts itself or another one.
        """
        self._written = _file(text, ROOT)
        files = {name: _file(one, name) for name, one in (*CONFLUENT.items(), *((one.name, one.text) for one in referred))}
        for name, one in _google_types((self._written, *files.values())).items():
            files.setdefault(name, one)
        for name in self._written.dependency:
            if name not in files and not name.startswith(_GOOGLE):
                raise ValueError(f'import "{name}": no reference has this name')
        self.descriptors = _core.protobuf_descriptors({name: _linkable(one) for name, one in (*files.items(), (ROOT, self._written))}, ROOT)
        self._pool = require("google.protobuf.descriptor_pool", "serde").DescriptorPool()
        for one in descriptors().FileDescriptorSet.FromString(self.descriptors).file:
            self._root = one.SerializeToString()
            try:
                self._pool.AddSerializedFile(self._root)
            except TypeError as error:
                raise ValueError(str(error)) from error
        self.linked = self._pool.FindFileByName(ROOT)

    @cached_property
    def canonical(self) -> str:
        """See `Parsed.canonical`: as text, in one layout, without comments."""
        return write(self._written)

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

    @property
    def _resolved(self) -> Any:
        """The file with full names of types, and with its options of other files as they are written."""
        try:
            known = self._pool.FindMessageTypeByName("google.protobuf.FileDescriptorProto")
            made = require("google.protobuf.message_factory", "serde").GetMessageClass(known).FromString(self._root)
        except KeyError:
            made = descriptors().FileDescriptorProto.FromString(self._root)
        for path, option in _foreign_options(self._written):
            _at(made, path).uninterpreted_option.add().ParseFromString(option.SerializeToString())
        return made


def _file(text: str, name: str) -> Any:
    """The `FileDescriptorProto` of a text, or the one whose base64 it is: types and options are as they are written."""
    made = descriptors().FileDescriptorProto()
    try:
        made.ParseFromString(base64.b64decode(text, validate=True))
        if not made.ListFields():
            raise ValueError("nothing is in it")  # noqa: TRY301 - the same as no base64
    except (binascii.Error, require("google.protobuf.message", "serde").DecodeError, ValueError):
        made.ParseFromString(_core.protobuf_file(text, name))
    made.name = name
    return made


def _linkable(file: Any) -> bytes:
    """A file without the options that other files define: a registry takes schemas whose options nobody gives."""
    made = descriptors().FileDescriptorProto()
    made.CopyFrom(file)
    for path, _ in _foreign_options(file):
        place = _at(made, path)
        kept = [one for one in place.uninterpreted_option if not one.name[0].is_extension]
        del place.uninterpreted_option[:]
        place.uninterpreted_option.extend(kept)
    return bytes(made.SerializeToString())


_Path: TypeAlias = "tuple[tuple[str, int | None], ...]"


def _foreign_options(part: Any, path: _Path = ()) -> Iterator[tuple[_Path, Any]]:
    """The options of a part of a file that other files define, with the way to them: names of fields, and places in repeated ones."""
    for field, value in part.ListFields():
        if field.is_extension:
            # an option that this process knows: its value has none
            continue
        if field.name == "uninterpreted_option":
            yield from ((path, one) for one in value if one.name[0].is_extension)
        elif field.message_type is not None and field.is_repeated:
            for index, one in enumerate(value):
                yield from _foreign_options(one, (*path, (field.name, index)))
        elif field.message_type is not None:
            yield from _foreign_options(value, (*path, (field.name, None)))


def _at(file: Any, path: _Path) -> Any:
    """The part of a file at the end of a way."""
    for name, index in path:
        file = getattr(file, name) if index is None else getattr(file, name)[index]
    return file


def _google_types(files: Iterable[Any]) -> dict[str, Any]:
    """The files of `google/type`, if one of these imports any."""
    if not any(name.startswith(_GOOGLE_TYPE) for file in files for name in file.dependency):
        return {}
    known = [require(f"google.type.{kind}_pb2", "registry").DESCRIPTOR for kind in _GOOGLE_TYPES]
    return {file.name: descriptors().FileDescriptorProto.FromString(file.serialized_pb) for file in known}
