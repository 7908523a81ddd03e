"""Settings of a Spark session that make this source faster and its errors shorter."""

from __future__ import annotations

import importlib.util
import os
import socket
from typing import TYPE_CHECKING

from fletchlog.spark.compat import given

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {"spark.sql.python.filterPushdown.enabled": "true"}
# What the process that starts workers has, and no session can change.
_UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
if hasattr(socket, "AF_UNIX"):
    SETTINGS[_UNIX_SOCKETS] = "true"
_HIDE_TRACEBACKS = "spark.sql.execution.pyspark.udf.hideTraceback.enabled"


def configure(builder: SparkSession.Builder, *, hide_tracebacks: bool = False) -> SparkSession.Builder:
    """Sets what is good for the format `fletchlog`; call it before `getOrCreate()` starts the session.

    Workers talk to Spark over Unix sockets, so a task waits less, and batch queries of `fletchlog-columnar` hand their filters to the source. If the package
    `fletchlog-spark-jar` is installed, its jar is added to `spark.jars`: the session then has the format `fletchlog-columnar` too. What is set on
    the builder afterwards goes first. Releases of Spark that do not know a setting ignore it. A session of a Spark Connect server that runs
    already (`sc://...`) can choose neither: start the server with `spark.python.unix.domain.socket.enabled=true`, and with the jar.

    Args:
        builder: `SparkSession.builder`, with its `remote(...)` if it has one.
        hide_tracebacks: The first line of an error says what happened, and no traceback of Python follows. It holds for every Python function
            of the session.

    Returns:
        The builder.
    """
    remote = given(builder, "spark.remote") or os.environ.get("SPARK_REMOTE", "")
    is_running = remote.startswith("sc://")
    for name, value in SETTINGS.items():
        if name != _UNIX_SOCKETS or not is_running:
            builder = builder.config(name, value)
    if not is_running and importlib.util.find_spec("fletchlog_spark_jar") is not None:
        from fletchlog_spark_jar import path

        before = given(builder, "spark.jars")
        builder = builder.config("spark.jars", f"{before},{path()}" if before else path())
    return builder.config(_HIDE_TRACEBACKS, "true") if hide_tracebacks else builder
