"""Order: in which order fetches asked for partitions, in which order their records arrived, and which partitions waited.

The order of arrival is that of responses by the time at which they were ready, and in a response that of its partitions: as a client receives them. The
order in which a program sees them is the client's own matter; confluent-kafka, kafka-python and aiokafka keep it. What is fetched again counts once, where
it was fetched last: the wire does not show whether the program had seen it, as before a seek, or the client had discarded it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fletchlog.explain.session.facts import Facts
    from fletchlog.explain.session.rows import Fetched, Lane


class Arrival(NamedTuple):
    """Records of a partition in a response."""

    number: int
    at_us: int
    lane: Lane
    first: int
    last: int
    records: int
    size: int


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
    asked: list[tuple[int, dict[Lane, None]]]
    """By request the partitions in the order in which it asks for them."""
    arrivals: list[Arrival]
    waiting: list[Waiting]


# so many fetches in a row for others are no accident
LONG_WAIT = 3


def order_of(facts: Facts, client: int) -> Order:
    """The order of one client."""
    fetches = facts.fetches_of(client)
    asked = [(fetch.number, fetch.wanted) for fetch in fetches]
    answered = sorted((f for f in fetches if f.answered_us is not None), key=lambda f: (f.answered_us, f.number))
    arrivals = _arrivals(fetches)
    waits = _asked_for(answered)
    since: dict[Lane, tuple[int, int]] = {}
    # partitions with records that were not fetched yet
    behind: dict[Lane, None] = {}
    for fetch in answered:
        at, served = fetch.answered_us or 0, set()
        for got in fetch.got:
            lane = got.lane
            if got.records:
                served.add(lane)
                entry = waits.get(lane) or waits.setdefault(lane, Waiting(lane))
                entry.served, entry.records = entry.served + 1, entry.records + got.records
                since.pop(lane, None)
            if got.high_watermark > (got.last + 1 if got.records else max(got.asked, 0)):
                behind[lane] = None
            else:
                behind.pop(lane, None)
        if not served:
            continue
        for lane in behind:
            if lane not in served and lane in fetch.wanted:
                count, began = since.get(lane, (0, at))
                since[lane] = (count + 1, began)
                entry = waits[lane]
                if count + 1 > entry.worst_wait:
                    entry.worst_wait, entry.worst_wait_us = count + 1, at - began
    for entry in waits.values():
        if entry.worst_wait >= LONG_WAIT:
            entry.reason = _reason(fetches[0].max_bytes, fetches[0].partition_max_bytes)
    return Order(client, asked, arrivals, sorted(waits.values(), key=lambda entry: (-entry.worst_wait, entry.lane)))


def _asked_for(fetches: list[Fetched]) -> dict[Lane, Waiting]:
    """How many fetches asked for each partition. Fetches share what they want, and are counted once for all its partitions."""
    counts: dict[int, int] = {}
    wanted: dict[int, dict[Lane, None]] = {}
    for fetch in fetches:
        key = id(fetch.wanted)
        counts[key] = counts.get(key, 0) + 1
        wanted[key] = fetch.wanted
    waits: dict[Lane, Waiting] = {}
    for key, lanes in wanted.items():
        for lane in lanes:
            waits.setdefault(lane, Waiting(lane)).fetches += counts[key]
    return waits


def _arrivals(fetches: list[Fetched]) -> list[Arrival]:
    """What arrived, in the order of responses, without what the client discarded: it asks for that again, as after a seek."""
    # a number and what it is of are never the same twice
    steps = [(fetch.answered_us, fetch.number, 1, fetch) for fetch in fetches if fetch.answered_us is not None]
    steps += [(fetch.arrived_us, fetch.number, 0, fetch) for fetch in fetches]
    steps.sort()
    found: list[Arrival] = []
    ends: dict[Lane, int] = {}
    for at, _, is_response, fetch in steps:
        if not is_response:
            for lane, offset in fetch.named.items():
                if offset < ends.get(lane, 0):
                    _discard(found, lane, offset)
                    ends[lane] = offset
            continue
        for got in fetch.got:
            if got.records:
                first = max(got.first, got.asked)
                found.append(Arrival(fetch.number, at, got.lane, first, got.last, min(got.records, got.last - first + 1), got.size))
                ends[got.lane] = got.last + 1
    return found


def _discard(arrivals: list[Arrival], lane: Lane, offset: int) -> None:
    """Takes away what is at this offset of a partition, and behind it."""
    for at in range(len(arrivals) - 1, -1, -1):
        arrival = arrivals[at]
        if arrival.lane != lane:
            continue
        if arrival.first >= offset:
            del arrivals[at]
            continue
        if arrival.last >= offset:
            arrivals[at] = arrival._replace(last=offset - 1, records=min(arrival.records, offset - arrival.first))
        return


def _reason(max_bytes: int, partition_max_bytes: int) -> str:
    if max_bytes <= partition_max_bytes:
        return (
            f"each response is full after one partition: fetch.max.bytes ({max_bytes:,}) is not larger than max.partition.fetch.bytes ({partition_max_bytes:,})"
        )
    return "responses are full before its turn: lower max.partition.fetch.bytes, or raise fetch.max.bytes"
