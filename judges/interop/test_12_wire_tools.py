"""Part 12: Kafka's own tools of three releases, and its verifiable clients, against our listener: each does what it does with a real broker."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import fletchlog as fl
from pytest_fletchlog.kafka import Kafka

from . import kafka

PART = "12 Kafka's tools over the wire"
RELEASES = ["2.6.3", "3.9.1", "4.3.1", "4.4.0"]
TOOLS = "org.apache.kafka.tools."
LINES = "".join(f"key{i}:value {i}\n" for i in range(100))
BROKER = "--bootstrap-server"
# a tool's class by the release since which it is that one
CLASSES = {
    "acls": {"2": "kafka.admin.AclCommand", "4": f"{TOOLS}AclCommand"},
    "api-versions": {"2": "kafka.admin.BrokerApiVersionsCommand", "4": f"{TOOLS}BrokerApiVersionsCommand"},
    "cluster": {"3": f"{TOOLS}ClusterTool"},
    "configs": {"2": "kafka.admin.ConfigCommand", "4.4": f"{TOOLS}ConfigCommand"},
    "consume": {"2": "kafka.tools.ConsoleConsumer", "3": f"{TOOLS}consumer.ConsoleConsumer"},
    "consumer-perf": {"2": "kafka.tools.ConsumerPerformance", "3": f"{TOOLS}ConsumerPerformance"},
    "copy": {"2": f"{TOOLS}TransactionalMessageCopier"},
    "delete-records": {"2": "kafka.admin.DeleteRecordsCommand", "3": f"{TOOLS}DeleteRecordsCommand"},
    "elect": {"2": "kafka.admin.LeaderElectionCommand", "3": f"{TOOLS}LeaderElectionCommand"},
    "end-to-end": {"2": "kafka.tools.EndToEndLatency", "3": f"{TOOLS}EndToEndLatency"},
    "features": {"3": f"{TOOLS}FeatureCommand"},
    "groups": {"2": "kafka.admin.ConsumerGroupCommand", "3": f"{TOOLS}consumer.group.ConsumerGroupCommand"},
    "log-dirs": {"2": "kafka.admin.LogDirsCommand", "3": f"{TOOLS}LogDirsCommand"},
    "offsets": {"2": "kafka.tools.GetOffsetShell", "3": f"{TOOLS}GetOffsetShell"},
    "produce": {"2": "kafka.tools.ConsoleProducer", "4": f"{TOOLS}ConsoleProducer"},
    "producer-perf": {"2": f"{TOOLS}ProducerPerformance"},
    "reassign": {"2": "kafka.admin.ReassignPartitionsCommand", "3": f"{TOOLS}reassign.ReassignPartitionsCommand"},
    "share-consume": {"4": f"{TOOLS}consumer.ConsoleShareConsumer"},
    "share-groups": {"4": f"{TOOLS}consumer.group.ShareGroupCommand"},
    "share-perf": {"4": f"{TOOLS}ShareConsumerPerformance"},
    "topics": {"2": "kafka.admin.TopicCommand", "3": f"{TOOLS}TopicCommand"},
    "transactions": {"3": f"{TOOLS}TransactionsCommand"},
    "verify-consume": {"2": f"{TOOLS}VerifiableConsumer"},
    "verify-share": {"4": f"{TOOLS}VerifiableShareConsumer"},
    "verify-produce": {"2": f"{TOOLS}VerifiableProducer"},
}


class Step(NamedTuple):
    """A tool, what follows the broker's address in its command line, and what it has to print."""

    tool: str
    arguments: str
    wanted: str
    stdin: str = ""
    # the oldest release that can do it
    since: str = "2"
    # it has to fail
    fails: bool = False


