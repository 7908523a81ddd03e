"""Lag: how far each group is behind in each partition it reads, what holds it back, and when the lag is gone at the rates of the session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fletchlog.explain.session.columns import NONE, np, split
from fletchlog.explain.session.finding import seconds

if TYPE_CHECKING:
    from fletchlog.explain.session.columns import Array, Fetches
    from fletchlog.explain.session.facts import Facts
    from fletchlog.explain.session.groups import Group
    from fletchlog.explain.session.rows import Lane

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
    owned = [client for group in groups.values() for client in group.clients]
    seen: dict[tuple[str, Lane], _Seen] = {}
    fetches, got = facts.fetches, facts.fetches.got
    every = np.flatnonzero(got.error == 0)
    client_of = fetches.client[got.fetch[every]]
    for name, is_mine in [("", ~np.isin(client_of, owned)), *((group.id, np.isin(client_of, group.clients)) for group in groups.values())]:
        rows = every[is_mine]
        for number, at in split(got.lane[rows]):
            seen[name, fetches.names.lanes[number]] = _seen(fetches, rows[at])
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
    if facts.written_ends is None:
        batches = facts.produced
        rows = np.flatnonzero(batches.base_offset != NONE)
        ends = batches.base_offset[rows] + batches.records[rows]
        facts.written_ends = {}
        for lane, at in split(batches.lane[rows]):
            # the first one that ends there
            last = at[ends[at].argmax()]
            if ends[last] > 0:
                facts.written_ends[batches.names.lanes[lane]] = int(batches.at_us[rows[last]]), int(ends[last])
    return facts.written_ends


@dataclass(slots=True)
class _Seen:
    """What fetches saw of a partition, and the last of them."""

    first_us: int
    first_end: int
    last_us: int
    end: int
    high: int
    stable: int
    client: int
    isolation: int
    number: int
    records: int
    position: int
    end_us: int = 0


def _seen(fetches: Fetches, rows: Array) -> _Seen:
    """Of what responses had of a partition, in the order of arrival."""
    got = fetches.got
    first, last, high = got.fetch[rows[0]], got.fetch[rows[-1]], int(got.high_watermark[rows[-1]])
    return _Seen(
        int(fetches.at_us[first]), int(got.high_watermark[rows[0]]), int(fetches.at_us[last]), high, high, int(got.last_stable[rows[-1]]),
        int(fetches.client[last]), int(fetches.isolation[last]), int(fetches.number[last]), int(got.records[rows].sum()),
        max(-1, int(got.position(rows).max())),
    )  # fmt: skip


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
