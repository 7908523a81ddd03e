"""What this package uses of Spark that Spark does not promise to keep.

`tests/spark/test_compat.py` says for each what is assumed, and runs with every supported release of Spark.

The columnar format uses more, in Java: the classes of `org.apache.spark.sql.execution.datasources.v2.python` (`jvm/`).
"""

from __future__ import annotations

import gc
import json
import os
import re
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark

from fletchlog.spark.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

try:  # Spark 4.2
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:  # before: `check_release` says that it is too old
    DataSourceArrowWriter = DataSourceStreamArrowWriter = SupportsTriggerAvailableNow = type("Missing", (), {})  # type: ignore[assignment,misc]
    ReadAllAvailable = ReadLimit = ReadMaxRows = SupportsTriggerAvailableNow  # type: ignore[assignment,misc]

__all__ = ["DataSourceArrowWriter", "DataSourceStreamArrowWriter", "ReadAllAvailable", "ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow"]

# Before, Spark asks a stream for its end without saying where the batch begins, and hands over no limit.
OLDEST = (4, 2)
# The program of the process that plans the batches of one streaming query.
STREAM_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
# The module that the process which plans a batch query imports for a query with filters, while push-down is on.
FILTER_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
# Local properties of the tasks of a streaming query.
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"

# Processes of workers whose imported objects the collector does not look at any more.
_frozen: set[int] = set()


def check_release() -> None:
    """Refuses a PySpark before 4.2.

    Raises:
        OptionError: What is needed, and what is here.
    """
    found = re.match(r"(\d+)\.(\d+)", pyspark.__version__)
    if found is not None and (int(found[1]), int(found[2])) < OLDEST:
        raise OptionError(f"format fletchlog needs PySpark {OLDEST[0]}.{OLDEST[1]} or newer; this is {pyspark.__version__}")


def given(builder: SparkSession.Builder, name: str) -> Any:
    """A setting of a session's builder; None: it has none. Spark has no other way to ask."""
    return builder._options.get(name)  # noqa: SLF001


def has_filters() -> bool:
    """Whether the query that this process plans has filters to push down."""
    return FILTER_WORKER in sys.modules


def end_stopped_planner() -> None:
    """Ends the process that plans a streaming query, if Spark has closed the connection to it, as `query.stop()` does.

    Spark's runner would go on to tell Spark of the closed connection, and print the tracebacks of that.
    """
    if is_stopped_planner():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def is_stopped_planner() -> bool:
    """Whether this process plans a streaming query that was stopped: Spark calls the reader's `stop` then."""
    runner = getattr(sys.modules["__main__"].__spec__, "name", "")
    # a connection is reset if Spark has not read an answer that was on its way
    return runner == STREAM_RUNNER and isinstance(sys.exc_info()[1], EOFError | ConnectionError)


def freeze_imports() -> None:
    """Once in each worker. Spark's worker collects garbage after each task, which costs 30 to 130 ms with pyarrow's objects in sight of the collector."""
    if os.getpid() not in _frozen:
        _frozen.add(os.getpid())
        gc.freeze()


def query_of_checkpoint(location: str) -> uuid.UUID | None:
    """The id that Spark has put into the checkpoint of a streaming query. None: there is none, or it is on no path of this machine."""
    # Spark has opened it by Hadoop's rule, which decodes nothing
    checkpoint = Path(location.removeprefix("file://").removeprefix("file:"))
    try:
        return uuid.UUID(json.loads((checkpoint / "metadata").read_text())["id"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
