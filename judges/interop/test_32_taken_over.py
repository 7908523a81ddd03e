"""Part 32: groups and transactions of version 2 over a stop or kill of their broker; whoever opens the directory goes on as Kafka does.

One script of requests runs in two halves, as the recordings of `tests/golden/kip-848` do. Between them the broker ends, and a broker of either kind
opens its directory. Answers are as of a real Kafka that opens its own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .takeovers import Step, Takeover, ends, send, topic

PART = "32 directories with groups and transactions, taken over"
ENDS = ["stopped", "killed"]
CONFIG = {"group.consumer.assignment.interval.ms": "0", "group.initial.rebalance.delay.ms": "0"}
GROUPS = {
    "$g1": "two members that have what they are to have",
    "$g2": "one has to give up what another waits for",
    "$g3": "empty, with offsets",
    "$g4": "a classic member and a consumer",
    "$g5": "static members, one of which is away",
    "$g6": "an expression",
    "$g7": "offsets only",
    "$g8": "classic",
}


def beat(group: str, member: str, epoch: int, **fields: Any) -> Step:
    return send("g", "ConsumerGroupHeartbeat", 1, GroupId=group, MemberId=member, MemberEpoch=epoch, **fields)


def join(group: str, member: str, **fields: Any) -> Step:
    names = {"SubscribedTopicNames": ["$t1"]} if "SubscribedTopicRegex" not in fields else {}
    return beat(group, member, 0, RebalanceTimeoutMs=60_000, TopicPartitions=[], **names, **fields)


def owned(group: str, member: str, epoch: int, partitions: list[int]) -> Step:
    return beat(group, member, epoch, TopicPartitions=[{"TopicId": "T1", "Partitions": partitions}])


def classic(group: str, member: str, generation: int, assigned: list[int] | None, joins_as: str | None = None) -> list[Step]:
    """A join of a classic member, and its sync; `M1` is the first id that a broker makes."""
    metadata = {"subscription": ["$t1"], "v": 1, "owned": {}, "data": None}
    protocols = [{"Name": "range", "Metadata": metadata}]
    of = {"GroupId": group, "ProtocolType": "consumer"}
    joins_as = member if joins_as is None else joins_as
    leads = [] if assigned is None else [{"MemberId": member, "Assignment": {"assigned": {"$t1": assigned}, "v": 1, "data": None}}]
    return [
        send("g", "JoinGroup", 3, SessionTimeoutMs=60_000, RebalanceTimeoutMs=60_000, Protocols=protocols, MemberId=joins_as, **of),
        send("g", "SyncGroup", 5, GenerationId=generation, Assignments=leads, ProtocolName="range", MemberId=member, **of),
    ]


def offsets(offset: int, *partitions: int) -> dict[str, Any]:
    """In the words of a commit."""
    return {
        "Topics": [
            {"Name": "$t1", "Partitions": [{"PartitionIndex": number, "CommittedOffset": offset + number, "CommittedMetadata": "m"} for number in partitions]}
        ]
    }


def commit(group: str, member: str, epoch: int, offset: int, *partitions: int) -> Step:
    return send("g", "OffsetCommit", 9, GroupId=group, MemberId=member, GenerationIdOrMemberEpoch=epoch, **offsets(offset, *partitions))


def commit_in(name: str, producer: str, group: str, member: str, epoch: int, offset: int, *partitions: int) -> Step:
    """Offsets in a transaction."""
    of = {"TransactionalId": name, "ProducerId": producer, "ProducerEpoch": 0, "GroupId": group, "MemberId": member, "GenerationIdOrMemberEpoch": epoch}
    return send("p", "TxnOffsetCommit", 5, GroupInstanceId=None, **of, **offsets(offset, *partitions))


def begin(name: str) -> Step:
    return send("p", "InitProducerId", 4, TransactionalId=name, TransactionTimeoutMs=600_000)


def produce(name: str, producer: str, epoch: int, partition: int, version: int = 12) -> Step:
    batch = {"pid": producer, "epoch": epoch, "seq": 0, "txn": True, "values": [f"{name[1:]} {epoch} {number}" for number in range(3)]}
    data = [{"Name": "$x1", "PartitionData": [{"Index": partition, "Records": {"batches": [batch]}}]}]
    return send("p", "Produce", version, TransactionalId=name, Acks=-1, TimeoutMs=10_000, TopicData=data)


def end(name: str, producer: str, epoch: int, commits: bool) -> list[Step]:
    """Returns once the markers are written."""
    return [send("p", "EndTxn", 5, TransactionalId=name, ProducerId=producer, ProducerEpoch=epoch, Committed=commits), {"sleep": 300}]


def described() -> list[Step]:
    """Everything that can be seen."""
    asked = [{"GroupId": group, "MemberId": None, "MemberEpoch": -1, "Topics": [{"Name": "$t1", "PartitionIndexes": [0, 1, 2, 3]}]} for group in GROUPS]
    fetched = [{"Topic": "$x1", "Partitions": [{"Partition": number, "FetchOffset": 0, "PartitionMaxBytes": 1 << 20} for number in range(2)]}]
    whole = {"ReplicaId": -1, "MaxWaitMs": 0, "MinBytes": 0, "MaxBytes": 1 << 25, "SessionId": 0, "SessionEpoch": -1, "ForgottenTopicsData": [], "RackId": ""}
    return [
        *(send("z", "ConsumerGroupDescribe", 1, GroupIds=[group]) for group in GROUPS),
        send("z", "DescribeGroups", 5, Groups=list(GROUPS)),
        send("z", "ListGroups", 5, StatesFilter=[], TypesFilter=[]),
        send("z", "OffsetFetch", 9, Groups=asked, RequireStable=False),
        send("z", "DescribeTransactions", 0, TransactionalIds=["$w1", "$w2", "$w3", "$w4", "$w5"]),
        send("z", "DescribeProducers", 0, Topics=[{"Name": "$x1", "PartitionIndexes": [0, 1]}]),
        ends("$x1", 2, isolation=1),
        *(send("z", "Fetch", 12, IsolationLevel=isolation, Topics=fetched, **whole) for isolation in (0, 1)),
    ]


BEFORE: list[Step] = [
    *[*topic("$t1", 4), *topic("$u1", 2), *topic("$x1", 2), {"sleep": 500}],
    *[join("$g1", "m-a"), join("$g1", "m-b"), beat("$g1", "m-a", 2), owned("$g1", "m-a", 2, [0, 1]), beat("$g1", "m-b", 3)],
    *[commit("$g1", "m-a", 3, 5, 0, 1), commit("$g1", "m-b", 3, 5, 2)],
    *[join("$g2", "m-c"), join("$g2", "m-d"), beat("$g2", "m-c", 2)],
    *[join("$g3", "m-e"), commit("$g3", "m-e", 2, 7, 0), beat("$g3", "m-e", -1)],
    *[join("$g4", "m-f", ServerAssignor="range"), *classic("$g4", "c-f", 3, None), owned("$g4", "m-f", 2, [0, 1])],
    *[join("$g5", "m-g", InstanceId="i1"), join("$g5", "m-h", InstanceId="i2"), beat("$g5", "m-g", 2), owned("$g5", "m-g", 2, [0, 1])],
    *[beat("$g5", "m-h", 3), beat("$g5", "m-h", -2, InstanceId="i2")],
    *[join("$g6", "m-i", SubscribedTopicRegex="$u1.*"), {"sleep": 1000}, beat("$g6", "m-i", 1), beat("$g6", "m-i", 2)],
    commit("$g7", "", -1, 9, 0),
    *[*classic("$g8", "M1", 1, [0, 1, 2, 3], joins_as=""), commit("$g8", "M1", 1, 3, 3)],
    *[begin("$w1"), produce("$w1", "P1", 0, 0), *end("$w1", "P1", 0, True)],
    *[begin("$w2"), produce("$w2", "P2", 0, 0), *end("$w2", "P2", 0, False)],
    *[begin("$w3"), produce("$w3", "P3", 0, 1), commit_in("$w3", "P3", "$g7", "", -1, 40, 0, 1)],
    begin("$w4"),
    *[begin("$w5"), commit_in("$w5", "P5", "$g1", "m-a", 3, 60, 1), *end("$w5", "P5", 0, True)],
    *described(),
]
AFTER: list[Step] = [
    *[ends("$t1", 4), ends("$x1", 2), *described()],
    # members go on with the epochs that they have; so do others that are late
    *[beat("$g1", "m-a", 3), beat("$g1", "m-b", 3), beat("$g1", "m-b", 1), commit("$g1", "m-b", 3, 100, 3), commit("$g1", "m-b", 4, 200, 3)],
    *[beat("$g2", "m-d", 3), owned("$g2", "m-c", 2, [0, 1]), beat("$g2", "m-d", 3)],
    *[join("$g3", "m-e"), beat("$g3", "m-e", -1)],
    *[send("g", "Heartbeat", 4, GroupId="$g4", GenerationId=3, MemberId="c-f"), *classic("$g4", "c-f", 3, None), beat("$g4", "m-f", 3)],
    *[beat("$g5", "m-g", 3), beat("$g5", "m-h", 3, InstanceId="i2"), join("$g5", "m-k", InstanceId="i2"), beat("$g5", "m-k", 3)],
    *[beat("$g6", "m-i", 2), *topic("$u12", 1), {"sleep": 500}, beat("$g6", "m-i", 2)],
    *[send("g", "Heartbeat", 4, GroupId="$g8", GenerationId=1, MemberId="M1"), commit("$g8", "M1", 1, 30, 3), *classic("$g8", "M1", 2, [0, 1, 2, 3])],
    # the end of a transaction again, and the other end
    *[*end("$w1", "P1", 0, True), *end("$w1", "P1", 0, False), *end("$w2", "P2", 0, False), *end("$w3", "P3", 0, True), *end("$w4", "P4", 0, False)],
    *[
        produce("$w1", "P1", 1, 0),
        *end("$w1", "P1", 1, True),
        produce("$w2", "P2", 0, 0),
        begin("$w5"),
        produce("$w5", "P5", 2, 1),
        *end("$w5", "P5", 2, False),
    ],
    *described(),
]


TAKEOVER = Takeover(CONFIG, BEFORE, AFTER)


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize(("writer", "taker"), [("ours", "kafka"), ("kafka", "ours"), ("ours", "ours")])
def test_groups_and_transactions_go_on(writer: str, taker: str, how: str, scratch: Path, count: Callable[..., None]) -> None:
    answers = TAKEOVER.check(writer, taker, how, scratch)
    count(PART, directories=1, groups=len(GROUPS), answers=answers)
