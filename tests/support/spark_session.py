"""One Spark session for all tests of a run: starting a JVM costs seconds, so nothing stops it in between."""

import os
import sys
from pathlib import Path

import pytest

# of the format `fletchlog-columnar`; `make jar`
JAR = Path(__file__).resolve().parents[2] / ".build/jvm/fletchlog-spark.jar"

# Spark's classes as the JVM has them in memory; `spark_archive.py` makes it. Starting Spark costs half with it.
ARCHIVE = JAR.with_name("spark.jsa")
# A JVM that ends after some seconds gains nothing from its optimizing compiler.
SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
# One of another JVM or another Spark is passed over without a word.
ARCHIVED = f"{SHORT_LIVED} -XX:SharedArchiveFile={ARCHIVE} -Xlog:cds*=off" if ARCHIVE.exists() and ARCHIVE.stat().st_size else SHORT_LIVED


def settle():
    """Makes the JVMs of Spark that any test starts short-lived ones, also those of `spark-submit` and of Spark's own cluster."""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", ARCHIVED)
    os.environ.setdefault("SPARK_DAEMON_JAVA_OPTS", ARCHIVED)


def start(**config):
    """A local session with our settings, and these besides (dots as `__`)."""
    settle()
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
        .config("spark.executor.extraJavaOptions", ARCHIVED)
    )
    for name, value in config.items():
        builder = builder.config(name.replace("__", "."), value)
    return builder.getOrCreate()


@pytest.fixture(scope="session")
def spark():
    session = start()
    yield session
    session.stop()
