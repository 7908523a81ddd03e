"""The ordering audit of a directory: gaps, repeats and disorder per partition and per key.

    report = fl.audit.run("data/", ["orders"])
    print(report.partitions[0].gaps_unexplained, report.breaches({"gaps_unexplained": 0}))
    Path("audit.html").write_text(report.html())

Needs pyarrow and numpy. Partitions are read one after the other, batch by batch; `fletchlog.pipeline.audit` is the one for any DataFrame
with Spark's kafka schema.
"""

from fletchlog.audit.log import run
from fletchlog.audit.report import AuditReport, KeyAudit, PartitionAudit

__all__ = ["AuditReport", "KeyAudit", "PartitionAudit", "run"]
