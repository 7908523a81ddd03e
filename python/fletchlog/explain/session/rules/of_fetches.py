"""Fetches: sizes and waits, isolation, records that are fetched again and again, partitions that nobody reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from fletchlog.explain.session.columns import among, distinct, mixed, np, repeated, split
from fletchlog.explain.session.finding import found, seconds, several
from fletchlog.explain.session.groups import MS
from fletchlog.explain.session.lag import STOPPED_US, written_ends
from fletchlog.explain.session.rows import Lane

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fletchlog.explain.session.columns import Array, Fetches
    from fletchlog.explain.session.finding import Finding, Scene

SMALL = 65_536
MANY = 20
MANY_EMPTY = 50
BUSY_WAIT_MS = 20
AGAIN = 4
# in place of a connection
COMMITTED = -1
# partition, offset, connection
_Place: TypeAlias = tuple[Lane, int, int]


def rule(scene: Scene) -> Iterator[Finding]:
    """Findings about fetches."""
    dirty = _aborted(scene)
    fetches = scene.facts.fetches
    for client in fetches.clients():
        mine = fetches.of(client)
        yield from _small(scene, client, fetches, mine)
        yield from _waits(scene, client, fetches, mine)
        yield from _busy(scene, client, fetches, mine)
        if dirty[1]:
            yield from _uncommitted(scene, client, fetches, mine, *dirty)
        yield from _starved(scene, client, fetches, mine)
    yield from _poison(scene)
    yield from _stopped(scene)
    yield from _throttled(scene)


def _small(scene: Scene, client: int, fetches: Fetches, mine: Array) -> Iterator[Finding]:
    most, of_each, got = fetches.max_bytes[mine], fetches.partition_max_bytes[mine], fetches.got
    limits = np.minimum(np.where(of_each != 0, of_each, most), np.where(most != 0, most, of_each))
    small = mine[(fetches.size[mine] != 0) & (limits < SMALL)]
    # more was ready than was fetched
    rows = got.of(small)
    small = np.unique(got.fetch[rows[(got.records[rows] != 0) & (got.last[rows] + 1 < got.high_watermark[rows])]])
    if len(small) >= MANY:
        limit = min(int(size[small[0]]) for size in (fetches.partition_max_bytes, fetches.max_bytes) if size[small[0]])
        records = int(got.records[got.of(small)].sum()) / len(small)
        yield found(
            "fetch-too-small", "warning", 63,
            f"{scene.name(client)} asks for at most {limit:,} bytes at a time: {len(small)} fetches with {records:.0f} records each, while more was ready.",
            "Leave max.partition.fetch.bytes at 1 MiB and fetch.max.bytes at 50 MiB; limit what a poll hands out with max.poll.records.",
            fetches.number[small].tolist(), scene.name(client),
        )  # fmt: skip


def _waits(scene: Scene, client: int, fetches: Fetches, mine: Array) -> Iterator[Finding]:
    size, least, wait, answered = fetches.size[mine], fetches.min_bytes[mine], fetches.max_wait_ms[mine], fetches.answered_us[mine]
    # less than 100 ms is not noticed
    is_late = (least > 1) & (answered > 0) & (size > 0) & (size < least) & (answered - fetches.arrived_us[mine] >= 0.9 * wait * MS) & (wait >= 100)  # noqa: PLR2004
    late = mine[is_late]
    if len(late) >= 3:  # noqa: PLR2004 - not by chance
        yield found(
            "fetch-waits", "warning", 57,
            f"The broker holds fetches of {scene.name(client)} for {seconds(int(wait[is_late][0]) * MS)} (fetch.max.wait.ms), because fewer than "
            f"{least[is_late][0]:,} bytes (fetch.min.bytes) arrive in that time: every record is that late.",
            "Lower fetch.min.bytes to 1, or fetch.max.wait.ms to the delay that is allowed.", fetches.number[late].tolist(), scene.name(client),
        )  # fmt: skip


def _busy(scene: Scene, client: int, fetches: Fetches, mine: Array) -> Iterator[Finding]:
    empty = mine[(fetches.size[mine] == 0) & (fetches.max_wait_ms[mine] <= BUSY_WAIT_MS) & (fetches.answered_us[mine] > 0)]
    if len(empty) < MANY_EMPTY or len(empty) < 0.7 * len(mine):
        return
    length = int(fetches.arrived_us[empty[-1]] - fetches.arrived_us[empty[0]])
    if len(empty) * 1_000_000 > 20 * length:
        yield found(
            "busy-fetch", "warning", 56,
            f"{scene.name(client)} asks without pause: {len(empty)} fetches in {seconds(length)} came back empty, because fetch.max.wait.ms is "
            f"{fetches.max_wait_ms[empty[0]]}.",
            "Leave fetch.max.wait.ms at 500: the broker answers at once when records arrive.", fetches.number[empty].tolist(), scene.name(client),
        )  # fmt: skip


def _aborted(scene: Scene) -> tuple[list[int], set[Lane]]:
    """The requests that abort transactions, and the partitions of these."""
    aborts = [event for event in scene.facts.transactions if event.kind == "abort" and not event.error]
    producers = {event.producer_id for event in aborts}
    if not producers:
        return [], set()
    batches = scene.facts.produced
    rows = np.flatnonzero((batches.transactional != 0) & np.isin(batches.producer_id, list(producers)))
    return [event.number for event in aborts], set(batches.lanes_of(rows))


def _uncommitted(scene: Scene, client: int, fetches: Fetches, mine: Array, aborts: list[int], aborted: set[Lane]) -> Iterator[Finding]:
    got, names = fetches.got, fetches.names
    rows = got.of(mine[fetches.isolation[mine] == 0])
    rows = rows[got.transactional[rows] != 0]
    dirty = np.unique(got.fetch[rows[np.isin(got.lane[rows], [names.number_of[lane] for lane in aborted])]])
    if len(dirty):
        read = rows[np.isin(got.fetch[rows], dirty)]
        lanes = several(str(names.lanes[lane]) for lane in got.lane[read[distinct(got.lane[read])[0]]].tolist())
        yield found(
            "reads-uncommitted", "error", 76,
            f"{scene.name(client)} reads {lanes} with isolation.level=read_uncommitted: it sees records of transactions that were aborted.",
            "Set isolation.level=read_committed.", fetches.number[dirty].tolist() + aborts, scene.name(client),
        )  # fmt: skip


def _starved(scene: Scene, client: int, fetches: Fetches, every: Array) -> Iterator[Finding]:
    """Partitions that a member has and does not ask for, while it reads others."""
    times = fetches.arrived_us[every]
    for group in scene.groups.values():
        for member in group.members.values():
            if member.client != client or not member.assigned:
                continue
            mine = set(member.assigned)
            last = len(times) if member.ended_us is None else np.searchsorted(times, member.ended_us, "right")
            during = every[np.searchsorted(times, member.joined_us) : last]
            numbers = fetches.wanted[during[distinct(fetches.wanted[during])[0]]].tolist()
            wanted = {number: lanes for number in numbers if not mine.isdisjoint(lanes := fetches.wants(number))}
            theirs = during[np.isin(fetches.wanted[during], list(wanted))]
            asked = mine.intersection(set["Lane"]().union(*wanted.values()))
            never = sorted(mine - asked)
            if len(theirs) < 10 or not never or not asked:  # noqa: PLR2004 - others were read often
                continue
            rows = fetches.got.of(theirs)
            behind = {fetches.names.lanes[lane]: fetches.got.high_watermark[rows[at[-1]]] for lane, at in split(fetches.got.lane[rows])}
            waiting = [lane for lane in never if behind.get(lane, 1) > 0]
            if waiting:
                read = several(str(lane) for lane in sorted(asked))
                yield found(
                    "partition-starved", "error", 77,
                    f"{scene.name(client)} has {several(map(str, waiting))} in group {group.id} and never asks for it, while it reads {read}: the partition is "
                    "paused, or the program keeps its buffer full.",
                    "resume() every partition that was paused, also after a rebalance.", fetches.number[theirs].tolist(), group.id,
                )  # fmt: skip


def _poison(scene: Scene) -> Iterator[Finding]:
    """The same records fetched again and again: by one consumer that goes back, or by consumers that begin at the same committed offset."""
    committed: dict[tuple[Lane, int], set[int]] = {}
    for position in scene.facts.positions:
        if position.group and position.offset >= 0:
            committed.setdefault((position.lane, position.offset), set()).add(position.client)
    again = {place: fetches for place, fetches in _by_place(scene, committed).items() if len(fetches) >= AGAIN}
    furthest: dict[Lane, int] = {}
    for commit in scene.facts.committed:
        if commit.error is None:
            furthest[commit.lane] = max(furthest.get(commit.lane, -1), commit.offset)
    often = [(len(fetches), key, fetches) for key, fetches in again.items()]
    stuck = [item for item in often if furthest.get(item[1][0], -1) <= item[1][1]]
    fetches = scene.facts.fetches
    if not stuck:
        yield from _read_again(scene, [item for item in often if item[1][2] != COMMITTED])
    if stuck:
        count, (lane, offset, _), rows = max(stuck, key=lambda item: item[0])
        connections = len(set(fetches.connection[rows].tolist()))
        restarts = f", by {connections} connections one after the other" if connections > 1 else ""
        yield found(
            "poison-record", "error", 89,
            f"{scene.name(int(fetches.client[rows[0]]))} fetches {lane} at offset {offset} again and again ({count} times{restarts}) and never commits past "
            f"it: the program fails at a record there and begins again.",
            "Catch the error of a record, put the record into a dead letter topic and commit past it.", fetches.number[rows].tolist(), str(lane),
        )  # fmt: skip


def _by_place(scene: Scene, committed: dict[tuple[Lane, int], set[int]]) -> dict[_Place, list[int]]:
    """The fetches of partitions at offsets over connections, and of clients that found this offset committed: those that may be at one place often."""
    fetches, got, names = scene.facts.fetches, scene.facts.fetches.got, scene.facts.fetches.names
    rows = np.flatnonzero(got.records)
    begins = np.where(got.asked[rows] >= 0, got.asked[rows], got.first[rows])
    connection, client, lane = fetches.connection[got.fetch[rows]], fetches.client[got.fetch[rows]], got.lane[rows]
    at_place = repeated(mixed(lane, begins, connection), AGAIN)
    known = [(names.number_of[of], offset) for of, offset in committed if of in names.number_of]
    at_commit = among(mixed(lane, begins), mixed(*np.array(known, np.int64).reshape(-1, 2).T))
    found_at: dict[_Place, list[int]] = {}
    kept = np.union1d(at_place, at_commit)
    columns = (got.fetch[rows[kept]], lane[kept], begins[kept], connection[kept], client[kept])
    for fetch, number, offset, over, by in zip(*(column.tolist() for column in columns), strict=True):
        place = (names.lanes[number], offset)
        found_at.setdefault((*place, over), []).append(fetch)
        if by in committed.get(place, ()):
            found_at.setdefault((*place, COMMITTED), []).append(fetch)
    return found_at


def _read_again(scene: Scene, often: list[tuple[int, _Place, list[int]]]) -> Iterator[Finding]:
    """A consumer that goes back to the same offset, and commits past it."""
    fetches = scene.facts.fetches
    by: dict[int, list[tuple[int, _Place, list[int]]]] = {}
    for item in often:
        by.setdefault(int(fetches.client[item[2][0]]), []).append(item)
    for client, items in by.items():
        count, (lane, offset, _), rows = max(items, key=lambda item: (item[0], -item[1][1]))
        lanes = several(str(lane) for lane in sorted({key[0] for _, key, _ in items}))
        yield found(
            "reads-again", "warning", 61,
            f"{scene.name(client)} fetches {lane} at offset {offset} {count} times over one connection, and the records behind it as well ({lanes}): "
            "it goes back with seek(), or discards what it has fetched.",
            "Seek once, after the assignment; keep what has to be read again in the program. Do not pause() and resume() around each record: clients "
            "discard what they have fetched of a paused partition.", fetches.number[rows].tolist(), str(lane),
        )  # fmt: skip


def _stopped(scene: Scene) -> Iterator[Finding]:
    """Members that send heartbeats and ask for a partition no more, while records arrive there."""
    ends, fetches = written_ends(scene.facts), scene.facts.fetches
    for group in scene.groups.values():
        rows = np.flatnonzero(np.isin(fetches.client, group.clients))
        # fetches share what they want: the last one that wants it
        by_want = sorted((int(rows[at[-1]]), number) for number, at in split(fetches.wanted[rows]))
        last: dict[Lane, int] = {}
        for row, number in by_want:
            last |= dict.fromkeys(fetches.wants(number), row)
        for member in group.members.values():
            heard = max((at for at, _ in member.heartbeats), default=0)
            lanes = [
                lane for lane in member.assigned or () if lane in last and lane in ends and min(heard, ends[lane][0]) - fetches.at_us[last[lane]] >= STOPPED_US
            ]
            if lanes:
                row = last[lanes[0]]
                silent = heard - int(fetches.at_us[row])
                yield found(
                    "reading-stopped", "warning", 73,
                    f"{scene.name(member.client)} has {several(map(str, lanes))} in group {group.id} and did not ask for it for {seconds(silent)}, while "
                    "records arrived; its heartbeats continue. Its partitions are paused, or its program is at work on what it has.",
                    "resume() every partition that was paused; look where the program waits (a blocked handler, a full queue).",
                    [int(fetches.number[row]), member.joined_by], group.id,
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
