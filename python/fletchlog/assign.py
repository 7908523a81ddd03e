"""Kafka's assignors as pure functions: which member reads which partition.

`topics` is always `{topic: number of partitions}`; results list the partitions of each topic in ascending order.

    >>> import fletchlog as fl
    >>> fl.assign.range({"orders": 3}, {"m1": ["orders"], "m2": ["orders"]})
    {'m1': {'orders': [0, 1]}, 'm2': {'orders': [2]}}
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fletchlog._core import assign as _assign
from fletchlog._core import assign_legacy as _assign_legacy
from fletchlog._core import assign_uniform as _assign_uniform
from fletchlog.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    Assignment = dict[str, dict[str, list[int]]]


def legacy_range(topics: Mapping[str, int], consumers: Mapping[str, Mapping[str, int]]) -> Assignment:
    """The range assignor of the 0.8 high-level consumer.

    Args:
        topics: Partitions of each topic.
        consumers: `{consumer id: {topic: number of streams}}`. Threads are `<consumer id>-<i>`, i from 0, sorted as strings.

    Returns:
        `{thread id: {topic: [partitions]}}` with every thread of a subscribed topic, idle ones with `[]`.
    """
    return _assign_legacy("range", dict(topics), {c: dict(streams) for c, streams in consumers.items()})


def legacy_round_robin(topics: Mapping[str, int], consumers: Mapping[str, Mapping[str, int]]) -> Assignment:
    """The round-robin assignor of the 0.8 high-level consumer; arguments and result as for `legacy_range`.

    Raises:
        fletchlog.errors.InvalidArgumentError: The consumers do not have equal subscriptions with equal numbers of streams.
    """
    return _assign_legacy("roundrobin", dict(topics), {c: dict(streams) for c, streams in consumers.items()})


def range(  # noqa: A001 - Kafka's own name
    topics: Mapping[str, int],
    members: Mapping[str, Sequence[str]],
    *,
    group_instance_ids: Mapping[str, str] | None = None,
    racks: Mapping[str, str] | None = None,
    replica_racks: Mapping[str, Sequence[Sequence[str]]] | None = None,
) -> Assignment:
    """`RangeAssignor`: per topic, consecutive partitions to members in order.

    Args:
        topics: Partitions of each topic.
        members: `{member id: [subscribed topics]}`.
        group_instance_ids: `{member id: group.instance.id}` of static members, which come first in the order.
        racks: `{member id: client.rack}`. With `replica_racks`, members get partitions with a replica in their rack first, as far as their
            share allows (KIP-881, clients since 3.5).
        replica_racks: `{topic: racks of the replicas, one list a partition}`, as `describe_topics` and `nodes` show them.

    Returns:
        `{member id: {topic: [partitions]}}` with every member.

    Raises:
        fletchlog.errors.InvalidArgumentError: `replica_racks` has not one list a partition.
    """
    return _run("range", topics, members, group_instance_ids, racks=racks, replica_racks=replica_racks)


def round_robin(
    topics: Mapping[str, int],
    members: Mapping[str, Sequence[str]],
    *,
    group_instance_ids: Mapping[str, str] | None = None,
) -> Assignment:
    """`RoundRobinAssignor`: all partitions assigned in turn, wherever their replicas are; arguments and result as for `range`."""
    return _run("roundrobin", topics, members, group_instance_ids)


def sticky(
    topics: Mapping[str, int],
    members: Mapping[str, Sequence[str]],
    *,
    group_instance_ids: Mapping[str, str] | None = None,
    owned: Mapping[str, Mapping[str, Sequence[int]]] | None = None,
    generations: Mapping[str, int] | None = None,
    racks: Mapping[str, str] | None = None,
    replica_racks: Mapping[str, Sequence[Sequence[str]]] | None = None,
) -> Assignment:
    """`StickyAssignor`: balanced first, then as much as possible of what members owned before.

    Args:
        topics: Partitions of each topic.
        members: `{member id: [subscribed topics]}`.
        group_instance_ids: `{member id: group.instance.id}` of static members.
        owned: `{member id: {topic: [partitions]}}` of the assignment before.
        generations: `{member id: generation in which it owned them}`; where two members claim a partition the higher one has it.
        racks: As for `range`; members then also give up what has no replica in their rack. Racks count only where all members subscribe to
            the same topics.
        replica_racks: As for `range`.

    Returns:
        `{member id: {topic: [partitions]}}` with every member.

    Raises:
        fletchlog.errors.InvalidArgumentError: `replica_racks` has not one list a partition.
    """
    return _run("sticky", topics, members, group_instance_ids, owned, generations, racks, replica_racks)


def cooperative_sticky(
    topics: Mapping[str, int],
    members: Mapping[str, Sequence[str]],
    *,
    group_instance_ids: Mapping[str, str] | None = None,
    owned: Mapping[str, Mapping[str, Sequence[int]]] | None = None,
    generations: Mapping[str, int] | None = None,
    racks: Mapping[str, str] | None = None,
    replica_racks: Mapping[str, Sequence[Sequence[str]]] | None = None,
) -> Assignment:
    """`CooperativeStickyAssignor`, first round: a partition that changes its owner is left out until the old one gave it up.

    Arguments and result as for `sticky`; run it again with the result as `owned` for the second round.
    """
    return _run("cooperative-sticky", topics, members, group_instance_ids, owned, generations, racks, replica_racks)


def uniform(
    topics: Mapping[str, int],
    members: Mapping[str, Sequence[str]],
    *,
    topic_ids: Mapping[str, UUID],
    group_instance_ids: Mapping[str, str] | None = None,
    assigned: Mapping[str, Mapping[str, Sequence[int]]] | None = None,
) -> Assignment:
    """`UniformAssignor` of the coordinator (KIP-848): balanced over all topics, and moves few partitions.

    Kafka walks hash tables of members and topics, so who gets what depends on the ids of both: give the real ones to know what a
    cluster will do. The coordinator's other assignor, `range`, gives the same as `range` here.

    Args:
        topics: Partitions of each topic.
        members: `{member id: [subscribed topics]}`, in the order in which they joined.
        topic_ids: `{topic: its id}`, as `describe_topics` shows it.
        group_instance_ids: `{member id: group.instance.id}` of static members.
        assigned: `{member id: {topic: [partitions]}}` of the target before.

    Returns:
        `{member id: {topic: [partitions]}}` with every member.

    Raises:
        fletchlog.errors.InvalidArgumentError: A topic has no id, or a member subscribes to a topic that is not in `topics`.
    """
    instances, before = group_instance_ids or {}, assigned or {}
    missing = [topic for topic in topics if topic not in topic_ids]
    if missing:
        raise InvalidArgumentError(f"topic {missing[0]} has no id; add it to topic_ids")
    return _assign_uniform(
        {topic: (topic_ids[topic].bytes, partitions) for topic, partitions in topics.items()},
        [
            (
                member,
                list(names),
                instances.get(member),
                {topic: list(partitions) for topic, partitions in before.get(member, {}).items()},
            )
            for member, names in members.items()
        ],
    )


def _run(
    strategy: str,
    topics: Mapping[str, int],
    members: Mapping[str, Sequence[str]],
    group_instance_ids: Mapping[str, str] | None,
    owned: Mapping[str, Mapping[str, Sequence[int]]] | None = None,
    generations: Mapping[str, int] | None = None,
    racks: Mapping[str, str] | None = None,
    replica_racks: Mapping[str, Sequence[Sequence[str]]] | None = None,
) -> Assignment:
    instances, before, ages, places = group_instance_ids or {}, owned or {}, generations or {}, racks or {}
    known = {
        member: (
            list(names),
            instances.get(member),
            {topic: list(partitions) for topic, partitions in before.get(member, {}).items()},
            ages.get(member),
            places.get(member),
        )
        for member, names in members.items()
    }
    replicas = {topic: [list(partition) for partition in partitions] for topic, partitions in (replica_racks or {}).items()}
    return _assign(strategy, dict(topics), known, replicas)


__all__ = ["cooperative_sticky", "legacy_range", "legacy_round_robin", "range", "round_robin", "sticky", "uniform"]
