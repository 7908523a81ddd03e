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

import datetime as dt
import re
from typing import TYPE_CHECKING, Any

from fletchlog.cli.common import CommandError
from fletchlog.cli.times import milliseconds

if TYPE_CHECKING:
    from collections.abc import Callable

    Row = dict[str, Any]

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


def _bytes(item: bytes | str | None) -> bytes | None:
    """A key or a value; one that was decoded as its text."""
    return item.encode() if isinstance(item, str) else item


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _time(row: Row) -> bytes:
    found = row["timestamp"]
    return b"%d" % (-1 if found is None else milliseconds(found) if isinstance(found, dt.datetime) else found)


def _headers(row: Row) -> bytes:
    return b",".join(header["key"].encode() + b"=" + (b"NULL" if header["value"] is None else header["value"]) for header in row["headers"] or ())


_LETTERS: dict[str, Callable[[Row], bytes]] = {
    "s": lambda row: _bytes(row["value"]) or b"",
    "k": lambda row: _bytes(row["key"]) or b"",
    "S": lambda row: b"%d" % _length(_bytes(row["value"])),
    "K": lambda row: b"%d" % _length(_bytes(row["key"])),
    "R": lambda row: _length(_bytes(row["value"])).to_bytes(4, "big", signed=True),
    "T": _time,
    "h": _headers,
    "t": lambda row: row["topic"].encode(),
    "p": lambda row: b"%d" % row["partition"],
    "o": lambda row: b"%d" % row["offset"],
    "%": lambda _: b"%",
}


class Template:
    """A template.

    Raises:
        CommandError: It has unknown letters.
    """

    def __init__(self, text: str) -> None:
        self._parts: list[bytes | Callable[[Row], bytes]] = []
        place = 0
        for found in _PART.finditer(text):
            self._parts += [text[place : found.start()].encode(), _part(found)]
            place = found.end()
        self._parts.append(text[place:].encode())

    def of(self, row: Row) -> bytes:
        """The text of a record."""
        return b"".join(part if isinstance(part, bytes) else part(row) for part in self._parts)


def _part(found: re.Match[str]) -> bytes | Callable[[Row], bytes]:
    letter, escape = found[1], found[2]
    if letter is not None and letter in _LETTERS:
        return _LETTERS[letter]
    if escape is not None and (byte := _escaped(escape)) is not None:
        return byte
    raise CommandError(f"--format: {found[0]} means nothing in a template; there are %s %k %S %K %R %T %h %t %p %o %% \\n \\r \\t \\\\ \\xHH")
