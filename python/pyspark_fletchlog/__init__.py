"""Found by Spark: it imports every top-level module named `pyspark_*` and registers its `DefaultSource`.

An error in here would hit every Python data source of the interpreter, also other people's, so the import is guarded:
without `DefaultSource` Spark continues and reports that the format `fletchlog` is unknown; the log says why.
"""

import logging

try:
    from fletchlog.spark.source import LogSource as DefaultSource
except Exception as error:  # noqa: BLE001 - after any failure other data sources must keep working
    logging.getLogger("fletchlog.spark").warning("the data source `fletchlog` is not available: %s", error)
else:
    __all__ = ["DefaultSource"]
