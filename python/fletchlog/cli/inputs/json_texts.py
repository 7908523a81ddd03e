"""JSON: an object a line, or a text with an array of objects or with one after the other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, BinaryIO

from fletchlog.cli.common import CommandError
from fletchlog.cli.fields import DECODER, Fields, skip
from fletchlog.cli.inputs.rows import from_rows
from fletchlog.cli.inputs.text import decoded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fletchlog.cli.inputs import Input
    from fletchlog.cli.inputs.rows import Row
    from fletchlog.cli.records import Record


def read_jsonl(file: BinaryIO, source: Input) -> Iterator[Record]:
    """An object a line."""

    def rows() -> Iterator[Row]:
        for number, line in enumerate(decoded(file, source, ""), 1):
            text = line.rstrip(" \t\r\n")
            if text:
                start = skip(text, 0)
                row, end = _object(text, start, source.where, number)
                if end != len(text):
                    raise CommandError(f"{source.place(number)}, column {skip(text, end) + 1}: not a JSON text: something follows the object")
                yield Fields(row, text[start:]), text[start:].encode(), number

    yield from from_rows(rows(), source)


def read_json(file: BinaryIO, source: Input) -> Iterator[Record]:
    """The objects of a text."""
    lines: list[str] = []
    wrong: CommandError | None = None
    try:
        for line in decoded(file, source, "\n"):
            lines.append(line)  # noqa: PERF402 - those before one that cannot be read stay
    except CommandError as error:
        wrong = error
    try:
        yield from from_rows(_elements("".join(lines), source.where), source)
    except CommandError as error:
        # what ends too early ends so because of what cannot be read
        raise wrong or error from None
    if wrong is not None:
        raise wrong


def _elements(text: str, where: str) -> Iterator[Row]:
    """The objects of an array, or those that follow each other."""
    position = skip(text, 0)
    in_array = text.startswith("[", position)
    position = skip(text, position + in_array)
    line, counted_to = 1, 0
    if in_array and text.startswith("]", position):
        position = len(text) if skip(text, position + 1) == len(text) else position
        in_array = False
    while position < len(text):
        line, counted_to = line + text.count("\n", counted_to, position), position
        row, end = _object(text, position, where, line, whole=True)
        yield Fields(row, text[position:end]), text[position:end].encode(), line
        position = skip(text, end)
        if in_array:
            mark = text[position : position + 1]
            if mark not in {",", "]"}:
                raise CommandError(f"{where}: not a JSON text: after the object of line {line} a comma or the end of the array is missing")
            position = skip(text, position + 1)
            if mark == "]":
                if position != len(text):
                    raise CommandError(f"{where}: not a JSON text: something follows the array")
                return
    if in_array:
        raise CommandError(f"{where}: not a JSON text: the array does not end")


def _object(text: str, position: int, where: str, line: int, *, whole: bool = False) -> tuple[dict[str, Any], int]:
    """A JSON object and where it ends; it begins in this line. `whole`: the text is the whole input, not the line."""
    place = f"{where}, line {line}"
    try:
        row, end = DECODER.raw_decode(text, position)
    except RecursionError:
        raise CommandError(f"{place}: the JSON text is nested too deep") from None
    except json.JSONDecodeError as error:
        raise CommandError(f"{where}, line {error.lineno if whole else line}, column {error.colno}: not a JSON text: {error.msg}") from None
    except ValueError as error:
        raise CommandError(f"{place}: not a JSON text: {error}") from None
    if not isinstance(row, dict):
        raise CommandError(f"{place}: not a JSON object")
    return row, end
