"""Arrow types from text, in Spark's DDL: `id bigint, tags array<string>`, or one type such as `map<string, double>`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NoReturn

from fletchlog.errors import InvalidArgumentError
from fletchlog.serde.outcome import arrow

if TYPE_CHECKING:
    import pyarrow as pa

# names of Spark's types, and what pyarrow calls them
_PLAIN = {
    "boolean": "bool", "tinyint": "int8", "byte": "int8", "smallint": "int16", "short": "int16", "int": "int32", "integer": "int32", "bigint": "int64",
    "long": "int64", "float": "float", "real": "float", "double": "double", "string": "string", "binary": "binary", "date": "date32",
}  # fmt: skip
NAMES = (*_PLAIN, "timestamp", "timestamp_ntz", "decimal(p, s)", "array<..>", "map<.., ..>", "struct<name: ..>")
# A limit for texts that nest types within types.
_DEEPEST = 64
_DIGITS = 38
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)*`|[^\s<>(),:`]+|[<>(),:])")


def arrow_type(text: str) -> pa.DataType:
    """The type that a text names; a list of fields is a struct.

    Args:
        text: `bigint`, `struct<id: bigint>`, or `id bigint, name string`. Names of types may have any letter case, names of fields may be in backquotes.

    Raises:
        fletchlog.errors.InvalidArgumentError: It is no such text; what was expected, and where.
    """
    read = _Reader(text)
    made = read.fields(None) if read.begins_a_field() else read.type(0)
    if read.at < len(read.tokens):
        read.wrong("the end")
    return made


class _Reader:
    """The words of a text, one after the other."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.tokens: list[str] = _TOKEN.findall(text)
        self.at = 0
        if len("".join(self.tokens)) != len(re.sub(r"\s", "", text)) and "`" not in text:
            self.wrong("a type")

    def wrong(self, expected: str) -> NoReturn:
        found = repr(self.tokens[self.at]) if self.at < len(self.tokens) else "the end"
        raise InvalidArgumentError(f"{self._text!r:.80} is no type: {expected} expected, found {found}; types are {', '.join(NAMES)}")

    def begins_a_field(self) -> bool:
        """Whether a name is first, and its type follows."""
        return len(self.tokens) > 1 and self.tokens[1] not in {"<", ">", "(", ")", ","}

    def _next(self, expected: str) -> str:
        if self.at >= len(self.tokens):
            self.wrong(expected)
        self.at += 1
        return self.tokens[self.at - 1]

    def _take(self, token: str) -> None:
        if self._next(repr(token)) != token:
            self.at -= 1
            self.wrong(repr(token))

    def _follows(self, token: str) -> bool:
        if self.at < len(self.tokens) and self.tokens[self.at] == token:
            self.at += 1
            return True
        return False

    def fields(self, end: str | None, depth: int = 0) -> Any:
        """Fields up to `end`, as a struct."""
        pa = arrow()
        fields = []
        while True:
            name = self._next("the name of a field")
            if name in {"<", ">", "(", ")", ",", ":"}:
                self.at -= 1
                self.wrong("the name of a field")
            self._follows(":")
            kind = self.type(depth)
            fields.append(pa.field(name[1:-1].replace("``", "`") if name[0] == "`" else name, kind, nullable=not self._not_null()))
            if not self._follows(","):
                break
        if end is not None:
            self._take(end)
        return pa.struct(fields)

    def _not_null(self) -> bool:
        if [token.lower() for token in self.tokens[self.at : self.at + 2]] != ["not", "null"]:
            return False
        self.at += 2
        return True

    def type(self, depth: int) -> Any:
        """One type."""
        pa = arrow()
        if depth > _DEEPEST:
            self.wrong(f"at most {_DEEPEST} types within each other")
        name = self._next("a type").lower()
        if name in _PLAIN:
            return pa.type_for_alias(_PLAIN[name])
        if name == "timestamp":
            return pa.timestamp("us", "UTC")
        if name == "timestamp_ntz":
            return pa.timestamp("us")
        if name in {"decimal", "dec", "numeric"}:
            return self._decimal()
        if name not in {"array", "map", "struct"}:
            self.at -= 1
            self.wrong("a type")
        self._take("<")
        if name == "struct":
            return self.fields(">", depth + 1)
        first = self.type(depth + 1)
        if name == "map":
            self._take(",")
            first = pa.map_(first, self.type(depth + 1))
        else:
            first = pa.list_(first)
        self._take(">")
        return first

    def _decimal(self) -> Any:
        if not self._follows("("):
            return arrow().decimal128(10, 0)
        digits = [self._number()]
        if self._follows(","):
            digits.append(self._number())
        self._take(")")
        if not 1 <= digits[0] <= _DIGITS or digits[-1] > digits[0]:
            self.wrong(f"a precision of 1 to {_DIGITS} and a scale within it")
        return arrow().decimal128(digits[0], digits[1] if len(digits) > 1 else 0)

    def _number(self) -> int:
        word = self._next("a number")
        if not word.isdecimal():
            self.at -= 1
            self.wrong("a number")
        return int(word)
