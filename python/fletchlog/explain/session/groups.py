"""Groups on a time line: who joined, synchronized, sent heartbeats, left or was removed; why each rebalance began, how long it took, who was slow.

A group is reconstructed from what its members sent and received. A member whose removal nobody sees is found in the next generation, which it is not
in. Kafka: `GroupCoordinator` (spec 8), for the consumer protocol `GroupMetadataManager`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from fletchlog.explain.session.columns import np, split

if TYPE_CHECKING:
    from fletchlog.explain.session.facts import Facts
    from fletchlog.explain.session.rows import GroupEvent, Lane

MS = 1000
ENDS = {"left": "left", "expired": "was removed", "fenced": "was fenced", "replaced": "came back"}
"""How a membership ended, in words."""
# a first join that takes longer was delayed
INITIAL_DELAY_US = 1_000_000
POLL_TIMEOUT = ("poll timeout", "max.poll.interval", "poll interval")


@dataclass(slots=True)
class Member:
    """A member of a group. Times are us since 1970."""

    id: str
    client: int
    instance: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    topics: tuple[str, ...]
    protocols: tuple[str, ...]
    joined_us: int
    joined_by: int
    connection: int
    heartbeats: list[tuple[int, int]] = field(default_factory=list)
    """When it was heard of, also by joining, and the request."""
    beats: list[int] = field(default_factory=list)
    """When its Heartbeat requests arrived, while no rebalance was under way."""
    assigned: tuple[Lane, ...] | None = None
    assigned_us: int | None = None
    """When it had its last assignment."""
    ended_us: int | None = None
    ended_by: int | None = None
    how: str = ""
    """How its membership ended: `left`, `expired`, `fenced` or `replaced` (by itself after a restart, as a static member); empty: it did not."""
    reason: str | None = None

    @property
    def interval_us(self) -> int | None:
        """The typical time between two heartbeats; None: too few were seen."""
        gaps = sorted(later - earlier for earlier, later in pairwise(self.beats))
        return gaps[len(gaps) // 2] if len(gaps) >= 3 else None  # noqa: PLR2004 - fewer are not typical

    @property
    def longest_gap(self) -> tuple[int, int]:
        """The longest time between two heartbeats, us, and the request that ended it."""
        times = [(self.joined_us, self.joined_by), *self.heartbeats]
        pairs = ((later[0] - earlier[0], later[1]) for earlier, later in pairwise(times))
        return max(pairs, default=(0, self.joined_by))


@dataclass(slots=True)
class Rebalance:
    """From the first request to join a generation until its last assignment was handed out."""

    generation: int
    began_us: int
    joined_us: int
    ended_us: int
    kind: str
    """`first`, `joined`, `left`, `expired`, `topics` or `again`."""
    text: str
    member: str
    evidence: list[int]
    joins: list[tuple[str, int, int]]
    slowest: str = ""
    slow_us: int = 0


@dataclass(slots=True)
class Repeated:
    """Records of a partition that were fetched again by another connection of the group."""

    lane: Lane
    first: int
    last: int
    before: int
    after: int
    by: int


@dataclass(slots=True)
class Group:
    """A group of consumers."""

    id: str
    members: dict[str, Member] = field(default_factory=dict)
    rebalances: list[Rebalance] = field(default_factory=list)
    repeated: list[Repeated] = field(default_factory=list)
    events: list[GroupEvent] = field(default_factory=list)
    protocol: str = ""
    is_consumer_protocol: bool = False

    @property
    def clients(self) -> list[int]:
        """Clients of its members, in the order in which they joined."""
        return list(dict.fromkeys(member.client for member in self.members.values()))

    def most_at_once(self) -> int:
        """The largest number of members at a time."""
        steps = [(member.joined_us, 1) for member in self.members.values()]
        steps += [(member.ended_us, -1) for member in self.members.values() if member.ended_us is not None]
        most = now = 0
        for _, step in sorted(steps):
            now += step
            most = max(most, now)
        return most

    def living(self) -> list[Member]:
        """Members at the end of the session."""
        return [member for member in self.members.values() if not member.how]


def groups_of(facts: Facts) -> dict[str, Group]:
    """The groups of a session but share groups, by name."""
    found: dict[str, Group] = {}
    for event in facts.group_events:
        if event.kind == "share-heartbeat":
            continue
        found.setdefault(event.group, Group(event.group)).events.append(event)
    for group in found.values():
        for event in group.events:
            take(group, event)
        if group.is_consumer_protocol:
            epochs(group)
        else:
            _rebalances(group)
        group.repeated = _repeated(group, facts)
    return found


def take(group: Group, event: GroupEvent) -> None:
    """One request's part in the state of its group."""
    member = group.members.get(event.member)
    match event.kind:
        case "join" if event.error is None or event.error == "MEMBER_ID_REQUIRED":
            if member is None:
                group.members[event.member] = _member(event)
            else:
                member.topics, member.protocols = event.topics or member.topics, event.protocols or member.protocols
                member.heartbeats.append((event.at_us, event.number))
            group.protocol = event.protocol or group.protocol
        case "sync" if member and event.error is None and event.assigned is not None:
            member.assigned, member.assigned_us = event.assigned, event.answered_us or event.at_us
            member.heartbeats.append((event.at_us, event.number))
        case "heartbeat" if member and event.error in {None, "REBALANCE_IN_PROGRESS"}:
            member.heartbeats.append((event.at_us, event.number))
            if event.error is None:
                member.beats.append(event.at_us)
        case "leave":
            if member is None and event.instance:
                member = next((m for m in group.members.values() if m.instance == event.instance and not m.how), None)
            if member and event.error is None:
                _end(member, event, "left")
        case "consumer-heartbeat" | "share-heartbeat":
            _take_consumer(group, event)
        case _:
            pass
    if member and event.error in {"UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "FENCED_INSTANCE_ID"} and not member.how:
        _end(member, event, "fenced" if event.error.startswith("FENCED") else "expired")


def _take_consumer(group: Group, event: GroupEvent) -> None:
    group.is_consumer_protocol = True
    member = group.members.get(event.member)
    if event.error is not None:
        return
    if member is not None and member.how:
        # it joins again under its own id: the membership that ended keeps its place in the story
        group.members[f"{member.id}, ended by request {member.ended_by}"] = group.members.pop(member.id)
        member = None
    if member is None:
        member = group.members[event.member] = _member(event)
    member.heartbeats.append((event.at_us, event.number))
    member.beats.append(event.at_us)
    member.topics = event.topics or member.topics
    if event.assigned is not None:
        member.assigned, member.assigned_us = event.assigned, event.answered_us or event.at_us
    if event.reason == "leaves":
        _end(member, event, "left")
        # clients of these protocols give no reason
        member.reason = None
    group.protocol = event.protocol or group.protocol


def _member(event: GroupEvent) -> Member:
    return Member(
        event.member, event.client, event.instance, event.session_timeout_ms, event.rebalance_timeout_ms, event.topics, event.protocols,
        event.at_us, event.number, event.connection,
    )  # fmt: skip


def _end(member: Member, event: GroupEvent, how: str) -> None:
    member.how, member.ended_us, member.ended_by, member.reason = how, event.at_us, event.number, event.reason


def _rebalances(group: Group) -> None:
    joins: dict[int, list[GroupEvent]] = {}
    syncs: dict[int, list[GroupEvent]] = {}
    for event in group.events:
        if event.kind == "join" and event.error is None and event.generation >= 0:
            joins.setdefault(event.generation, []).append(event)
        elif event.kind == "sync" and event.error is None:
            syncs.setdefault(event.generation, []).append(event)
    before: list[GroupEvent] = []
    for generation in sorted(joins):
        these = sorted(joins[generation], key=lambda event: event.at_us)
        began, joined = these[0].at_us, max(event.answered_us or event.at_us for event in these)
        ended = max((event.answered_us or event.at_us for event in syncs.get(generation, ())), default=joined)
        kind, text, member, evidence, at = _trigger(group, before, these)
        if kind == "first" and generation == 1 and joined - began >= INITIAL_DELAY_US:
            text += "; the coordinator waited for more members (group.initial.rebalance.delay.ms)"
        last = these[-1]
        group.rebalances.append(
            Rebalance(
                generation, min(began, at), joined, ended, kind, text, member, evidence, [(e.member, e.at_us, e.number) for e in these],
                last.member if len(these) > 1 else "", last.at_us - began if len(these) > 1 else 0,
            )
        )  # fmt: skip
        before = these


def epochs(group: Group) -> None:
    """Rebalances of the consumer protocol (KIP-848) and of share groups: an epoch begins with a change, and members reach it with their heartbeats."""
    changes: list[GroupEvent] = []
    known: dict[str, tuple[str, ...]] = {}
    reached: dict[int, dict[str, tuple[str, int, int]]] = {}
    causes: dict[int, list[GroupEvent]] = {}
    for event in group.events:
        if not event.kind.endswith("-heartbeat") or event.error is not None:
            continue
        if event.reason or (event.topics and event.topics != known.get(event.member, event.topics)):
            changes.append(event)
        known[event.member] = event.topics or known.get(event.member, ())
        if event.generation <= 0:
            continue
        if event.generation not in reached:
            causes[event.generation], changes = changes, []
        reached.setdefault(event.generation, {}).setdefault(event.member, (event.member, event.answered_us or event.at_us, event.number))
    for epoch in sorted(reached):
        joins = list(reached[epoch].values())
        kind, text, member, evidence, began = _change(group, causes[epoch], joins)
        last = max(joins, key=lambda join: join[1])
        several = len(joins) > 1
        slow = last[1] - joins[0][1] if several else 0
        group.rebalances.append(Rebalance(epoch, began, joins[0][1], last[1], kind, text, member, evidence, joins, last[0] if several else "", slow))


def _change(group: Group, causes: list[GroupEvent], joins: list[tuple[str, int, int]]) -> tuple[str, str, str, list[int], int]:
    """What began an epoch: kind, text, member, requests, time."""
    if not causes:
        name, at, number = joins[0]
        return "again", "the coordinator computed a new assignment: a member was removed, or a topic changed", name, [number], at
    first = causes[0]
    what = {"joins": "joined", "leaves": "left"}.get(first.reason or "", "changed its topics")
    kind = {"joins": "joined", "leaves": "left"}.get(first.reason or "", "topics")
    if kind == "joined" and not group.rebalances:
        kind = "first"
    return kind, f"{first.member} {what}", first.member, [first.number], first.at_us


def _trigger(group: Group, before: list[GroupEvent], these: list[GroupEvent]) -> tuple[str, str, str, list[int], int]:
    """Why a generation began: kind, text, member, requests, time. The earliest of what may have caused it."""
    first = these[0]
    if not before:
        return "first", f"{first.member} joined, the first one seen", first.member, [first.number], first.at_us
    old, new = {event.member: event for event in before}, {event.member: event for event in these}
    causes: list[tuple[int, str, str, str, list[int]]] = []
    for name in old.keys() - new.keys():
        member = group.members[name]
        if back := _came_back(group, member, these):
            member.how, member.ended_us, member.ended_by = "replaced", back.at_us, back.number
            text = f"{name} came back as {back.member} (group.instance.id {member.instance})"
            causes.append((back.at_us, "again", text, back.member, [back.number]))
        elif member.how == "left" and member.ended_us is not None and member.ended_us <= these[-1].at_us:
            why = f" ({member.reason})" if member.reason else ""
            causes.append((member.ended_us, "left", f"{name} left{why}", name, [member.ended_by or 0]))
        elif not _rejoined(member, these[-1].at_us):
            last_us, number = _last_heard(member, these[-1].at_us)
            expired = last_us + max(member.session_timeout_ms, 0) * MS
            if member.how != "left" and not (member.how and member.ended_us and member.ended_us > these[-1].at_us and member.how == "fenced"):
                _expire(member, min(expired, these[-1].at_us), number)
            text = f"{name} was removed: it sent nothing for its session time-out of {member.session_timeout_ms / MS:g} s"
            causes.append((min(expired, these[-1].at_us), "expired", text, name, [number]))
    for name, event in new.items():
        if name not in old:
            causes.append((event.at_us, "joined", f"{name} joined" + (f" ({event.reason})" if event.reason else ""), name, [event.number]))
        elif event.topics != old[name].topics:
            more = ", ".join(sorted(set(event.topics) ^ set(old[name].topics)))
            causes.append((event.at_us, "topics", f"{name} changed its topics ({more})", name, [event.number]))
    if causes:
        at, kind, text, name, evidence = min(causes)
        return kind, text, name, evidence, at
    reason = f" ({first.reason})" if first.reason else ""
    return "again", f"{first.member} joined again{reason}", first.member, [first.number], first.at_us


def _came_back(group: Group, member: Member, these: list[GroupEvent]) -> GroupEvent | None:
    """How a static member joined again after a restart, under another member id."""
    if not member.instance or member.how in {"fenced", "left"}:
        return None
    until = these[-1].at_us
    joins = (e for e in group.events if e.kind == "join" and e.instance == member.instance and e.member != member.id and member.joined_us < e.at_us <= until)
    return next((event for event in joins if event.error is None), None)


def _rejoined(member: Member, until_us: int) -> bool:
    return member.how == "left" and (member.ended_us or 0) > until_us


def _last_heard(member: Member, until_us: int) -> tuple[int, int]:
    return max(((at, number) for at, number in member.heartbeats if at <= until_us), default=(member.joined_us, member.joined_by))


def _expire(member: Member, at_us: int, number: int) -> None:
    if member.how in {"", "expired"}:
        member.how, member.ended_us, member.ended_by = "expired", at_us, number


def _repeated(group: Group, facts: Facts) -> list[Repeated]:
    """Records that two connections of the group's clients have fetched, in the order of arrival."""
    fetches, got = facts.fetches, facts.fetches.got
    rows = got.of(np.flatnonzero(np.isin(fetches.client, group.clients)))
    rows = rows[got.records[rows] != 0]
    begins, by = np.maximum(got.asked[rows], got.first[rows]), got.fetch[rows]
    ends, connections = got.last[rows], fetches.connection[by]
    found: list[tuple[int, Repeated]] = []
    for lane, at in split(got.lane[rows]):
        last = ends[at]
        furthest = np.append(-1, np.maximum.accumulate(last)[:-1])
        # the fetch that brought the furthest offset so far
        before = np.append(-1, np.maximum.accumulate(np.where(last > furthest, np.arange(len(at)), -1))[:-1])
        again = np.flatnonzero((before >= 0) & (begins[at] <= furthest))
        again = again[connections[at[again]] != connections[at[before[again]]]]
        values = (at[again], begins[at[again]], np.minimum(furthest, last)[again], fetches.number[by[at[before[again]]]], by[at[again]])
        for row, first, end, earlier, fetch in zip(*(column.tolist() for column in values), strict=True):
            number, client = int(fetches.number[fetch]), int(fetches.client[fetch])
            found.append((row, Repeated(fetches.names.lanes[lane], first, end, earlier, number, client)))
    return [repeated for _, repeated in sorted(found, key=lambda item: item[0])]
