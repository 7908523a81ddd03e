"""The text of a `.proto` file -> `FileDescriptorProto`.

Syntax: https://protobuf.dev/reference/protobuf/proto3-spec and proto2-spec. Types are names as written until `protobuf_format.py` resolves them.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from fletchlog.interop import require

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<number>(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[fF]?(?![A-Za-z_0-9.]))
    |(?P<name>[A-Za-z_][A-Za-z_0-9]*)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
SCALARS = (
    *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "message", "bytes", "uint32", "enum", "sfixed32"),
    *("sfixed64", "sint32", "sint64"),
)
# the number of a type in FieldDescriptorProto.Type
NUMBERS = {name: number for number, name in enumerate(SCALARS, 1)}
LABELS = {"optional": 1, "required": 2, "repeated": 3}
LARGEST_FIELD = (1 << 29) - 1
_DEEPEST = 64


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def descriptors() -> Any:
    """The module of descriptors of the library `protobuf`."""
    return require("google.protobuf.descriptor_pb2", "serde")


def read(text: str) -> Any:
    """The `FileDescriptorProto` of a text, without name.

    Raises:
        ValueError: It is no such text; the message has the line.
    """
    return _Reader(text).file()


class _Reader:
    """Reads a text once, token by token."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0
        self._pb = descriptors()

    # --- tokens

    @property
    def _now(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._now
        if token.kind == "end":
            raise ValueError(f"line {token.line}: the text ends too early")
        self._at += 1
        return token

    def _is(self, text: str) -> bool:
        """Takes a token if it is this one."""
        if self._now.text == text and self._now.kind != "text":
            self._at += 1
            return True
        return False

    def _need(self, text: str) -> None:
        if not self._is(text):
            raise self._unexpected(f"`{text}`")

    def _unexpected(self, wanted: str) -> ValueError:
        return ValueError(f"line {self._now.line}: expected {wanted}, found `{self._now.text or 'the end'}`")

    def _name(self) -> str:
        if self._now.kind != "name":
            raise self._unexpected("a name")
        return self._take().text

    def _full_name(self) -> str:
        found = "." if self._is(".") else ""
        found += self._name()
        while self._is("."):
            found += "." + self._name()
        return found

    def _string(self) -> str:
        if self._now.kind != "text":
            raise self._unexpected("a text in quotes")
        found = ""
        while self._now.kind == "text":
            found += _unquoted(self._take())
        return found

    def _whole(self) -> int:
        negative = self._is("-")
        token = self._now
        if token.kind != "number":
            raise self._unexpected("a whole number")
        try:
            number = int(token.text, 8) if re.fullmatch(r"0[0-7]+", token.text) else int(token.text, 0)
        except ValueError:
            raise self._unexpected("a whole number") from None
        self._at += 1
        return -number if negative else number

    # --- a file

    def file(self) -> Any:
        made = self._pb.FileDescriptorProto()
        if self._is("syntax"):
            self._need("=")
            syntax = self._string()
            if syntax not in ("proto2", "proto3"):
                raise ValueError(f'syntax is "{syntax}"; it is proto2 or proto3')
            # proto2 is the default, and is not written
            if syntax == "proto3":
                made.syntax = syntax
            self._need(";")
        elif self._now.text == "edition":
            raise ValueError("editions are not supported; use syntax proto2 or proto3")
        while self._now.kind != "end":
            self._top(made)
        return made

    def _top(self, made: Any) -> None:
        if self._is(";"):
            return
        if self._is("import"):
            kind = self._take().text if self._now.text in ("public", "weak") else ""
            if kind:
                (made.public_dependency if kind == "public" else made.weak_dependency).append(len(made.dependency))
            made.dependency.append(self._string())
            self._need(";")
        elif self._is("package"):
            made.package = self._full_name()
            self._need(";")
        elif self._is("option"):
            self._option(made.options)
            self._need(";")
        elif self._is("message"):
            self._message(made.message_type.add(), made, 1)
        elif self._is("enum"):
            self._enum(made.enum_type.add())
        elif self._is("service"):
            self._service(made.service.add())
        elif self._is("extend"):
            self._extend(made.extension, made.message_type, made)
        else:
            raise self._unexpected("message, enum, service, import, package, option or extend")

    def _message(self, made: Any, file: Any, depth: int) -> None:
        if depth > _DEEPEST:
            raise ValueError(f"line {self._now.line}: messages are nested more than {_DEEPEST} deep")
        made.name = self._name()
        self._body(made, file, depth)

    def _body(self, made: Any, file: Any, depth: int) -> None:
        self._need("{")
        while not self._is("}"):
            if self._is(";"):
                continue
            # as in protoc, a statement that begins with one of these words is no field
            if self._is("message"):
                self._message(made.nested_type.add(), file, depth + 1)
            elif self._is("enum"):
                self._enum(made.enum_type.add())
            elif self._is("oneof"):
                self._oneof(made, file, depth)
            elif self._is("option"):
                self._option(made.options)
                self._need(";")
            elif self._is("extend"):
                self._extend(made.extension, made.nested_type, file)
            elif self._is("extensions"):
                self._extension_ranges(made)
            elif self._is("reserved"):
                self._reserved(made, LARGEST_FIELD, 1)
            else:
                self._field(made.field.add(), made, file, depth)
        for field in made.field:
            if field.name in made.reserved_name or any(one.start <= field.number < one.end for one in made.reserved_range):
                raise ValueError(f"message {made.name}: field {field.name} = {field.number} is reserved")
        # protoc gives each optional field of proto3 a oneof of its own, behind the written ones
        for field in made.field:
            if field.proto3_optional:
                field.oneof_index = len(made.oneof_decl)
                made.oneof_decl.add(name=f"_{field.name}")

    def _extension_ranges(self, made: Any) -> None:
        ranges = [made.extension_range.add(start=begin, end=end + 1) for begin, end in self._ranges(LARGEST_FIELD)]
        if self._now.text == "[":
            for name, value in self._listed():
                for one in ranges:
                    _set_option(one.options, name, value)
        self._need(";")

    def _reserved(self, made: Any, largest: int, beyond: int) -> None:
        if self._now.kind == "text":
            made.reserved_name.append(self._string())
            while self._is(","):
                made.reserved_name.append(self._string())
        else:
            for begin, end in self._ranges(largest):
                made.reserved_range.add(start=begin, end=end + beyond)
        self._need(";")

    def _ranges(self, largest: int) -> list[tuple[int, int]]:
        found = []
        while True:
            begin = self._whole()
            end = begin
            if self._is("to"):
                end = largest if self._is("max") else self._whole()
            found.append((begin, end))
            if not self._is(","):
                return found

    def _field(self, made: Any, message: Any, file: Any, depth: int, *, in_oneof: bool = False) -> None:
        line = self._now.line
        if self._now.text == "map" and self._tokens[self._at + 1].text == "<":
            self._map(made, message, line)
            return
        following = self._tokens[self._at + 1]
        label = ""
        if self._now.text in LABELS and not in_oneof and (following.kind == "name" or following.text == "."):
            label = self._take().text
        made.label = LABELS[label or "optional"]
        if not label and not in_oneof and file.syntax != "proto3":
            raise ValueError(f"line {line}: a field of proto2 is optional, required or repeated")
        if label == "required" and file.syntax == "proto3":
            raise ValueError(f"line {line}: proto3 has no required fields")
        kind = self._full_name()
        made.name = self._name()
        self._need("=")
        self._number(made)
        if kind == "group":
            made.type = NUMBERS["group"]
            made.type_name = made.name
            group = message.nested_type.add(name=made.name)
            made.name = made.name.lower()
            if self._now.text == "[":
                self._field_options(made)
            self._body(group, file, depth + 1)
            return
        if kind in NUMBERS and kind not in ("message", "enum"):
            made.type = NUMBERS[kind]
        else:
            made.type_name = kind
        if self._now.text == "[":
            self._field_options(made)
        self._need(";")
        if label == "optional" and file.syntax == "proto3":
            made.proto3_optional = True

    def _number(self, made: Any) -> None:
        line, number = self._now.line, self._whole()
        if not 1 <= number <= LARGEST_FIELD:
            raise ValueError(f"line {line}: the number of field {made.name} is {number}; numbers are 1 to {LARGEST_FIELD}")
        made.number = number

    def _map(self, made: Any, message: Any, line: int) -> None:
        self._at += 2
        key = self._name()
        if key not in NUMBERS or key in ("float", "double", "bytes", "message", "enum", "group"):
            raise ValueError(f"line {line}: the key of a map is a whole number, bool or string, not {key}")
        self._need(",")
        kind = self._full_name()
        self._need(">")
        made.name = self._name()
        self._need("=")
        self._number(made)
        made.label = LABELS["repeated"]
        made.type_name = "".join(part[:1].upper() + part[1:] for part in made.name.split("_")) + "Entry"
        entry = message.nested_type.add(name=made.type_name)
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=1, type=NUMBERS[key])
        value = entry.field.add(name="value", number=2, label=1)
        if kind in NUMBERS and kind not in ("message", "enum"):
            value.type = NUMBERS[kind]
        else:
            value.type_name = kind
        if self._now.text == "[":
            self._field_options(made)
        self._need(";")

    def _oneof(self, message: Any, file: Any, depth: int) -> None:
        index = len(message.oneof_decl)
        made = message.oneof_decl.add(name=self._name())
        self._need("{")
        while not self._is("}"):
            if self._is(";"):
                continue
            if self._is("option"):
                self._option(made.options)
                self._need(";")
                continue
            self._field(message.field.add(oneof_index=index), message, file, depth, in_oneof=True)

    def _enum(self, made: Any) -> None:
        made.name = self._name()
        self._need("{")
        while not self._is("}"):
            following = self._tokens[self._at + 1]
            if self._is(";"):
                continue
            if self._now.text == "option" and following.text != "=":
                self._at += 1
                self._option(made.options)
                self._need(";")
            elif self._now.text == "reserved" and following.text != "=":
                self._at += 1
                self._reserved(made, (1 << 31) - 1, 0)
            else:
                value = made.value.add(name=self._name())
                self._need("=")
                value.number = self._whole()
                if self._now.text == "[":
                    self._options(value.options)
                self._need(";")

    def _service(self, made: Any) -> None:
        made.name = self._name()
        self._need("{")
        while not self._is("}"):
            if self._is(";"):
                continue
            if self._is("option"):
                self._option(made.options)
                self._need(";")
                continue
            self._need("rpc")
            method = made.method.add(name=self._name())
            for way in ("client", "server"):
                if way == "server":
                    self._need("returns")
                self._need("(")
                if self._now.text == "stream" and self._tokens[self._at + 1].text != ")":
                    self._at += 1
                    setattr(method, f"{way}_streaming", True)
                setattr(method, "input_type" if way == "client" else "output_type", self._full_name())
                self._need(")")
            if not self._is(";"):
                self._need("{")
                while not self._is("}"):
                    if not self._is(";"):
                        self._need("option")
                        self._option(method.options)
                        self._need(";")

    def _extend(self, extensions: Any, nested: Any, file: Any) -> None:
        extended = self._full_name()
        self._need("{")
        holder = self._pb.DescriptorProto()
        while not self._is("}"):
            if not self._is(";"):
                self._field(holder.field.add(extendee=extended), holder, file, 1)
        extensions.extend(holder.field)
        nested.extend(holder.nested_type)

    # --- options

    def _field_options(self, made: Any) -> None:
        for name, value in self._listed():
            if name == ["default"]:
                made.default_value = str(value) if not isinstance(value, bool) else str(value).lower()
            elif name == ["json_name"]:
                made.json_name = value
            else:
                _set_option(made.options, name, value)

    def _options(self, options: Any) -> None:
        for name, value in self._listed():
            _set_option(options, name, value)

    def _listed(self) -> Iterator[tuple[list[str], Any]]:
        """`[name = value, ..]`."""
        self._need("[")
        while True:
            name = self._option_name()
            self._need("=")
            yield name, self._value()
            if not self._is(","):
                break
        self._need("]")

    def _option(self, options: Any) -> None:
        name = self._option_name()
        self._need("=")
        _set_option(options, name, self._value())

    def _option_name(self) -> list[str]:
        """Its parts; those of extensions are in brackets."""
        parts: list[str] = []
        while True:
            if self._is("("):
                parts.append(f"({self._full_name()})")
                self._need(")")
            else:
                parts.append(self._name())
            if not self._is("."):
                return parts

    def _value(self) -> Any:
        """A constant: a number, a text, true, false, a name, or what is in braces."""
        if self._now.kind == "text":
            return self._string()
        if self._now.text == "{":
            return _Aggregate(self._braces())
        negative = self._is("-")
        token = self._take()
        if token.kind == "name":
            if negative and token.text in ("inf", "nan"):
                return float(f"-{token.text}")
            return {"true": True, "false": False}.get(token.text, _Word(token.text))
        if token.kind != "number":
            self._at -= 1
            raise self._unexpected("a value")
        if re.fullmatch(r"0[xX][0-9a-fA-F]+|\d+", token.text):
            self._at -= 1
            number: float = self._whole()
        else:
            number = float(token.text.rstrip("fF"))
        return -number if negative else number

    def _braces(self) -> str:
        """What is in braces, as text."""
        self._need("{")
        depth = 1
        parts: list[str] = []
        while True:
            token = self._take()
            depth += {"{": 1, "}": -1}.get(token.text, 0) if token.kind == "sign" else 0
            if depth == 0:
                return " ".join(parts)
            parts.append(token.text)


