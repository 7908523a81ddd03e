"""Share groups: records that come again and again, ended locks, lost acknowledgements, dead members, starts that stay, partitions that are full."""

from __future__ import annotations

from collections import Counter
from heapq import nlargest
from typing import TYPE_CHECKING

from fletchlog.explain.session.finding import found, seconds, several
from fletchlog.explain.session.groups import MS
from fletchlog.explain.session.share_groups import AGAIN, DONE
from fletchlog.explain.session.share_values import nth, offsets
from fletchlog.explain.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fletchlog.explain.session.finding import Finding, Scene
    from fletchlog.explain.session.in_flight import Delivery
    from fletchlog.explain.session.share_groups import Full, Pinned, ShareGroup

OFTEN = 3
LIMIT = 5
"""Kafka's default of `share.delivery.count.limit`, which the wire does not show."""
MANY_BEHIND = 1000
MOST = 200
"""Of so many deliveries the others that had the same records are looked for: in a long session there are many, and the worst say enough."""
FEW = 0.1


def rule(scene: Scene) -> Iterator[Finding]:
    """Findings about share groups."""
    for group in scene.share_groups.values():
        yield from _again(scene, group)
        yield from _expired(scene, group)
        yield from _lost(scene, group)
        yield from _never(scene, group)
        yield from _died(scene, group)
        yield from _pinned(scene, group)
        yield from _full(scene, group)


def _again(scene: Scene, group: ShareGroup) -> Iterator[Finding]:
    """Records that were delivered so often that another delivery is unlikely to succeed."""
    often = nlargest(MOST, (delivery for delivery in group.deliveries if delivery.count >= OFTEN), key=lambda delivery: delivery.count)
    by: dict[str, list[Delivery]] = {}
    for delivery in often:
        ends = Counter(before.how for before in group.again(delivery) if before.how in AGAIN)
        # what a lock or a missing acknowledgement repeats has a finding that says so
        cause = max(ends, key=lambda how: (ends[how], how), default="")
        if cause in {"released", "disconnected"}:
            by.setdefault(cause, []).append(delivery)
    for cause, deliveries in by.items():
        worst = max(deliveries, key=lambda delivery: delivery.count)
        every = group.again(worst)
        where = several(dict.fromkeys(offsets(delivery) for delivery in deliveries))
        who = several(scene.name(delivery.client) for delivery in every)
        times = f"{where} again and again, {worst.count} times so far ({_toward(worst.count)})"
        evidence = [number for delivery in every for number in (delivery.number, delivery.ended_by or delivery.number)]
        if cause == "released":
            yield found(
                "share-record-again", "error", 91,
                f"Group {group.id} delivers {times}: {who} releases it each time. {_ending(group, worst)}",
                "Release only what another attempt can mend. Reject a record that cannot be processed, and give the group a dead-letter topic "
                "(errors.deadletterqueue.topic.name), so that it is kept.", evidence, group.id,
            )  # fmt: skip
        else:
            yield found(
                "share-record-ends-members", "error", 93,
                f"Group {group.id} delivers {times}, and the connection of the member that has it ends each time ({who}): the program ends at this "
                f"record, or is killed. {_ending(group, worst)}",
                "Catch the error of a record and reject it; where a record ends the process (memory, native code), look at it by its offset, and let the group "
                "have a dead-letter topic (errors.deadletterqueue.topic.name).", evidence, group.id,
            )  # fmt: skip


def _toward(count: int) -> str:
    return f"share.delivery.count.limit is {LIMIT} unless the group sets it" if count <= LIMIT else "the group's share.delivery.count.limit is higher"


