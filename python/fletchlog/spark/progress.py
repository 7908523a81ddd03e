"""How far a streaming query is behind: from the progress that Spark reports."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fletchlog.spark.offsets import LATEST, Offsets, numbers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fletchlog.types import TopicPartition


@dataclass(frozen=True)
class Lag:
    """Records between the end of a micro-batch and the end of the log, when that batch was planned.

    Spark's kafka source reports minimum, maximum and average among its metrics (`minOffsetsBehindLatest` and so on). A source in Python cannot
    report metrics.

    Attributes:
        partitions: Offsets behind the latest one, of each partition.
    """

    partitions: dict[TopicPartition, int]

    @property
    def total(self) -> int:
        """Of all partitions together."""
        return sum(self.partitions.values())

    @property
    def max(self) -> int:
        """Of the partition that is farthest behind."""
        return max(self.partitions.values(), default=0)

    @property
    def min(self) -> int:
        """Of the partition that is least behind."""
        return min(self.partitions.values(), default=0)

    @property
    def avg(self) -> float:
        """Per partition."""
        return self.total / len(self.partitions) if self.partitions else 0.0


def lag(progress: Mapping[str, Any] | None) -> Lag:
    """How far a query is behind its sources `fletchlog` (or `kafka`: the text of the offsets is the same).

    Args:
        progress: `query.lastProgress`, an entry of `query.recentProgress`, the `progress` of a listener's event, or the same as JSON that was
            parsed. None, as before the first progress: nothing is behind.

    Returns:
        The lag per partition. A partition that two sources of the query read counts once, with the greater lag. Sources of other formats
        do not count, nor does a progress without the latest offsets (Spark reports them after the first batch was planned).
    """
    partitions: dict[TopicPartition, int] = {}
    for source in (progress or {}).get("sources", ()):
        end, latest = (_offsets(source.get(name)) for name in ("endOffset", "latestOffset"))
        for place, offset in latest.items():
            if place in end:
                partitions[place] = max(partitions.get(place, 0), offset - end[place])
    return Lag(partitions)


def _offsets(reported: Any) -> Offsets:
    """As JSON, parsed or not; empty: another source's."""
    if isinstance(reported, str):
        try:
            reported = json.loads(reported)
        except ValueError:
            return {}
    found = numbers(reported) or {}
    return {place: offset for place, offset in found.items() if offset > LATEST}
