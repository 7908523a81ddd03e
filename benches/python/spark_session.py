"""The Spark session of the benches, and their arguments."""

from __future__ import annotations

import argparse
import os
import sys

from pyspark.sql import SparkSession

from fletchlog.spark import configure


def parse(description: str, rounds: int, partitions: int) -> tuple[int, int]:
    """(records, rounds) from the command line; the records are a multiple of the partitions."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=rounds)
    arguments = parser.parse_args()
    return arguments.records // partitions * partitions, arguments.rounds


def session(memory: str, **config: str) -> SparkSession:
    """Two cores on this machine, silent, in UTC; and these settings."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = (
        configure(SparkSession.builder.master("local[2]"))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", memory)
        .config("spark.sql.session.timeZone", "UTC")
    )
    for name, value in config.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