ADMIN = [
    Step("api-versions", "", r"Produce\(0\): 0 to \d+"),
    Step("cluster", "", r"Cluster ID: \S{22}", since="3"),
    Step("features", "describe", r"SupportedMinVersion|Feature:", since="3"),
    Step("topics", "--create --topic orders --partitions 6 --replication-factor 1 --config retention.ms=86400000", r"Created topic orders"),
    Step("topics", "--create --topic orders --partitions 6 --replication-factor 1", r"already exists", fails=True),
    Step("topics", "--create --if-not-exists --topic orders --partitions 6 --replication-factor 1", r"^\s*$"),
    Step("topics", "--create --topic bad/name --partitions 1 --replication-factor 1", r"(?i)invalid|illegal", fails=True),
    Step("topics", "--create --topic odd --partitions 1 --replication-factor 1 --config no.such=1", r"(?i)unknown topic config", fails=True),
    Step("topics", "--create --topic wide --partitions 1 --replication-factor 30", r"eplication factor", fails=True),
    Step("topics", "--describe --topic orders", r"PartitionCount: 6.*retention.ms=86400000"),
    Step("topics", "--alter --topic orders --partitions 8", r"^\s*$"),
    Step("topics", "--describe --topic orders", r"PartitionCount: 8"),
    Step("topics", "--alter --topic orders --partitions 2", r"(?i)currently has|would not be|cannot be", fails=True),
    Step("topics", "--list", r"^orders$"),
    Step("configs", "--entity-type topics --entity-name orders --alter --add-config max.message.bytes=2000000", r"Completed updating config"),
    Step("configs", "--entity-type topics --entity-name orders --describe", r"max.message.bytes=2000000"),
    Step("configs", "--entity-type topics --entity-name orders --describe --all", r"compression.type=producer .*DEFAULT_CONFIG"),
    Step("configs", "--entity-type topics --entity-name orders --alter --delete-config max.message.bytes", r"Completed updating config"),
    Step(
        "configs",
        "--entity-type topics --entity-name orders --alter --add-config max.message.bytes=x",
        r"(?i)invalid (value|config)|InvalidRequest",
        fails=True,
    ),
    Step("configs", "--entity-type brokers --entity-name 1 --describe --all", r"log.segment.bytes="),
    Step("reassign", "--list", r"No partition reassignments found"),
    Step("elect", "--election-type preferred --all-topic-partitions", r"^\s*$|Valid replica already elected"),
    Step("acls", "--list", r"(?i)SecurityDisabled|No Authorizer", fails=True),
]
RECORDS = [
    Step("produce", "--topic orders --property parse.key=true --property key.separator=:", r"^[\s>]*$", stdin=LINES),
    Step("consume", "--topic orders --from-beginning --max-messages 100 --property print.key=true", r"key97\tvalue 97$"),
    Step("consume", "--topic orders --group readers --from-beginning --max-messages 100", r"Processed a total of 100 messages"),
    Step("consume", "--topic orders --partition 0 --offset 1 --timeout-ms 3000", r"Processed a total of [1-9]", fails=True),  # by its time-out
    *[
        step
        for codec in ("gzip", "snappy", "lz4", "zstd")
        for step in (
            Step("produce", f"--topic {codec} --compression-codec {codec}", r"(?s).*", stdin=LINES),
            Step("consume", f"--topic {codec} --from-beginning --max-messages 100", r"Processed a total of 100 messages"),
        )
    ],
    Step("offsets", "--topic orders", r"^orders:[0-7]:[1-9]\d*$"),
    Step("offsets", "--topic orders --time -2", r"^orders:7:0$"),
    Step("offsets", "--topic orders --time max-timestamp", r"^orders:[0-7]:\d+$", since="3"),
    Step("groups", "--list", r"^readers$"),
    Step("groups", "--list --state", r"readers +(Empty|Stable)"),
    Step("groups", "--describe --group readers", r"readers +orders +[0-7] +\d+ +\d+ +0"),
    Step("groups", "--describe --group readers --state", r"readers .*(Empty|Stable)"),
    Step("groups", "--group readers --reset-offsets --to-earliest --topic orders --execute", r"readers +orders +7 +0"),
    Step("groups", "--group readers --reset-offsets --shift-by 1 --topic orders:0 --execute", r"readers +orders +0 +1"),
    Step("groups", "--group readers --delete-offsets --topic orders", r"(?i)successful"),
    Step("groups", "--group readers --delete", r"was successful"),
    Step(
        "consume",
        "--topic orders --group modern --from-beginning --max-messages 100 --consumer-property group.protocol=consumer",
        r"Processed a total of 100 messages",
        since="4.4",
    ),
    Step("groups", "--list --type consumer", r"^modern +Consumer", since="4.4"),
    Step("groups", "--describe --group modern", r"modern +orders +[0-7] +\d+ +\d+ +0", since="4.4"),
    Step("groups", "--describe --group modern --state", r"modern .*uniform +Empty", since="4.4"),
    Step("groups", "--describe --group modern --members --verbose", r"has no active members", since="4.4"),
    Step("groups", "--group modern --reset-offsets --to-earliest --topic orders --execute", r"modern +orders +7 +0", since="4.4"),
    Step("groups", "--group modern --delete", r"was successful", since="4.4"),
    Step("groups", "--describe --group nobody", r"does not exist|not found", fails=True),
    Step("delete-records", "--offset-json-file {scratch}/delete.json", r"low_watermark: 2"),
    Step("offsets", "--topic orders --time -2", r"^orders:0:2$"),
    Step("log-dirs", "--describe --topic-list orders", r'"partition":"orders-0","size":\d+'),
    Step("topics", "--delete --topic orders", r"^\s*$"),
    Step("topics", "--list", r"(?s)^((?!^orders$).)*$"),
]
LOAD = [
    Step("producer-perf", "--topic perf --num-records 50000 --record-size 100 --throughput -1 --producer-props", r"50000 records sent"),
    Step(
        "producer-perf", "--topic perf --num-records 20000 --record-size 100 --throughput -1 --producer-props acks=0 enable.idempotence=false", r"20000 records"
    ),
    Step(
        "producer-perf",
        "--topic txn --num-records 20000 --record-size 100 --throughput -1 --transactional-id perf --transaction-duration-ms 50 --producer-props",
        r"20000 records sent",
    ),
    Step("consumer-perf", "--topic perf --messages 70000 --timeout 20000", r"^\d{4}-.*, 7\d{4}, "),
    Step("verify-produce", "--topic verify --max-messages 1000 --throughput -1 --acks -1", r'"sent":1000.*"acked":1000|"acked":1000.*"sent":1000'),
    Step("verify-consume", "--topic verify --group-id verify --max-messages 1000 --reset-policy earliest", r'"name":"offsets_committed"'),
    Step(
        "copy",
        "--input-topic verify --input-partition 0 --output-topic copied --max-messages 100 --consumer-group copy --transactional-id copy --transaction-size 10",
        r'"remaining":"?0',
    ),
    Step("consume", "--topic copied --from-beginning --isolation-level read_committed --max-messages 100", r"Processed a total of 100 messages"),
    Step("end-to-end", "end 100 all 100", r"Avg latency"),
    Step("transactions", "list", r"perf\s+\d+\s+\d+\s+CompleteCommit", since="3"),
    Step("transactions", "describe --transactional-id perf", r"CompleteCommit", since="3"),
    Step("transactions", "describe-producers --topic txn --partition 0", r"ProducerId", since="3"),
    Step("transactions", "find-hanging --broker-id 1", r"^\S*Topic[^\n]*$|^\s*$", since="3"),
]


