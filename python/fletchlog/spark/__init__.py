"""Spark data source `fletchlog`: a directory as a batch or a micro-batch stream, with the options of Spark's kafka source.

    options = {"path": "data/", "subscribe": "orders"}
    df = spark.read.format("fletchlog").options(**options).load()
    stream = spark.readStream.format("fletchlog").options(**options).load()

Spark finds it by itself (top-level module `pyspark_fletchlog`). Columns are those of Spark's kafka source; `.schema("offset
bigint, value binary")` reads only these columns, which is faster. The directory is opened for reading only, so a writer may
have it open meanwhile. Rows of one partition come in offset order; `minPartitions` and `maxRecordsPerPartition` split a
partition into pieces that Spark reads in parallel.

Needs the extra `spark` (`pip install fletchlog[spark]`).
"""

from fletchlog.spark.errors import DataLossError, OptionError
from fletchlog.spark.progress import Lag, lag
from fletchlog.spark.session import configure
from fletchlog.spark.source import LogSource

__all__ = ["DataLossError", "Lag", "LogSource", "OptionError", "configure", "lag"]
