"""Topics for engines that push a query down: they ask for columns, rows and fields, and no more is read."""

from __future__ import annotations

from fletchlog.scans._plan import TopicScan, plan
from fletchlog.scans._polars import scan_topic
from fletchlog.scans._ranges import Range

__all__ = ["Range", "TopicScan", "plan", "scan_topic"]
