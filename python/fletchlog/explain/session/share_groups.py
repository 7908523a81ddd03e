"""Share groups (KIP-932): their members on a time line, and every record that was delivered: to whom, how often, for how long, and how it ended.

A group is reconstructed from its requests, in the order in which the leader of a partition sees them: acknowledgements when they arrive, acquired records when
they are sent. The wire does not show the end of a lock: a record that comes again while a member has it was not acknowledged in time. Kafka: `SharePartition`
(spec 14.5).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from fletchlog.explain.session.groups import Group, epochs, take
from fletchlog.explain.session.in_flight import Delivery, Ranges
from fletchlog.explain.session.share_facts import FINAL_EPOCH

if TYPE_CHECKING:
    from fletchlog.explain.session.facts import Facts
    from fletchlog.explain.session.rows import Acknowledged, Acquired, Lane, Shared

SHARE = "share-heartbeat"
RENEW = 4
KINDS = {0: "gap", 1: "accepted", 2: "released", 3: "rejected"}
DONE = ("accepted", "rejected", "gap")
AGAIN = ("released", "closed", "disconnected", "expired")
NOT_HANDLED = ("closed", "black hole", "connection lost", "pending")
"""Outcomes of a request that the broker may not have handled."""
LOST = ("response lost", "response cut", *NOT_HANDLED[:-1])
LATE = "INVALID_RECORD_STATE"
CLOSING_US = 1_000_000
"""The end of a connection is recorded at most so long after the broker has released its records."""
LOCKS = 100
"""The smallest `share.partition.max.record.locks`."""


@dataclass(slots=True)
class Pinned:
    """A record that keeps the start of a partition: what is done behind it still counts as in flight."""

    by: Delivery
    behind: int
    at_us: int
    number: int


@dataclass(slots=True)
class Full:
    """A ShareFetch that got nothing of a partition with many records in flight, and the records that came later though they had been written before."""

    lane: Lane
    number: int
    client: int
    at_us: int
    in_flight: int
    holder: int


@dataclass(slots=True)
class Work:
    """What a client did in a share group: records by how their deliveries ended, and how long it had them."""

    delivered: int = 0
    held: int = 0
    longest_us: int = 0
    ended: dict[str, int] = field(default_factory=dict)
    renewed: int = 0


@dataclass(slots=True)
class ShareGroup(Group):
    """A share group."""

    deliveries: list[Delivery] = field(default_factory=list)
    """In the order in which they were acquired."""
    late: list[tuple[int, int, Lane, int, int]] = field(default_factory=list)
    """Acknowledgements that were refused because the member had the records no more: request, client, partition, first and last offset."""
    lost: list[tuple[Shared, list[Delivery]]] = field(default_factory=list)
    """Requests with acknowledgements whose response was lost, and what they acknowledged."""
    pinned: dict[Lane, Pinned] = field(default_factory=dict)
    full: list[Full] = field(default_factory=list)
    _of_lane: dict[Lane, list[Delivery]] = field(default_factory=dict)
    _work: dict[int, Work] = field(default_factory=dict)

    def work(self) -> dict[int, Work]:
        """By client: what it had, and how that ended."""
        if self._work:
            return self._work
        found = self._work
        for delivery in self.deliveries:
            work = found.setdefault(delivery.client, Work())
            work.delivered += delivery.records
            work.renewed += delivery.renewed
            if delivery.how:
                work.ended[delivery.how] = work.ended.get(delivery.how, 0) + delivery.records
                work.longest_us = max(work.longest_us, (delivery.ended_us or 0) - delivery.at_us)
            else:
                work.held += delivery.records
        return found

    def again(self, delivery: Delivery) -> list[Delivery]:
        """All deliveries of records of this one, in their order."""
        if not self._of_lane:
            for every in self.deliveries:
                self._of_lane.setdefault(every.lane, []).append(every)
        return [d for d in self._of_lane[delivery.lane] if d.first <= delivery.last and delivery.first <= d.last]


def share_groups_of(facts: Facts) -> dict[str, ShareGroup]:
    """The share groups of a session, by name."""
    found: dict[str, ShareGroup] = {}
    for event in facts.group_events:
        if event.kind == SHARE:
            found.setdefault(event.group, ShareGroup(event.group)).events.append(event)
    for group in found.values():
        for event in group.events:
            take(group, event)
        epochs(group)
    shared: dict[str, list[Shared]] = {}
    for row in facts.shared:
        shared.setdefault(row.group, []).append(row)
    for name, rows in shared.items():
        _Replay(facts, found.setdefault(name, ShareGroup(name))).run(rows)
    return found


class _Replay:
    """The records of a group in flight, request by request."""

    def __init__(self, facts: Facts, group: ShareGroup) -> None:
        self.closed = facts.closed
        self.produced = facts.produced
        self.group = group
        self.held: dict[Lane, Ranges] = {}
        self.waiting: dict[Lane, Ranges] = {}
        self.ends: dict[Lane, int] = {}
        self.doubtful: dict[Lane, list[Full]] = {}

    def run(self, rows: list[Shared]) -> None:
        """All requests of the group, and the ends of their connections."""
        steps: list[tuple[int, int, int, Shared | int]] = [(row.arrived_us, row.number, 0, row) for row in rows]
        steps += [(row.answered_us, row.number, 1, row) for row in rows if row.answered_us is not None]
        steps += [(at, 0, 2, connection) for connection in {row.connection for row in rows} if (at := self.closed.get(connection)) is not None]
        for at, _, phase, step in sorted(steps, key=lambda step: step[:3]):
            if isinstance(step, int):
                self._released(step, None, at, None, "disconnected")
            elif phase == 0:
                self._acknowledges(step)
            else:
                self._acquires(step)
        for delivery in (d for ranges in self.held.values() for d in ranges.every()):
            self.group.deliveries.append(delivery)
        self.group.deliveries.sort(key=lambda delivery: (delivery.at_us, delivery.number, delivery.lane, delivery.first))
        self._never_came()

    def _acknowledges(self, row: Shared) -> None:
        ended = [delivery for batch in row.acknowledged for delivery in self._acknowledge(row, batch)]
        if row.acknowledged and row.outcome in LOST:
            self.group.lost.append((row, ended))
        if row.epoch == FINAL_EPOCH and row.outcome not in NOT_HANDLED:
            self._released(row.connection, row.member, row.arrived_us, row.number, "closed")

    def _acknowledge(self, row: Shared, batch: Acknowledged) -> list[Delivery]:
        if batch.error == LATE:
            self.group.late.append((row.number, row.client, batch.lane, batch.first, batch.last))
            for delivery in self._mine(row, batch.lane, batch.first, batch.last):
                self._end(delivery, row.arrived_us, row.number, "expired")
            return []
        if batch.error or row.outcome in NOT_HANDLED:
            return []
        ended = []
        for kind, first, last in _runs(batch):
            for delivery in self._mine(row, batch.lane, first, last):
                if kind == RENEW:
                    delivery.renewed += 1
                    self.held[batch.lane].add(delivery)
                else:
                    delivery.is_confirmed = row.outcome == "answered"
                    self._end(delivery, row.arrived_us, row.number, KINDS.get(kind, "accepted"))
                    ended.append(delivery)
        self._look(batch.lane, row)
        return ended

    def _mine(self, row: Shared, lane: Lane, first: int, last: int) -> list[Delivery]:
        """What this member has of these offsets, taken out; what others have stays."""
        held = self.held.get(lane)
        if held is None:
            return []
        mine = []
        for delivery in held.take(first, last):
            if delivery.member == row.member:
                mine.append(delivery)
            else:
                held.add(delivery)
        return mine

    def _released(self, connection: int, member: str | None, at_us: int, number: int | None, how: str) -> None:
        """What was acquired over a connection is released, as that or its share session has ended."""
        for held in self.held.values():
            for delivery in held.every():
                if delivery.connection == connection and member in (None, delivery.member):
                    held.take(delivery.first, delivery.last)
                    self._end(delivery, at_us, number, how)

    def _end(self, delivery: Delivery, at_us: int, number: int | None, how: str) -> None:
        delivery.ended_us, delivery.ended_by, delivery.how = at_us, number, how
        self.group.deliveries.append(delivery)
        if how in AGAIN:
            self.waiting.setdefault(delivery.lane, Ranges()).add(delivery)

    def _acquires(self, row: Shared) -> None:
        for acquired in row.acquired:
            self._acquire(row, acquired)
        if row.api == "ShareFetch" and not row.acquired and not row.error and row.max_records > 0 and not row.renews:
            for lane in row.wanted:
                self._nothing(row, lane)

    def _acquire(self, row: Shared, acquired: Acquired) -> None:
        lane, at = acquired.lane, row.answered_us or row.arrived_us
        held = self.held.setdefault(lane, Ranges())
        for before in held.take(acquired.first, acquired.last):
            closed = self.closed.get(before.connection)
            is_closed = closed is not None and closed <= at + CLOSING_US and before.connection != row.connection
            self._end(before, at, row.number, "disconnected" if is_closed else "expired")
        if waiting := self.waiting.get(lane):
            waiting.take(acquired.first, acquired.last)
        if acquired.first >= self.ends.get(lane, 0):
            written_us = acquired.written_ms * 1000
            self.group.full += [full for full in self.doubtful.pop(lane, ()) if 0 < written_us < full.at_us]
        self.ends[lane] = max(self.ends.get(lane, 0), acquired.last + 1)
        held.add(Delivery(lane, acquired.first, acquired.last, acquired.deliveries, row.member, row.client, row.connection, at, row.number, row.lock_ms))

    def _lowest(self, lane: Lane) -> Delivery | None:
        """What is not done at the smallest offset."""
        found = [ranges.lowest for ranges in (self.held.get(lane), self.waiting.get(lane)) if ranges]
        return min(found, key=lambda delivery: delivery.first, default=None)

    def _look(self, lane: Lane, row: Shared) -> None:
        """Whether one delivery keeps the start of the partition."""
        low = self._lowest(lane)
        if low is None:
            return
        open_ = sum(ranges.records for ranges in (self.held.get(lane), self.waiting.get(lane)) if ranges)
        behind = self.ends[lane] - low.first - open_
        known = self.group.pinned.get(lane)
        if known is None or known.behind < behind:
            self.group.pinned[lane] = Pinned(low, behind, row.arrived_us, row.number)

    def _nothing(self, row: Shared, lane: Lane) -> None:
        low = self._lowest(lane)
        if low is None or (in_flight := self.ends[lane] - low.first) < LOCKS:
            return
        by: dict[int, int] = {}
        for delivery in (self.held.get(lane) or Ranges()).every():
            by[delivery.client] = by.get(delivery.client, 0) + delivery.records
        holder = max(by, key=lambda client: by[client], default=low.client)
        self.doubtful.setdefault(lane, []).append(Full(lane, row.number, row.client, row.arrived_us, in_flight, holder))

    def _never_came(self) -> None:
        """Records that a producer had written, and that were not acquired until the session ended."""
        for lane, found in self.doubtful.items():
            after = [b.arrived_us for b in self.produced if b.lane == lane and b.base_offset is not None and b.base_offset >= self.ends[lane]]
            self.group.full += [full for full in found if min(after, default=full.at_us) < full.at_us]


def _runs(batch: Acknowledged) -> list[tuple[int, int, int]]:
    """Runs of one type: type, first and last offset."""
    if len(batch.types) == 1:
        return [(batch.types[0], batch.first, batch.last)]
    found, at = [], batch.first
    for kind, run in groupby(batch.types):
        length = len(list(run))
        found.append((kind, at, at + length - 1))
        at += length
    return found
