"""What a table is for a landing, and which format is at a place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from fletchlog._place import CLUSTER, DIRECTORY, STORE, Place
from fletchlog.errors import DirectoryError, InvalidArgumentError
from fletchlog.landing.files import MANIFEST, Directory

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from fletchlog.landing.positions import Positions, Wanted

Format: TypeAlias = Literal["parquet", "delta", "iceberg"]
FORMATS = ("parquet", "delta", "iceberg")
# What a program or the shell gives for an Iceberg table: a name of pyiceberg's configuration, its properties, or the open catalog.
Catalog: TypeAlias = Any
# Files of a directory of logs.
_OF_A_LOG = ("fletchlog.metadata", "meta.properties")


class Table(Protocol):
    """A table of one format. Every commit carries the positions of its topics; a commit that another lander has overtaken fails."""

    format: Format
    place: str

    def open(self, wanted: Mapping[str, Wanted]) -> Positions:
        """Takes the table as it is now, and finishes what a killed lander has left.

        Returns the positions of the last commit: of every topic, or of those wanted.

        Raises:
            fletchlog.errors.TableConflictError: Another lander is writing (Parquet).
        """

    def peek(self) -> Positions:
        """The positions of the last commit; changes nothing and waits for nobody.

        Raises:
            fletchlog.errors.DirectoryError: There is no such table.
            fletchlog.errors.InvalidArgumentError: It was not landed.
        """

    def schema(self) -> pa.Schema | None:
        """Its columns in types of `columns.portable`, without those it is partitioned by if they are not in its files; None: there is no table yet."""

    def partitioned_by(self) -> str | None:
        """`day`, `hour` or None."""

    def has_rows(self) -> bool:
        """Whether there are rows, by whichever writer."""

    def append(self, rows: pa.Table, schema: pa.Schema, partition_by: str | None, positions: Positions) -> int:
        """One commit: the rows, which have this schema, and the positions. Makes the table if there is none. Returns the number of files.

        Raises:
            fletchlog.errors.TableConflictError: The table was not the one that `open` took: another lander has committed meanwhile.
        """

    def compact(self, target_bytes: int) -> int:
        """Rewrites small files into larger ones. Returns how many were replaced.

        Raises:
            fletchlog.errors.InvalidArgumentError: The format offers none.
        """

    def close(self) -> None:
        """Releases what `open` has taken."""


def table_at(table: str | os.PathLike[str], table_format: Format | None, catalog: Catalog, table_options: Mapping[str, Any] | None) -> Table:
    """The table that is named; nothing is opened.

    Raises:
        fletchlog.errors.InvalidArgumentError: No format, options that the format does not take, a place where it cannot be.
        ImportError: Its library is missing.
    """
    if table_format not in (None, *FORMATS):
        raise InvalidArgumentError(f"format is {table_format!r}; expected one of {', '.join(FORMATS)}")
    if not isinstance(table, str | os.PathLike):
        raise InvalidArgumentError(f"the table is {table!r}: expected a path, a URI, or with catalog= the name of an Iceberg table")
    if catalog is not None or table_format == "iceberg":
        return _iceberg(table, table_format, catalog, table_options)
    place = Place(table)
    if place.kind == CLUSTER:
        raise InvalidArgumentError(f"the table {place} is a cluster: topics are copied there by fletchlog.transfer.copy (fletchlog copy)")
    if place.kind == DIRECTORY and any((Path(place.name) / one).exists() for one in _OF_A_LOG):
        raise InvalidArgumentError(f"the table {place} is a broker's directory; give another place, of the table alone")
    there = _there(place, table_options)
    if table_format is not None and there not in (None, table_format):
        raise InvalidArgumentError(f"{place} is a table of format {there!r}, and format is {table_format!r}: leave it out, or give another place")
    found = table_format or there or ("delta" if place.kind == STORE else "parquet")
    if found == "delta":
        from fletchlog.landing.delta import DeltaTable

        return DeltaTable(place.name, table_options)
    from fletchlog.landing.parquet import ParquetTable

    if place.kind == STORE:
        from fletchlog.landing.objects import Objects

        return ParquetTable(Objects(place.name, table_options))
    if table_options:
        raise InvalidArgumentError("table_options are for a table on an object store, e.g. s3://BUCKET/PREFIX")
    return ParquetTable(Directory(Path(place.name)))


def _there(place: Place, table_options: Mapping[str, Any] | None) -> Format | None:
    """Which format is at a place; None: neither a Delta table nor one that was landed.

    Raises:
        fletchlog.errors.InvalidArgumentError: It is a file.
    """
    if place.kind == STORE:
        from fletchlog.landing import objects

        return objects.format_at(place.name, table_options)
    here = Path(place.name)
    if here.exists() and not here.is_dir():
        raise InvalidArgumentError(f"the table {place} is a file; a table is a directory, which is made if there is none")
    if (here / MANIFEST).exists():
        return "parquet"
    return "delta" if (here / "_delta_log").is_dir() else None


def _iceberg(table: str | os.PathLike[str], table_format: Format | None, catalog: Catalog, table_options: Mapping[str, Any] | None) -> Table:
    if table_format not in (None, "iceberg"):
        raise InvalidArgumentError(f"a catalog is for Iceberg tables, and the format is {table_format}; give one of them")
    if catalog is None:
        raise InvalidArgumentError("an Iceberg table is found by its catalog: give catalog= a name of pyiceberg's configuration, its properties, or a Catalog")
    if table_options:
        raise InvalidArgumentError("table_options are for a Delta table; those of an Iceberg table are properties of its catalog")
    from fletchlog.landing.iceberg import IcebergTable

    return IcebergTable(os.fspath(table), catalog)


def no_table(place: str) -> DirectoryError:
    """The error of who asks for the offsets of nothing."""
    return DirectoryError(f"{place}: there is no such table; check the name")


def not_landed(place: str) -> InvalidArgumentError:
    """The error of who asks for the offsets of another writer's table."""
    return InvalidArgumentError(f"{place}: the table has no offsets of a topic: it was not written by fletchlog land")
