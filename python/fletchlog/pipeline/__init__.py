"""PySpark functions over any DataFrame with the schema of Spark's kafka source: from format `fletchlog` or from `kafka` itself.

    from fletchlog.pipeline import audit, audit_report, event_time_windows, parse_json

    audit(df).show()  # what is wrong with the order, per partition
    Path("audit.html").write_text(audit_report(df, keys=20).html())
    flights = parse_json(stream, "carrier string, dep_delay double")
    mean = F.avg("dep_delay")
    event_time_windows(
        flights, window="1 hour", watermark="1 day", by=["carrier"], aggregate=[mean]
    )

No Python runs per row, and nothing of fletchlog is needed on the executors; `audit` needs pandas, pyarrow and numpy there.
"""

from fletchlog.pipeline._audit import audit, audit_keys, audit_report
from fletchlog.pipeline.windows import event_time_windows, parse_json

__all__ = ["audit", "audit_keys", "audit_report", "event_time_windows", "parse_json"]
