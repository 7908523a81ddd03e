"""Part 40: share groups (KIP-932) on our listener: Kafka's tools, and members of Java and librdkafka that share a topic while members and the listener are killed.

Every record is delivered at least once and then accepted, none is delivered more often than its limit, none is held for ever.
"""

from __future__ import annotations

import json
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import fletchlog as fl
from judges.kills.served import Served
from pytest_fletchlog.kafka import Kafka
from tests.support.members import ShareMember, until

from . import kafka
from .conftest import CASES, SEED
from .test_12_wire_tools import LINES, Step, jvm, run
from .test_16_wire_languages import SOURCES, require
from .test_36_franz_go_tests import run_kfake_tests
from .test_37_control import passed

PART = "40 share groups"
KILLS = max(6, CASES // 10)
TOPIC, PARTITIONS, GROUP = "t", 4, "s"
LIMIT = 10
CONFIG = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.session.timeout.ms": "100",
    "group.share.min.heartbeat.interval.ms": "50",
    "group.share.session.timeout.ms": "2000",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.assignment.interval.ms": "0",
}
OF_GROUP = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "1000", "share.delivery.count.limit": str(LIMIT)}
# Those of kfake that do not answer requests themselves, and use no file system of its own. Nine others fail with a real 4.4.0 too: they expect partitions from the first heartbeat, or
# the start offset before it is persisted; one is of an error of franz-go after its release 1.21.
OF_KFAKE = [
    "TestShareGroupDescribe",
    "TestShareGroupDescribeEmpty",
    "TestDescribeShareGroupOffsetsNotFound",
    "TestShareGroupOffsetsAdminNonEmpty",
    "TestAuditShareAddConsumeTopics",
    "TestShareFetchLeaderMoveHintHeals",
    "TestShareFetchTopLevelErrorBackoff",
    "TestShareGroupDeleteGroups",
    "TestShareGroupAckAndRedelivery",
    "TestShareGroupReject",
    "TestShareGroupAutoAckOnPoll",
    "TestShareGroupSessionEpoch",
    "TestShareGroupConcurrentFetchAndAck",
    "TestShareGroupPollRecordsBuffering",
    "TestShareGroupAsyncEarlyReturn",
    "TestShareGroupAsyncNoSpin",
    "TestShareGroupAsyncShutdownNoHang",
    "TestShareGroupAsyncMultiSourceRecordIntegrity",
    "TestShareGroupMaxConcurrentFetches",
    "TestShareGroupAckRenew",
    "TestShareGroupClientRejoinAfterFence",
    "TestShareGroupRebalanceOccurs",
    "TestShareGroupSubscriptionPurge",
    "TestShareGroupAckCallbackSuccessPath",
]
EARLIEST = "--entity-type groups --entity-name {group} --alter --add-config share.auto.offset.reset=earliest"
STEPS = [
    Step("topics", "--create --topic orders --partitions 3 --replication-factor 1", r"Created topic orders"),
    Step("produce", "--topic orders --property parse.key=true --property key.separator=:", r"^(>|\s)*$", LINES),
    Step("configs", EARLIEST.format(group="console"), r"Completed updating config"),
    Step("configs", EARLIEST.format(group="perf"), r"Completed updating config"),
    Step("configs", "--entity-type groups --entity-name console --describe", r"share.auto.offset.reset=earliest"),
    Step("share-consume", "--topic orders --group console --max-messages 100 --timeout-ms 20000", r"Processed a total of 100 messages"),
    Step("share-groups", "--list", r"^console$"),
    Step("share-groups", "--list --state", r"console +Empty"),
    Step("share-groups", "--describe --group console", r"console +orders +0 +\d+"),
    Step("share-groups", "--describe --group console --state", r"console .*Empty +0"),
    Step("share-groups", "--describe --group console --members", r"(?i)no active members|has no"),
    Step("share-groups", "--describe --group none", r"(?i)not exist|not found", fails=True),
    Step("share-groups", "--reset-offsets --group console --topic orders --to-earliest --dry-run", r"console +orders +0 +0"),
    Step("share-groups", "--reset-offsets --group console --topic orders --to-earliest --execute", r"console +orders +0 +0"),
    Step("share-consume", "--topic orders --group console --max-messages 100 --timeout-ms 20000", r"Processed a total of 100 messages"),
    Step("share-groups", "--reset-offsets --group console --topic orders:1 --to-latest --execute", r"console +orders +1 +\d+"),
    Step("share-groups", "--delete-offsets --group console --topic orders", r"orders +Successful"),
    Step("share-groups", "--delete --group console", r"(?i)success"),
    Step("share-groups", "--delete --group console", r"is not a share group", fails=True),
    Step("share-perf", "--topic orders --group perf --num-records 100 --timeout 20000", r"100"),
    Step("verify-share", "--topic orders --group-id verify --max-messages 100 --offset-reset-strategy earliest", r'"name":"offsets_acknowledged"'),
    Step(
        "verify-share",
        "--topic orders --group-id patterns --max-messages 100 --offset-reset-strategy earliest --acknowledgement-mode sync --ack-pattern accept,release,renew,accept",
        r'"name":"offsets_acknowledged"',
    ),
    Step("groups", "--list", r"(?s)^((?!console).)*$"),
]


def test_kafkas_tools_of_share_groups(scratch: Path, count: Callable[..., None]) -> None:
    with Kafka() as opened:
        done, failed = run(kafka.NEWEST, STEPS, opened.bootstrap, scratch)
        assert not failed, "\n".join(failed)
        count(PART, tools=done)


