"""Order: in which order fetches asked for partitions, in which order their records arrived, and which partitions waited.

The order of arrival is that of responses by the time at which they were ready, and in a response that of its partitions: as a client receives them. The
order in which a program sees them is the client's own matter; confluent-kafka, kafka-python and aiokafka keep it. What is fetched again counts once, where
it was fetched last: the wire does not show whether the program had seen it, as before a seek, or the client had discarded it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from fletchlog.explain.session.columns import NONE, Rows, distinct, np, split

if TYPE_CHECKING:
    from fletchlog.explain.session.columns import Array, Fetches
    from fletchlog.explain.session.facts import Facts
    from fletchlog.explain.session.rows import Lane


class Arrival(NamedTuple):
    """Records of a partition in a response."""

    number: int
    at_us: int
    lane: Lane
    first: int
    last: int
    records: int
    size: int


class Arrivals(Rows[Arrival]):
    """What arrived, in its order: rows are made when they are read."""

    def __init__(self, fetches: Fetches, got: Array, first: Array, last: Array, records: Array) -> None:
        """With the rows of what responses had."""
        self._fetches, self._got = fetches, got
        self._columns = first, last, records

    def __len__(self) -> int:
        """How many."""
        return len(self._got)

    def rows(self, at: Array) -> list[Arrival]:
        """Those at these places, or in this slice."""
        fetches, got = self._fetches, self._got[at]
        by, lanes = fetches.got.fetch[got], fetches.names.lanes
        columns = (fetches.number[by], fetches.answered_us[by], fetches.got.lane[got], *(column[at] for column in self._columns), fetches.got.size[got])
        return [Arrival(number, time, lanes[lane], *rest) for number, time, lane, *rest in zip(*(column.tolist() for column in columns), strict=True)]


@dataclass(slots=True)
class Waiting:
    """How a partition was served.

    Attributes:
        lane: The partition.
        fetches: How many fetches asked for it.
        served: How many of them brought records.
        records: How many records arrived.
        worst_wait: Fetches in a row that brought records of other partitions while this one had some that were not fetched.
        worst_wait_us: The same as a time.
        reason: Why it waited, with the setting that changes it; empty: it did not.
    """

    lane: Lane
    fetches: int = 0
    served: int = 0
    records: int = 0
    worst_wait: int = 0
    worst_wait_us: int = 0
    reason: str = ""


@dataclass(slots=True)
class Order:
    """What a client asked for and got."""

    client: int
    fetches: Fetches
    arrivals: Arrivals
    waiting: list[Waiting]

    @property
    def asked(self) -> list[tuple[int, dict[Lane, None]]]:
        """By request the partitions in the order in which it asks for them."""
        mine = self.fetches.of(self.client)
        return [
            (number, self.fetches.wants(wanted)) for number, wanted in zip(*(c[mine].tolist() for c in (self.fetches.number, self.fetches.wanted)), strict=True)
        ]


# so many fetches in a row for others are no accident
LONG_WAIT = 3


def order_of(facts: Facts, client: int) -> Order:
    """The order of one client."""
    fetches = facts.fetches
    mine = fetches.of(client)
    answered = mine[fetches.answered_us[mine] != NONE]
    answered = answered[np.lexsort((fetches.number[answered], fetches.answered_us[answered]))]
    waiting = _waiting(fetches, answered)
    for entry in waiting:
        if entry.worst_wait >= LONG_WAIT:
            entry.reason = _reason(int(fetches.max_bytes[mine[0]]), int(fetches.partition_max_bytes[mine[0]]))
    return Order(client, fetches, _arrivals(fetches, mine, answered), sorted(waiting, key=lambda entry: (-entry.worst_wait, entry.lane)))


def _waiting(fetches: Fetches, answered: Array) -> list[Waiting]:
    """How each partition was served, by fetches in the order of their responses."""
    lanes, got = fetches.names.lanes, fetches.got
    waits: dict[int, Waiting] = {}
    kinds, counts, kind_of = distinct(fetches.wanted[answered])
    wanted = [fetches.names.wanted[number] for number in fetches.wanted[answered[kinds]].tolist()]
    asked_by: dict[int, list[int]] = {}
    for kind, (number, count) in enumerate(zip(wanted, counts.tolist(), strict=True)):
        for lane in number:
            waits.setdefault(lane, Waiting(lanes[lane])).fetches += count
            asked_by.setdefault(lane, []).append(kind)
    rows = got.of(answered)
    at = np.repeat(np.arange(len(answered)), got.bounds[answered + 1] - got.bounds[answered])
    has_records = got.records[rows] != 0
    # fetches that brought something, for which others waited
    serves = np.zeros(len(answered), bool)
    serves[at[has_records]] = True
    ends = np.where(has_records, got.last[rows] + 1, np.maximum(got.asked[rows], 0))
    is_behind = got.high_watermark[rows] > ends
    turns: dict[tuple[int, ...], Array] = {}
    for lane, these in split(got.lane[rows]):
        if has_records[these].any():
            entry = waits.setdefault(lane, Waiting(lanes[lane]))
            entry.served, entry.records = int(has_records[these].sum()), int(got.records[rows[these]].sum())
        asking = tuple(asked_by.get(lane, ()))
        if not asking or not is_behind[these].any():
            continue
        if asking not in turns:
            turns[asking] = np.flatnonzero(serves & (np.isin(kind_of, asking) if len(asking) < len(wanted) else True))
        entry = waits[lane]
        entry.worst_wait, entry.worst_wait_us = _worst(turns[asking], at[these], has_records[these], is_behind[these], fetches.answered_us[answered])
    return list(waits.values())


def _worst(turns: Array, at: Array, has_records: Array, is_behind: Array, answered_us: Array) -> tuple[int, int]:
    """The most fetches in a row for others while a partition had records that were not fetched, and how long they took.

    Args:
        turns: The fetches that asked for the partition and brought something of any.
        at: The fetches that have something of the partition, in their order.
        has_records: Whether they brought records of it.
        is_behind: Whether there were more.
        answered_us: When each fetch had its response.
    """
    begin = np.searchsorted(turns, at + has_records)
    end = np.append(np.searchsorted(turns, at[1:]), len(turns))
    count = np.where(is_behind, np.maximum(end - begin, 0), 0)
    if not count.any():
        return 0, 0
    since = np.cumsum(has_records)
    totals = np.bincount(since, count).astype(np.int64)
    longest = int(totals.argmax())
    inside = np.flatnonzero((since == longest) & (count > 0))
    first, last = turns[begin[inside[0]]], turns[end[inside[-1]] - 1]
    return int(totals[longest]), int(answered_us[last] - answered_us[first])


def _arrivals(fetches: Fetches, mine: Array, answered: Array) -> Arrivals:
    """What arrived, in the order of responses, without what the client discarded: it asks for that again, as after a seek."""
    got, named = fetches.got, fetches.named
    rows = got.of(answered)
    rows = rows[got.records[rows] != 0]
    first, last = np.maximum(got.first[rows], got.asked[rows]), got.last[rows].copy()
    records = np.minimum(got.records[rows], last - first + 1)
    if not len(rows):
        return Arrivals(fetches, rows, first, last, records)
    # requests and responses in the order in which they were seen
    times = np.concatenate((fetches.arrived_us[mine], fetches.answered_us[answered]))
    is_response = np.repeat((0, 1), (len(mine), len(answered)))
    order = np.lexsort((is_response, np.concatenate((fetches.number[mine], fetches.number[answered])), times))
    step = np.empty((2, len(fetches)), np.int64)
    step[is_response[order], np.concatenate((mine, answered))[order]] = np.arange(len(order))
    asks = named.of(mine)
    brought = got.lane[rows] * len(order) + step[1][got.fetch[rows]]
    asked = named.lane[asks] * len(order) + step[0][named.fetch[asks]]
    by_lane = np.argsort(brought, kind="stable")
    # what arrived in a partition before a request names it: the last of it
    before = by_lane[np.maximum(np.searchsorted(brought[by_lane], asked) - 1, 0)]
    is_known = (brought[before] < asked) & (got.lane[rows[before]] == named.lane[asks])
    back = asks[is_known & (named.offset[asks] <= last[before])]
    kept = np.ones(len(rows), bool)
    for lane, these in split(named.lane[back]):
        seeks = back[these]
        seeks = seeks[np.argsort(step[0][named.fetch[seeks]], kind="stable")]
        theirs = np.flatnonzero(got.lane[rows] == lane)
        _discard(theirs, step[1][got.fetch[rows[theirs]]], step[0][named.fetch[seeks]].tolist(), named.offset[seeks].tolist(), (first, last, records, kept))
    places = np.flatnonzero(kept)
    return Arrivals(fetches, rows[places], first[places], last[places], records[places])


def _discard(rows: Array, steps: Array, asked_at: list[int], offsets: list[int], of: tuple[Array, Array, Array, Array]) -> None:
    """Takes away what is at an offset of a partition that is asked for again, and behind it."""
    first, last, records, kept = of
    there: list[int] = []
    at, end = 0, 0
    for step, offset in zip(asked_at, offsets, strict=True):
        until = int(np.searchsorted(steps, step))
        if until > at:
            there += rows[at:until].tolist()
            at, end = until, int(last[there[-1]]) + 1
        if offset >= end:
            continue
        end = offset
        while there and first[there[-1]] >= offset:
            kept[there.pop()] = False
        if there and last[there[-1]] >= offset:
            row = there[-1]
            last[row], records[row] = offset - 1, min(records[row], offset - first[row])


def _reason(max_bytes: int, partition_max_bytes: int) -> str:
    if max_bytes <= partition_max_bytes:
        return (
            f"each response is full after one partition: fetch.max.bytes ({max_bytes:,}) is not larger than max.partition.fetch.bytes ({partition_max_bytes:,})"
        )
    return "responses are full before its turn: lower max.partition.fetch.bytes, or raise fetch.max.bytes"
