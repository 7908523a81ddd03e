"""Order, completeness and lateness of one partition, looked at in steps: what is kept between two of them does not grow with the log.

numpy only: these functions also run on Spark's executors, which need nothing of fletchlog.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

# in the place of a timestamp that a record does not have: it sorts before every other
NO_TIME = np.iinfo(np.int64).min
PENDING = 1 << 20
DECADES = 12


class Lateness:
    """How many records have each lateness (ms), exactly: 16 bytes per lateness that occurs, and 8 MiB."""

    def __init__(self) -> None:
        self.zeros = 0
        self.values = np.empty(0, np.int64)
        self.counts = np.empty(0, np.int64)
        self._waiting: list[Any] = []
        self._pending = 0

    def add(self, late: Any) -> None:
        """Counts some records."""
        above = late[late > 0]
        self.zeros += len(late) - len(above)
        if len(above):
            self._waiting.append(above)
            self._pending += len(above)
        if self._pending >= PENDING:
            self._settle()

    def _settle(self) -> None:
        if not self._waiting:
            return
        values, counts = np.unique(np.concatenate(self._waiting), return_counts=True)
        self._waiting, self._pending = [], 0
        merged = np.concatenate([self.values, values])
        order = np.argsort(merged, kind="stable")
        merged = merged[order]
        starts = np.flatnonzero(np.concatenate([[True], merged[1:] != merged[:-1]]))
        self.counts = np.add.reduceat(np.concatenate([self.counts, counts])[order], starts)
        self.values = merged[starts]

    def total(self) -> int:
        """Records counted."""
        self._settle()
        return self.zeros + int(self.counts.sum())

    def at(self, share: float) -> int | None:
        """The smallest lateness that at least this share of the records does not exceed; None without records."""
        total = self.total()
        if not total:
            return None
        # the tolerance is for doubles such as 0.07 * 100
        rank = max(math.ceil(share * total - 1e-9), 1)
        if rank <= self.zeros:
            return 0
        return int(self.values[np.searchsorted(np.cumsum(self.counts), rank - self.zeros)])

    def decades(self) -> list[int]:
        """How many records are late by less than 1 ms, 10 ms, .. 10^10 ms (115 days), each without those before; the last one has the rest."""
        self._settle()
        sums = np.concatenate([[0], np.cumsum(self.counts)])
        below = self.zeros + sums[np.searchsorted(self.values, [10**power for power in range(DECADES - 1)])]
        return [int(n) for n in np.diff(below, prepend=0, append=self.total())]


class Order:
    """The records of one partition, added in the order of their offsets."""

    def __init__(self) -> None:
        self.records = 0
        self.first = -1
        self.last = -1
        self.repeated_offsets = 0
        self.inversions = 0
        self.furthest = 0
        self.newest: int | None = None
        self.lateness = Lateness()
        self._last_ms = NO_TIME

    def add(self, offsets: Any, ms: Any) -> None:
        """Records that come after all that were added before.

        Args:
            offsets: int64, never falling; among equal ones `ms` does not fall.
            ms: int64 timestamps, `NO_TIME` for none.
        """
        if not len(offsets):
            return
        if not self.records:
            self.first = int(offsets[0])
            before = ms[:1]
        else:
            self.repeated_offsets += int(offsets[0] == self.last)
            before = np.array([self._last_ms], np.int64)
        self.records += len(offsets)
        self.repeated_offsets += int(np.count_nonzero(offsets[1:] == offsets[:-1]))
        self.last, self._last_ms = int(offsets[-1]), int(ms[-1])
        self._steps(np.concatenate([before, ms]))
        self._late(ms)

    def _steps(self, ms: Any) -> None:
        back = np.flatnonzero(ms[1:] < ms[:-1])
        back = back[ms[back + 1] != NO_TIME]
        if len(back):
            self.inversions += len(back)
            self.furthest = max(self.furthest, int((ms[back] - ms[back + 1]).max()))

    def _late(self, ms: Any) -> None:
        highest = np.maximum.accumulate(ms)
        if self.newest is not None:
            highest = np.maximum(highest, self.newest)
        timed = ms != NO_TIME
        if not timed.all():
            highest, ms = highest[timed], ms[timed]
        if len(ms):
            self.newest = int(highest[-1])
            self.lateness.add(highest - ms)

    @property
    def gaps(self) -> int:
        """Offsets between the first and the last record that no record has."""
        return self.last - self.first + 1 - (self.records - self.repeated_offsets) if self.records else 0

    @property
    def inversion_max_ms(self) -> int | None:
        """The furthest step back; None if no record has a timestamp."""
        return None if self.newest is None else self.furthest
