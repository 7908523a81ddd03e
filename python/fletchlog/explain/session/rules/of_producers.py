"""Producers: repeats, lost order, acknowledgements, batches, partitions, timestamps."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from fletchlog.explain.session.columns import NONE, among, distinct, mixed, np
from fletchlog.explain.session.finding import found, seconds, several
from fletchlog.explain.session.groups import MS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fletchlog.explain.session.columns import Array, Batches
    from fletchlog.explain.session.finding import Finding, Scene
    from fletchlog.explain.session.rows import Lane, Produced

MANY = 40
# half of batch.size, by default
TINY = 8192
HOT = 0.8
NOT_LEADER_OR_FOLLOWER = 6
"""Kafka's error code."""
HOUR_MS = 3_600_000
# before 1974: seconds since 1970, or worse, given as milliseconds
NOT_MS = 126_230_400_000


def rule(scene: Scene) -> Iterator[Finding]:
    """Findings about producers."""
    batches = scene.facts.produced
    for client in batches.clients():
        mine = batches.of(client)
        repeats = _repeats(batches, mine)
        disorder = list(_order(scene, client, mine, repeats))
        yield from disorder
        if not disorder:
            yield from _twice(scene, client, repeats)
        yield from _acks(scene, client, mine)
        yield from _batches(scene, client, mine)
        yield from _timestamps(scene, client, mine)
    yield from _hot(scene)


def _repeats(batches: Batches, mine: Array) -> list[tuple[Produced, Produced]]:
    """Batches without a producer id that were sent again, each with the next time it was sent: same partition, times, records and size."""
    mine = mine[(batches.producer_id[mine] < 0) & (batches.acks[mine] != 0)]
    same = mixed(*(column[mine] for column in (batches.lane, batches.first_timestamp, batches.max_timestamp, batches.records, batches.size)))
    failed = (batches.error[mine] != 0) | (batches.base_offset[mine] == NONE)
    before: dict[tuple[object, ...], Produced] = {}
    found_pairs = []
    for batch in batches.rows(mine[among(same, same[failed])]):
        key = (batch.lane, batch.first_timestamp, batch.max_timestamp, batch.records, batch.size)
        earlier = before.get(key)
        # an equal batch that was acknowledged before is another one
        if earlier and earlier.number != batch.number and (earlier.error or earlier.base_offset is None):
            found_pairs.append((earlier, batch))
        before[key] = batch
    return found_pairs


def _order(scene: Scene, client: int, mine: Array, repeats: list[tuple[Produced, Produced]]) -> Iterator[Finding]:
    batches = scene.facts.produced
    for earlier, again in repeats:
        if again.base_offset is None:
            continue
        number, base = batches.number[mine], batches.base_offset[mine]
        is_passed = (batches.lane[mine] == batches.names.number_of[again.lane]) & (earlier.number < number) & (number < again.number)
        passed: list[int] = number[is_passed & (base != NONE) & (base < again.base_offset)].tolist()
        if passed:
            yield found(
                "order-lost", "error", 93,
                f"{scene.name(client)} lost the order of {again.lane}: its batch of request {earlier.number} failed ({earlier.error or earlier.outcome}), was "
                f"sent again as request {again.number}, and is now behind {len(passed)} batches that had been sent after it. It is not idempotent and has "
                "several requests in flight.",
                "Set enable.idempotence=true; without it, max.in.flight.requests.per.connection=1.", [earlier.number, *passed, again.number], str(again.lane),
            )  # fmt: skip
            return


def _twice(scene: Scene, client: int, repeats: list[tuple[Produced, Produced]]) -> Iterator[Finding]:
    # a batch that was refused is not in the log; one without a response may be
    twice = [(one, other) for one, other in repeats if one.error is None and one.base_offset is None]
    if twice:
        records = sum(other.records for _, other in twice)
        yield found(
            "written-twice", "error", 92,
            f"{scene.name(client)} sent {len(twice)} batches again whose response it had not received ({records} records of "
            f"{several(str(o.lane) for _, o in twice)}): the broker may have written them twice, because the producer is not idempotent.",
            "Set enable.idempotence=true.", [number for one, other in twice for number in (one.number, other.number)], scene.name(client),
        )  # fmt: skip


