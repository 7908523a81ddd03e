"""How many offsets one micro-batch takes. Spark: KafkaMicroBatchStream#rateLimit, #delayBatch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fletchlog.spark.offsets import Offsets
    from fletchlog.types import TopicPartition


def proportional(limit: int, start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> Offsets:
    """End offsets so that about `limit` offsets are read, shared in proportion to the backlog of each partition.

    A share below one becomes one, so that a small partition does not starve; other shares are rounded down. `start` must
    hold every partition of `latest` that is to be limited.
    """
    sizes = {tp: end - start[tp] for tp, end in latest.items() if tp in start and end > start[tp]}
    total = sum(sizes.values())
    result = dict(latest)
    for tp, size in sizes.items():
        share = limit * (size / total)
        result[tp] = min(latest[tp], start[tp] + (math.ceil(share) if share < 1 else math.floor(share)))
    return result


class Delay:
    """Holds a batch back until enough offsets wait or the longest delay has passed since the last one."""

    def __init__(self, min_offsets: int, max_delay_ms: float, clock_ms: Callable[[], float]) -> None:
        """`clock_ms` returns the time in milliseconds; the first batch is never held back."""
        self._min_offsets = min_offsets
        self._max_delay_ms = max_delay_ms
        self._clock_ms = clock_ms
        self._last: float | None = None

    def holds_back(self, start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> bool:
        """Whether this trigger is to be skipped."""
        now = self._clock_ms()
        waiting = sum(end - start.get(tp, 0) for tp, end in latest.items())
        if self._last is not None and now - self._last < self._max_delay_ms and waiting < self._min_offsets:
            return True
        self._last = now
        return False
