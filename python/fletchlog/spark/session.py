"""Settings of a Spark session that make this source faster and its errors shorter."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {"spark.sql.python.filterPushdown.enabled": "true"}
if hasattr(socket, "AF_UNIX"):
    SETTINGS["spark.python.unix.domain.socket.enabled"] = "true"
_HIDE_TRACEBACKS = "spark.sql.execution.pyspark.udf.hideTraceback.enabled"


def configure(builder: SparkSession.Builder, *, hide_tracebacks: bool = False) -> SparkSession.Builder:
    """Sets what is good for the format `fletchlog`; call it before `getOrCreate()` starts the session.

    Workers talk to Spark over Unix sockets, so a task waits less, and batch queries hand their filters to the source. What is set on the builder
    afterwards goes first. Releases of Spark that do not know a setting ignore it.

    Args:
        builder: `SparkSession.builder`.
        hide_tracebacks: The first line of an error says what happened, and no traceback of Python follows. It holds for every Python function
            of the session.

    Returns:
        The builder.
    """
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    return builder.config(_HIDE_TRACEBACKS, "true") if hide_tracebacks else builder
