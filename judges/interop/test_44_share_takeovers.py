"""Part 44: share groups over a stop or kill of their broker; whoever opens the directory goes on as Kafka does.

One script of requests runs in two halves, as in part 32. What is in flight when the broker ends is acquired, released, rejected, renewed or not fetched
yet; what a real Kafka hands out again, and how often it says that it was delivered, another broker does as well.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .takeovers import Step, Takeover, ends, once, send, topic

PART = "44 directories with share groups, taken over"
ENDS = ["stopped", "killed"]
CONFIG = {
    "group.share.assignment.interval.ms": "0",
    "group.share.session.timeout.ms": "60000",
    "share.coordinator.state.topic.num.partitions": "1",
    "offsets.topic.num.partitions": "4",
    # snapshots of busy groups come within the script
    "share.coordinator.snapshot.update.records.per.snapshot": "20",
}
GROUPS = {
    "$g1": "two members; records acquired, released, rejected, renewed, accepted",
    "$g2": "empty, with offsets, and released records of several deliveries",
    "$g3": "near the limit of deliveries",
    "$g4": "many updates, with snapshots among them",
    "$g5": "offsets altered",
    "$g6": "dead letters",
    "$g7": "read_committed, records of an aborted transaction",
    "$g8": "nothing acknowledged yet",
    "$g9": "offsets deleted",
    "$g10": "a record limit, and records that nobody has fetched",
}
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
ROUNDS = 60
Acknowledged = tuple[int, int, int]


def configs(group: str, **values: str) -> Step:
    """The first records count, and the properties that are given."""
    given = {"share.auto.offset.reset": "earliest", **{key.replace("_", "."): value for key, value in values.items()}}
    return altered(32, group, given)


def altered(kind: int, name: str, values: dict[str, str]) -> Step:
    listed = [{"Name": key, "ConfigOperation": 0, "Value": value} for key, value in values.items()]
    return send("admin", "IncrementalAlterConfigs", 1, Resources=[{"ResourceType": kind, "ResourceName": name, "Configs": listed}], ValidateOnly=False)


ALL_CONFIGS = [
    *(configs(group) for group in GROUPS if group not in ("$g3", "$g6", "$g7")),
    configs("$g3", share_delivery_count_limit="3"),
    configs("$g6", errors_deadletterqueue_topic_name="dlq.$t3"),
    configs("$g7", share_isolation_level="read_committed"),
    altered(2, "dlq.$t3", {"errors.deadletterqueue.group.enable": "true"}),
    {"sleep": 600},
]


def beat(group: str, member: str, epoch: int, topics: list[str] | None = None) -> Step:
    return send(f"h-{member}", "ShareGroupHeartbeat", 1, GroupId=group, MemberId=member, MemberEpoch=epoch, SubscribedTopicNames=topics)


def joined(group: str, member: str, epoch: int, *topics: str) -> list[Step]:
    """A first member: its partitions come with the second heartbeat."""
    return [beat(group, member, 0, list(topics)), {"sleep": 500}, beat(group, member, epoch)]


def partitions(topic_id: str, acknowledged: dict[int, list[Acknowledged]]) -> list[dict[str, Any]]:
    listed = [
        {
            "PartitionIndex": number,
            "AcknowledgementBatches": [{"FirstOffset": first, "LastOffset": last, "AcknowledgeTypes": [kind]} for first, last, kind in batches],
        }
        for number, batches in acknowledged.items()
    ]
    return [{"TopicId": topic_id, "Partitions": listed}]


def fetch(group: str, member: str, epoch: int, topic_id: str, numbers: dict[int, list[Acknowledged]], records: int = 500, mode: int = 0) -> Step:
    """Of a member's own connection."""
    limits = {"MaxWaitMs": 400, "MinBytes": 1, "MaxBytes": 1 << 20, "MaxRecords": records, "BatchSize": 500, "ShareAcquireMode": mode, "IsRenewAck": False}
    of = {"GroupId": group, "MemberId": member, "ShareSessionEpoch": epoch}
    return once(f"{group[1:]}-{member}", "ShareFetch", 2, Topics=partitions(topic_id, numbers), **of, **limits)


def acknowledge(group: str, member: str, epoch: int, topic_id: str, numbers: dict[int, list[Acknowledged]]) -> Step:
    renews = any(kind == RENEW for batches in numbers.values() for _, _, kind in batches)
    of = {"GroupId": group, "MemberId": member, "ShareSessionEpoch": epoch}
    return once(f"{group[1:]}-{member}", "ShareAcknowledge", 2, Topics=partitions(topic_id, numbers) if numbers else [], IsRenewAck=renews, **of)


def close(group: str, member: str, epoch: int) -> Step:
    return acknowledge(group, member, epoch, "T1", {})


def produce(name: str, partition: int, size: int) -> Step:
    data = [{"Name": name, "PartitionData": [{"Index": partition, "Records": {"batches": [{"n": size}]}}]}]
    return send("p", "Produce", 9, TransactionalId=None, Acks=-1, TimeoutMs=10_000, TopicData=data)