def test_franz_gos_tests_of_share_groups(count: Callable[..., None]) -> None:
    require("go", "Go 1.26 or newer")
    run_kfake_tests(OF_KFAKE)
    count(PART, tests_of_franz_go=len(OF_KFAKE))


def test_franz_gos_client_copies_through_share_groups(scratch: Path, count: Callable[..., None]) -> None:
    require("go", "Go 1.25 or newer")
    program = kafka.CACHE / "kgo.test"
    passed(["go", "test", "-c", "-o", str(program), "github.com/twmb/franz-go/pkg/kgo"], SOURCES / "go")
    given = {"KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "20000", "KGO_LOG_LEVEL": "none"}
    with Kafka(config={"num.partitions": "4"}) as opened:
        printed = passed([str(program), "-test.v", "-test.run", "TestShareGroupETL"], scratch, given | {"KGO_SEEDS": opened.bootstrap})
    assert "--- PASS: TestShareGroupETL" in printed
    count(PART, tests_of_franz_gos_client=1)


class JavaMember:
    """Kafka's verifiable share consumer in a JVM."""

    def __init__(self, bootstrap: str, log: Path) -> None:
        self.log = log
        words = ["--bootstrap-server", bootstrap, "--topic", TOPIC, "--group-id", GROUP, "--acknowledgement-mode", "sync", "--verbose"]
        with log.open("wb") as out:
            command = [*jvm(kafka.NEWEST), "org.apache.kafka.tools.VerifiableShareConsumer", *words]
            self._process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)

    def _notes(self, name: str) -> list[dict[str, Any]]:
        whole = self.log.read_bytes().rpartition(b"\n")[0]
        return [note for note in map(json.loads, whole.splitlines()) if note["name"] == name]

    def delivered(self) -> list[tuple[int, int]]:
        """Each delivery: partition, offset."""
        return [(note["partition"], note["offset"]) for note in self._notes("record_data")]

    def accepted(self) -> set[tuple[int, int]]:
        """What the broker has confirmed: partition, offset."""
        partitions = [part for note in self._notes("offsets_acknowledged") if note["success"] for part in note["partitions"]]
        return {(part["partition"], offset) for part in partitions for offset in part["offsets"]}

    def kill(self) -> None:
        """Signal 9."""
        self._process.kill()
        self._process.wait()


class Writer:
    """Writes until it is closed, over kills of the listener."""

    def __init__(self, bootstrap: str) -> None:
        place = f"kafka://{bootstrap}"
        with fl.Cluster(place) as cluster:
            cluster.create_topic(TOPIC, partitions=PARTITIONS)
            cluster.alter_group_config(GROUP, OF_GROUP)
        self._ends = threading.Event()
        self._producer = fl.Producer(place, {"linger.ms": 5, "delivery.timeout.ms": 600_000, "reconnect.backoff.max.ms": 100})
        self._thread = ThreadPoolExecutor(1)
        self._records = self._thread.submit(self._write)

    def _write(self) -> set[tuple[int, int]]:
        sent = []
        while not self._ends.wait(0.01):
            sent += [self._producer.send(TOPIC, value=str(len(sent) + number).encode(), partition=number % PARTITIONS) for number in range(20)]
        return {(at.partition, at.offset) for at in (future.result(120) for future in sent)}

    def close(self) -> set[tuple[int, int]]:
        """Partition and offset of each record that was written."""
        self._ends.set()
        with self._producer, self._thread:
            return self._records.result(240)


@pytest.mark.timeout(900)
def test_every_record_is_accepted_over_kills(scratch: Path, count: Callable[..., None]) -> None:
    rng = random.Random(SEED)
    served = Served(scratch / "data", CONFIG)
    writer = Writer(served.bootstrap)
    of = {"bootstrap_servers": served.bootstrap, "group_id": GROUP, "reconnect_backoff_max_ms": 100, "max_poll_records": 50}

    def start(kind: str, number: int) -> ShareMember | JavaMember:
        log = scratch / f"member-{number}"
        return JavaMember(served.bootstrap, log) if kind == "java" else ShareMember(TOPIC, log, **of)

    running: dict[int, str] = dict(enumerate(["java", "librdkafka", "librdkafka"]))
    members = [start(kind, number) for number, kind in running.items()]
    killed = {"serve": 0, "member": 0}
    records: set[tuple[int, int]] = set()
    try:
        until(lambda: any(member.accepted() for member in members), 120)
        for _ in range(KILLS):
            time.sleep(10 ** rng.uniform(-1.5, 0))
            if rng.random() < 0.3:
                served.kill()
                killed["serve"] += 1
            else:
                dead = rng.choice(list(running))
                members[dead].kill()
                running[len(members)] = running.pop(dead)
                members.append(start(running[len(members)], len(members)))
                killed["member"] += 1
        records |= writer.close()
        # an acceptance whose confirmation a killed member did not live to print is the broker's alone
        with fl.Cluster(f"kafka://{served.bootstrap}") as cluster:
            until(lambda: sum(at.lag for at in cluster.share_group_offsets(GROUP).values()) == 0, 300)
    finally:
        records |= writer.close()
        for number in running:
            members[number].kill()
        served.end()
    deliveries = Counter(at for member in members for at in member.delivered())
    # what a killed broker had not yet persisted is delivered again without being counted
    assert max(deliveries.values()) <= LIMIT + killed["serve"], deliveries.most_common(3)
    assert set(deliveries) >= records
    confirmed = set().union(*(member.accepted() for member in members))
    count(
        PART,
        kills_of_the_listener=killed["serve"],
        kills_of_members=killed["member"],
        deliveries=sum(deliveries.values()),
        records=len(records),
        confirmed=len(confirmed),
    )
