"""`fl.Cluster`: topics and groups of a cluster, and the commands on it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fletchlog as fl
from fletchlog.errors import (
    ClosedError,
    GroupIdNotFoundError,
    InvalidArgumentError,
    KafkaTimeoutError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)


@pytest.fixture
def cluster():
    """A cluster of two nodes: what is behind it, its address, and itself."""
    with fl.Broker.in_memory(nodes=2) as broker, broker.listen() as listener:
        address = f"kafka://{listener.bootstrap}"
        with fl.Cluster(address) as cluster:
            yield broker, address, cluster


def test_topics_are_created_described_and_deleted(cluster):
    broker, address, cluster = cluster
    cluster.create_topic("orders", partitions=3, config={"retention.ms": 5000})
    assert cluster.topics() == broker.topics() == ["orders"]
    with fl.Producer(address) as producer:
        for i in range(10):
            producer.send("orders", value=b"v", partition=i % 2)
    broker.delete_records("orders", 0, 2)
    ours, theirs = cluster.describe_topic("orders"), broker.describe_topic("orders")
    assert ours._replace(partitions=()) == theirs._replace(partitions=())
    assert [p[:5] for p in ours.partitions] == [p[:5] for p in theirs.partitions]
    assert ours.config == {"retention.ms": "5000"}
    assert [p.log_start_offset for p in ours.partitions] == [2, 0, 0]
    cluster.delete_topic("orders")
    assert cluster.topics() == []


def test_what_a_broker_refuses_has_its_class(cluster):
    broker, _, cluster = cluster
    broker.create_topic("t")
    with pytest.raises(TopicAlreadyExistsError):
        cluster.create_topic("t")
    for call in (cluster.describe_topic, cluster.delete_topic):
        with pytest.raises(UnknownTopicOrPartitionError):
            call("nope")
    with pytest.raises(GroupIdNotFoundError):
        cluster.describe_group("nope")
    with pytest.raises(fl.errors.KafkaError, match="retention"):
        cluster.create_topic("u", config={"retention.ms": "x"})


def test_groups_are_those_of_the_broker(cluster):
    broker, address, cluster = cluster
    broker.create_topic("t", partitions=2)
    with fl.Consumer(address, {"group.id": "g"}) as consumer:
        consumer.subscribe(["t"])
        while not consumer.assignment():
            consumer.poll(timeout_ms=50)
        assert cluster.groups() == broker.groups()
        assert cluster.describe_group("g") == broker.describe_group("g")
        assert cluster.describe_group("g").members[0].partitions == sorted(consumer.assignment())


def test_a_cluster_that_does_not_answer_ends_a_call_in_its_time():
    with fl.Cluster("kafka://127.0.0.1:9", {"default.api.timeout.ms": 300}) as cluster, pytest.raises(KafkaTimeoutError, match="refused"):
        cluster.topics()
    with pytest.raises(ClosedError):
        cluster.topics()


def test_a_broker_of_this_process_is_no_cluster(broker):
    for given in (broker, "data/"):
        with pytest.raises(InvalidArgumentError):
            fl.Cluster(given)


def shell(*arguments):
    """What the command prints."""
    command = [Path(sys.executable).parent / "fletchlog", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "COLUMNS": "200"}, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(120)
def test_the_commands_take_a_cluster_in_place_of_a_directory(cluster):
    broker, address, _ = cluster
    shell("topics", "create", address, "orders", "--partitions", "2")
    with fl.Producer(broker) as producer:
        for i in range(6):
            producer.send("orders", value=b"%d" % i, partition=i % 2)
    assert json.loads(shell("topics", "list", address, "--json")) == [{"topic": "orders", "partitions": 2, "records": 6, "bytes": None}]
    assert [p["high_watermark"] for p in json.loads(shell("topics", "describe", address, "orders", "--json"))[0]["partitions"]] == [3, 3]
    lines = shell("consume", address, "orders", "--format", "jsonl").splitlines()
    assert sorted(json.loads(line)["value"] for line in lines) == [str(i) for i in range(6)]
    printed = shell("explain", address, "--topics", "orders", "--full")
    assert "orders-0" in printed
    assert "orders-1" in printed
    assert "6 records" in shell("explain", address, "--topics", "orders", "--subscribe")
    shell("topics", "delete", address, "orders", "--yes")
    assert broker.topics() == []


def test_the_shell_writes_to_a_cluster_and_resets_its_groups(cluster, tmp_path):
    broker, address, _ = cluster
    broker.create_topic("numbers", partitions=2)
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"key": "k", "value": str(i), "timestamp": 1_700_000_000_000 + i}) + "\n" for i in range(10)))
    shell("produce", address, "numbers", rows, "--key", "key", "--value", "value", "--timestamp", "timestamp")
    scanned = broker.scan("numbers").to_pyarrow()
    assert sorted(scanned["value"].to_pylist(), key=int) == [b"%d" % i for i in range(10)]
    assert set(scanned["key"].to_pylist()) == {b"k"}
    with fl.Consumer(address, {"group.id": "g"}) as consumer:
        consumer.commit({fl.TopicPartition("numbers", p): 0 for p in range(2)})
    assert [(row["group"], row["lag"]) for row in json.loads(shell("groups", "list", address, "--json"))] == [("g", 10)]
    shell("groups", "reset", address, "g", "--topic", "numbers", "--to-latest", "--execute")
    assert [row["lag"] for row in json.loads(shell("groups", "describe", address, "g", "--json"))["partitions"]] == [0, 0]
    shell("groups", "delete", address, "g", "--yes")
    assert broker.groups() == []
    shell("topics", "alter", address, "numbers", "--partitions", "3", "-c", "retention.ms=-1")
    assert (len(broker.describe_topic("numbers").partitions), broker.describe_topic("numbers").config) == (3, {"retention.ms": "-1"})
    shell("delete-records", address, "numbers", "--before-offset", "-1", "--yes")
    assert broker.scan("numbers").to_pyarrow().num_rows == 0


def test_a_command_on_files_refuses_a_cluster(cluster, tmp_path):
    _, address, _ = cluster
    directory = f"fletchlog: {address} is a cluster; this command works on a directory\n"
    for command, text in (("verify", directory), ("dump", f"fletchlog: {address}: FILE.log is a file of this machine\n"), ("serve", directory)):
        done = subprocess.run([sys.executable, "-m", "fletchlog", command, address], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", text)
    assert list(tmp_path.iterdir()) == []
