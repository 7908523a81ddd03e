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

import difflib
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fletchlog.errors import InvalidArgumentError
from fletchlog.serde import ddl
from fletchlog.serde.avro import Avro
from fletchlog.serde.json import Json
from fletchlog.serde.json_schema import JsonSchema
from fletchlog.serde.primitive import Double, Float, Integer, Long, Short, String
from fletchlog.serde.protobuf import Protobuf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Named = Callable[[str], str]
    """From the name of an option here to what the user knows it as."""

_PLAIN: dict[str, Any] = {"string": String, "short": Short, "integer": Integer, "long": Long, "float": Float, "double": Double}
# format -> the options that it has to have, and those that it may have
_OPTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "string": ((), ()),
    "bytes": ((), ()),
    "json": ((), ("schema",)),
    "json-schema": (("schema",), ("reader_schema",)),
    "avro": (("schema",), ("reader_schema",)),
    "protobuf": (("message",), ()),
    **dict.fromkeys(("short", "integer", "long", "float", "double"), ((), ())),
}
NAMES = tuple(_OPTIONS)
OPTIONS = ("format", "schema", "reader_schema", "message")
_NEEDED = {
    "schema": {"avro": "an Avro schema, as JSON", "json-schema": "a JSON Schema"},
    "message": {"protobuf": "a message class that protoc has made, as MODULE.CLASS: shop_pb2.Order"},
}


@dataclass(frozen=True)
class Format:
    """A format of keys or values. It can be pickled, and makes the same objects in every process.

    Attributes:
        name: One of `NAMES`.
        schema: Avro schema, JSON Schema, or the type of JSON values in Spark's DDL.
        reader_schema: Avro schema that values are resolved to; for `json-schema` the type of the values, in Spark's DDL.
        message: Protobuf: the message's class as `MODULE.CLASS`.
        named: The options as the user knows them, for errors.
    """

    name: str
    schema: str | None = None
    reader_schema: str | None = None
    message: str | None = None
    named: tuple[tuple[str, str], ...] = ()

    def deserializer(self) -> Any:
        """An object of `fletchlog.serde` that decodes and encodes; None for `bytes`.

        Raises:
            fletchlog.errors.InvalidArgumentError: A schema or a message that cannot work; it names the option.
            ImportError: The package of the format is not installed.
        """
        made: Callable[[], Any] = {
            "bytes": lambda: None,
            "json": lambda: Json(self._ddl("schema", self.schema)),
            "json-schema": lambda: self._checked("schema", lambda: JsonSchema(self.schema, Json(self._ddl("reader_schema", self.reader_schema)))),
            "avro": self._avro,
            "protobuf": lambda: self._checked("message", lambda: Protobuf(self._message())),
        }.get(self.name) or _PLAIN[self.name]
        return made()

    def _avro(self) -> Any:
        if self.reader_schema is not None:
            self._checked("schema", lambda: Avro(self.schema))
            return self._checked("reader_schema", lambda: Avro(self.schema, self.reader_schema))
        return self._checked("schema", lambda: Avro(self.schema))

    def _ddl(self, option: str, text: str | None) -> Any:
        return None if text is None else self._checked(option, lambda: ddl.arrow_type(text))

    def _message(self) -> Any:
        module, _, name = (self.message or "").rpartition(".")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise InvalidArgumentError(f"{self.message} cannot be imported ({error}); it is {_NEEDED['message']['protobuf']}") from None

    def _checked(self, option: str, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{dict(self.named).get(option, option)}: {error}") from None


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
    needed, allowed = _OPTIONS[name]
    for option in OPTIONS[1:]:
        if option in needed and not found[option]:
            raise InvalidArgumentError(f"{named('format')} is {name}, which needs {named(option)}: {_NEEDED[option][name]}")
        if found[option] is not None and option not in (*needed, *allowed):
            takes = [named(one) for one in (*needed, *allowed)]
            raise InvalidArgumentError(f"{named(option)} is given, and {name} takes {' and '.join(takes) if takes else 'no schema'}")
    made = Format(name, found["schema"], found["reader_schema"], found["message"], tuple((option, named(option)) for option in OPTIONS))
    made.deserializer()  # what cannot work fails here
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
