"""Fetches: sizes and waits, isolation, records that are fetched again and again, partitions that nobody reads."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from statistics import mean
from typing import TYPE_CHECKING

from fletchlog.explain.session.finding import found, seconds, several
from fletchlog.explain.session.groups import MS
from fletchlog.explain.session.lag import STOPPED_US, written_ends

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fletchlog.explain.session.finding import Finding, Scene
    from fletchlog.explain.session.rows import Fetched, Got, Lane

SMALL = 65_536
MANY = 20
MANY_EMPTY = 50
BUSY_WAIT_MS = 20
AGAIN = 4
# in place of a connection
COMMITTED = -1


def rule(scene: Scene) -> Iterator[Finding]:
    """Findings about fetches."""
    dirty = _aborted(scene)
    for client in dict.fromkeys(fetch.client for fetch in scene.facts.fetches):
        fetches = scene.facts.fetches_of(client)
        yield from _small(scene, client, fetches)
        yield from _waits(scene, client, fetches)
        yield from _busy(scene, client, fetches)
        if dirty[1]:
            yield from _uncommitted(scene, client, fetches, *dirty)
        yield from _starved(scene, client, fetches)
    yield from _poison(scene)
    yield from _stopped(scene)
    yield from _throttled(scene)


def _small(scene: Scene, client: int, fetches: list[Fetched]) -> Iterator[Finding]:
    small = [f for f in fetches if f.size and min(f.partition_max_bytes or f.max_bytes, f.max_bytes or f.partition_max_bytes) < SMALL and _is_full(f.got)]
    if len(small) >= MANY:
        limit = min(size for size in (small[0].partition_max_bytes, small[0].max_bytes) if size)
        records = mean(sum(got.records for got in f.got) for f in small)
        yield found(
            "fetch-too-small", "warning", 63,
            f"{scene.name(client)} asks for at most {limit:,} bytes at a time: {len(small)} fetches with {records:.0f} records each, while more was ready.",
            "Leave max.partition.fetch.bytes at 1 MiB and fetch.max.bytes at 50 MiB; limit what a poll hands out with max.poll.records.",
            [f.number for f in small], scene.name(client),
        )  # fmt: skip


def _is_full(got: list[Got]) -> bool:
    """Whether more was ready than was fetched."""
    for one in got:  # noqa: SIM110 - a generator takes twice as long
        if one.records and one.last + 1 < one.high_watermark:
            return True
    return False


def _waits(scene: Scene, client: int, fetches: list[Fetched]) -> Iterator[Finding]:
    late = [
        f for f in fetches
        if f.min_bytes > 1 and f.answered_us and 0 < f.size < f.min_bytes and f.answered_us - f.arrived_us >= 0.9 * f.max_wait_ms * MS and f.max_wait_ms >= 100  # noqa: PLR2004 - less is not noticed
    ]  # fmt: skip
    if len(late) >= 3:  # noqa: PLR2004 - not by chance
        yield found(
            "fetch-waits", "warning", 57,
            f"The broker holds fetches of {scene.name(client)} for {seconds(late[0].max_wait_ms * MS)} (fetch.max.wait.ms), because fewer than "
            f"{late[0].min_bytes:,} bytes "
            f"(fetch.min.bytes) arrive in that time: every record is that late.",
            "Lower fetch.min.bytes to 1, or fetch.max.wait.ms to the delay that is allowed.", [f.number for f in late], scene.name(client),
        )  # fmt: skip


def _busy(scene: Scene, client: int, fetches: list[Fetched]) -> Iterator[Finding]:
    empty = [f for f in fetches if not f.size and f.max_wait_ms <= BUSY_WAIT_MS and f.answered_us]
    if len(empty) < MANY_EMPTY or len(empty) < 0.7 * len(fetches):
        return
    length = empty[-1].arrived_us - empty[0].arrived_us
    if len(empty) * 1_000_000 > 20 * length:
        yield found(
            "busy-fetch", "warning", 56,
            f"{scene.name(client)} asks without pause: {len(empty)} fetches in {seconds(length)} came back empty, because fetch.max.wait.ms is "
            f"{empty[0].max_wait_ms}.",
            "Leave fetch.max.wait.ms at 500: the broker answers at once when records arrive.", [f.number for f in empty], scene.name(client),
        )  # fmt: skip


def _aborted(scene: Scene) -> tuple[list[int], set[Lane]]:
    """The requests that abort transactions, and the partitions of these."""
    aborts = [event for event in scene.facts.transactions if event.kind == "abort" and not event.error]
    producers = {event.producer_id for event in aborts}
    if not producers:
        return [], set()
    return [event.number for event in aborts], {batch.lane for batch in scene.facts.produced if batch.transactional and batch.producer_id in producers}


def _uncommitted(scene: Scene, client: int, fetches: list[Fetched], aborts: list[int], aborted: set[Lane]) -> Iterator[Finding]:
    dirty = [f for f in fetches if f.isolation == 0 and any(got.transactional and got.lane in aborted for got in f.got)]
    if dirty:
        lanes = several(str(got.lane) for f in dirty for got in f.got if got.transactional)
        yield found(
            "reads-uncommitted", "error", 76,
            f"{scene.name(client)} reads {lanes} with isolation.level=read_uncommitted: it sees records of transactions that were aborted.",
            "Set isolation.level=read_committed.", [f.number for f in dirty] + aborts, scene.name(client),
        )  # fmt: skip


def _starved(scene: Scene, client: int, fetches: list[Fetched]) -> Iterator[Finding]:
    """Partitions that a member has and does not ask for, while it reads others."""
    groups = [group for group in scene.groups.values() if client in group.clients]
    times = [fetch.arrived_us for fetch in fetches] if groups else []
    for group in groups:
        for member in group.members.values():
            if member.client != client or not member.assigned:
                continue
            mine = set(member.assigned)
            last = len(times) if member.ended_us is None else bisect_right(times, member.ended_us)
            # fetches share what they want
            wanted: dict[int, dict[Lane, None]] = {}
            theirs: list[Fetched] = []
            for f in fetches[bisect_left(times, member.joined_us) : last]:
                key = id(f.wanted)
                if key not in wanted:
                    wanted[key] = f.wanted if not mine.isdisjoint(f.wanted) else {}
                if wanted[key]:
                    theirs.append(f)
            asked = mine.intersection(set["Lane"]().union(*wanted.values()))
            never = sorted(mine - asked)
            if len(theirs) < 10 or not never or not asked:  # noqa: PLR2004 - others were read often
                continue
            behind = {got.lane: got.high_watermark for f in theirs for got in f.got}
            waiting = [lane for lane in never if behind.get(lane, 1) > 0]
            if waiting:
                read = several(str(lane) for lane in sorted(asked))
                yield found(
                    "partition-starved", "error", 77,
                    f"{scene.name(client)} has {several(map(str, waiting))} in group {group.id} and never asks for it, while it reads {read}: the "
                    "partition is paused, or the "
                    f"program keeps its buffer full.",
                    "resume() every partition that was paused, also after a rebalance.", [f.number for f in theirs], group.id,
                )  # fmt: skip


def _poison(scene: Scene) -> Iterator[Finding]:
    """The same records fetched again and again: by one consumer that goes back, or by consumers that begin at the same committed offset."""
    counts: dict[tuple[Lane, int, int], int] = {}
    committed: dict[tuple[Lane, int], set[int]] = {}
    for position in scene.facts.positions:
        if position.group and position.offset >= 0:
            committed.setdefault((position.lane, position.offset), set()).add(position.client)
    for fetch in scene.facts.fetches:
        connection = fetch.connection
        for got in fetch.got:
            if not got.records:
                continue
            key = (got.lane, got.asked if got.asked >= 0 else got.first, connection)
            counts[key] = counts.get(key, 0) + 1
            if committed and fetch.client in committed.get(key[:2], ()):
                key = (*key[:2], COMMITTED)
                counts[key] = counts.get(key, 0) + 1
    again = _fetches_at(scene, {key for key, count in counts.items() if count >= AGAIN}, committed)
    furthest: dict[Lane, int] = {}
    for commit in scene.facts.committed:
        if commit.error is None:
            furthest[commit.lane] = max(furthest.get(commit.lane, -1), commit.offset)
    often = [(len(fetches), key, fetches) for key, fetches in again.items()]
    stuck = [item for item in often if furthest.get(item[1][0], -1) <= item[1][1]]
    if not stuck:
        yield from _read_again(scene, [item for item in often if item[1][2] != COMMITTED])
    if stuck:
        count, (lane, offset, _), fetches = max(stuck, key=lambda item: item[0])
        connections = len({f.connection for f in fetches})
        restarts = f", by {connections} connections one after the other" if connections > 1 else ""
        yield found(
            "poison-record", "error", 89,
            f"{scene.name(fetches[0].client)} fetches {lane} at offset {offset} again and again ({count} times{restarts}) and never commits past it: "
            f"the program fails at a record there and begins again.",
            "Catch the error of a record, put the record into a dead letter topic and commit past it.", [f.number for f in fetches], str(lane),
        )  # fmt: skip


def _fetches_at(scene: Scene, places: set[tuple[Lane, int, int]], committed: dict[tuple[Lane, int], set[int]]) -> dict[tuple[Lane, int, int], list[Fetched]]:
    """The fetches of partitions at offsets over connections, in the order in which they began."""
    found_at: dict[tuple[Lane, int, int], list[Fetched]] = {}
    if not places:
        return found_at
    for fetch in scene.facts.fetches:
        for got in fetch.got:
            if not got.records:
                continue
            place = (got.lane, got.asked if got.asked >= 0 else got.first)
            if (*place, fetch.connection) in places:
                found_at.setdefault((*place, fetch.connection), []).append(fetch)
            if (*place, COMMITTED) in places and fetch.client in committed.get(place, ()):
                found_at.setdefault((*place, COMMITTED), []).append(fetch)
    return found_at


def _read_again(scene: Scene, often: list[tuple[int, tuple[Lane, int, int], list[Fetched]]]) -> Iterator[Finding]:
    """A consumer that goes back to the same offset, and commits past it."""
    by: dict[int, list[tuple[int, tuple[Lane, int, int], list[Fetched]]]] = {}
    for item in often:
        by.setdefault(item[2][0].client, []).append(item)
    for client, items in by.items():
        count, (lane, offset, _), fetches = max(items, key=lambda item: (item[0], -item[1][1]))
        lanes = several(str(lane) for lane in sorted({key[0] for _, key, _ in items}))
        yield found(
            "reads-again", "warning", 61,
            f"{scene.name(client)} fetches {lane} at offset {offset} {count} times over one connection, and the records behind it as well ({lanes}): "
            "it goes back with seek(), or discards what it has fetched.",
            "Seek once, after the assignment; keep what has to be read again in the program. Do not pause() and resume() around each record: clients "
            "discard what they have fetched of a paused partition.", [f.number for f in fetches], str(lane),
        )  # fmt: skip


def _stopped(scene: Scene) -> Iterator[Finding]:
    """Members that send heartbeats and ask for a partition no more, while records arrive there."""
    ends = written_ends(scene.facts)
    for group in scene.groups.values():
        clients = set(group.clients)
        last: dict[Lane, Fetched] = {}
        # fetches share what they want: the last one that wants it
        by_want: dict[int, Fetched] = {}
        for fetch in scene.facts.fetches:
            if fetch.client in clients:
                by_want[id(fetch.wanted)] = fetch
        for fetch in sorted(by_want.values(), key=lambda fetch: fetch.number):
            last |= dict.fromkeys(fetch.wanted, fetch)
        for member in group.members.values():
            heard = max((at for at, _ in member.heartbeats), default=0)
            lanes = [
                lane for lane in member.assigned or ()
                if lane in last and lane in ends and min(heard, ends[lane][0]) - (last[lane].answered_us or last[lane].arrived_us) >= STOPPED_US
            ]  # fmt: skip
            if lanes:
                fetch = last[lanes[0]]
                silent = heard - (fetch.answered_us or fetch.arrived_us)
                yield found(
                    "reading-stopped", "warning", 73,
                    f"{scene.name(member.client)} has {several(map(str, lanes))} in group {group.id} and did not ask for it for {seconds(silent)}, while "
                    "records arrived; its heartbeats continue. Its partitions are paused, or its program is at work on what it has.",
                    "resume() every partition that was paused; look where the program waits (a blocked handler, a full queue).",
                    [fetch.number, member.joined_by], group.id,
                )  # fmt: skip


def _throttled(scene: Scene) -> Iterator[Finding]:
    by: dict[int, list[tuple[int, int]]] = {}
    for number, client, throttle in scene.facts.throttled:
        by.setdefault(client, []).append((number, throttle))
    for client, items in by.items():
        total = sum(throttle for _, throttle in items)
        if total >= 100:  # noqa: PLR2004 - ms, less is not noticed
            yield found(
                "throttled", "warning", 67,
                f"The broker throttles {scene.name(client)}: {len(items)} responses asked it to pause, {seconds(total * MS)} together. Its quota is used up.",
                "Raise the quota of its user or client id, or send and read less.", [number for number, _ in items], scene.name(client),
            )  # fmt: skip
