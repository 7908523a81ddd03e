"""The owners of partitions under each assignor, idle members and why, and what moves when a member joins or leaves.

The assignors themselves are in `fletchlog.assign`; here their results are put side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fletchlog import assign
from fletchlog.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fletchlog.assign import Assignment

ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky", "legacy-range", "legacy-roundrobin")
# no generated group needs more rounds to become stable: a partition is given up in one round and taken in the next
ROUNDS_MAX = 4


@dataclass(frozen=True)
class Ownership:
    """One group under one assignor.

    Attributes:
        assignor: Its name, one of `ASSIGNORS`.
        topics: Partitions of each topic.
        owners: `{member: {topic: [partitions]}}` with every member; a legacy member is a thread `<consumer>-<i>`.
        idle: Members without a partition, and why.
        moved: Partitions that had another owner before, in order; empty without a before.
        rounds: Rebalances until every partition has its owner: 1, and 2 where cooperative rebalancing moves some.
    """

    assignor: str
    topics: dict[str, int]
    owners: Assignment
    idle: dict[str, str]
    moved: list[tuple[str, int]]
    rounds: int = 1


def ownership(
    assignor: str, topics: Mapping[str, int], members: Mapping[str, Sequence[str]], *, streams: int = 1, before: Ownership | None = None
) -> Ownership:
    """Asks one assignor.

    Args:
        assignor: One of `ASSIGNORS`.
        topics: Partitions of each topic.
        members: `{member: [subscribed topics]}`.
        streams: Threads per topic of each legacy consumer.
        before: The group as it was; sticky assignors start from it, and partitions that move are reported.

    Raises:
        fletchlog.errors.InvalidArgumentError: No such assignor, or subscriptions that it does not allow.
    """
    owners, rounds = _ask(assignor, topics, members, streams, before)
    idle = {member: _why_idle(assignor, topics, members, owners, member) for member, owned in owners.items() if not any(owned.values())}
    was = _owner_of(before.owners) if before is not None else {}
    now = _owner_of(owners)
    moved = sorted(tp for tp, owner in now.items() if tp in was and was[tp] != owner)
    return Ownership(assignor, dict(topics), owners, idle, moved, rounds)


def _ask(assignor: str, topics: Mapping[str, int], members: Mapping[str, Sequence[str]], streams: int, before: Ownership | None) -> tuple[Assignment, int]:
    if assignor not in ASSIGNORS:
        raise InvalidArgumentError(f"there is no assignor {assignor}; there are {', '.join(ASSIGNORS)}")
    if assignor.startswith("legacy-"):
        threads = {member: dict.fromkeys(names, streams) for member, names in members.items()}
        ask = assign.legacy_range if assignor == "legacy-range" else assign.legacy_round_robin
        return ask(topics, threads), 1
    if assignor in {"range", "roundrobin"}:
        return (assign.range if assignor == "range" else assign.round_robin)(topics, members), 1
    had = before.owners if before is not None else {}
    owned = {member: {t: p for t, p in had[member].items() if t in members[member]} for member in had if member in members}
    generations = dict.fromkeys(owned, 1)
    if assignor == "sticky":
        return assign.sticky(topics, members, owned=owned, generations=generations), 1
    # a partition that moves is given up in one round and taken in the next
    for rounds in range(1, ROUNDS_MAX):
        found = assign.cooperative_sticky(topics, members, owned=owned, generations=generations)
        if len(_owner_of(found)) == _wanted(topics, members):
            return found, rounds
        owned, generations = found, dict.fromkeys(found, rounds + 1)
    return found, ROUNDS_MAX


def _wanted(topics: Mapping[str, int], members: Mapping[str, Sequence[str]]) -> int:
    subscribed = {topic for names in members.values() for topic in names}
    return sum(count for topic, count in topics.items() if topic in subscribed)


def _owner_of(owners: Assignment) -> dict[tuple[str, int], str]:
    return {(topic, p): member for member, owned in owners.items() for topic, partitions in owned.items() for p in partitions}


def _why_idle(assignor: str, topics: Mapping[str, int], members: Mapping[str, Sequence[str]], owners: Assignment, member: str) -> str:
    consumer = member if member in members else member.rpartition("-")[0]
    names = [topic for topic in members[consumer] if topics.get(topic)]
    if not names:
        return "none of its topics has a partition"
    what = "thread" if assignor.startswith("legacy-") else "member"
    rivals = [other for other in owners if set(members[other if other in members else other.rpartition("-")[0]]) & set(names)]
    if assignor in {"range", "legacy-range"}:
        counts = ", ".join(f"{topic} has {topics[topic]}" for topic in names)
        return f"each topic is dealt on its own, the first {what}s in order get one more: {counts}, for {len(rivals)} {what}s"
    total = sum(topics[topic] for topic in names)
    if total < len(rivals):
        return f"{total} partition{'s' if total != 1 else ''} for {len(rivals)} {what}s"
    return f"all {total} partitions of its topics are dealt to others that subscribe to them"
