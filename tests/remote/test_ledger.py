"""What `fletchlog copy` remembers: a record that does not expire, of a source and a destination that are known by their ids."""

import json
import shutil
import struct
import tarfile
import time
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import admin

import fletchlog as fl
from fletchlog.errors import IllegalStateError, InvalidArgumentError, KafkaError, ReadOnlyError
from fletchlog.ledger import TOPIC, Ledger
from fletchlog.transfer import copy
from tests.support.batches import crc32c
from tests.support.reading import numbers_of

GOLDEN = Path(__file__).parents[1] / "golden" / "directories" / "kafka-4.3.1-clean.tar.gz"


def fill(broker, first, count, topic="t", partitions=1):
    if topic not in broker.topics():
        broker.create_topic(topic, partitions=partitions, config={"retention.ms": -1})
    with fl.Producer(broker) as producer:
        for number in range(first, first + count):
            producer.send(topic, value=b"%d" % number, partition=number % partitions)


def copied(source, destination, **options):
    """Records of each topic that were copied."""
    return [topic.records for topic in copy(source, destination, **options)]


@pytest.fixture
def source(tmp_path):
    """A directory with 20 records in topic `t`."""
    with fl.Broker(tmp_path / "source", create=True) as broker:
        fill(broker, 0, 20)
        yield broker


@pytest.fixture
def destination(tmp_path):
    """An empty directory."""
    with fl.Broker(tmp_path / "destination", create=True) as broker:
        yield broker


def test_a_copy_goes_on_when_the_offsets_of_groups_have_expired(source, destination):
    assert copied(source, destination) == [20]
    for group in destination.groups():
        destination.delete_group(group.group_id)
    assert copied(source, destination) == [0]
    fill(source, 20, 5)
    assert copied(source, destination) == [5]
    assert numbers_of(destination) == list(range(25))


def test_a_copy_goes_on_from_a_moved_directory_another_address_and_any_way_to_open_it(tmp_path, destination):
    with fl.Broker(tmp_path / "source", create=True) as broker:
        fill(broker, 0, 20)
        assert copied(broker, destination) == [20]
        with broker.listen() as one, broker.listen() as another:
            for kafka in (one, another):
                assert copied(f"kafka://{kafka.bootstrap}", destination) == [0]
            with fl.Cluster({"bootstrap.servers": one.bootstrap}) as cluster:
                assert copied(cluster, destination) == [0]
        fill(broker, 20, 1)
    shutil.move(tmp_path / "source", tmp_path / "moved")
    assert copied(tmp_path / "moved", destination) == [1]
    assert copied(str(tmp_path / "moved"), destination) == [0]
    with fl.Broker(tmp_path / "moved", create=True) as broker:
        fill(broker, 0, 3, topic="beside")
        assert copied(broker, destination, topics="t") == [0]
    assert numbers_of(destination) == list(range(21))


@pytest.mark.parametrize("properties", ["version=0\nbroker.id=0\ncluster.id=abcdefghijklmnopqrstuv\n", "version=0\nbroker.id=0\n"], ids=["2.7", "0.10.0"])
def test_a_log_without_topic_ids_is_known_by_its_cluster_or_its_place(properties, destination, tmp_path):
    with tarfile.open(GOLDEN) as golden:
        golden.extractall(tmp_path / "old", filter="data")
    (path,) = (file.parent for file in (tmp_path / "old").rglob("meta.properties"))
    for file in path.rglob("partition.metadata"):
        file.unlink()
    (path / "meta.properties").write_text(properties)
    with fl.Broker(path, read_only=True) as broker:
        topic = broker.topics()[0]
        (whole,) = copied(broker, destination, topics=[topic])
        assert whole > 0
    with fl.Broker(path, read_only=True) as broker:
        assert copied(broker, destination, topics=[topic]) == [0]
    shutil.copytree(path / f"{topic}-0", path / "another-0")
    assert copied(path, destination, topics=[topic]) == [0]
    if "cluster.id" not in properties:
        return
    shutil.move(path, tmp_path / "moved")
    assert copied(tmp_path / "moved", destination, topics=[topic]) == [0]
    with fl.Broker(tmp_path / "moved", take_over=True) as broker:  # gives its topics ids
        assert copied(broker, destination, topics=[topic]) == [0]
    assert copied(tmp_path / "moved", destination, topics=[topic]) == [0]


