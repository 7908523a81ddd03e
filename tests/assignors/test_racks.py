"""Members and replicas in racks (KIP-881)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import fletchlog as fl
from fletchlog.errors import InvalidArgumentError
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

RACKS = {1: "r1", 2: "r2", 3: "r3"}


@pytest.fixture
def racked() -> Iterator[fl.Broker]:
    """Three nodes in three racks, each with replicas of two of six partitions."""
    with fl.Broker.in_memory(nodes=RACKS) as broker:
        broker.create_topics([("orders", 6, {}, 1)])
        yield broker


def assigned(broker: fl.Broker, version: str, strategy: str) -> dict[str, set[str | None]]:
    """Three members, one a rack: the racks of what each is assigned."""
    nodes = {partition.partition: partition.leader for partition in broker.describe_topic("orders").partitions}
    config = {"group.id": "g", "fletchlog.consumer.version": version, "partition.assignment.strategy": strategy}
    members = {rack: fl.Consumer(broker, config | {"client.rack": rack}) for rack in ("r3", "r1", "r2")}
    try:
        for member in members.values():
            member.subscribe(["orders"])
        assert until(lambda: [m.poll(timeout_ms=0) for m in members.values()] and all(len(m.assignment()) == 2 for m in members.values()))
        return {rack: {RACKS[nodes[tp.partition]] for tp in member.assignment()} for rack, member in members.items()}
    finally:
        for member in members.values():
            member.close()


@pytest.mark.parametrize("strategy", ["range", "sticky", "cooperative-sticky"])
def test_members_of_a_group_get_partitions_in_their_racks(racked: fl.Broker, strategy: str) -> None:
    assert assigned(racked, "4.4", strategy) == {rack: {rack} for rack in RACKS.values()}


def test_before_3_5_and_in_turn_racks_do_not_matter(racked: fl.Broker) -> None:
    for version, strategy in [("3.4", "range"), ("2.6", "range"), ("4.4", "roundrobin")]:
        # ids of members are random, so one group in six has such an assignment by chance
        assert any(assigned(racked, version, strategy) != {rack: {rack} for rack in RACKS.values()} for _ in range(8))


def test_a_share_is_never_exceeded_for_a_rack() -> None:
    racks = {"a": "r1", "b": "r2"}
    members = {member: ["t"] for member in racks}
    for assign in (fl.assign.range, fl.assign.sticky):
        got = assign({"t": 4}, members, racks=racks, replica_racks={"t": [["r1"], ["r2"], ["r1"], ["r1"]]})
        assert got == {"a": {"t": [0, 2]}, "b": {"t": [1, 3]}}


def test_racks_of_replicas_are_one_list_a_partition() -> None:
    with pytest.raises(InvalidArgumentError, match="replica_racks has 1 partitions of topic t, topics has 2"):
        fl.assign.range({"t": 2}, {"a": ["t"]}, racks={"a": "r1"}, replica_racks={"t": [["r1"]]})