def _ending(group: ShareGroup, delivery: Delivery) -> str:
    last = group.again(delivery)[-1]
    if last.how in DONE:
        return f"The {nth(last.count)} delivery was {'accepted' if last.how != 'rejected' else 'rejected: it is archived, or in the dead-letter topic'}."
    if not last.how:
        return "It is held at the end of the session."
    after = {d.number for d in group.deliveries if d.lane == last.lane and d.at_us > (last.ended_us or 0)}
    if last.count >= LIMIT or len(after) > 1:
        return "It did not come again: the broker has archived it, or put it into the dead-letter topic if the group has one. Nobody has processed it."
    return "It comes again until the limit, and is then archived, or put into the dead-letter topic if the group has one."


def _expired(scene: Scene, group: ShareGroup) -> Iterator[Finding]:
    """Locks that ended while the member was at work."""
    expired = [delivery for delivery in group.deliveries if delivery.how == "expired"]
    if not expired:
        return
    clients = {delivery.client for delivery in expired}
    late = [number for number, client, *_ in group.late if client in clients]
    lock = max(delivery.lock_ms for delivery in expired)
    again = any(later.count > delivery.count for delivery in expired[:MOST] for later in group.again(delivery))
    refused = f", and {counted(len(late), 'acknowledgement')} came too late (INVALID_RECORD_STATE)" if late else ""
    repeated = "; it was delivered again while the program was at work on it" if again else ""
    yield found(
        "share-lock-expired", "error", 92,
        f"{several(scene.name(client) for client in sorted(clients))} did not acknowledge {several(dict.fromkeys(map(offsets, expired)))} in group "
        f"{group.id} before the lock of {seconds(lock * MS)} ended{refused}{repeated}. Its handler is too slow for what a poll returns.",
        "Let a poll return less (max.poll.records with share.acquire.mode=record_limit), renew the lock of a record that takes long "
        "(acknowledge with the type renew), or raise the group's share.record.lock.duration.ms.",
        [number for delivery in expired for number in (delivery.number, delivery.ended_by or delivery.number)] + late, group.id,
    )  # fmt: skip


def _lost(scene: Scene, group: ShareGroup) -> Iterator[Finding]:
    """Acknowledgements without a response."""
    if not group.lost:
        return
    batches = [batch for row, _ in group.lost[:MOST] for batch in row.acknowledged]
    again = [d for d in group.deliveries if d.count > 1 and any(d.lane == b.lane and d.first <= b.last and b.first <= d.last for b in batches)]
    kept = "the broker had taken them" if not again else f"{several(dict.fromkeys(map(offsets, again)))} was delivered again"
    first = group.lost[0][0]
    yield found(
        "share-acknowledgement-lost", "error" if again else "warning", 90 if again else 72,
        f"{several(scene.name(row.client) for row, _ in group.lost)} got no response to {counted(len(group.lost), 'request')} with acknowledgements in group "
        f"{group.id} ({first.api}, {first.outcome}): it cannot know whether they count; {kept}.",
        "Make the work idempotent: a record whose acknowledgement is lost may come again. Look at the result of each acknowledgement, and for what breaks the "
        "connections.",
        [row.number for row, _ in group.lost] + [delivery.number for delivery in again], group.id,
    )  # fmt: skip


def _never(scene: Scene, group: ShareGroup) -> Iterator[Finding]:
    """Clients that close without having acknowledged anything."""
    for client, work in group.work().items():
        closed = [d for d in group.deliveries if d.client == client and d.how == "closed"]
        again = [d for d in group.deliveries if d.count > 1 and d.client == client]
        if closed and again and not any(work.ended.get(how) for how in (*DONE, "released", "expired")) and not work.held:
            yield found(
                "share-never-acknowledges", "error", 88,
                f"{scene.name(client)} reads {counted(work.delivered, 'record')} in group {group.id} and closes without acknowledging one: the same records "
                f"come again with the next run, until the limit of deliveries, and are then archived ({_toward(max(d.count for d in again))}).",
                "In the implicit mode call commit() before close(): close() accepts nothing. In the explicit mode acknowledge each record and commit.",
                [number for d in closed for number in (d.number, d.ended_by or d.number)], group.id,
            )  # fmt: skip