def transaction(name: str, producer: str, topic_name: str, size: int, commits: bool) -> list[Step]:
    """One of version 1: the partition is added, then written to."""
    batch = {"n": size, "pid": producer, "epoch": 0, "seq": 0, "txn": True}
    data = [{"Name": topic_name, "PartitionData": [{"Index": 0, "Records": {"batches": [batch]}}]}]
    of = {"TransactionalId": name, "ProducerId": producer, "ProducerEpoch": 0}
    added = [{"Name": topic_name, "Partitions": [0]}]
    return [
        send("p", "InitProducerId", 4, TransactionalId=name, TransactionTimeoutMs=600_000),
        send("p", "AddPartitionsToTxn", 3, **{f"V3AndBelow{key}": value for key, value in of.items()}, V3AndBelowTopics=added),
        send("p", "Produce", 9, TransactionalId=name, Acks=-1, TimeoutMs=10_000, TopicData=data),
        send("p", "EndTxn", 3, Committed=commits, **of),
        {"sleep": 300},
    ]


def described() -> list[Step]:
    """Everything that can be seen."""
    offsets = [{"GroupId": group, "Topics": None} for group in GROUPS]
    return [
        send("z", "ListGroups", 5, StatesFilter=[], TypesFilter=["share"]),
        send("z", "ShareGroupDescribe", 1, GroupIds=list(GROUPS), IncludeAuthorizedOperations=False),
        *(send("z", "DescribeShareGroupOffsets", 1, Groups=[asked]) for asked in offsets),
    ]


def busy(group: str, member: str) -> list[Step]:
    """Every second record, one by one."""
    one = [(2 * number, 2 * number, ACCEPT if number % 3 else RELEASE) for number in range(ROUNDS)]
    return [acknowledge(group, member, 1 + number, "T1", {0: [batch]}) for number, batch in enumerate(one)]


# what a half has written
STATES: list[Step] = [{"dump": "__share_group_state", "of": group} for group in GROUPS]
BEFORE: list[Step] = [
    *[*topic("$t1", 2), *topic("$t2", 1), *topic("dlq.$t3", 1), *ALL_CONFIGS],
    *[*(produce("$t1", 0, size) for size in (5, 5, 140)), *(produce("$t1", 1, size) for size in (10, 10))],
    *[*transaction("$w1", "P1", "$t2", 3, commits=True), *transaction("$w2", "P2", "$t2", 4, commits=False), produce("$t2", 0, 3)],
    *[*joined("$g1", "m-a", 2, "$t1"), beat("$g1", "m-b", 0, ["$t1"]), beat("$g1", "m-a", 3)],
    fetch("$g1", "m-a", 0, "T1", {0: []}, 10),
    fetch("$g1", "m-b", 0, "T1", {1: []}, 10),
    acknowledge("$g1", "m-a", 1, "T1", {0: [(0, 1, ACCEPT), (3, 3, REJECT), (4, 4, RELEASE)]}),
    acknowledge("$g1", "m-a", 2, "T1", {0: [(5, 5, RENEW), (6, 7, RELEASE)]}),
    fetch("$g1", "m-a", 3, "T1", {0: []}, 3),
    acknowledge("$g1", "m-b", 1, "T1", {1: [(0, 4, RELEASE), (5, 9, ACCEPT)]}),
    *[*joined("$g2", "m-c", 2, "$t1"), fetch("$g2", "m-c", 0, "T1", {0: [], 1: []}, 10)],
    acknowledge("$g2", "m-c", 1, "T1", {0: [(0, 2, ACCEPT), (3, 9, RELEASE)]}),
    fetch("$g2", "m-c", 2, "T1", {0: []}, 10),
    *[close("$g2", "m-c", -1), beat("$g2", "m-c", -1)],
    *[*joined("$g3", "m-d", 2, "$t1"), fetch("$g3", "m-d", 0, "T1", {1: []}, 10)],
    acknowledge("$g3", "m-d", 1, "T1", {1: [(0, 9, RELEASE)]}),
    *[fetch("$g3", "m-d", 2, "T1", {1: []}, 10), acknowledge("$g3", "m-d", 3, "T1", {1: [(0, 4, RELEASE)]})],
    *[*joined("$g4", "m-e", 2, "$t1"), fetch("$g4", "m-e", 0, "T1", {0: []}), *busy("$g4", "m-e")],
    *[*joined("$g5", "m-f", 2, "$t1"), fetch("$g5", "m-f", 0, "T1", {0: []}), acknowledge("$g5", "m-f", 1, "T1", {0: [(0, 4, ACCEPT)]})],
    *[close("$g5", "m-f", -1), {"close": "g5-m-f"}, beat("$g5", "m-f", -1), {"sleep": 300}],
    send(
        "admin",
        "AlterShareGroupOffsets",
        0,
        GroupId="$g5",
        Topics=[{"TopicName": "$t1", "Partitions": [{"PartitionIndex": 0, "StartOffset": 7}, {"PartitionIndex": 1, "StartOffset": 15}]}],
    ),
    # one at a time: a real broker archives several at once, and where the group begins meanwhile is up to chance
    *[*joined("$g6", "m-g", 2, "$t1"), fetch("$g6", "m-g", 0, "T1", {1: []})],
    *[acknowledge("$g6", "m-g", 1, "T1", {1: [(0, 0, REJECT), (5, 5, ACCEPT)]}), {"sleep": 700}],
    *[acknowledge("$g6", "m-g", 2, "T1", {1: [(1, 1, REJECT)]}), {"sleep": 700}],
    *[*joined("$g7", "m-h", 2, "$t2"), fetch("$g7", "m-h", 0, "T2", {0: []}), acknowledge("$g7", "m-h", 1, "T2", {0: [(0, 1, ACCEPT), (2, 2, RELEASE)]})],
    *[*joined("$g8", "m-i", 2, "$t1"), fetch("$g8", "m-i", 0, "T1", {0: [], 1: []})],
    *[*joined("$g9", "m-j", 2, "$t1"), fetch("$g9", "m-j", 0, "T1", {0: []}), acknowledge("$g9", "m-j", 1, "T1", {0: [(0, 4, ACCEPT)]})],
    *[close("$g9", "m-j", -1), {"close": "g9-m-j"}, beat("$g9", "m-j", -1), {"sleep": 300}],
    send("admin", "DeleteShareGroupOffsets", 0, GroupId="$g9", Topics=[{"TopicName": "$t1"}]),
    *[*joined("$g10", "m-k", 2, "$t1"), fetch("$g10", "m-k", 0, "T1", {0: []}, 7, mode=1), acknowledge("$g10", "m-k", 1, "T1", {0: [(0, 0, ACCEPT)]})],
    *[*described(), *STATES],
]


