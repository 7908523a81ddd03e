"""Part 24: `fletchlog copy` from a real broker to a directory, from there to a broker of the other release, and from broker to broker; killed and begun again."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType

import fletchlog as fl
from fletchlog.ledger import TOPIC

from . import kafka, rows
from .conftest import CASES, SEED
from .kraft import Kraft, format_directory

PART = "24 copies"
# of the larger topic, and how often its copy is killed
RECORDS, KILLS = 100 * CASES, max(2, CASES // 50)
PARTITIONS = 3
CONFIG = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
TOPIC_CONFIG = {"retention.ms": "-1", "cleanup.policy": "compact,delete", "max.message.bytes": "900000", "segment.bytes": "1048576"}
Rows = dict[tuple[str, int], list[rows.Row]]


def write(broker: Kraft, rng: random.Random) -> None:
    """By a Java client: every codec, headers, times out of order, keys and values that are null, transactions that end either way."""
    lines = [f"topic small {PARTITIONS} " + " ".join(f"{name}={value}" for name, value in TOPIC_CONFIG.items()), "topic empty 4", f"topic direct {PARTITIONS}"]
    codecs = ["none", "gzip", "snappy", "lz4", "zstd"]
    lines += [f"producer {codec} compression.type={codec} linger.ms=5" for codec in codecs]
    word = lambda: "-" if rng.random() < 0.1 else f"x{rng.randbytes(rng.choice([0, 1, 30, 300])).hex()}"  # noqa: E731

    def send(producer: str, topic: str) -> str:
        headers = " ".join(f"x{rng.randbytes(3).hex()}={word()}" for _ in range(rng.choice([0, 0, 1, 3])))
        key = f"x{rng.randbytes(6).hex()}"  # a compacted topic takes none without a key
        return f"send {producer} {topic} {rng.randrange(PARTITIONS)} {1_700_000_000_000 + rng.randrange(10**7)} {key} {word()} {headers}".rstrip()

    lines += [send(rng.choice(codecs), rng.choice(["small", "direct"])) for _ in range(400)]
    lines += [f"close {codec}" for codec in codecs]
    lines.append("producer t transactional.id=t")
    for _ in range(10):
        lines += ["begin t", *(send("t", rng.choice(["small", "direct"])) for _ in range(5)), "flush t", rng.choice(["commit t", "abort t"])]
    lines.append("close t")
    kafka.run("clients", [("kafka-clients", broker.release)], "Write", broker.address, stdin="".join(line + "\n" for line in lines))
    with fl.Cluster(f"kafka://{broker.address}") as cluster, fl.Producer(f"kafka://{broker.address}", {"compression.type": "lz4"}) as producer:
        cluster.create_topic("large", partitions=PARTITIONS)
        for i in range(RECORDS):
            producer.send("large", key=b"%d" % i, value=b"%d" % i * 20, partition=i % PARTITIONS, headers=[("n", b"%d" % i)])


@pytest.fixture(scope="module", params=[("3.9.1", kafka.NEWEST), (kafka.NEWEST, "3.9.1")], ids="-to-".join)
def brokers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kraft, Kraft]]:
    """One that has topics, and an empty one."""
    scratch: Path = tmp_path_factory.mktemp("copies")
    first, second = request.param
    with (
        Kraft(first, format_directory(scratch / "first"), scratch, config=CONFIG) as source,
        Kraft(second, format_directory(scratch / "second"), scratch, config=CONFIG) as destination,
    ):
        write(source, random.Random(f"{SEED} copies {first}"))
        yield source, destination


def copy(read: str, into: str, topics: str, kills: int, rng: random.Random) -> None:
    """Killed so often while it is at work, then to its end."""
    command = [sys.executable, "-m", "fletchlog", "copy", read, into, "--topics", topics]
    began = time.monotonic()
    for number in range(kills + 1):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if number < kills:
            # later and later: some end before a record is copied, some near the end
            time.sleep(rng.uniform(0.5, 1.5 + number))
            process.kill()
        _, errors = process.communicate(timeout=300)
        assert number < kills or process.returncode == 0, errors
    assert time.monotonic() - began < 600


def committed(broker: Kraft) -> Rows:
    """What a Java client reads, without offsets: markers and aborted records are not copied. To Kafka the ledger is a topic like others."""
    read = rows.theirs(broker.address, broker.release, "read_committed")
    return without_offsets({place: of for place, of in read.items() if place[0] != TOPIC})


def without_offsets(read: Rows) -> Rows:
    return {place: [row[1:] for row in of] for place, of in read.items()}


def configs(broker: Kraft, topic: str) -> dict[str, str]:
    """What was set for the topic itself."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": broker.address})
    found = admin.describe_configs([resource])[resource].result(30)
    return {name: entry.value for name, entry in found.items() if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value}


@pytest.mark.timeout(900)
def test_a_copy_has_every_record_once_whatever_is_killed(brokers: tuple[Kraft, Kraft], scratch: Path, count: Callable[..., None]) -> None:
    source, destination = brokers
    rng = random.Random(f"{SEED} copying {source.release}")
    directory = scratch / "copied"
    here, there = f"kafka://{source.address}", f"kafka://{destination.address}"
    copied = "small,large,empty"
    wanted = committed(source)
    assert sum(len(of) for (topic, _), of in wanted.items() if topic == "large") == RECORDS

    copy(here, str(directory), copied, KILLS, rng)
    assert without_offsets(rows.ours(directory, "read_committed")) == {place: of for place, of in wanted.items() if place[0] != "direct"}
    copy(str(directory), there, copied, KILLS, rng)
    copy(here, there, "direct", 1, rng)
    assert committed(destination) == wanted
    for topic in (*copied.split(","), "direct"):
        assert configs(destination, topic) == {**configs(source, topic), "message.timestamp.type": "CreateTime"}
    # a topic grows, and its copy goes on where it was
    with fl.Producer(here) as producer:
        added = [producer.send("direct", key=b"%d" % i, value=b"later", partition=i % PARTITIONS, timestamp_ms=i) for i in range(50)]
        assert all(future.result().offset > 0 for future in added)
    copy(here, there, "direct", 0, rng)
    assert committed(destination) == committed(source)
    # the offsets of groups expire, the ledger does not
    with fl.Cluster(there) as cluster:
        for group in cluster.groups():
            cluster.delete_group(group.group_id)
    copy(here, there, "direct", 0, rng)
    copy(str(directory), there, copied, 0, rng)
    assert committed(destination) == committed(source)
    count(PART, records=sum(map(len, wanted.values())), kills=2 * KILLS + 1)