def _acks(scene: Scene, client: int, mine: Array) -> Iterator[Finding]:
    batches = scene.facts.produced
    unsafe = mine[batches.acks[mine] == 0]
    if len(unsafe):
        yield found(
            "acks-0", "warning", 70,
            f"{scene.name(client)} sends {batches.records[unsafe].sum()} records to {several(lane.topic for lane in batches.lanes_of(unsafe))} with acks=0: "
            "it never learns whether one was written.",
            "Set acks=all, or acks=1 where a loss is allowed.", batches.number[unsafe].tolist(), scene.name(client),
        )  # fmt: skip
    moved = mine[(batches.acks[mine] == 1) & (batches.error[mine] == NOT_LEADER_OR_FOLLOWER)]
    if len(moved):
        yield found(
            "acks-1-leader-moved", "warning", 69,
            f"{scene.name(client)} writes with acks=1 to {several(map(str, batches.lanes_of(moved)))}, whose leader changed: records that only the old "
            "leader had are lost.",
            "Set acks=all, and min.insync.replicas=2 for the topic.", batches.number[moved].tolist(), scene.name(client),
        )  # fmt: skip


def _batches(scene: Scene, client: int, mine: Array) -> Iterator[Finding]:
    batches, count = scene.facts.produced, len(mine)
    if count < MANY or batches.transactional[mine].any():
        return
    records, arrived, answered = int(batches.records[mine].sum()), batches.arrived_us[mine], batches.answered_us[mine]
    length = int(arrived[-1] - arrived[0])
    if records > 1.2 * count or batches.size[mine].sum() >= TINY * count or length > count * 100_000:
        return
    waits = bool(((answered[:-1] != NONE) & (answered[:-1] <= arrived[1:])).all())
    if len(distinct(batches.connection[mine])[0]) > 0.5 * count:
        return
    why = "it waits for each acknowledgement before the next record (flush() or get() after every send)" if waits else "linger.ms is too short to collect more"
    yield found(
        "tiny-batches", "warning", 58,
        f"{scene.name(client)} sends {count} batches with {records / count:.1f} records each in {seconds(length)}: {why}.",
        "Send without waiting, check the futures or callbacks later, and flush() once at the "
        "end." if waits else "Raise linger.ms to 5 or more, and batch.size if batches are full.",
        batches.number[mine].tolist(), scene.name(client),
    )  # fmt: skip


def _timestamps(scene: Scene, client: int, mine: Array) -> Iterator[Finding]:
    batches = scene.facts.produced
    times, arrived = batches.max_timestamp[mine], batches.arrived_us[mine] // MS
    # those that the broker refused have a finding by their error
    is_off = (((times >= 0) & (times < NOT_MS)) | (times > arrived + HOUR_MS)) & (batches.error[mine] == 0)
    off = mine[is_off]
    if len(off):
        ahead = int(times[is_off][0] - arrived[is_off][0])
        what = "lie before 1974: they are not in milliseconds" if ahead < 0 else f"lie {seconds(ahead * MS)} in the future"
        yield found(
            "timestamps-off", "error", 86,
            f"Timestamps of {scene.name(client)} in {several(map(str, batches.lanes_of(off)))} {what}. Retention by time deletes such records at "
            "once, or never.",
            "Send timestamps in milliseconds since 1970, and check the clock; message.timestamp.after.max.ms refuses those of the "
            "future.", batches.number[off].tolist(), scene.name(client),
        )  # fmt: skip


def _hot(scene: Scene) -> Iterator[Finding]:
    by: dict[str, Counter[Lane]] = {}
    batches = scene.facts.produced
    first, _, kind = distinct(batches.lane)
    sent = np.bincount(kind, batches.records, len(first)).astype(np.int64)
    for lane, records in zip(batches.lanes_of(first), sent.tolist(), strict=True):
        by.setdefault(lane.topic, Counter())[lane] = records
    for topic, counts in by.items():
        partitions, total = scene.facts.partitions.get(topic, len(counts)), counts.total()
        lane, most = counts.most_common(1)[0]
        if partitions < 3 or most <= HOT * total:  # noqa: PLR2004 - of two, one is easily the larger
            continue
        hot = np.flatnonzero(batches.lane == batches.names.number_of[lane])
        if len(hot) >= MANY // 2:
            clients = several(scene.name(number) for number in batches.client[hot[distinct(batches.client[hot])[0]]].tolist())
            yield found(
                "hot-partition", "warning", 59,
                f"{lane} gets {most / total:.0%} of the records of {topic}, which has {partitions} partitions ({clients}): one key, or few keys, have most of "
                "the records. One consumer has nearly all the work.",
                "Use a key with more values (add a part of the record's own id), or no key where order does not matter.",
                batches.number[hot].tolist(), topic,
            )  # fmt: skip
