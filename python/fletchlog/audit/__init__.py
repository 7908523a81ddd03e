"""The ordering audit of a directory: what a reader of each partition, and of each key, has to cope with.

    report = fl.audit.audit("data/", ["orders"])
    print(report.partitions[0].gaps_unexplained, report.breaches({"gaps_unexplained": 0}))
    Path("audit.html").write_text(report.html())

Needs pyarrow. Partitions are looked at one after the other, each in memory as a whole; `fletchlog.pipeline.audit` is the one for logs
that are larger than that, and for any DataFrame with Spark's kafka schema.
"""

from fletchlog.audit.log import audit
from fletchlog.audit.report import AuditReport, KeyAudit, PartitionAudit

__all__ = ["AuditReport", "KeyAudit", "PartitionAudit", "audit"]
