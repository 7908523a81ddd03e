r"""kcat's templates: `%t [%p] at %o: %k = %s\n`.

| letters    | of a record                                                                |
|------------|----------------------------------------------------------------------------|
| `%s` `%k`  | value, key; nothing for null                                               |
| `%S` `%K`  | their lengths in bytes, -1 for null                                        |
| `%R`       | the value's length as four bytes, the highest first                        |
| `%T`       | timestamp, ms since 1970; -1 for none                                      |
| `%h`       | headers: name=value,name=value; NULL for a null                            |
| `%t %p %o` | topic, partition, offset                                                   |
| `%%`       | a percent sign                                                             |
| `\n \r \t \\ \xHH` | line feed, carriage return, tab, backslash, the byte with this number |
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

from fletchlog.cli.common import CommandError
from fletchlog.cli.rows import milliseconds
from fletchlog.cli.typed import data

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.?)", re.DOTALL)
_PART = re.compile(rf"%(.?)|{_ESCAPE.pattern}", re.DOTALL)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\"}


def unescaped(text: str) -> bytes:
    r"""The bytes of a text with the escapes of a template; a backslash before anything else is a backslash, as in kcat."""
    made = bytearray()
    place = 0
    for found in _ESCAPE.finditer(text):
        byte = _escaped(found[1])
        made += text[place : found.start()].encode() + (found[0].encode() if byte is None else byte)
        place = found.end()
    return bytes(made) + text[place:].encode()


def _escaped(escape: str) -> bytes | None:
    """The byte of an escape without its backslash; None if there is no such escape."""
    return bytes([int(escape[1:], 16)]) if len(escape) == len("xHH") else _ESCAPES.get(escape)


def _texts(batch: Any, name: str) -> list[bytes]:
    return [item or b"" for item in data(batch, name)]


def _lengths(batch: Any, name: str) -> list[int]:
    return [-1 if item is None else len(item) for item in data(batch, name)]


def _numbers(numbers: Iterable[int | None]) -> list[bytes]:
    return [b"%d" % (-1 if number is None else number) for number in numbers]


def _headers(found: list[dict[str, Any]] | None) -> bytes:
    return b",".join(header["key"].encode() + b"=" + (b"NULL" if header["value"] is None else header["value"]) for header in found or ())


# by a letter what it is for each record of a batch
_LETTERS: dict[str, Callable[[Any], Iterable[bytes]]] = {
    "s": lambda batch: _texts(batch, "value"),
    "k": lambda batch: _texts(batch, "key"),
    "S": lambda batch: _numbers(_lengths(batch, "value")),
    "K": lambda batch: _numbers(_lengths(batch, "key")),
    "R": lambda batch: [length.to_bytes(4, "big", signed=True) for length in _lengths(batch, "value")],
    "T": lambda batch: _numbers(milliseconds(batch)),
    "h": lambda batch: map(_headers, batch.column("headers").to_pylist()),
    "t": lambda batch: [topic.encode() for topic in batch.column("topic").to_pylist()],
    "p": lambda batch: _numbers(batch.column("partition").to_pylist()),
    "o": lambda batch: _numbers(batch.column("offset").to_pylist()),
    "%": lambda batch: itertools.repeat(b"%", batch.num_rows),
}


class Template:
    """A template.

    Raises:
        CommandError: It has unknown letters.
    """

    def __init__(self, text: str) -> None:
        self._parts: list[bytes | Callable[[Any], Iterable[bytes]]] = []
        place = 0
        for found in _PART.finditer(text):
            self._parts += [text[place : found.start()].encode(), _part(found)]
            place = found.end()
        self._parts.append(text[place:].encode())

    def of(self, batch: Any) -> Iterator[bytes]:
        """The texts of records."""
        parts = [itertools.repeat(part, batch.num_rows) if isinstance(part, bytes) else part(batch) for part in self._parts if part]
        return map(b"".join, zip(*parts, strict=True))


def _part(found: re.Match[str]) -> bytes | Callable[[Any], Iterable[bytes]]:
    letter, escape = found[1], found[2]
    if letter is not None and letter in _LETTERS:
        return _LETTERS[letter]
    if escape is not None and (byte := _escaped(escape)) is not None:
        return byte
    raise CommandError(f"--format: {found[0]} means nothing in a template; there are %s %k %S %K %R %T %h %t %p %o %% \\n \\r \\t \\\\ \\xHH")
