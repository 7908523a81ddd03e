"""What users of other clients write first works, or the error says what to write."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fletchlog as fl
from fletchlog import serde
from fletchlog.errors import DirectoryLockedError, InvalidArgumentError, InvalidGroupIdError

EARLIEST = {"auto.offset.reset": "earliest"}


@pytest.fixture
def topic(broker):
    broker.create_topic("t")
    return broker


def values_of(consumer):
    return [record.value for records in consumer.read_to_end() for record in records]


@pytest.mark.parametrize("arguments", [(EARLIEST,), (EARLIEST | {"group.id": "g"},)])
def test_consumers_take_a_group_and_topics_as_share_consumers_do(peer, broker, arguments):
    broker.alter_group_config("s", {"share.auto.offset.reset": "earliest"})
    with fl.Producer(peer) as producer:
        producer.send("t", b"v").result(30)
    with fl.Consumer(peer, *arguments, group="g", topics=["t"]) as consumer:
        assert consumer.subscription() == ["t"]
        assert values_of(consumer) == [b"v"]
        consumer.commit()
    assert sum(committed.offset for committed in broker.group_offsets("g").values()) == 1
    with fl.ShareConsumer(peer, group="s", topics=["t"]) as consumer:
        assert next(iter(consumer)).value == b"v"

    async def awaited():
        async with fl.AsyncConsumer(peer, EARLIEST, group="a", topics=["t"]) as consumer:
            return (await anext(consumer)).value

    assert asyncio.run(awaited()) == b"v"


def test_a_group_may_come_beside_a_configuration_alone(broker):
    broker.create_topic("t")
    with broker.listen() as listener:
        config = EARLIEST | {"bootstrap.servers": listener.bootstrap}
        with fl.Producer(config | {"acks": "all"}) as producer:
            producer.send("t", b"v").result(30)
        with fl.Consumer(config, group="g", topics=["t"]) as consumer:
            assert values_of(consumer) == [b"v"]


def test_what_contradicts_a_group_is_refused(topic):
    with pytest.raises(InvalidGroupIdError, match=r"set group\.id"):
        fl.Consumer(topic, topics=["t"])
    for client in (fl.Consumer, fl.ShareConsumer):
        with pytest.raises(InvalidArgumentError, match="two groups"):
            client(topic, {"group.id": "a"}, group="b")
        with pytest.raises(TypeError, match="a configuration is a dict"):
            client(topic, [("client.id", "a")], group="b")
        with pytest.raises(TypeError, match=r"write \['t'\]"):
            client(topic, group="g", topics="t")


@pytest.mark.parametrize("client", [fl.Consumer, fl.ShareConsumer, fl.AsyncConsumer, fl.AsyncShareConsumer])
def test_properties_as_keyword_arguments_of_a_consumer_are_refused_with_the_right_form(topic, client):
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'group_id'; .*\(place, \{\"group\.id\": \.\.\.\}\)"):
        client(topic, group_id="g")
    with pytest.raises(TypeError, match=r"\{\"bootstrap\.servers\": \.\.\.\}"):
        client(bootstrap_servers="127.0.0.1:9092")
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'nonsense'; .*\{\"NAME\": \.\.\.\}"):
        client(topic, nonsense=1)


@pytest.mark.parametrize("client", [fl.Producer, fl.AsyncProducer])
def test_properties_as_keyword_arguments_of_a_producer_are_refused_with_the_right_form(topic, client):
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'compression_type'; .*Producer\(place, \{\"compression\.type\": \.\.\.\}\)"):
        client(topic, compression_type="zstd")


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"value": "text"}, r"value: expected bytes, got str 'text'; encode it, or give the producer a value_serializer, such as serde\.String\(\)"),
        ({"value": {"a": 1}}, r"value: expected bytes, got dict .*value_serializer, such as serde\.Json\(\)"),
        ({"key": "k"}, r"key: expected bytes, got str 'k'; encode it, or give the producer a key_serializer"),
        ({"headers": {"h": "x"}}, "header value: expected bytes, got str 'x'; encode it first$"),
    ],
)
def test_what_is_no_bytes_is_refused_with_the_serializer_to_give(topic, record, said):
    with fl.Producer(topic) as producer:
        with pytest.raises(TypeError, match=said):
            producer.send("t", **record)
        if "value" in record:
            with pytest.raises(TypeError, match=said):
                producer.send_many("t", [record["value"]])


def test_a_class_of_serde_is_no_serializer(topic):
    for name in ("key_serializer", "value_serializer"):
        with pytest.raises(TypeError, match=rf"{name} .*such as serde\.Json\(\), got type"):
            fl.Producer(topic, **{name: serde.Json})
    with fl.Producer(topic, value_serializer=str.encode, key_serializer=bytes) as producer:
        producer.send("t", "v", b"k")


def test_a_name_in_place_of_a_partition_is_refused_with_the_right_form(topic):
    with fl.Consumer(topic, {"group.id": "g"}) as consumer, topic.listen() as listener, fl.Cluster(f"kafka://{listener.bootstrap}") as cluster:
        for call in (consumer.assign, consumer.end_offsets, consumer.pause, consumer.seek_to_end, cluster.end_offsets):
            with pytest.raises(TypeError, match=r"got str; write \[\('t', 0\)\]"):
                call("t")
            with pytest.raises(TypeError, match=r"got str 't'; write \('t', 0\)"):
                call(["t"])
        with pytest.raises(TypeError, match=r"got str 't'; write \('t', 0\)"):
            consumer.position("t")


def test_a_record_in_place_of_offsets_is_refused_with_the_right_form(topic):
    with fl.Producer(topic) as producer:
        producer.send("t", b"v")
    with fl.Consumer(topic, EARLIEST, group="g", topics=["t"]) as consumer:
        (record,) = consumer.poll()
        with pytest.raises(TypeError, match=r"got Record; to commit a record write \{\(record\.topic, record\.partition\): record\.offset \+ 1\}"):
            consumer.commit(record)
        consumer.commit({(record.topic, record.partition): record.offset + 1})
        with pytest.raises(TypeError, match="seek_to_beginning and seek_to_end"):
            consumer.seek(("t", 0), "earliest")


def test_what_is_no_collection_is_refused_with_what_is_expected(topic):
    with fl.Consumer(topic, {"group.id": "g"}) as consumer:
        for call, value in ((consumer.subscribe, 5), (consumer.committed, None), (consumer.assign, None)):
            with pytest.raises(TypeError, match=r"expected a list of .*, got (int 5|NoneType None)$"):
                call(value)
    for call in (topic.create_acls, topic.delete_acls, topic.create_topics):
        with pytest.raises(TypeError, match=r"expected .*list of .*, got int 5$"):
            call(5)


def test_offsets_are_committed_without_metadata_and_have_64_bits(topic):
    with fl.Consumer(topic, group="g") as consumer:
        consumer.assign(("t", 0))
        consumer.commit({("t", 0): fl.types.OffsetAndMetadata(1, None)})
        assert consumer.committed(("t", 0)) == (1, "", -1)
        for call in (lambda: consumer.seek(("t", 0), 2**63), lambda: consumer.commit({("t", 0): (2**63, "", 0)})):
            with pytest.raises(InvalidArgumentError, match=r"t-0: .* is out of range"):
                call()


def test_a_time_that_is_none_is_refused(topic):
    nat = pytest.importorskip("pandas").NaT
    with fl.Producer(topic) as producer, pytest.raises(TypeError, match="expected a time, got NaTType NaT"):
        producer.send("t", b"v", timestamp_ms=nat)
    with fl.Consumer(topic) as consumer, pytest.raises(TypeError, match="expected a time, got NaTType NaT"):
        consumer.offsets_for_times({("t", 0): nat})
    with pytest.raises(TypeError, match="expected a time, got NaTType NaT"):
        topic.scan("t", start_time=nat)


def test_an_empty_name_is_no_place():
    for call in (fl.Broker, fl.Producer, fl.Consumer, lambda place: fl.scan(place, "t"), lambda place: fl.Broker(place, create=True)):
        with pytest.raises(InvalidArgumentError, match=r"^the name of a place is empty; expected "):
            call("")


def test_a_rebalance_callback_is_called_and_a_port_is_no_part_of_a_host(topic):
    for name in ("on_assigned", "on_revoked", "on_lost"):
        for client in (fl.Consumer, fl.AsyncConsumer):
            with pytest.raises(InvalidArgumentError, match=rf"must be callable as {name}\(partitions\), not list"):
                client(topic, group="g").subscribe(["t"], **{name: []})
    with pytest.raises(InvalidArgumentError, match=r'the port is an argument of its own, listen\("127\.0\.0\.1", 9092\)'):
        topic.listen("127.0.0.1:9092")


def test_who_has_a_directory_open_is_named(tmp_path):
    opened = "import sys, fletchlog as fl; fl.Broker(sys.argv[1])"
    with fl.Broker(tmp_path, create=True):
        with pytest.raises(DirectoryLockedError, match="is open for writing in this process; give its Broker to the clients"):
            fl.Producer(tmp_path)
        other = subprocess.run([sys.executable, "-c", opened, tmp_path], capture_output=True, text=True, check=False)
    assert f"is locked by another writer (process {os.getpid()}); open it with read_only=True to read beside it" in other.stderr
    assert "connect to kafka://HOST:PORT" in other.stderr


@pytest.mark.parametrize("place", ["http://127.0.0.1:9092", "PLAINTEXT://127.0.0.1:9092"])
def test_the_address_of_a_cluster_has_one_scheme(place):
    for call in (fl.Producer, fl.Consumer, lambda place: fl.scan(place, "t"), lambda place: fl.Consumer(place, group="g")):
        with pytest.raises(
            InvalidArgumentError, match=r"no object store that is known; .*; the address of a cluster is kafka://HOST:PORT, not (http|plaintext)://$"
        ):
            call(place)


def test_a_name_of_another_module_is_refused_with_its_place():
    for name, home in {"WakeupError": "errors", "OffsetAndMetadata": "types", "AclBinding": "admin", "Json": "serde", "copy": "transfer"}.items():
        with pytest.raises(AttributeError, match=rf"^module 'fletchlog' has no attribute '{name}'; there is fletchlog\.{home}\.{name}$"):
            getattr(fl, name)
    with pytest.raises(AttributeError, match=r"^module 'fletchlog' has no attribute 'Nonsense'$"):
        _ = fl.Nonsense
    assert not hasattr(fl, "__wrapped__")


@pytest.mark.parametrize("make", [serde.Avro, serde.JsonSchema, lambda schema: serde.Protobuf("Order", schema)], ids=["avro", "json", "protobuf"])
@pytest.mark.parametrize("name", ["schemas/order.avsc", "order.json", "order.proto", Path("order")])
def test_the_name_of_a_file_is_no_schema(make, name):
    with pytest.raises(InvalidArgumentError, match=rf"a schema is given as its text, .*Path\('{name}'\)\.read_text\(\)"):
        _ = make(name).type


def test_a_message_by_name_needs_a_schema():
    with pytest.raises(InvalidArgumentError, match="or a name and a schema, got 'Order'"):
        _ = serde.Protobuf("Order").type


def test_a_table_needs_a_type_and_a_scan_one_topic(topic, tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"such as Json\(SCHEMA\) or Confluent\(registry=URL, reader_schema=SCHEMA\)"):
        fl.land(topic, "t", tmp_path / "table", value=serde.Json())
    with pytest.raises(TypeError, match=r"one topic, got \['t', 'u'\]; scan_topic and scans\.dataset take several"):
        fl.scan(topic, ["t", "u"])
