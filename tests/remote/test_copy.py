"""`fletchlog copy`: every record once and in order, from and to directories and clusters, whatever is killed."""

import os
import random
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

import fletchlog as fl
from fletchlog.errors import CorruptRecordError, InvalidArgumentError, UnknownTopicOrPartitionError
from fletchlog.ledger import TOPIC as LEDGER
from fletchlog.transfer import copy

COLUMNS = ["partition", "timestamp", "key", "value", "headers"]


def rows(place, topic):
    """What readers of committed records see, without offsets."""
    return place.scan(topic, include_headers=True, isolation_level="read_committed").to_pyarrow().select(COLUMNS).to_pylist()


def fill(broker, topic, partitions=3, first=0, count=300):
    """Plain, null and transactional records with headers and times of their own."""
    if topic not in broker.topics():
        broker.create_topic(topic, partitions=partitions, config={"retention.ms": -1, "cleanup.policy": "compact,delete"})
    with fl.Producer(broker, {"batch.size": 400, "compression.type": "gzip"}) as producer:
        for i in range(first, first + count):
            headers = [("a", b"%d" % i), ("a", None)] if i % 3 else None
            producer.send(
                topic, key=b"k%d" % i, value=b"%d" % i if i % 5 else None, headers=headers, timestamp_ms=1_000 + i * 31 % 700, partition=i % partitions
            )
    with fl.Producer(broker, {"transactional.id": "x"}) as producer:
        producer.init_transactions()
        for end in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            for p in range(partitions):
                producer.send(topic, key=b"t", value=end.__name__.encode(), timestamp_ms=5_000, partition=p)
            end()


def opened(stack, kind, path):
    """A directory's broker and what `copy` is given of it."""
    broker = stack.enter_context(fl.Broker(path, create=True))
    if kind == "directory":
        return broker, broker
    return broker, f"kafka://{stack.enter_context(broker.listen()).bootstrap}"


@pytest.mark.slow
@pytest.mark.parametrize("source_kind", ["directory", "cluster"])
@pytest.mark.parametrize("destination_kind", ["directory", "cluster"])
def test_a_copy_has_what_the_source_has_and_goes_on(source_kind, destination_kind, tmp_path):
    with ExitStack() as stack:
        source, read = opened(stack, source_kind, tmp_path / "source")
        destination, write = opened(stack, destination_kind, tmp_path / "destination")
        fill(source, "a")
        fill(source, "b", partitions=1, count=10)
        source.create_topic("empty", partitions=4)
        reported = []
        copied = copy(read, write, on_progress=lambda topic, records: reported.append((topic, records)))
        assert [(topic.topic, topic.records, topic.skipped) for topic in copied] == [("a", 303, {}), ("b", 11, {}), ("empty", 0, {})]
        assert sum(records for _, records in reported) == 314
        for topic in ("a", "b", "empty"):
            assert rows(destination, topic) == rows(source, topic)
            assert len(destination.describe_topic(topic).partitions) == len(source.describe_topic(topic).partitions)
        assert destination.describe_topic("a").config == {**source.describe_topic("a").config, "message.timestamp.type": "CreateTime"}
        assert [topic.records for topic in copy(read, write)] == [0, 0, 0]
        fill(source, "a", first=300, count=50)
        assert [topic.records for topic in copy(read, write, ["a"])] == [53]
        assert rows(destination, "a") == rows(source, "a")


def test_what_retention_took_is_reported(tmp_path):
    with fl.Broker(tmp_path / "source", create=True) as source, fl.Broker(tmp_path / "destination", create=True) as destination:
        fill(source, "a", partitions=1, count=20)
        copy(source, destination)
        end = source.describe_topic("a").partitions[0].high_watermark
        fill(source, "a", partitions=1, first=20, count=20)
        source.delete_records("a", 0, end + 7)
        (copied,) = copy(source, destination)
        assert copied.skipped == {0: (end, end + 7)}
        left = rows(source, "a")
        assert rows(destination, "a")[-len(left) :] == left


def test_a_copy_refuses_what_cannot_be_copied(tmp_path):
    with fl.Broker(tmp_path / "source", create=True) as source, fl.Broker(tmp_path / "destination", create=True) as destination:
        fill(source, "a")
        with pytest.raises(UnknownTopicOrPartitionError, match="nope"):
            copy(source, destination, ["nope"])
        destination.create_topic("a", partitions=2)
        with pytest.raises(InvalidArgumentError, match="3 partitions at the source and 2"):
            copy(source, destination)


def fill_each(broker, partitions, first=0):
    """One record in each partition."""
    if "a" not in broker.topics():
        broker.create_topic("a", partitions=partitions)
    with fl.Producer(broker) as producer:
        for p in range(partitions):
            producer.send("a", value=b"%d" % (first + p), partition=p)