def taken_up(group: str, member: str, topic_id: str, number: int, records: int = 500) -> list[Step]:
    """A member fetches until there is no more, in a session and over a connection of its own."""
    return [fetch(group, member, epoch, topic_id, {number: []} if epoch == 0 else {}, records) for epoch in range(3)]


AFTER: list[Step] = [
    *[ends("$t1", 2), *ALL_CONFIGS, *described()],
    # sessions are gone, members are not
    *[fetch("$g1", "m-a", 4, "T1", {}), acknowledge("$g1", "m-b", 2, "T1", {1: [(0, 0, ACCEPT)]}), beat("$g1", "m-a", 3), beat("$g1", "m-b", 3)],
    *[beat("$g1", "m-a", 1), beat("$g8", "m-i", 3), beat("$g3", "m-d", 9)],
    *[step for number in (0, 1) for step in taken_up("$g1", "n-a" if number else "m-a", "T1", number)],
    *[step for number in (0, 1) for step in taken_up("$g2", f"n-{number}", "T1", number)],
    *[*taken_up("$g3", "m-d", "T1", 1), *taken_up("$g4", "m-e", "T1", 0)],
    *[beat("$g5", "m-f", 0, ["$t1"]), *taken_up("$g5", "m-f", "T1", 0), *taken_up("$g5", "n-f", "T1", 1)],
    *[*taken_up("$g6", "m-g", "T1", 1), ends("dlq.$t3", 1), *taken_up("$g7", "m-h", "T2", 0), *taken_up("$g8", "m-i", "T1", 0)],
    *[*joined("$g9", "m-j", 6, "$t1"), *taken_up("$g9", "m-j", "T1", 0), *taken_up("$g10", "m-k", "T1", 0, 50)],
    # what is acknowledged now counts on
    acknowledge("$g1", "m-a", 3, "T1", {0: [(2, 2, ACCEPT), (4, 9, ACCEPT)]}),
    acknowledge("$g2", "n-0", 3, "T1", {0: [(3, 5, REJECT), (6, 9, RELEASE)]}),
    acknowledge("$g4", "m-e", 3, "T1", {0: [(0, 0, ACCEPT), (1, 1, ACCEPT), (3, 3, RELEASE)]}),
    acknowledge("$g8", "m-i", 3, "T1", {0: [(0, 9, ACCEPT)]}),
    *described(),
    send("admin", "AlterShareGroupOffsets", 0, GroupId="$g2", Topics=[{"TopicName": "$t1", "Partitions": [{"PartitionIndex": 0, "StartOffset": 1}]}]),
    send("admin", "DeleteShareGroupOffsets", 0, GroupId="$g2", Topics=[{"TopicName": "$t1"}]),
    *[beat("$g10", "m-k", -1), send("admin", "DeleteGroups", 2, GroupsNames=["$g10"])],
    *[*described(), *STATES],
]


TAKEOVER = Takeover(CONFIG, BEFORE, AFTER)


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize(("writer", "taker"), [("ours", "kafka"), ("kafka", "ours"), ("ours", "ours")])
def test_share_groups_go_on(writer: str, taker: str, how: str, scratch: Path, count: Callable[..., None]) -> None:
    answers = TAKEOVER.check(writer, taker, how, scratch)
    count(PART, directories=1, groups=len(GROUPS), answers=answers)
