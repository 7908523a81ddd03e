"""Avro files."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from fletchlog.cli.common import CommandError
from fletchlog.cli.inputs.rows import from_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fletchlog.cli.inputs import Input
    from fletchlog.cli.inputs.rows import Row
    from fletchlog.cli.records import Record


def read_avro(file: BinaryIO, source: Input) -> Iterator[Record]:
    """Records of Avro."""
    from fletchlog.errors import InvalidArgumentError
    from fletchlog.serde.avro_files import records

    def rows() -> Iterator[Row]:
        try:
            for number, row in enumerate(records(file), 1):
                if not isinstance(row, dict):
                    raise CommandError(f"{source.where}: record {number} is no Avro record with fields")
                if number == 1:
                    source.has(row, source.where)
                yield row, None, number
        except InvalidArgumentError as error:
            raise CommandError(f"{source.where}: {error}") from None

    yield from from_rows(rows(), source)