def test_small_partitions_share_a_transaction():
    with fl.Broker.in_memory() as source, fl.Broker.in_memory() as destination:
        fill_each(source, 300)  # more than are held one by one
        reported = []
        (copied,) = copy(source, destination, on_progress=lambda _, records: reported.append(records))
        assert (copied.records, sum(reported)) == (300, 300)
        assert rows(destination, "a") == rows(source, "a")
        entries = destination.scan(LEDGER, isolation_level="read_committed").to_pyarrow().num_rows
        assert entries == 1 + len(reported) < 30  # the first one says where the copy begins


def test_what_was_read_before_a_damaged_partition_is_copied(tmp_path):
    with fl.Broker(tmp_path / "source", create=True) as source:
        fill_each(source, 4)
    (log,) = (tmp_path / "source" / "a-2").glob("*.log")
    log.write_bytes(log.read_bytes()[:-1] + b"?")
    with fl.Broker(tmp_path / "source", read_only=True) as source, fl.Broker(tmp_path / "destination", create=True) as destination:
        for _ in range(2):
            with pytest.raises(CorruptRecordError):
                copy(source, destination)
            assert [row["value"] for row in rows(destination, "a")] == [b"0", b"1"]


# A copy that ends itself: when it has sent the rows of two of three partitions, or their entry too, or has committed both.
KILLED = """
import os, sys
import fletchlog as fl
from fletchlog import _copying as copying, ledger

read, write, point = sys.argv[1:]
write_entry, calls = ledger.Ledger.write, []

class Producer:
    def __init__(self, *given):
        self.inner = fl.Producer(*given)
    def __enter__(self):
        return self
    def __exit__(self, *error):
        self.inner.__exit__(*error)
    def __getattr__(self, name):
        return getattr(self.inner, name)
    def send_arrow(self, topic, rows):
        self.inner.send_arrow(topic, rows)
        calls.append(rows)
        if point == "rows" and len(calls) == 2:
            self.flush()
            os._exit(7)

def write_and_end(self, producer, *entry, **more):
    write_entry(self, producer, *entry, **more)
    if point == "entry" and calls:
        os._exit(7)

copying.Producer, ledger.Ledger.write, copying._BATCH_S = Producer, write_and_end, 60
copying.copy(read, write, on_progress=lambda *_: os._exit(7))
"""


@pytest.mark.parametrize(("point", "partitions_sent", "committed"), [("rows", 2, 0), ("entry", 3, 0), ("commit", 3, 3)])
def test_a_transaction_of_several_partitions_is_copied_whole_or_not_at_all(point, partitions_sent, committed, tmp_path):
    with fl.Broker(tmp_path / "source", create=True) as source, fl.Broker(tmp_path / "destination", create=True) as destination:
        fill_each(source, 3)
        copy(source, destination)
        fill_each(source, 3, first=3)
    process = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "source", tmp_path / "destination", point], timeout=60, check=False)
    assert process.returncode == 7
    with fl.Broker(tmp_path / "source") as source, fl.Broker(tmp_path / "destination") as destination:
        assert destination.scan("a", isolation_level="read_uncommitted").to_pyarrow().num_rows == 3 + partitions_sent
        assert len(rows(destination, "a")) == 3 + committed
        assert [topic.records for topic in copy(source, destination)] == [3 - committed]
        assert rows(destination, "a") == rows(source, "a")


def start(read, write):
    """The command, in a process of its own."""
    return subprocess.Popen([sys.executable, "-m", "fletchlog", "copy", read, write], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(read, write):
    """The command, to its end."""
    process = start(read, write)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("destination_kind", ["directory", "cluster"])
def test_a_copy_that_is_killed_anywhere_has_every_record_once_in_the_end(destination_kind, tmp_path):
    rng = random.Random(int(os.environ.get("SEED", "1")))
    rounds = int(os.environ.get("COPY_KILLS", "12"))
    source_path, destination_path = tmp_path / "source", tmp_path / "destination"
    with fl.Broker(source_path, create=True) as source:
        fill(source, "a", count=60_000)
    with ExitStack() as stack:
        write, destination = str(destination_path), None
        if destination_kind == "cluster":
            destination = stack.enter_context(
                fl.Broker(destination_path, create=True, config={"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100})
            )
            write = f"kafka://{stack.enter_context(destination.listen()).bootstrap}"
        began = time.monotonic()
        run(str(source_path), str(tmp_path / "whole"))
        whole_s = time.monotonic() - began
        for number in range(rounds):
            with fl.Broker(source_path) as source:
                fill(source, "a", first=60_000 + number * 4_000, count=4_000)
            process = start(str(source_path), write)
            time.sleep(rng.uniform(0.2, 1.1) * whole_s)
            process.kill()
            process.communicate()
        run(str(source_path), write)
        if destination is None:
            destination = stack.enter_context(fl.Broker(destination_path))
        with fl.Broker(source_path, read_only=True) as source:
            assert rows(destination, "a") == rows(source, "a")
