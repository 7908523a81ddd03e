"""The records of a partition that a share group has acquired and is not done with, as ranges by offset."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fletchlog.explain.session.rows import Lane


@dataclass(slots=True)
class Delivery:
    """Records that a member acquired together, and what became of them. Times are us since 1970.

    Attributes:
        lane: The partition.
        first: Offset of the first record.
        last: Offset of the last one.
        count: How often they have been delivered, this time included.
        member: The member.
        client: Its client.
        connection: The connection over which it acquired them.
        at_us: When.
        number: The ShareFetch.
        lock_ms: How long they are locked; 0: the response did not say.
        ended_us: When the member had them no more; None: it has them still.
        ended_by: The request that ended it, or showed that it had ended.
        how: `accepted`, `rejected`, `released`, `gap` (no record), `closed` (released as its share session ended), `disconnected`
            (released as its connection ended), `expired` (the lock ended); empty: it has them still.
        is_confirmed: The response to its acknowledgement was sent.
        renewed: How often its lock was renewed.
    """

    lane: Lane
    first: int
    last: int
    count: int
    member: str
    client: int
    connection: int
    at_us: int
    number: int
    lock_ms: int
    ended_us: int | None = None
    ended_by: int | None = None
    how: str = ""
    is_confirmed: bool = True
    renewed: int = 0

    @property
    def records(self) -> int:
        """How many offsets."""
        return self.last - self.first + 1


class Ranges:
    """Deliveries that do not overlap, by offset."""

    def __init__(self) -> None:
        """None yet."""
        self._firsts: list[int] = []
        self._by: dict[int, Delivery] = {}
        self.records = 0

    def __bool__(self) -> bool:
        """Whether there is one."""
        return bool(self._firsts)

    @property
    def lowest(self) -> Delivery:
        """The one with the smallest offset."""
        return self._by[self._firsts[0]]

    def every(self) -> list[Delivery]:
        """All, by offset."""
        return [self._by[first] for first in self._firsts]

    def add(self, delivery: Delivery) -> None:
        """Takes one in."""
        insort(self._firsts, delivery.first)
        self._by[delivery.first] = delivery
        self.records += delivery.records

    def take(self, first: int, last: int) -> list[Delivery]:
        """Takes what is in these offsets out; a delivery that is only in part inside is split, and the rest stays."""
        at = max(bisect_right(self._firsts, first) - 1, 0)
        found = [self._by[key] for key in self._firsts[at : bisect_right(self._firsts, last)] if self._by[key].last >= first]
        inside = []
        for delivery in found:
            self._remove(delivery)
            if delivery.first < first:
                self.add(replace(delivery, last=first - 1))
            if delivery.last > last:
                self.add(replace(delivery, first=last + 1))
            delivery.first, delivery.last = max(delivery.first, first), min(delivery.last, last)
            inside.append(delivery)
        return inside

    def _remove(self, delivery: Delivery) -> None:
        del self._firsts[bisect_left(self._firsts, delivery.first)], self._by[delivery.first]
        self.records -= delivery.records
