"""PySpark functions over any DataFrame with the schema of Spark's kafka source: from format `fletchlog` or from `kafka` itself.

    from fletchlog.pipeline import audit, event_time_windows, parse_json

    audit(df).show()                                    # what is wrong with the order, per partition
    flights = parse_json(stream, "carrier string, dep_delay double")
    event_time_windows(flights, window="1 hour", watermark="1 day", by=["carrier"], aggregate=[F.avg("dep_delay")])

Everything is Spark SQL: no Python runs per row, nothing of fletchlog is needed on the executors.
"""

from fletchlog.pipeline.audit import audit
from fletchlog.pipeline.windows import event_time_windows, parse_json

__all__ = ["audit", "event_time_windows", "parse_json"]