@pytest.fixture
def served() -> Iterator[Kafka]:
    with Kafka(config={"group.min.session.timeout.ms": "100"}) as opened:
        yield opened


def jvm(release: str) -> list[str]:
    """A tool of that release, without its name."""
    artifacts = [("kafka_2.13", release), ("kafka-tools", release), kafka.LOGGING]
    return [*kafka.JVM, "-Xmx256m", "-cp", ":".join(f"{kafka.jars(*artifact)}/*" for artifact in artifacts)]


def command(release: str, step: Step, address: str, scratch: Path) -> list[str]:
    """The whole command line, where releases differ in it too."""
    name = max((since, name) for since, name in CLASSES[step.tool].items() if since <= release)[1]
    words = step.arguments.format(scratch=scratch).split()
    old = release.startswith("2")
    match step.tool:
        case "cluster":
            words = ["cluster-id", BROKER, address]
        case "producer-perf":
            words += [f"bootstrap.servers={address}"]
        case "end-to-end":
            named = ["--topic", "--num-records", "--producer-acks", "--record-size"]
            new = [BROKER, address, *(word for pair in zip(named, words, strict=True) for word in pair)]
            words = new if release.startswith("4") else [address, *words]
        case "copy" | "verify-produce" | "verify-consume" if step.tool == "copy" or old:
            words += ["--broker-list", address]
        case "offsets" if old:
            words += ["--broker-list", address, *([] if "--time" in words else ["--time", "-1"])]
        case _:
            words = [BROKER, address, *words]
    return [*jvm(release), name, *words]


