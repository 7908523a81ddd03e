"""Producers: repeats, lost order, acknowledgements, batches, partitions, timestamps."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from fletchlog.explain.session.finding import found, seconds, several
from fletchlog.explain.session.groups import MS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fletchlog.explain.session.finding import Finding, Scene
    from fletchlog.explain.session.rows import Lane, Produced

MANY = 40
# half of batch.size, by default
TINY = 8192
HOT = 0.8
HOUR_MS = 3_600_000
# before 1974: seconds since 1970, or worse, given as milliseconds
NOT_MS = 126_230_400_000


def rule(scene: Scene) -> Iterator[Finding]:
    """Findings about producers."""
    by: dict[int, list[Produced]] = {}
    for batch in scene.facts.produced:
        by.setdefault(batch.client, []).append(batch)
    for client, batches in by.items():
        repeats = _repeats(batches)
        disorder = list(_order(scene, client, batches, repeats))
        yield from disorder
        if not disorder:
            yield from _twice(scene, client, repeats)
        yield from _acks(scene, client, batches)
        yield from _batches(scene, client, batches)
        yield from _timestamps(scene, client, batches)
    yield from _hot(scene)


def _repeats(batches: list[Produced]) -> list[tuple[Produced, Produced]]:
    """Batches without a producer id that were sent again, each with the next time it was sent: same partition, times, records and size."""
    before: dict[tuple[object, ...], Produced] = {}
    found_pairs = []
    for batch in batches:
        if batch.producer_id >= 0 or batch.acks == 0:
            continue
        key = (batch.lane, batch.first_timestamp, batch.max_timestamp, batch.records, batch.size)
        earlier = before.get(key)
        # an equal batch that was acknowledged before is another one
        if earlier and earlier.number != batch.number and (earlier.error or earlier.base_offset is None):
            found_pairs.append((earlier, batch))
        before[key] = batch
    return found_pairs


def _order(scene: Scene, client: int, batches: list[Produced], repeats: list[tuple[Produced, Produced]]) -> Iterator[Finding]:
    for earlier, again in repeats:
        if again.base_offset is None:
            continue
        passed = [
            other for other in batches
            if other.lane == again.lane and earlier.number < other.number < again.number
            and other.base_offset is not None and other.base_offset < again.base_offset
        ]  # fmt: skip
        if passed:
            yield found(
                "order-lost", "error", 93,
                f"{scene.name(client)} lost the order of {again.lane}: its batch of request {earlier.number} failed "
                f"({earlier.error or earlier.outcome}), was sent again as request "
                f"{again.number}, and is now behind {len(passed)} batches that had been sent after it. It is not idempotent and has several requests "
                "in flight.",
                "Set enable.idempotence=true; without it, "
                "max.in.flight.requests.per.connection=1.", [earlier.number, *(o.number for o in passed), again.number], str(again.lane),
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
            f"{several(str(o.lane) for _, o in twice)}): the broker "
            f"may have written them twice, because the producer is not idempotent.",
            "Set enable.idempotence=true.", [number for one, other in twice for number in (one.number, other.number)], scene.name(client),
        )  # fmt: skip


def _acks(scene: Scene, client: int, batches: list[Produced]) -> Iterator[Finding]:
    unsafe = [batch for batch in batches if batch.acks == 0]
    if unsafe:
        yield found(
            "acks-0", "warning", 70,
            f"{scene.name(client)} sends {sum(b.records for b in unsafe)} records to {several(b.lane.topic for b in unsafe)} with acks=0: it never "
            "learns whether one was written.",
            "Set acks=all, or acks=1 where a loss is allowed.", [batch.number for batch in unsafe], scene.name(client),
        )  # fmt: skip
    moved = [batch for batch in batches if batch.acks == 1 and batch.error == "NOT_LEADER_OR_FOLLOWER"]
    if moved:
        yield found(
            "acks-1-leader-moved", "warning", 69,
            f"{scene.name(client)} writes with acks=1 to {several(str(b.lane) for b in moved)}, whose leader changed: records that only the old "
            "leader had are lost.",
            "Set acks=all, and min.insync.replicas=2 for the topic.", [batch.number for batch in moved], scene.name(client),
        )  # fmt: skip


def _batches(scene: Scene, client: int, batches: list[Produced]) -> Iterator[Finding]:
    if len(batches) < MANY or any(batch.transactional for batch in batches):
        return
    records = sum(batch.records for batch in batches)
    length = batches[-1].arrived_us - batches[0].arrived_us
    if records > 1.2 * len(batches) or sum(batch.size for batch in batches) >= TINY * len(batches) or length > len(batches) * 100_000:
        return
    waits = all(one.answered_us is not None and one.answered_us <= other.arrived_us for one, other in pairwise(batches))
    connections = {batch.connection for batch in batches}
    if len(connections) > 0.5 * len(batches):
        return
    why = "it waits for each acknowledgement before the next record (flush() or get() after every send)" if waits else "linger.ms is too short to collect more"
    yield found(
        "tiny-batches", "warning", 58,
        f"{scene.name(client)} sends {len(batches)} batches with {records / len(batches):.1f} records each in {seconds(length)}: {why}.",
        "Send without waiting, check the futures or callbacks later, and flush() once at the "
        "end." if waits else "Raise linger.ms to 5 or more, and batch.size if batches are full.",
        [batch.number for batch in batches], scene.name(client),
    )  # fmt: skip


def _timestamps(scene: Scene, client: int, batches: list[Produced]) -> Iterator[Finding]:
    off = [b for b in batches if 0 <= b.max_timestamp < NOT_MS or b.max_timestamp > b.arrived_us // MS + HOUR_MS]
    if off:
        ahead = off[0].max_timestamp - off[0].arrived_us // MS
        what = "lie before 1974: they are not in milliseconds" if ahead < 0 else f"lie {seconds(ahead * MS)} in the future"
        yield found(
            "timestamps-off", "error", 86,
            f"Timestamps of {scene.name(client)} in {several(str(b.lane) for b in off)} {what}. Retention by time deletes such records at once, or never.",
            "Send timestamps in milliseconds since 1970, and check the clock; message.timestamp.after.max.ms refuses those of the "
            "future.", [b.number for b in off], scene.name(client),
        )  # fmt: skip


def _hot(scene: Scene) -> Iterator[Finding]:
    by: dict[str, Counter[Lane]] = {}
    records: dict[Lane, int] = {}
    for batch in scene.facts.produced:
        records[batch.lane] = records.get(batch.lane, 0) + batch.records
    for lane, sent in records.items():
        by.setdefault(lane.topic, Counter())[lane] = sent
    for topic, counts in by.items():
        partitions, total = scene.facts.partitions.get(topic, len(counts)), counts.total()
        lane, most = counts.most_common(1)[0]
        if partitions < 3 or most <= HOT * total:  # noqa: PLR2004 - of two, one is easily the larger
            continue
        batches = [batch for batch in scene.facts.produced if batch.lane == lane]
        if len(batches) >= MANY // 2:
            clients = several(scene.name(number) for number in dict.fromkeys(batch.client for batch in batches))
            yield found(
                "hot-partition", "warning", 59,
                f"{lane} gets {most / total:.0%} of the records of {topic}, which has {partitions} partitions ({clients}): one key, or few keys, "
                "have most of the records. One "
                f"consumer has nearly all the work.",
                "Use a key with more values (add a part of the record's own id), or no key where order does not matter.",
                [batch.number for batch in batches], topic,
            )  # fmt: skip
