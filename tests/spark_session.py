"""One Spark session for all tests of a run: starting a JVM costs seconds, so nothing stops it in between."""

import os
import sys
from pathlib import Path

import pytest

# of the format `fletchlog-columnar`; `make jar`
JAR = Path(__file__).resolve().parents[1] / ".build/jvm/fletchlog-spark.jar"

# A JVM that ends after some seconds gains nothing from its optimizing compiler.
SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def start(**config):
    """A local session with our settings, and these besides (dots as `__`)."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    from pyspark.sql import SparkSession

    from fletchlog.spark import configure

    builder = (
        configure(SparkSession.builder.master("local[2]"))
        .appName("fletchlog tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.catalogImplementation", "in-memory")
        .config("spark.jars", str(JAR))
        .config("spark.driver.extraJavaOptions", SHORT_LIVED)
        .config("spark.executor.extraJavaOptions", SHORT_LIVED)
    )
    for name, value in config.items():
        builder = builder.config(name.replace("__", "."), value)
    return builder.getOrCreate()


@pytest.fixture(scope="session")
def spark():
    session = start()
    yield session
    session.stop()
