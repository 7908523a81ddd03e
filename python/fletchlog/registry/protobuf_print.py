"""`FileDescriptorProto` -> the text of a `.proto` file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fletchlog.interop import require
from fletchlog.registry.protobuf_text import LARGEST_FIELD, NUMBERS, SCALARS

if TYPE_CHECKING:
    from collections.abc import Iterator


def write(file: Any, *, normal: bool = False) -> str:
    """The text of a `FileDescriptorProto`: in its order; with `normal` imports, options and fields are sorted."""
    return "\n".join(_Writer(file, normal=normal).lines()) + "\n"


class _Writer:
    def __init__(self, file: Any, *, normal: bool) -> None:
        self._file, self._normal = file, normal

    def lines(self) -> Iterator[str]:
        file = self._file
        yield f'syntax = "{file.syntax or "proto2"}";'
        if file.package:
            yield f"package {file.package};"
        kinds = dict.fromkeys(file.public_dependency, "public ") | dict.fromkeys(file.weak_dependency, "weak ")
        imports = [f"import {kinds.get(number, '')}{_quoted(name)};" for number, name in enumerate(file.dependency)]
        if imports:
            yield from ["", *(sorted(imports) if self._normal else imports)]
        if options := self._options(file.options):
            yield from ["", *(f"option {one};" for one in options)]
        for message in file.message_type:
            yield ""
            yield from self._message(message, file.package)
        for enum in file.enum_type:
            yield ""
            yield from self._enum(enum)
        yield from self._extensions(file.extension)
        for service in file.service:
            yield ""
            yield f"service {service.name} {{"
            for one in self._options(service.options):
                yield f"  option {one};"
            for method in service.method:
                given = ("stream " if method.client_streaming else "") + method.input_type
                returned = ("stream " if method.server_streaming else "") + method.output_type
                options = self._options(method.options)
                yield f"  rpc {method.name} ({given}) returns ({returned})" + (" {" if options else ";")
                if options:
                    yield from (f"    option {one};" for one in options)
                    yield "  }"
            yield "}"

    def _message(self, message: Any, scope: str, head: str = "") -> Iterator[str]:
        yield (head or f"message {message.name}") + " {"
        full = f"{scope}.{message.name}" if scope else message.name
        entries = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
        groups = {field.type_name.rpartition(".")[2] for field in message.field if field.type == NUMBERS["group"]}
        inner = [f"reserved {_range(one.start, one.end - 1, LARGEST_FIELD)};" for one in message.reserved_range]
        inner += [f"reserved {_quoted(name)};" for name in message.reserved_name]
        inner += [f"option {one};" for one in self._options(message.options)]
        synthetic = {field.oneof_index for field in message.field if field.proto3_optional}
        fields = sorted(message.field, key=lambda field: field.number) if self._normal else message.field
        inner += [line for field in fields if not field.HasField("oneof_index") or field.proto3_optional for line in self._field(field, entries, message, full)]
        for number, oneof in enumerate(message.oneof_decl):
            if number not in synthetic:
                inner.append(f"oneof {oneof.name} {{")
                inner += [f"  option {one};" for one in self._options(oneof.options)]
                members = [field for field in fields if field.HasField("oneof_index") and field.oneof_index == number]
                inner += ["  " + line for field in members for line in self._field(field, entries, message, full)]
                inner.append("}")
        inner += [f"extensions {_range(one.start, one.end - 1, LARGEST_FIELD)};" for one in message.extension_range]
        for nested in message.nested_type:
            if nested.name not in entries and nested.name not in groups:
                inner += ["", *self._message(nested, full)]
        for enum in message.enum_type:
            inner += ["", *self._enum(enum)]
        inner += list(self._extensions(message.extension))
        yield from ("  " + line if line else "" for line in inner)
        yield "}"

    def _field(self, field: Any, entries: dict[str, Any], message: Any, scope: str) -> Iterator[str]:
        options = self._options(field.options)
        if field.HasField("default_value"):
            text = field.type in (NUMBERS["string"], NUMBERS["bytes"])
            options = [f"default = {_quoted(field.default_value) if text else field.default_value}", *options]
        if field.HasField("json_name") and field.json_name != _json_name(field.name):
            options = [f"json_name = {_quoted(field.json_name)}", *options]
        after = f" = {field.number}" + (f" [{', '.join(options)}]" if options else "")
        entry = entries.get(field.type_name.rpartition(".")[2]) if field.type_name else None
        if entry is not None:
            key, value = sorted(entry.field, key=lambda one: one.number)
            yield f"map<{_type(key)}, {_type(value)}> {field.name}{after};"
            return
        label = {1: "", 2: "required ", 3: "repeated "}[field.label]
        if field.label == 1 and not field.HasField("oneof_index") and self._file.syntax != "proto3":
            label = "optional "
        if field.proto3_optional:
            label = "optional "
        if field.type == NUMBERS["group"]:
            name = field.type_name.rpartition(".")[2]
            group = next(nested for nested in message.nested_type if nested.name == name)
            yield from self._message(group, scope, f"{label}group {name}{after}")
            return
        yield f"{label}{_type(field)} {field.name}{after};"

    def _enum(self, enum: Any) -> Iterator[str]:
        yield f"enum {enum.name} {{"
        for one in enum.reserved_range:
            yield f"  reserved {_range(one.start, one.end, (1 << 31) - 1)};"
        for name in enum.reserved_name:
            yield f"  reserved {_quoted(name)};"
        for one in self._options(enum.options):
            yield f"  option {one};"
        # the first value of proto3 stays the first
        values = sorted(enum.value, key=lambda value: value.number) if self._normal and self._file.syntax == "proto3" else enum.value
        for value in values:
            options = self._options(value.options)
            yield f"  {value.name} = {value.number}" + (f" [{', '.join(options)}]" if options else "") + ";"
        yield "}"

    def _extensions(self, extensions: Any) -> Iterator[str]:
        for extended in dict.fromkeys(field.extendee for field in extensions):
            yield ""
            yield f"extend {extended} {{"
            for field in extensions:
                if field.extendee == extended:
                    yield from ("  " + line for line in self._field(field, {}, None, ""))
            yield "}"

    def _options(self, options: Any) -> list[str]:
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
        return sorted(found) if self._normal else found


def _type(field: Any) -> str:
    return str(field.type_name or SCALARS[field.type - 1])


def _range(begin: int, end: int, largest: int) -> str:
    if begin == end:
        return str(begin)
    return f"{begin} to {'max' if end == largest else end}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t") + '"'


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


def _uninterpreted(option: Any) -> str:
    name = ".".join(f"({part.name_part})" if part.is_extension else part.name_part for part in option.name)
    for kind in ("identifier_value", "positive_int_value", "negative_int_value", "double_value"):
        if option.HasField(kind):
            return f"{name} = {getattr(option, kind)}"
    if option.HasField("aggregate_value"):
        return f"{name} = {{ {option.aggregate_value} }}"
    return f"{name} = {_quoted(option.string_value.decode())}"


def _json_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)
