"""The jar of the Spark format `fletchlog-columnar`; `fletchlog.spark.configure` finds it here."""

from pathlib import Path


def path() -> str:
    """Where the jar is, for `spark.jars`."""
    return str(Path(__file__).with_name("fletchlog-spark.jar"))
