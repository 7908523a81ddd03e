"""Tables that topics are landed into, as readers of another make see them, and the rows that have to be there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

import fletchlog as fl

# its own planner is another package
os.environ["POLARS_ICEBERG_PLANNER"] = "pyiceberg"

FORMATS = ("parquet", "delta", "iceberg")
COLUMNS = ["topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers"]


class Place:
    """Where a table of a format is landed, and how it is read."""

    def __init__(self, table_format: str, folder: Path, name: str = "t") -> None:
        self.format, self.path = table_format, folder / name
        self.catalog = (
            {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"} if table_format == "iceberg" else None
        )
        if self.catalog:
            load_catalog("default", **self.catalog)  # makes its tables, which two threads cannot
        self.table = f"lake.{name}" if table_format == "iceberg" else str(self.path)

    def land(self, source: Any, topics: Any = "t", **options: Any) -> fl.landing.Landed:
        return fl.land(source, topics, self.table, format=self.format, catalog=self.catalog, **options)

    def offsets(self) -> dict[tuple[str, int], int]:
        return {tuple(tp): offset for tp, offset in fl.land.offsets(self.table, format=self.format, catalog=self.catalog).items()}

    def read(self) -> pa.Table | None:
        """All columns and rows, as polars (Delta, Iceberg) or DuckDB (Parquet) reads them; None: there is no table."""
        if self.format == "parquet":
            if not list(self.path.rglob("*.parquet")):
                return None
            return duckdb.sql(f"select * from read_parquet('{self.path}/**/*.parquet', union_by_name=true, hive_partitioning=true)").to_arrow_table()
        if self.format == "delta":
            return pl.scan_delta(self.table).collect().to_arrow() if (self.path / "_delta_log").exists() else None
        try:
            return pl.scan_iceberg(self.iceberg()).collect().to_arrow()
        except NoSuchTableError:
            return None

    def iceberg(self) -> Any:
        return load_catalog("default", **self.catalog).load_table(self.table)

    def rows(self) -> list[tuple[Any, ...]]:
        """Rows of the columns of a record, in the order of topic, partition and offset."""
        found = self.read()
        return [] if found is None else rows_of(found)


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """The columns of a record, in the order of topic, partition and offset."""
    table = table.select(COLUMNS).sort_by([("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")])
    return [tuple(map(_plain, row.values())) for row in table.to_pylist()]


def _plain(cell: Any) -> Any:
    """Headers are structs. pyiceberg writes an empty list for none: it loses the nulls of lists of structs."""
    return (tuple((one["key"], one["value"]) for one in cell) or None) if isinstance(cell, list) else cell


def expected(source: Any, *topics: str, isolation_level: str = "read_committed") -> list[tuple[Any, ...]]:
    """What has to be in the table."""
    return sorted(
        (row for topic in topics or ("t",) for row in rows_of(source.scan(topic, include_headers=True, isolation_level=isolation_level).to_pyarrow())),
        key=lambda row: row[:3],
    )