def test_the_ledger_reaches_the_end_where_offsets_have_no_rows(source, destination):
    with fl.Producer(source, {"transactional.id": "x"}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", value=b"aborted")
        producer.flush()
        producer.abort_transaction()
    end = source.describe_topic("t").partitions[0].high_watermark
    assert end > 21
    assert copied(source, destination) == [20]
    source.delete_records("t", 0, end)
    fill(source, 20, 1)
    (topic,) = copy(source, destination)
    assert (topic.records, topic.skipped) == (1, {})
    entry = destination.scan(TOPIC, isolation_level="read_committed").to_pyarrow()["value"].to_pylist()[-1]
    assert json.loads(entry) == {"topic": "t", "positions": {"0": end + 1}}


def test_records_without_an_entry_are_an_error_until_the_caller_decides(source, destination):
    assert copied(source, destination) == [20]
    destination.delete_topic(TOPIC)
    fill(source, 20, 5)
    with pytest.raises(IllegalStateError, match=r"topic t: the destination has records, and no entry of this source .*append=True .*start_offsets="):
        copy(source, destination)
    assert numbers_of(destination) == list(range(20))
    assert copied(source, destination, start_offsets={("t", 0): 20}) == [5]
    assert copied(source, destination, start_offsets={("t", 0): 0}, append=True) == [0]  # there is an entry
    destination.delete_topic(TOPIC)
    assert copied(source, destination, append=True) == [25]
    assert numbers_of(destination) == [*range(25), *range(25)]


@pytest.mark.parametrize(
    ("starts", "message"),
    [
        ({("t", 0): 0}, r"no offset for partitions \[1\] of topic t"),
        ({("t", 0): 0, ("t", 1): 11}, "t-1 has offsets up to 10, not 11"),
        ({("t", 0): -1, ("t", 1): 0}, "t-0 has offsets up to 10, not -1"),
        ({("u", 0): 0}, "names partitions that are not copied: u-0"),
    ],
)
def test_offsets_to_start_at_are_checked(starts, message, destination):
    with fl.Broker.in_memory() as source:
        fill(source, 0, 20, partitions=2)
        with pytest.raises(InvalidArgumentError, match=message):
            copy(source, destination, start_offsets=starts)


def test_a_topic_that_others_fill_needs_the_word_once(source, destination):
    with fl.Broker.in_memory() as other:
        fill(other, 100, 10)
        assert copied(source, destination) == [20]
        with pytest.raises(IllegalStateError, match="another source"):
            copy(other, destination)
        assert copied(other, destination, append=True) == [10]
        fill(other, 110, 1)
        fill(source, 20, 1)
        assert (copied(other, destination), copied(source, destination)) == ([1], [1])
        assert numbers_of(destination) == [*range(20), *range(100, 111), 20]


def test_a_topic_that_was_made_again_is_another_one(source, destination):
    assert copied(source, destination) == [20]
    source.delete_topic("t")
    fill(source, 50, 30)
    with pytest.raises(IllegalStateError, match="no entry of this source"):
        copy(source, destination)
    destination.delete_topic("t")
    assert copied(source, destination) == [30]
    destination.delete_topic("t")
    assert copied(source, destination) == [30]
    assert numbers_of(destination) == list(range(50, 80))


def test_a_source_that_has_lost_records_is_an_error(tmp_path, destination):
    with fl.Broker(tmp_path / "source", create=True) as broker:
        fill(broker, 0, 5)
    shutil.copytree(tmp_path / "source", tmp_path / "older")
    with fl.Broker(tmp_path / "source") as broker:
        fill(broker, 5, 5)
    assert copied(tmp_path / "source", destination) == [10]
    with pytest.raises(IllegalStateError, match="t-0: the source ends at offset 5, and was copied up to 10 before"):
        copy(tmp_path / "older", destination)


def test_a_source_that_is_empty_at_first_is_known_later(source, destination):
    with fl.Broker.in_memory() as empty:
        empty.create_topic("t")
        assert copied(empty, destination) == [0]
        assert copied(source, destination, append=True) == [20]
        fill(empty, 100, 2)
        assert copied(empty, destination) == [2]


def test_partitions_of_several_brokers_go_into_one_topic(destination, tmp_path):
    with fl.Broker(tmp_path / "source", create=True) as broker:
        fill(broker, 0, 8, partitions=4)
    for number, have in enumerate([(0, 2), (1, 3)]):
        part = tmp_path / f"part-{number}"
        shutil.copytree(tmp_path / "source", part)
        (part / "fletchlog.metadata").unlink()
        for partition in set(range(4)) - set(have):
            shutil.rmtree(part / f"t-{partition}")
    parts = [tmp_path / "part-0", tmp_path / "part-1"]
    destination.create_topic("t", partitions=4)
    assert [copied(part, destination) for part in parts] == [[4], [4]]
    assert [copied(part, destination) for part in parts] == [[0], [0]]
    assert sorted(numbers_of(destination)) == list(range(8))


def test_the_ledger_itself_is_not_copied(source, destination):
    with fl.Broker.in_memory() as third:
        assert copied(source, destination) == [20]
        assert [topic.topic for topic in copy(destination, third)] == ["t"]
        assert (third.topics(), [name for name in third.topics(include_internal=True) if "ledger" in name]) == (["t"], [TOPIC])
        with third.listen() as kafka, fl.Cluster(f"kafka://{kafka.bootstrap}") as cluster:
            assert (cluster.topics(), TOPIC in cluster.topics(include_internal=True)) == (["t"], True)
        with pytest.raises(InvalidArgumentError, match="is the ledger"):
            copy(destination, third, [TOPIC])


def test_the_id_of_a_cluster_is_that_of_its_directory(source, tmp_path):
    (written,) = [line for line in (tmp_path / "source" / "meta.properties").read_text().splitlines() if line.startswith("cluster.id=")]
    assert written == f"cluster.id={source.cluster_id}"
    with source.listen() as kafka, fl.Cluster(f"kafka://{kafka.bootstrap}") as cluster:
        assert cluster.cluster_id == source.cluster_id
    with fl.Broker(tmp_path / "source", read_only=True) as reader:
        assert reader.cluster_id == source.cluster_id


# what else writes into the ledger


def test_another_writer_that_died_in_its_transaction_hides_nothing(source, destination):
    assert copied(source, destination) == [20]
    with fl.Producer(destination, {"transactional.id": "other"}) as other:
        other.init_transactions()
        other.begin_transaction()
        other.send(TOPIC, key=b'["other"]', value=b"{}").result()
        fill(source, 20, 5)
        assert copied(source, destination) == [5]
        assert copied(source, destination) == [0]  # its last entry is behind the open transaction
        fill(source, 0, 3, topic="new")
        assert copied(source, destination) == [3, 0]
        other.abort_transaction()
    assert copied(source, destination) == [0, 0]
    assert numbers_of(destination) == list(range(25))


def test_keys_of_one_writer_are_told_apart_behind_an_open_transaction(destination):
    ledger = Ledger(destination, destination, {})
    ledger.create()
    with fl.Producer(destination, {"transactional.id": "other"}) as other, fl.Producer(destination, {"transactional.id": "writer"}) as producer:
        other.init_transactions()
        other.begin_transaction()
        other.send(TOPIC, key=b'["other"]', value=b"{}").result()
        producer.init_transactions()
        for number in range(3):
            for key in ("one", "two"):
                with producer.transaction():
                    ledger.write(producer, {"number": number}, key)
        producer.begin_transaction()
        ledger.write(producer, {"number": 3}, "one")
        producer.abort_transaction()
        assert [ledger.read(key) for key in ("one", "two", "three")] == [{"number": 2}, {"number": 2}, None]
        other.abort_transaction()
        assert [ledger.read(key) for key in ("one", "two", "three")] == [{"number": 2}, {"number": 2}, None]


def test_an_entry_is_found_by_reading_little_and_the_ledger_is_compacted(destination, tmp_path):
    ledger = Ledger(destination, destination, {})
    ledger.create()
    destination.alter_topic_config(TOPIC, {"segment.bytes": 4096})
    with fl.Producer(destination, {"transactional.id": "writer", "linger.ms": 0}) as producer:
        producer.init_transactions()
        for number in range(400):
            with producer.transaction():
                ledger.write(producer, {"number": number}, "often")
                if number == 0:
                    ledger.write(producer, {"number": -1}, "once")
    before = destination.describe_topic(TOPIC).partitions[0].size_bytes
    assert ledger.read("often") == {"number": 399}
    assert ledger.read("once") == {"number": -1}
    assert ledger.read("never") is None
    assert destination.describe_topic(TOPIC).partitions[0].size_bytes < before
    assert len(destination.scan(TOPIC).to_pyarrow()) < 100
    assert (ledger.knows("often"), ledger.knows("oft"), ledger.knows("once", "more")) == (True, False, False)


def test_of_several_keys_the_entry_that_was_written_last_counts(destination):
    kept = Ledger(destination, destination, {})
    kept.create()
    with fl.Producer(destination, {"transactional.id": "writer"}) as producer:
        producer.init_transactions()

        def known_after(*key, **more):
            with producer.transaction():
                kept.write(producer, {}, *key, **more)
            fresh = Ledger(destination, destination, {})
            return kept.knows("of"), fresh.knows("of")

        assert known_after("of", "one") == (True, True)
        assert known_after("of", "two") == (True, True)
        assert known_after("other", instead_of=("of", "two")) == (False, False)
        assert known_after("of", "one") == (True, True)


def test_what_a_copy_reads_of_the_ledger_grows_with_the_topics_and_not_with_their_square(monkeypatch):
    read = []
    entries = Ledger._entries

    def counted(self, begin, end, *more):
        read.append(end - begin)
        return entries(self, begin, end, *more)

    monkeypatch.setattr(Ledger, "_entries", counted)

    def read_for(topics):
        with fl.Broker.in_memory() as source, fl.Broker.in_memory() as destination:
            for number in range(topics):
                fill(source, 0, 1, topic=f"t{number}")
            offsets = []
            for expected in (1, 0):
                read.clear()
                assert copied(source, destination) == [expected] * topics
                offsets.append(sum(read))
            return offsets

    for few, many in zip(read_for(20), read_for(40), strict=True):
        assert 20 < many < 3 * few


def test_a_ledger_that_would_expire_is_refused(source, destination):
    destination.create_topic(TOPIC, config={"cleanup.policy": "delete"})
    with pytest.raises(InvalidArgumentError, match=r"cleanup\.policy is delete"):
        copy(source, destination)


def test_rights_that_are_missing_are_named(source):
    config = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "plain.sasl.jaas.config": "PlainLoginModule required user_root=r user_alice=a;",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:root",
        "auto.create.topics.enable": "false",
    }
    resource, operation = admin.ResourceType, admin.AclOperation
    rights = {
        (resource.TOPIC, "t"): [operation.READ, operation.WRITE],
        (resource.TOPIC, TOPIC): [operation.READ, operation.WRITE],
        (resource.TRANSACTIONAL_ID, "fletchlog-"): [operation.WRITE],
        (resource.GROUP, "fletchlog-"): [operation.READ],
    }
    with fl.Broker.in_memory(config=config) as broker, broker.listen() as kafka:
        broker.create_topic("t")
        broker.create_topic(TOPIC, config={"cleanup.policy": "compact"})
        base = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        root = admin.AdminClient(base | {"bootstrap.servers": kafka.bootstrap, "sasl.username": "root", "sasl.password": "r"})
        refused = 0
        for (kind, name), operations in rights.items():
            with pytest.raises(KafkaError) as caught:
                copy(source, f"kafka://{kafka.bootstrap}", destination_config=base | {"sasl.username": "alice", "sasl.password": "a"})
            refused += "READ on groups" in str(caught.value) and "DESCRIBE, READ and WRITE on the topic" in str(caught.value)
            pattern = admin.ResourcePatternType.PREFIXED if name.endswith("-") else admin.ResourcePatternType.LITERAL
            for allowed in operations:
                binding = admin.AclBinding(kind, name, pattern, "User:alice", "*", allowed, admin.AclPermissionType.ALLOW)
                root.create_acls([binding])[binding].result(10)
        assert refused == 3  # for the ledger's topic, the transactional id and the group
        alice = base | {"sasl.username": "alice", "sasl.password": "a"}
        assert copied(source, f"kafka://{kafka.bootstrap}", destination_config=alice) == [20]
        with fl.Cluster(f"kafka://{kafka.bootstrap}", alice) as cluster:
            assert copied(source, cluster) == [0]