class _Word(str):
    """A name as a value: of an enum."""

    __slots__ = ()


class _Aggregate(str):
    """What is in braces."""

    __slots__ = ()


def _tokens(text: str) -> Iterator[_Token]:
    line = 1
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind == "sign" and match.group() in "\"'":
            raise ValueError(f"line {line}: a text in quotes does not end")
        if kind != "space":
            yield _Token(kind, match.group(), line)
        line += match.group().count("\n")
    yield from [_Token("end", "", line)] * 5


def _unquoted(token: _Token) -> str:
    try:
        found = ast.literal_eval("b" + token.text) if token.text.isascii() else ast.literal_eval(token.text)
        return found.decode() if isinstance(found, bytes) else str(found)
    except (ValueError, SyntaxError) as error:
        raise ValueError(f"line {token.line}: {token.text} is no text: {error}") from None


def _set_option(options: Any, name: list[str], value: Any) -> None:
    """Sets an option that protobuf itself has; another one is kept uninterpreted."""
    field = options.DESCRIPTOR.fields_by_name.get(name[0]) if len(name) == 1 else None
    if field is not None and not field.is_repeated and field.message_type is None and not isinstance(value, _Aggregate):
        if field.enum_type is not None:
            if not isinstance(value, _Word) or value not in field.enum_type.values_by_name:
                raise ValueError(f"option {name[0]} is {value}; it is one of {', '.join(field.enum_type.values_by_name)}")
            value = field.enum_type.values_by_name[value].number
        try:
            setattr(options, name[0], value)
        except (TypeError, ValueError) as error:
            raise ValueError(f"option {name[0]}: {error}") from None
        return
    made = options.uninterpreted_option.add()
    for part in name:
        made.name.add(name_part=part.strip("()"), is_extension=part.startswith("("))
    if isinstance(value, _Aggregate):
        made.aggregate_value = value
    elif isinstance(value, bool):
        made.identifier_value = str(value).lower()
    elif isinstance(value, _Word):
        made.identifier_value = value
    elif isinstance(value, str):
        made.string_value = value.encode()
    elif isinstance(value, float):
        made.double_value = value
    elif value < 0:
        made.negative_int_value = value
    else:
        made.positive_int_value = value
