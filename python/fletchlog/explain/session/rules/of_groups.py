"""Groups as a whole: storms of rebalances, several programs in one group, idle members, slow phases."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from fletchlog.explain.session.finding import found, seconds, several

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fletchlog.explain.session.finding import Finding, Scene
    from fletchlog.explain.session.groups import Group, Member, Rebalance

STORM = 6
"""So many rebalances after the first."""
CHURN = 4
"""So many members of one client, one after the other."""
LEAST_SLOW_US = 1_000_000
GROUPS_OF_ONE_CLIENT = 3


def rule(scene: Scene) -> Iterator[Finding]:
    """Findings about groups."""
    for group in scene.groups.values():
        yield from _storm(scene, group)
        yield from _programs(scene, group)
        yield from _idle(scene, group)
        yield from _slow(scene, group)
    yield from _group_a_run(scene)


def _storm(scene: Scene, group: Group) -> Iterator[Finding]:
    later = [rebalance for rebalance in group.rebalances if rebalance.kind != "first"]
    churn = _churn(scene, group)
    if churn:
        yield churn
    elif len(later) >= max(STORM, _normal(group)):
        kinds = Counter(rebalance.kind for rebalance in later)
        kind, _ = kinds.most_common(1)[0]
        who = Counter(_client(scene, group, rebalance) for rebalance in later).most_common(1)[0]
        length = later[-1].ended_us - group.rebalances[0].began_us
        why = {
            "joined": "members join", "left": "members leave", "expired": "members are removed by their session time-out",
            "topics": "members change their topics", "again": "members join again without need",
        }[kind]  # fmt: skip
        yield found(
            "rebalance-storm", "error", 70,
            f"Group {group.id} rebalanced {len(later)} times in {seconds(length)}, most often because {why}; {who[0]} began {who[1]} of them. "
            f"Nobody reads while a rebalance lasts.",
            "Find out why this client comes and leaves; use group.instance.id (static membership) for restarts, and the cooperative-sticky assignor.",
            [number for rebalance in later for number in rebalance.evidence], group.id,
        )  # fmt: skip


def _normal(group: Group) -> int:
    """More rebalances than these are not those of members that come once and leave once; a cooperative assignor needs two for each."""
    return 2 * group.most_at_once() * (2 if "cooperative" in group.protocol else 1) + 1


def _churn(scene: Scene, group: Group) -> Finding | None:
    """One client makes a consumer for a few records, closes it, and makes the next."""
    by: dict[int, list[Member]] = {}
    for member in group.members.values():
        if member.how == "left" and member.ended_us is not None:
            by.setdefault(member.client, []).append(member)
    for client, members in by.items():
        if len(members) < CHURN or len(members) != len({member.connection for member in members}):
            continue
        life = median((member.ended_us or 0) - member.joined_us for member in members)
        ordered = sorted(members, key=lambda member: member.joined_us)
        if life < 5_000_000 and all((one.ended_us or 0) <= other.joined_us for one, other in pairwise(ordered)):  # noqa: PLR2004 - 5 s
            text = (
                f"{scene.name(client)} makes a consumer in group {group.id} again and again: {len(members)} members, one after the other, each for about "
                f"{seconds(life)}. Every one of them costs two rebalances."
            )
            change = "Make one consumer when the program starts, poll it in a loop, and close it at the end."
            return found("consumer-per-poll", "error", 78, text, change, [member.joined_by for member in members], group.id)
    return None


def _client(scene: Scene, group: Group, rebalance: Rebalance) -> str:
    member = group.members.get(rebalance.member)
    return scene.name(member.client) if member else rebalance.member


def _programs(scene: Scene, group: Group) -> Iterator[Finding]:
    """Members of one generation that subscribe to different topics, or are of different software."""
    for rebalance in group.rebalances:
        members = [group.members[name] for name, _, _ in rebalance.joins if name in group.members]
        topics = {member.topics: member for member in members if member.topics}
        if len(topics) > 1:
            parts = "; ".join(f"{scene.name(member.client)} reads {several(names)}" for names, member in topics.items())
            yield found(
                "group-of-several-programs", "error", 88,
                f"Members of group {group.id} subscribe to different topics: {parts}. "
                f"{'O' if group.is_consumer_protocol else 'Each rebalance of one program stops the other, and o'}ffsets and lag are mixed.",
                "Give each program a group.id of its own.", [member.joined_by for member in topics.values()], group.id,
            )  # fmt: skip
            return
        software = {scene.clients[member.client].software: member for member in members}
        if len(software) > 1:
            yield found(
                "group-of-several-programs", "warning", 66,
                f"Members of group {group.id} are clients of different software ({several(name or 'unknown' for name in software)}): "
                f"{several(scene.name(member.client) for member in software.values())} share the records, so each of them reads only a part.",
                "Give each program a group.id of its own, if each has to read everything.", [member.joined_by for member in software.values()], group.id,
            )  # fmt: skip
            return


def _idle(scene: Scene, group: Group) -> Iterator[Finding]:
    """Members without partitions, in the last generation."""
    members = _last_members(group)
    idle = [member for member in members if member.assigned is not None and not member.assigned]
    if not idle or len(members) < 2 or len(idle) == len(members):  # noqa: PLR2004 - one reads, one is idle
        return
    lanes = sum(len(member.assigned or ()) for member in members)
    names = several(f"{scene.name(member.client)} ({member.id[-12:]})" for member in idle)
    evidence = [member.joined_by for member in idle]
    if lanes >= len(members):
        if group.is_consumer_protocol:
            # partitions are on their way from one member to another
            return
        most = max(members, key=lambda member: len(member.assigned or ()))
        yield found(
            "assignment-uneven", "warning", 62,
            f"Group {group.id}: {scene.name(most.client)} has {len(most.assigned or ())} of {lanes} partitions, and {names} none. "
            f"The assignor {group.protocol} divides each topic by itself.",
            "Set partition.assignment.strategy to cooperative-sticky or roundrobin, which divide the partitions of all topics together.", evidence, group.id,
        )  # fmt: skip
        return
    yield found(
        "idle-members", "warning", 60,
        f"Group {group.id} has {len(members)} members for {lanes} partitions: {names} {'is' if len(idle) == 1 else 'are'} idle.",
        "Run at most as many members as there are partitions, or add partitions.", evidence, group.id,
    )  # fmt: skip


def _last_members(group: Group) -> list[Member]:
    if group.is_consumer_protocol:
        return group.living()
    # a generation that someone left at the end of the program is not the one that worked
    best: list[Member] = []
    for rebalance in group.rebalances:
        members = [group.members[name] for name, _, _ in rebalance.joins if name in group.members]
        best = members if len(members) >= len(best) else best
    return best


def _slow(scene: Scene, group: Group) -> Iterator[Finding]:
    """A rebalance that waits for one member; with the consumer protocol (KIP-848) nobody waits for others."""
    if group.is_consumer_protocol:
        return
    for rebalance in group.rebalances:
        member = group.members.get(rebalance.slowest)
        if member is None or rebalance.kind in {"first", "expired"}:
            continue
        # it learns of a rebalance with its next heartbeat, by default after at most 3 s
        noticed = [
            e.at_us
            for e in group.events
            if e.member == member.id and e.error == "REBALANCE_IN_PROGRESS" and rebalance.began_us <= e.at_us < rebalance.joined_us
        ]
        late = rebalance.began_us + rebalance.slow_us - min(noticed, default=rebalance.began_us + 3_000_000)
        if rebalance.member != rebalance.slowest and late > LEAST_SLOW_US:
            yield found(
                "slow-member", "warning", 64,
                f"Group {group.id} waited {seconds(rebalance.slow_us)} for {scene.name(member.client)} in generation {rebalance.generation}: the others had "
                f"joined, it was still at work on its last poll. Nobody read meanwhile ({rebalance.text}).",
                "Handle fewer records between two polls (max.poll.records), or hand slow work to another thread and pause() the partitions.",
                [number for _, _, number in rebalance.joins], group.id,
            )  # fmt: skip
            return


def _group_a_run(scene: Scene) -> Iterator[Finding]:
    """A client that begins in a new group each time, where it finds no offsets."""
    missing = {position.group for position in scene.facts.positions if position.group and position.offset < 0 and not position.error}
    by: dict[tuple[str, tuple[str, ...]], list[Member]] = {}
    for group in scene.groups.values():
        for member in group.members.values():
            if group.id in missing and member.how == "left":
                by.setdefault((scene.name(member.client), member.topics), []).append(member)
    names = {id(member): group.id for group in scene.groups.values() for member in group.members.values()}
    for (client, topics), members in by.items():
        groups = list(dict.fromkeys(names[id(member)] for member in members))
        if len(groups) >= GROUPS_OF_ONE_CLIENT:
            yield found(
                "group-per-run", "warning", 68,
                f"{client} joins a new group each time ({several(groups)}) and finds no offsets there: each run begins at the end of the log, or reads "
                f"{several(topics)} from its start.",
                "Use one group.id for all runs of the program; a random one only where each process has to read everything.",
                [member.joined_by for member in members], client,
            )  # fmt: skip
