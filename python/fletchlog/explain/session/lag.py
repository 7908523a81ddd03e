"""Lag: how far each group is behind in each partition it reads, what holds it back, and when the lag is gone at the rates of the session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fletchlog.explain.session.finding import seconds

if TYPE_CHECKING:
    from fletchlog.explain.session.facts import Facts
    from fletchlog.explain.session.groups import Group
    from fletchlog.explain.session.rows import Fetched, Got, Lane, Produced

MICROSECONDS = 1_000_000
# a consumer whose buffer is not full asks again as soon as it has a response
STOPPED_US = 10 * MICROSECONDS


@dataclass(slots=True)
class Behind:
    """A partition that a group reads.

    Attributes:
        group: The group; empty: a consumer without one.
        lane: The partition.
        client: The client that read it last; None: nobody did.
        committed: The last committed offset; None: none was seen.
        position: The offset after the last record that was fetched.
        end: The end of the log when it was last seen: the high watermark in a fetch, or the end of a batch that was written later.
        lag: Records between what is committed, or else fetched, and the end.
        arrive_s: Records a second that arrived in the partition, as fetches and responses to producers saw its end grow.
        read_s: Records a second that were fetched.
        clears_s: Seconds until the lag is gone at these rates; None: it does not get smaller.
        held_by: What holds it back, in words; empty: nothing.
        evidence: The last requests that show it.
    """

    group: str
    lane: Lane
    client: int | None
    committed: int | None
    position: int
    end: int
    lag: int
    arrive_s: float
    read_s: float
    clears_s: float | None
    held_by: str
    evidence: list[int]


def lag_of(facts: Facts, groups: dict[str, Group]) -> list[Behind]:
    """The lag of every group that was seen, the greatest first; of consumers without a group what they fetched."""
    owners: dict[int, list[str]] = {}
    for group in groups.values():
        for client in group.clients:
            owners.setdefault(client, []).append(group.id)
    seen: dict[tuple[str, Lane], _Seen] = {}
    nobody = [""]
    for fetch in facts.fetches:
        names = owners.get(fetch.client, nobody)
        for got in fetch.got:
            if got.error:
                continue
            for group_id in names:
                entry = seen.get((group_id, got.lane))
                if entry is None:
                    entry = seen[group_id, got.lane] = _Seen(fetch.answered_us or fetch.arrived_us, got.high_watermark)
                entry.fetch, entry.got = fetch, got
                entry.records += got.records
                position = got.last + 1 if got.records else got.asked
                entry.position = max(entry.position, position)
    for entry in seen.values():
        entry.settle()
    for lane, (at, end) in written_ends(facts).items():
        for group_id in {group_id for group_id, seen_lane in seen if seen_lane == lane}:
            entry = seen[group_id, lane]
            if end > entry.end:
                entry.end, entry.end_us = end, at
    committed: dict[tuple[str, Lane], int] = {(commit.group, commit.lane): commit.offset for commit in facts.committed if commit.error is None}
    found = [_behind(facts, groups.get(group), key, entry, committed.get(key)) for key, entry in seen.items() for group in [key[0]]]
    found += _unread(groups, facts, set(seen))
    return sorted(found, key=lambda behind: (-behind.lag, behind.group, behind.lane))


def written_ends(facts: Facts) -> dict[Lane, tuple[int, int]]:
    """By partition: when the last batch was written that a producer has a response for, and the offset after it."""
    count = len(facts.produced)
    if facts.written_ends[0] != count:
        last: dict[Lane, Produced] = {}
        ends: dict[Lane, int] = {}
        for batch in facts.produced:
            if (base := batch.base_offset) is not None and base + batch.records > ends.get(batch.lane, 0):
                ends[batch.lane] = base + batch.records
                last[batch.lane] = batch
        facts.written_ends = count, {lane: (batch.answered_us or batch.arrived_us, ends[lane]) for lane, batch in last.items()}
    return facts.written_ends[1]


@dataclass(slots=True)
class _Seen:
    first_us: int
    first_end: int
    last_us: int = 0
    end: int = 0
    stable: int = 0
    client: int = 0
    isolation: int = 0
    number: int = 0
    records: int = 0
    position: int = -1
    end_us: int = 0
    high: int = 0
    fetch: Fetched | None = None
    got: Got | None = None
    """The last one."""

    def settle(self) -> None:
        """What the last fetch shows."""
        if self.fetch is not None and self.got is not None:
            self.last_us = self.fetch.answered_us or self.fetch.arrived_us
            self.end = self.high = self.got.high_watermark
            self.stable, self.client, self.isolation, self.number = self.got.last_stable, self.fetch.client, self.fetch.isolation, self.fetch.number


def _behind(facts: Facts, group: Group | None, key: tuple[str, Lane], entry: _Seen, committed: int | None) -> Behind:
    length = max(entry.last_us - entry.first_us, entry.end_us - entry.first_us, 1) / MICROSECONDS
    silent = entry.end_us - entry.last_us
    arrive, read = (entry.end - entry.first_end) / length, entry.records / length
    done = committed if committed is not None and committed >= 0 else entry.position
    lag = max(entry.end - max(done, 0), 0)
    clears = lag / (read - arrive) if lag and read > arrive else 0.0 if not lag else None
    held = ""
    if entry.isolation == 1 and entry.stable < entry.high and entry.position >= entry.stable:
        held = f"an open transaction: the last stable offset is {entry.stable}, {entry.high - entry.stable} records before the end"
    elif lag and silent >= STOPPED_US:
        held = f"{facts.name(entry.client)} has not asked for it for {seconds(silent)}: it is paused, or the program is at work on what it has"
    elif lag and committed is None and group is not None:
        held = "nothing was committed"
    elif lag and entry.position >= entry.end:
        held = "the records were fetched, and not committed yet"
    elif lag and any(client == entry.client for _, client, _ in facts.throttled):
        held = "the broker throttles its client"
    elif lag and read <= arrive:
        held = f"its reader is slow: {read:.1f} records a second, {arrive:.1f} arrive"
    return Behind(key[0], key[1], entry.client, committed, entry.position, entry.end, lag, arrive, read, clears, held, [entry.number])


def _unread(groups: dict[str, Group], facts: Facts, seen: set[tuple[str, Lane]]) -> list[Behind]:
    """Assigned partitions that were never fetched."""
    found = []
    ends = {position.lane: position.offset for position in facts.positions if position.timestamp == -1}
    ends |= {lane: max(end, ends.get(lane, 0)) for lane, (_, end) in written_ends(facts).items()}
    for group in groups.values():
        for member in group.living():
            for lane in member.assigned or ():
                if (group.id, lane) not in seen:
                    end = ends.get(lane, 0)
                    held = f"{facts.name(member.client)} has it and never asked for it"
                    found.append(Behind(group.id, lane, member.client, None, -1, end, end, 0.0, 0.0, None, held, [member.joined_by]))
    return found
