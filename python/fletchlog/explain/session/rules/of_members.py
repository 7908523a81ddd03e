"""Members that lost their membership: by a slow handler, missing heartbeats, a death without LeaveGroup, a shared instance id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fletchlog.explain.session.columns import distinct
from fletchlog.explain.session.finding import found, seconds, several
from fletchlog.explain.session.groups import MS, POLL_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fletchlog.explain.session.finding import Finding, Scene
    from fletchlog.explain.session.groups import Group, Member
    from fletchlog.explain.session.rows import Lane

ZOMBIE = {"ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH"}
# the wire does not have the session time-out of the consumer protocol: 45 s by default
SILENT_US = 5_000_000
# so many deaths in a row are a loop
LOOP = 3


def rule(scene: Scene) -> Iterator[Finding]:
    """Findings about members."""
    for group in scene.groups.values():
        slow = [member for member in group.members.values() if is_poll_timeout(group, member)]
        yield from _poll_interval(scene, group, slow)
        yield from _instance(scene, group)
        yield from _zombie(scene, group, slow)
        yield from _expired(scene, group)
        yield from _rare(scene, group)


def is_poll_timeout(group: Group, member: Member) -> bool:
    """Whether a member left because its program had not polled for `max.poll.interval.ms`.

    Newer clients say so in the reason of LeaveGroup (KIP-800). Of others: it had been a member for at least that time, and its connection stays open.
    """
    if member.how != "left" or member.ended_us is None:
        return False
    if member.reason:
        return any(words in member.reason.lower() for words in POLL_TIMEOUT)
    if member.rebalance_timeout_ms < 0 or member.ended_us - member.joined_us < 0.9 * member.rebalance_timeout_ms * MS:
        return False
    again = [other for other in group.members.values() if other.client == member.client and other.joined_us >= member.ended_us]
    return any(other.connection == member.connection for other in again)


def _poll_interval(scene: Scene, group: Group, slow: list[Member]) -> Iterator[Finding]:
    if not slow:
        return
    early = [(member, commit) for member in slow if (commit := _commit_before_work(scene, group, member))]
    for member, commit in early[:1]:
        yield found(
            "commit-before-work", "error", 95,
            f"{scene.name(member.client)} committed {commit[1]} of {commit[2]} in group {group.id} while its program was still at work on the record before "
            "it: the poll that handed it out was its last one, and it was thrown out for this slow work. If the program fails there, the record is lost.",
            "Commit after the work: enable.auto.offset.store=false and store_offsets() when a record is done, or enable.auto.commit=false and commit().",
            [commit[0], member.ended_by or 0], group.id,
        )  # fmt: skip
    first = slow[0]
    yield found(
        "poll-interval", "error", 94,
        f"{several(scene.name(member.client) for member in slow)} left group {group.id} because the program did not poll for max.poll.interval.ms "
        f"({first.rebalance_timeout_ms / MS:g} s): its handler is too slow. Others get its partitions and repeat its work{_repeats(group)}.",
        "Handle fewer records between two polls (max.poll.records), raise max.poll.interval.ms, or hand slow work to another thread and pause() the "
        "partitions.",
        [number for member in slow for number in (member.joined_by, member.ended_by or 0)], group.id,
    )  # fmt: skip


def _commit_before_work(scene: Scene, group: Group, member: Member) -> tuple[int, int, str] | None:
    """A commit between the member's last poll and its end: request, offset, partition.

    It left `max.poll.interval.ms` after its last poll. Who commits after the work does so before the next poll.
    """
    polled = (member.ended_us or 0) - member.rebalance_timeout_ms * MS
    before: dict[object, int] = {}
    for commit in scene.facts.committed:
        if commit.group != group.id or commit.member != member.id or commit.error or commit.offset < 0:
            continue
        moves = commit.offset > before.get(commit.lane, -1)
        before[commit.lane] = commit.offset
        # the clocks of the client's time-out and of the recorder differ a little
        if moves and polled + 0.05 * member.rebalance_timeout_ms * MS < commit.at_us < (member.ended_us or 0) - 0.2 * member.rebalance_timeout_ms * MS:
            return commit.number, commit.offset, str(commit.lane)
    return None


def _instance(scene: Scene, group: Group) -> Iterator[Finding]:
    fenced = [event for event in group.events if event.error == "FENCED_INSTANCE_ID"]
    fenced_commits = [r for r in scene.facts.refused if r.error == "FENCED_INSTANCE_ID" and r.api == "OffsetCommit"]
    if not fenced and not (fenced_commits and any(member.instance for member in group.members.values())):
        return
    ids = {event.instance for event in fenced if event.instance} or {m.instance for m in group.members.values() if m.instance}
    clients = {member.client: scene.name(member.client) for member in group.members.values() if member.instance in ids}
    yield found(
        "instance-id-shared", "error", 98,
        f"Several members of group {group.id} use the group.instance.id {several(sorted(i for i in ids if i))}: each one that joins throws the other out "
        f"({several(clients.values())}).",
        "Give every process a group.instance.id of its own, for example its host name with a number.",
        [event.number for event in fenced] + [r.number for r in fenced_commits], group.id,
    )  # fmt: skip


def _zombie(scene: Scene, group: Group, slow: list[Member]) -> Iterator[Finding]:
    # librdkafka may commit without its member id after it has left: nobody removed it
    refused = [c for c in scene.facts.committed if c.group == group.id and c.error in ZOMBIE and c.generation >= 0 and c.member]
    if not refused or any(event.error == "FENCED_INSTANCE_ID" for event in group.events):
        return
    lanes = several(str(commit.lane) for commit in refused)
    yield found(
        "zombie", "error", 92 if not slow else 80,
        f"{several(scene.name(commit.client) for commit in refused)} commits {lanes} in group {group.id} after it was removed ({refused[0].error}): it worked "
        f"on records that other members have, too{_repeats(group)}.",
        "Make the work idempotent, stop it in on_partitions_revoked and on_partitions_lost, and let heartbeats and polls arrive within session.timeout.ms and "
        "max.poll.interval.ms.",
        [commit.number for commit in refused], group.id,
    )  # fmt: skip


def _expired(scene: Scene, group: Group) -> Iterator[Finding]:
    gone: list[Member] = []
    for member in group.members.values():
        if member.how != "expired" or (member.instance and any(event.error == "FENCED_INSTANCE_ID" for event in group.events)):
            continue
        if _lives_on(scene, member):
            yield _late_heartbeats(scene, group, member)
        else:
            gone.append(member)
    looping = _same_beginning(scene, gone)
    if looping:
        lane, offset = looping
        yield found(
            "crash-loop", "error", 88,
            f"{several(scene.name(member.client) for member in gone)} ended {len(gone)} times without LeaveGroup in group {group.id}, and began at offset "
            f"{offset} of {lane} each time: the program crashes before it commits, and is started again. Each time the partitions wait for its session "
            f"time-out of {seconds(max(member.session_timeout_ms for member in gone) * MS)}.",
            f"Look into the program's log for the error that ends it, and at the records of {lane} from offset {offset} on; put a record that fails into "
            "a dead letter topic and commit past it.", [number for member in gone for number in (member.joined_by, member.ended_by or 0)], group.id,
        )  # fmt: skip
    elif gone:
        waited = max(member.session_timeout_ms for member in gone) * MS
        static = sorted({member.instance for member in gone if member.instance})
        yield found(
            "died-without-leaving", "error", 82,
            f"{several(scene.name(member.client) for member in gone)} ended without LeaveGroup in group {group.id}: its partitions were read by nobody until "
            f"its session time-out of {seconds(waited)} had passed.",
            f"A static member does not leave with close(): start it again with the same group.instance.id ({several(static)}) within session.timeout.ms."
            if static
            else "Call close() when the program ends, also after an error and SIGTERM; for crashes a shorter session.timeout.ms helps.",
            [member.ended_by or 0 for member in gone], group.id,
        )  # fmt: skip


def _same_beginning(scene: Scene, gone: list[Member]) -> tuple[Lane, int] | None:
    """Partition and offset at which each of several members began, one after the other."""
    if len(gone) < LOOP:
        return None
    begins: list[dict[Lane, int]] = []
    for member in gone:
        until = member.ended_us or scene.facts.last_us
        fetches = scene.facts.fetches
        mine = fetches.of(member.client)
        rows = fetches.named.of(mine[(fetches.arrived_us[mine] >= member.joined_us) & (fetches.arrived_us[mine] <= until)])
        rows = rows[distinct(fetches.named.lane[rows])[0]]
        lanes = [fetches.names.lanes[lane] for lane in fetches.named.lane[rows].tolist()]
        begins.append(dict(zip(lanes, fetches.named.offset[rows].tolist(), strict=True)))
    common = [(lane, offset) for lane, offset in begins[0].items() if all(other.get(lane) == offset for other in begins[1:])]
    return common[0] if common else None


def _rare(scene: Scene, group: Group) -> Iterator[Finding]:
    rare = [m for m in group.members.values() if m.interval_us is not None and m.session_timeout_ms > 0 and m.interval_us > 0.5 * m.session_timeout_ms * MS]
    if rare:
        member = rare[0]
        yield found(
            "heartbeat-interval", "error", 86,
            f"{several(scene.name(m.client) for m in rare)} sends a heartbeat to group {group.id} about every {seconds(member.interval_us or 0)}, and its "
            f"session time-out is {seconds(member.session_timeout_ms * MS)}: one that is late, and it is removed.",
            "Set heartbeat.interval.ms to at most a third of session.timeout.ms.", [m.joined_by for m in rare], group.id,
        )  # fmt: skip


def _lives_on(scene: Scene, member: Member) -> bool:
    """Whether its connection was used after it was removed."""
    return scene.facts.connections[member.connection].last_us > (member.ended_us or 0)


def _late_heartbeats(scene: Scene, group: Group, member: Member) -> Finding:
    gap, number = member.longest_gap
    ended = member.ended_us or 0
    last, last_number = max(member.heartbeats, default=(member.joined_us, member.joined_by))
    evidence = [number, last_number, member.ended_by or number]
    limit = member.session_timeout_ms * MS
    silent = max(ended - last, gap)
    known = limit > 0
    if silent < (0.8 * limit if known else SILENT_US):
        return found(
            "member-removed", "warning", 65,
            f"{scene.name(member.client)} was removed from group {group.id} {seconds(silent)} after its last heartbeat, so not for a missing one: by an "
            "operator, by another member with its id, because the group was deleted, or on a broker whose clock was set ahead.",
            "Look who deletes groups or removes members; the member joins again by itself.", evidence, group.id,
        )  # fmt: skip
    allowed = f"its session time-out is {seconds(limit)}" if known else "its session time-out is the group's consumer.session.timeout.ms"
    return found(
        "session-expired", "error", 85,
        f"{scene.name(member.client)} was removed from group {group.id}: it sent no heartbeat for {seconds(silent)}, {allowed}. The process was "
        f"paused, overloaded or cut off{_repeats(group)}.",
        "Look for long pauses (garbage collection, a frozen container, a blocked event loop) or a broken network; session.timeout.ms has to be longer "
        "than they last.",
        evidence, group.id,
    )  # fmt: skip


def _repeats(group: Group) -> str:
    count = sum(item.last - item.first + 1 for item in group.repeated)
    return f"; {count} records were fetched twice" if count else ""
