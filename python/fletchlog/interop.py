"""From the engine's Arrow objects to pyarrow, pandas and polars, each imported when it is asked for."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from fletchlog.scans import Range
    from fletchlog.scans._typed import ScanDecoder


def require(module: str, extra: str) -> Any:
    """An optional module, or an ImportError that names the extra to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{module} is needed for this and is not installed; pip install 'fletchlog[{extra}]'", name=module) from error


def readable_path(path: str | os.PathLike[str]) -> str:
    r"""A path for people: bytes of it that are no UTF-8 are escapes, as in `\xff`, so that it can be written anywhere."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def schema(source: Any) -> pa.Schema:
    """The Arrow schema of a source."""
    if (decoder := _decoder(source)) is not None:
        found: pa.Schema = decoder.schema
        return found
    return require("pyarrow", "arrow").schema(source)


def to_reader(source: Any) -> pa.RecordBatchReader:
    """A stream of batches."""
    reader = require("pyarrow", "arrow").RecordBatchReader
    if (decoder := _decoder(source)) is not None:
        return reader.from_batches(decoder.schema, decoder.batches(batches(source._bytes()), source._asked()["threads"]))  # noqa: SLF001 - what the engine keeps for this module
    return reader.from_stream(source)


def _decoder(source: Any) -> ScanDecoder | None:
    """What decodes the rows of a scan."""
    found: ScanDecoder | None = getattr(source, "_decoder", None)
    return found


def batches(source: Any) -> Iterator[pa.RecordBatch]:
    """The batches one by one, with the engine's own exception if reading fails.

    Arrow's C interface hands on only the text of a failure; the source keeps the exception.
    """
    yield from _batches(source, to_reader(source))


def _batches(source: Any, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    raise_failure = getattr(source, "_raise_failure", None)
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except Exception:
            if raise_failure is not None:
                raise_failure()
            raise
        yield batch


def to_pyarrow(source: Any) -> pa.Table:
    """All rows as a `pyarrow.Table`; the source is anything with `__arrow_c_stream__`."""
    reader = to_reader(source)
    return require("pyarrow", "arrow").Table.from_batches(list(_batches(source, reader)), schema=reader.schema)


def to_pandas(source: Any, **options: Any) -> pd.DataFrame:
    """All rows as a `pandas.DataFrame`; `options` go to `pyarrow.Table.to_pandas`."""
    require("pandas", "pandas")
    return to_pyarrow(source).to_pandas(**options)


def to_polars(source: Any) -> pl.DataFrame:
    """All rows as a `polars.DataFrame`."""
    polars = require("polars", "polars")
    try:
        # a stream of Python's own batches would hand on only the text of a failure
        frame: pl.DataFrame = polars.DataFrame(source if _decoder(source) is None else to_pyarrow(source))
    except Exception:
        raise_failure = getattr(source, "_raise_failure", None)
        if raise_failure is not None:
            raise_failure()
        raise
    return frame


def scan_ranges(scan: Any) -> list[Range]:
    """What `Scan.ranges` is."""
    from fletchlog.scans import Range

    asked = scan._asked()  # noqa: SLF001 - what the engine keeps for this module
    return [Range(topic, partition, start, end, asked["start_time"], asked["end_time"]) for topic, partition, start, end in asked["ranges"]]


def lazy(scan: Any) -> pl.LazyFrame:
    """What `Scan.lazy` returns."""
    require("polars", "polars")
    from fletchlog.scans._polars import lazy_scan

    return lazy_scan(scan, scan._asked())  # noqa: SLF001


def explain(consumer: Any) -> Any:
    """What `Consumer.explain` returns."""
    from fletchlog.explain import explanation

    return explanation(consumer.trace())


def records_html(records: Any) -> str:
    """What a notebook shows of `Records`."""
    from fletchlog import notebook

    return notebook.records(records)


def table_html(table: Any) -> str:
    """What a notebook shows of a `Table`."""
    from fletchlog import notebook

    return notebook.table(table)


def broker_html(broker: Any) -> str:
    """What a notebook shows of a `Broker`."""
    from fletchlog import notebook

    return notebook.broker(broker)
