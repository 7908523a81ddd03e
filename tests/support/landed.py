"""Tables that topics are landed into, as readers of another make see them, and the rows that have to be there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import duckdb
import obstore.store
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

    def __init__(self, table_format: str, folder: Path, name: str = "t", store: tuple[str, dict[str, str]] | None = None) -> None:
        """`store`: the URI of a Parquet table there, and its options."""
        self.format, self.path = table_format, folder / name
        self.store, self.options = store or (None, None)
        self.catalog = (
            {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"} if table_format == "iceberg" else None
        )
        if self.catalog:
            load_catalog("default", **self.catalog)  # makes its tables, which two threads cannot
        self.table = self.store or (f"lake.{name}" if table_format == "iceberg" else str(self.path))

    def land(self, source: Any, topics: Any = "t", **options: Any) -> fl.landing.Landed:
        return fl.land(source, topics, self.table, format=self.format, catalog=self.catalog, table_options=self.options, **options)

    def offsets(self) -> dict[tuple[str, int], int]:
        return {tuple(tp): offset for tp, offset in fl.land.offsets(self.table, format=self.format, catalog=self.catalog, table_options=self.options).items()}

    def files(self) -> dict[str, bytes]:
        """Of a Parquet table, every file by its name; only manifests are read."""
        if self.store is None:
            every = {str(path.relative_to(self.path)): path for path in self.path.rglob("*") if path.is_file()}
            return {name: path.read_bytes() if name.endswith(".json") else b"" for name, path in every.items()}
        config = {key: value for key, value in self.options.items() if key != "AWS_ALLOW_HTTP"}
        store = obstore.store.from_url(self.store, config=config, client_options={"allow_http": True})
        names = [one["path"] for chunk in store.list() for one in chunk]
        return {name: bytes(store.get(name).bytes()) if name.endswith(".json") else b"" for name in names}

    def read(self) -> pa.Table | None:
        """All columns and rows, as polars (Delta, Iceberg, stores) or DuckDB (Parquet) reads them; None: there is no table."""
        if self.store is not None:
            if not any(name.endswith(".parquet") for name in self.files()):
                return None
            return pl.scan_parquet(f"{self.store}/**/*.parquet", storage_options=self.options, hive_partitioning=True).collect().to_arrow()
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