def run(release: str, steps: Sequence[Step], address: str, scratch: Path) -> tuple[int, list[str]]:
    """How many tools did what they should, and what the others printed."""
    done, failed = 0, []
    for step in steps:
        if step.since > release:
            continue
        ended = subprocess.run(command(release, step, address, scratch), input=step.stdin, capture_output=True, text=True, timeout=90, check=False)
        printed = ended.stdout + "".join(line for line in ended.stderr.splitlines(keepends=True) if not re.match(r"SLF4J|\[?WARN|WARNING|\[main\] WARN", line))
        if re.search(step.wanted, printed, re.MULTILINE) and (step.fails or not re.search(r"Exception|^Error", printed, re.MULTILINE)):
            done += 1
        else:
            failed.append(f"{step.tool} {step.arguments}: /{step.wanted}/ is not in what it printed:\n{printed[:600]}")
    return done, failed


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("part", ["admin", "records", "load"])
def test_every_tool_does_its_work(part: str, release: str, served: Kafka, scratch: Path, count: Callable[..., None]) -> None:
    (scratch / "delete.json").write_text(json.dumps({"partitions": [{"topic": "orders", "partition": 0, "offset": 2}], "version": 1}))
    if part == "records":
        served.topic(name="orders", partitions=8)
    done, failed = run(release, {"admin": ADMIN, "records": RECORDS, "load": LOAD}[part], served.bootstrap, scratch)
    assert not failed, f"{len(failed)} of {done + len(failed)} failed:\n" + "\n".join(failed)
    count(PART, tools_run=done)


def events(process: subprocess.Popen[str], name: str) -> dict[str, Any]:
    """The next event of that name which a verifiable client prints."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{") and (event := json.loads(line))["name"] == name:
            return event
    message = f"the client ended before {name}"
    raise AssertionError(message)


@pytest.mark.parametrize("release", RELEASES)
def test_a_group_goes_on_when_a_member_is_killed(release: str, served: Kafka, count: Callable[..., None]) -> None:
    """Two verifiable consumers share the partitions; one gets signal 9; the other has all of them when the session is over."""
    topic = served.topic(name="orders", partitions=4)
    flag = "--broker-list" if release.startswith("2") else BROKER
    arguments = [f"{TOOLS}VerifiableConsumer", flag, served.bootstrap, "--topic", topic, "--group-id", "readers", "--reset-policy", "earliest"]
    arguments += ["--session-timeout", "4000", *([] if release.startswith("2") else ["--group-protocol", "classic"] if release.startswith("4") else [])]
    members = [subprocess.Popen([*jvm(release), *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for _ in range(2)]
    try:
        both = served.wait_for_group("readers", members=2, timeout=30)
        assert len({member.member_id for member in both.members}) == 2
        members[0].kill()
        alone = served.wait_for_group("readers", members=1, timeout=30)
        assert alone.members[0].member_id in {member.member_id for member in both.members}
        served.produce(topic, [(f"{i}", f"{i}") for i in range(400)])
        committed: dict[int, int] = {}
        deadline = time.monotonic() + 60
        while sum(committed.values()) < 400 and time.monotonic() < deadline:
            event = events(members[1], "offsets_committed")
            committed |= {at["partition"]: at["offset"] for at in event["offsets"] if at["topic"] == topic}
    finally:
        for member in members:
            member.kill()
            member.communicate()
    ends = {p.partition: p.high_watermark for p in served.broker.describe_topic(topic).partitions}
    assert committed == ends
    with fl.Consumer(served.broker, {"group.id": "readers"}) as heir:
        assert {tp.partition: at.offset for tp, at in heir.committed([(topic, p) for p in ends]).items() if at is not None} == ends
    count(PART, groups=1)