def _died(scene: Scene, group: ShareGroup) -> Iterator[Finding]:
    """Members whose connections ended while they held records, and that did not come back."""
    last: dict[str, int] = {}
    for row in scene.facts.shared:
        last[row.member] = max(last.get(row.member, 0), row.arrived_us)
    dead = [
        delivery for delivery in group.deliveries
        if delivery.how == "disconnected" and last.get(delivery.member, 0) < (delivery.ended_us or 0) and not _left(group, delivery.member)
    ]  # fmt: skip
    if not dead:
        return
    members = dict.fromkeys(delivery.member for delivery in dead)
    yield found(
        "share-member-died", "error", 82,
        f"{several(scene.name(delivery.client) for delivery in dead)} ended without closing in group {group.id} while it held "
        f"{several(dict.fromkeys(map(offsets, dead)))} ({counted(len(members), 'member')}): these records are delivered again, and this delivery counts "
        "toward the limit.",
        "Call close() when the program ends, also after an error and SIGTERM; it releases at once what was not processed. Make the work idempotent.",
        [delivery.number for delivery in dead], group.id,
    )  # fmt: skip


def _left(group: ShareGroup, member: str) -> bool:
    known = group.members.get(member)
    return known is not None and known.how == "left"


def _pinned(scene: Scene, group: ShareGroup) -> Iterator[Finding]:
    for lane, pinned in group.pinned.items():
        if not _stays(group, pinned):
            continue
        by = pinned.by
        why = (
            f"has renewed its lock {_times(by.renewed)}" if by.renewed
            else f"was given it for the {nth(by.count)} time" if by.count > 1
            else f"has had it for {seconds(pinned.at_us - by.at_us)}"
        )  # fmt: skip
        blocked = [full for full in group.full if full.lane == lane]
        also = f" {counted(len(blocked), 'fetch')} got nothing because of it." if blocked else ""
        yield found(
            "share-start-pinned", "warning", 70,
            f"The start of group {group.id} stays at {offsets(by)}: {scene.name(by.client)} {why}. {pinned.behind:,} records behind it are done, "
            f"and still count as in flight, of which share.partition.max.record.locks (2,000 unless the group sets it) are allowed.{also}",
            "Finish such a record early: release or reject it; or accept it, and keep what is left to do in another place.",
            [by.number, pinned.number, *(full.number for full in blocked)], group.id,
        )  # fmt: skip


def _stays(group: ShareGroup, pinned: Pinned) -> bool:
    """Whether few records, which take long, keep the start of many that are done."""
    by = pinned.by
    lasts = pinned.at_us - by.at_us > by.lock_ms * MS / 3 > 0
    if by.records > FEW * pinned.behind or not (by.renewed or by.count > 1 or lasts):
        return False
    return pinned.behind >= MANY_BEHIND or any(full.lane == by.lane and full.at_us >= by.at_us for full in group.full)


def _full(scene: Scene, group: ShareGroup) -> Iterator[Finding]:
    stay = {lane for lane, pinned in group.pinned.items() if _stays(group, pinned)}
    full = [entry for entry in group.full if entry.lane not in stay]
    if len(full) < 2:  # noqa: PLR2004 - once may be by chance
        return
    most = max(full, key=lambda entry: entry.in_flight)
    yield found(
        "share-partition-full", "warning", 69,
        f"{len(full)} fetches of {_who(scene, full)} in group {group.id} got nothing from {several(dict.fromkeys(str(entry.lane) for entry in full))}, "
        f"though records were there: {most.in_flight:,} are in flight, most of them at {scene.name(most.holder)}, and the group's "
        "share.partition.max.record.locks (2,000 unless set) allows no more.",
        "Let each member take less and acknowledge it sooner (max.poll.records, share.acquire.mode=record_limit), or raise the group's "
        "share.partition.max.record.locks.", [entry.number for entry in full], group.id,
    )  # fmt: skip


def _who(scene: Scene, full: Iterable[Full]) -> str:
    return several(scene.name(entry.client) for entry in full)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
