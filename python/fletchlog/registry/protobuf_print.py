"""`FileDescriptorProto` -> the text of a `.proto` file, in the layout of Confluent's registry: texts are the same there if they are printed alike.

Kafka's registry: `ProtobufSchemaUtils#toString`. Parts of a message (reserved numbers, options, fields, oneofs, ..) have one empty line between them, messages
come before enums, and more than one option of a field has a line each.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fletchlog.interop import require

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SCALARS = (
    *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "message", "bytes", "uint32", "enum", "sfixed32"),
    *("sfixed64", "sint32", "sint64"),
)
# the number of a type in FieldDescriptorProto.Type
NUMBERS = {name: number for number, name in enumerate(SCALARS, 1)}
LARGEST_FIELD = (1 << 29) - 1


def descriptors() -> Any:
    """The module of descriptors of the library `protobuf`."""
    return require("google.protobuf.descriptor_pb2", "serde")


def write(file: Any, *, normal: bool = False) -> str:
    """The text of a `FileDescriptorProto`: in its order; with `normal` imports, options, fields and values of enums are sorted."""
    return "\n".join(_Writer(file, normal=normal).lines()) + "\n"


class _Writer:
    def __init__(self, file: Any, *, normal: bool) -> None:
        self._file, self._normal = file, normal

    def lines(self) -> Iterator[str]:
        file = self._file
        head = [f'syntax = "{file.syntax or "proto2"}";']
        if file.package:
            head.append(f"package {file.package};")
        yield from _parts(
            head,
            self._imports(),
            self._options(file.options),
            [line for message in file.message_type for line in self._message(message, file.package)]
            + [line for enum in file.enum_type for line in self._enum(enum)],
            self._extensions(file.extension),
            [line for service in file.service for line in self._service(service)],
        )

    def _imports(self) -> list[str]:
        file = self._file
        public = set(file.public_dependency)
        kinds = dict.fromkeys(file.weak_dependency, "weak ") | dict.fromkeys(public, "public ")
        found = []
        for wanted in (False, True):
            lines = [f"import {kinds.get(number, '')}{_quoted(name)};" for number, name in enumerate(file.dependency) if (number in public) is wanted]
            found += sorted(dict.fromkeys(lines)) if self._normal else lines
        return found

    def _service(self, service: Any) -> Iterator[str]:
        methods: list[str] = []
        for method in service.method:
            given = ("stream " if method.client_streaming else "") + method.input_type
            returned = ("stream " if method.server_streaming else "") + method.output_type
            options = self._options(method.options)
            methods.append(f"rpc {method.name} ({given}) returns ({returned})" + (" {" if options else ";"))
            if options:
                methods += [*_indented(options), "};"]
        yield from _block(f"service {service.name}", _parts(self._options(service.options), methods))

    def _message(self, message: Any, scope: str, head: str = "") -> Iterator[str]:
        full = f"{scope}.{message.name}" if scope else message.name
        entries = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
        groups = {field.type_name.rpartition(".")[2] for field in message.field if field.type == NUMBERS["group"]}
        synthetic = {field.oneof_index for field in message.field if field.proto3_optional}
        fields = sorted(message.field, key=lambda field: field.number) if self._normal else message.field
        plain = [field for field in fields if not field.HasField("oneof_index") or field.proto3_optional]
        oneofs = []
        for number, oneof in enumerate(message.oneof_decl):
            members = [field for field in fields if number not in synthetic and field.HasField("oneof_index") and field.oneof_index == number]
            if members:
                oneofs.append((members, oneof))
        if self._normal:
            oneofs.sort(key=lambda pair: pair[0][0].number)
        nested = [line for one in message.nested_type if one.name not in entries and one.name not in groups for line in self._message(one, full)]
        inner = _parts(
            self._reserved(message, LARGEST_FIELD, 1),
            self._options(message.options),
            [line for field in plain if field.type != NUMBERS["group"] for line in self._field(field, entries, message, full)],
            [line for members, oneof in oneofs for line in self._oneof(oneof, members, entries, message, full)],
            [line for field in plain if field.type == NUMBERS["group"] for line in self._field(field, entries, message, full)],
            [f"extensions {_range(one.start, one.end - 1, LARGEST_FIELD)};" for one in message.extension_range],
            nested + [line for enum in message.enum_type for line in self._enum(enum)],
            self._extensions(message.extension),
        )
        yield from _block(head or f"message {message.name}", inner)

    def _reserved(self, declared: Any, largest: int, after: int) -> list[str]:
        """Reserved ranges and names; `after`: how far the end of a range is behind its last number."""
        ranges = [(one.start, one.end - after) for one in declared.reserved_range]
        names = list(declared.reserved_name)
        if self._normal:
            ranges, names = sorted(ranges), sorted(names)
        return [f"reserved {_range(begin, end, largest)};" for begin, end in ranges] + [f"reserved {_quoted(name)};" for name in names]

    def _oneof(self, oneof: Any, members: list[Any], entries: dict[str, Any], message: Any, scope: str) -> Iterator[str]:
        fields = [line for field in members for line in self._field(field, entries, message, scope)]
        yield from _block(f"oneof {oneof.name}", _parts(self._options(oneof.options), fields))

    def _field(self, field: Any, entries: dict[str, Any], message: Any, scope: str) -> Iterator[str]:
        options = self._options(field.options, "")
        if field.HasField("default_value"):
            default = field.default_value
            # descriptors have bytes with their escapes
            default = {NUMBERS["string"]: _quoted(default), NUMBERS["bytes"]: f'"{default}"'}.get(field.type, default)
            options.append(f"default = {default}")
        if field.HasField("json_name") and field.json_name != _json_name(field.name):
            options.append(f"json_name = {_quoted(field.json_name)}")
        after = f" = {field.number}"
        entry = entries.get(field.type_name.rpartition(".")[2]) if field.type_name else None
        if entry is not None:
            key, value = sorted(entry.field, key=lambda one: one.number)
            yield from self._with_options(f"map<{_type(key)}, {_type(value)}> {field.name}{after}", options)
            return
        label = {1: "", 2: "required ", 3: "repeated "}[field.label]
        if field.label == 1 and not field.HasField("oneof_index") and self._file.syntax != "proto3":
            label = "optional "
        if field.proto3_optional:
            label = "optional "
        if field.type == NUMBERS["group"]:
            name = field.type_name.rpartition(".")[2]
            group = next(nested for nested in message.nested_type if nested.name == name)
            inline = f" [{', '.join(options)}]" if options else ""
            yield from self._message(group, scope, f"{label}group {name}{after}{inline}")
            return
        yield from self._with_options(f"{label}{_type(field)} {field.name}{after}", options)

    def _with_options(self, text: str, options: list[str]) -> Iterator[str]:
        """A field or value of an enum with its options: one in the same line, more with a line each."""
        if self._normal:
            options = sorted(options, key=_name)
        if len(options) < 2:  # noqa: PLR2004 - one option is written beside it
            yield text + "".join(f" [{one}]" for one in options) + ";"
            return
        yield f"{text} ["
        yield from _indented([f"{one}{',' if number < len(options) else ''}" for number, one in enumerate(options, 1)])
        yield "];"

    def _enum(self, enum: Any) -> Iterator[str]:
        inner = [*self._reserved(enum, (1 << 31) - 1, 0), *self._options(enum.options)]
        for value in sorted(enum.value, key=lambda value: (value.number, value.name)) if self._normal else enum.value:
            inner += self._with_options(f"{value.name} = {value.number}", self._options(value.options, ""))
        yield from _block(f"enum {enum.name}", inner)

    def _extensions(self, extensions: Any) -> list[str]:
        found: list[str] = []
        for extended in dict.fromkeys(field.extendee for field in extensions):
            fields = [line for field in extensions if field.extendee == extended for line in self._field(field, {}, None, "")]
            found += _block(f"extend {extended}", fields)
        return found

    def _options(self, options: Any, form: str = "option {};") -> list[str]:
        """Options, each in a form; without one as `name = value`."""
        found = []
        for field, value in options.ListFields():
            if field.name == "uninterpreted_option":
                found += [_uninterpreted(one) for one in value]
            elif field.name == "map_entry":
                continue
            elif field.is_extension:
                found.append(f"({field.full_name}) = {_constant(field, value)}")
            else:
                found.append(f"{field.name} = {_constant(field, value)}")
        if self._normal:
            found.sort(key=_name)
        return [form.format(one) for one in found] if form else found


def _parts(*parts: Iterable[str]) -> list[str]:
    """Parts with an empty line between two of them; those without lines are left out."""
    found: list[str] = []
    for part in parts:
        lines = list(part)
        found += ["", *lines] if found and lines else lines
    return found


def _block(head: str, inner: Iterable[str]) -> list[str]:
    """What is in braces; without lines: in one line."""
    lines = list(inner)
    return [f"{head} {{", *_indented(lines), "}"] if lines else [f"{head} {{}}"]


def _indented(lines: Iterable[str]) -> list[str]:
    return ["  " + line if line else "" for line in lines]


def _name(option: str) -> str:
    """What options are sorted by."""
    return option.partition(" = ")[0].strip("()")


def _type(field: Any) -> str:
    return str(field.type_name or SCALARS[field.type - 1])


def _range(begin: int, end: int, largest: int) -> str:
    if begin == end:
        return str(begin)
    return f"{begin} to {'max' if end == largest else end}"


_ESCAPES = str.maketrans({"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\", "'": "\\'", '"': '\\"'})


def _quoted(text: str) -> str:
    return '"' + text.translate(_ESCAPES) + '"'


def _constant(field: Any, value: Any) -> str:
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _quoted(value)
    if field.message_type is not None:
        return str("{ " + require("google.protobuf.text_format", "serde").MessageToString(value, as_one_line=True) + " }")
    return str(value)


def _spaced(aggregate: str) -> str:
    """The text in the braces of an option with the blanks that `MessageToString` writes, so that both ways to it give one text."""
    found = ""
    for token in re.findall(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|[:,;{}\[\]<>]|[^\s:,;{}\[\]<>"\']+', aggregate):
        found += token if not found or token in (":", ",", ";") else f" {token}"
    return found


def _uninterpreted(option: Any) -> str:
    name = ".".join(f"({part.name_part})" if part.is_extension else part.name_part for part in option.name)
    for kind in ("identifier_value", "positive_int_value", "negative_int_value", "double_value"):
        if option.HasField(kind):
            return f"{name} = {getattr(option, kind)}"
    if option.HasField("aggregate_value"):
        return f"{name} = {{ {_spaced(option.aggregate_value)} }}"
    return f"{name} = {_quoted(option.string_value.decode())}"


def _json_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)
