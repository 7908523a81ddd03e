"""Whether a Protobuf schema reads what was written with another one, by the rules that Confluent publishes for its registry.

| difference | reads old data |
|---|---|
| a message, an enum, a value of an enum, a field that is not required, a oneof is added | yes |
| a field that is not required, an enum, a value of an enum is removed | yes |
| a message is removed | no |
| a field gets another name, the package another one | yes |
| the type of a field changes within int32, uint32, int64, uint64, bool, enums; sint32, sint64; fixed32, sfixed32; fixed64, sfixed64; string, bytes | yes |
| .. in another way, or to another message | no |
| a field of numbers becomes repeated or stops being it | no |
| a field of text, bytes or messages does | yes |
| a required field is added or removed | no |
| one existing field moves into a new oneof | yes |
| existing fields move into an existing oneof, or several into a new one | no |
| a field is removed from a oneof, while the oneof remains | no |

Names of differences are Confluent's (`protobuf.diff.Difference.Type`). Messages are compared by their full names, without the package of the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fletchlog.registry.formats import difference
from fletchlog.registry.protobuf_print import SCALARS

if TYPE_CHECKING:
    from collections.abc import Iterator

_NUMERIC = frozenset(
    ("int32", "int64", "uint32", "uint64", "bool", "enum", "sint32", "sint64", "fixed32", "sfixed32", "fixed64", "sfixed64", "float", "double")
)
_ALIKE = (("int32", "int64", "uint32", "uint64", "bool", "enum"), ("sint32", "sint64"), ("fixed32", "sfixed32"), ("fixed64", "sfixed64"), ("string", "bytes"))
_KIND = {kind: group for group, kinds in enumerate(_ALIKE) for kind in kinds}
_REQUIRED, _REPEATED = 2, 3


def differences(old: Any, new: Any) -> list[str]:
    """The differences of two linked files that are not allowed, as Confluent's messages; empty: there are none."""
    found = _Comparison(old, new)
    return [difference(kind, path) for kind, path in dict.fromkeys(found.messages())]


class _Comparison:
    def __init__(self, old: Any, new: Any) -> None:
        self._old, self._new = old, new
        self._open: set[tuple[str, str]] = set()

    def messages(self) -> Iterator[tuple[str, str]]:
        """The messages of the files, by their names."""
        after = {message.name: message for message in self._new.message_types_by_name.values()}
        for message in self._old.message_types_by_name.values():
            if message.name in after:
                yield from self._message(message, after[message.name], f"#/{message.name}")
            else:
                yield "MESSAGE_REMOVED", f"#/{message.name}"

    def _message(self, old: Any, new: Any, path: str) -> Iterator[tuple[str, str]]:
        pair = (old.full_name, new.full_name)
        if pair in self._open:
            return
        self._open.add(pair)
        inner = {nested.name: nested for nested in new.nested_types if not nested.GetOptions().map_entry}
        for nested in old.nested_types:
            if nested.GetOptions().map_entry:
                continue
            if nested.name in inner:
                yield from self._message(nested, inner[nested.name], f"{path}/{nested.name}")
            else:
                yield "MESSAGE_REMOVED", f"{path}/{nested.name}"
        before, after = ({field.number: field for field in message.fields} for message in (old, new))
        for number in sorted({*before, *after}):
            at = f"{path}/{number}"
            if number not in after:
                if _is_required(before[number]):
                    yield "REQUIRED_FIELD_REMOVED", at
            elif number not in before:
                if _is_required(after[number]):
                    yield "REQUIRED_FIELD_ADDED", at
            else:
                yield from self._field(before[number], after[number], at)
        yield from _oneofs(old, new, path)

    def _field(self, old: Any, new: Any, at: str) -> Iterator[tuple[str, str]]:
        before, after = SCALARS[old.type - 1], SCALARS[new.type - 1]
        composite = ("message", "group")
        if before in composite and after in composite:
            yield from self._named(old, new, at)
        elif before in composite or after in composite:
            yield "FIELD_KIND_CHANGED", at
        elif before == after == "enum":
            if _local(old.enum_type) != _local(new.enum_type):
                yield "FIELD_NAMED_TYPE_CHANGED", at
        elif before != after and (before not in _KIND or _KIND[before] != _KIND.get(after)):
            yield ("FIELD_KIND_CHANGED" if "enum" in (before, after) else "FIELD_SCALAR_KIND_CHANGED"), at
        if _is_required(old) != _is_required(new):
            yield ("REQUIRED_FIELD_REMOVED" if _is_required(old) else "REQUIRED_FIELD_ADDED"), at
        if _is_repeated(old) != _is_repeated(new) and before in _NUMERIC:
            yield "FIELD_NUMERIC_LABEL_CHANGED", at

    def _named(self, old: Any, new: Any, at: str) -> Iterator[tuple[str, str]]:
        """Two fields of messages."""
        is_map = [field.message_type.GetOptions().map_entry for field in (old, new)]
        if all(is_map):
            for name in ("key", "value"):
                yield from self._field(old.message_type.fields_by_name[name], new.message_type.fields_by_name[name], f"{at}/{name}")
        elif any(is_map):
            yield "FIELD_KIND_CHANGED", at
        elif _local(old.message_type) != _local(new.message_type):
            yield "FIELD_NAMED_TYPE_CHANGED", at
        else:
            yield from self._message(old.message_type, new.message_type, at)


def _oneofs(old: Any, new: Any, path: str) -> Iterator[tuple[str, str]]:
    """Fields that move into and out of oneofs."""
    before, after = ({oneof.name: {field.number for field in oneof.fields} for oneof in _real(message)} for message in (old, new))
    existing = {field.number for field in old.fields}
    for name, numbers in before.items():
        if name in after:
            for number in sorted(numbers - after[name]):
                yield "ONEOF_FIELD_REMOVED", f"{path}/{name}/{number}"
    for name, numbers in after.items():
        known = before.get(name)
        # a oneof that has only another name keeps its fields together
        if known is None and any(numbers & existing <= other for other in before.values() if other):
            continue
        moved = numbers & existing - (known or set())
        if known is not None and moved:
            yield "FIELDS_MOVED_TO_EXISTING_ONEOF", f"{path}/{name}"
        elif len(moved) > 1:
            yield "MULTIPLE_FIELDS_MOVED_TO_ONEOF", f"{path}/{name}"


def _real(message: Any) -> list[Any]:
    """The oneofs that are written: not those of optional fields of proto3."""
    return [oneof for oneof in message.oneofs if not (len(oneof.fields) == 1 and oneof.name == f"_{oneof.fields[0].name}")]


def _is_required(field: Any) -> bool:
    return bool(field.is_required)


def _is_repeated(field: Any) -> bool:
    return bool(field.is_repeated)


def _local(type_: Any) -> str:
    """The name of a type without the package of its file."""
    package = type_.file.package
    return str(type_.full_name.removeprefix(f"{package}.") if package else type_.full_name)