# what is given as source and destination


def test_a_path_may_be_given_on_both_sides(tmp_path, source, destination):
    source.close()
    destination.close()
    assert copied(tmp_path / "source", tmp_path / "destination") == [20]
    assert not (tmp_path / "source" / TOPIC).exists()
    assert copied(str(tmp_path / "source"), str(tmp_path / "destination")) == [0]
    with pytest.raises(KafkaError, match="give create=True"):
        copy(tmp_path / "source", tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert copied(tmp_path / "source", tmp_path / "new", create=True) == [20]
    with pytest.raises(KafkaError, match="does not exist"):
        copy(tmp_path / "nothing", tmp_path / "new")
    assert not (tmp_path / "nothing").exists()


def test_what_is_no_place_is_named(source, destination, tmp_path):
    for wrong, message in ((7, "the destination is 7: expected a Broker"), (None, "the destination is None"), ("s3://bucket/prefix", "is an object store")):
        with pytest.raises(InvalidArgumentError, match=message):
            copy(source, wrong)
    with pytest.raises(InvalidArgumentError, match="the source is b'x'"):
        copy(b"x", destination)
    destination.close()
    with fl.Broker(tmp_path / "destination", read_only=True) as reader, pytest.raises(ReadOnlyError, match="the destination is open for reading only"):
        copy(source, reader)


def test_a_topic_is_not_copied_into_itself(source):
    with source.listen() as kafka:
        for one, other in ((source, source), (source, f"kafka://{kafka.bootstrap}"), (f"kafka://{kafka.bootstrap}", f"kafka://{kafka.bootstrap}")):
            with pytest.raises(InvalidArgumentError, match="source and destination are the same"):
                copy(one, other)
    assert numbers_of(source) == list(range(20))


# times


def with_timestamp(broker, value, timestamp):
    """Appends a record with any timestamp, as a broker stores what a producer claims."""
    with fl.Broker.in_memory() as scratch:
        scratch.create_topic("t")
        with fl.Producer(scratch) as producer:
            producer.send("t", value=value, timestamp_ms=1).result()
        batch = bytearray(scratch.read_batches("t", 0, 0, 1 << 20))
    batch[27:43] = struct.pack(">qq", timestamp, timestamp)
    batch[17:21] = struct.pack(">I", crc32c(batch[21:]))
    broker.append_batches("t", 0, bytes(batch))


def times(broker):
    """Timestamps in ms, as numbers; None: none."""
    column = broker.scan("t", timestamp_unit="ms").to_pyarrow()["timestamp"]
    return column.cast(pa.int64()).to_pylist()


def test_every_timestamp_is_kept_and_a_record_without_one_gets_the_time_of_copying(source, destination):
    given = [-2, -(10**15), 0, 253402300800000, 1_700_000_000_000_000_000, -1]
    source.delete_topic("t")
    anything = {"message.timestamp.before.max.ms": 2**63 - 1, "message.timestamp.after.max.ms": 2**63 - 1}
    source.create_topic("t", config={"retention.ms": -1, **anything})
    for timestamp in given:
        with_timestamp(source, b"%d" % timestamp, timestamp)
    before = time.time_ns() // 1_000_000
    assert copied(source, destination) == [len(given)]
    assert numbers_ms(destination) == given
    found = times(destination)
    assert found[:-1] == given[:-1]
    assert before <= found[-1] <= time.time_ns() // 1_000_000


def numbers_ms(broker):
    """The values, without their timestamps."""
    return [int(value) for value in broker.scan("t", columns=["value"]).to_pyarrow()["value"].to_pylist()]


def test_a_log_of_the_first_format_is_copied(destination, tmp_path):
    def message(offset, key, value):
        body = b"\x00\x00" + b"".join(struct.pack(">i", len(part)) + part for part in (key, value))
        return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body

    log = tmp_path / "old" / "t-0"
    log.mkdir(parents=True)
    (tmp_path / "old" / "meta.properties").write_text("version=0\nbroker.id=0\n")
    (log / "00000000000000000000.log").write_bytes(b"".join(message(n, b"k%d" % n, b"%d" % n) for n in range(5)))
    before = time.time_ns() // 1_000_000
    assert copied(tmp_path / "old", destination) == [5]
    assert copied(tmp_path / "old", destination) == [0]
    assert numbers_of(destination) == list(range(5))
    assert min(times(destination)) >= before
