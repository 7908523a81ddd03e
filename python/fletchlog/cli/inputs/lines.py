"""Lines: each is a value, or a key and a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

from fletchlog.cli.common import CommandError
from fletchlog.cli.inputs.text import BOM, decoded
from fletchlog.cli.records import Record
from fletchlog.cli.template import unescaped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fletchlog.cli.inputs import Input
    from fletchlog.cli.records import Columns

# bytes that are read at once
_BLOCK = 1 << 16


def read_lines(file: BinaryIO, source: Input) -> Iterator[Record | Columns]:
    """Lines without their ends."""
    separator = None if source.key is None else unescaped(source.key)
    if source.encoding is None:
        yield from _as_columns(file, source, separator)
        return
    for number, line in enumerate(decoded(file, source, "\n"), 1):
        content = line.removesuffix("\r\n").removesuffix("\n").encode()
        if separator is None:
            yield Record(None, content, None, None, None, number)
            continue
        key, found, value = content.partition(separator)
        if not found:
            raise _no_separator(source, number)
        yield Record(key, value, None, None, None, number)


def _as_columns(file: BinaryIO, source: Input, separator: bytes | None) -> Iterator[Columns]:
    import pyarrow as pa
    import pyarrow.compute as pc

    split: Any = pc.split_pattern
    number = 1
    for block in _blocks(file):
        text = block.removeprefix(BOM.encode()) if number == 1 else block
        values = split(pa.array([text.replace(b"\r\n", b"\n").removesuffix(b"\n")], pa.large_binary()), b"\n").values
        if separator is None:
            yield pa.table({"value": values}), number
        else:
            pairs = split(values, separator, max_splits=1)
            # of the first line without a separator
            bad = pc.index(pc.list_value_length(pairs), 1).as_py()
            pairs = pairs[:bad] if bad >= 0 else pairs
            if len(pairs):
                yield pa.table({"key": pc.list_element(pairs, 0), "value": pc.list_element(pairs, 1)}), number
            if bad >= 0:
                raise _no_separator(source, number + bad)
        number += len(values)


def _blocks(file: Any) -> Iterator[bytes]:
    """Whole lines, as many as have come together; the last one perhaps without its end."""
    begun: list[bytes] = []
    while data := file.read1(_BLOCK):
        end = data.rfind(b"\n") + 1
        if end:
            yield b"".join([*begun, data[:end]])
            begun.clear()
        begun.append(data[end:])
    if last := b"".join(begun):
        yield last


def _no_separator(source: Input, number: int) -> CommandError:
    return CommandError(f"{source.place(number)}: there is no key separator {source.key!r} in it")
