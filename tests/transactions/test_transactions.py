"""Transactions of one producer: what commits is seen, what aborts is not, who is replaced is fenced."""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow as pa
import pytest

import fletchlog as fl
from fletchlog import errors

from .reading import values

Producers = Callable[..., fl.Producer]


def test_a_commit_shows_the_records_of_all_partitions_and_an_abort_none(broker: fl.Broker, producers: Producers) -> None:
    producer = producers()
    producer.begin_transaction()
    futures = [producer.send("t", value=b"%d" % i, partition=i % 2) for i in range(4)]
    assert values(broker) == [[], []]
    producer.commit_transaction()
    assert [f.result(timeout_ms=0).offset for f in futures] == [0, 0, 1, 1]
    assert values(broker) == [[b"0", b"2"], [b"1", b"3"]]
    producer.begin_transaction()
    producer.send("t", value=b"dropped", partition=0)
    producer.flush()
    producer.abort_transaction()
    assert values(broker) == [[b"0", b"2"], [b"1", b"3"]]
    assert values(broker, "read_uncommitted")[0] == [b"0", b"2", b"dropped"]


def test_the_context_commits_at_its_end_and_aborts_with_an_exception(broker: fl.Broker, producers: Producers) -> None:
    producer = producers()
    with producer.transaction() as same:
        assert same is producer
        producer.send("t", value=b"a", partition=0)
    with pytest.raises(ZeroDivisionError), producer.transaction():
        producer.send("t", value=b"b", partition=0)
        producer.flush()
        1 / 0  # noqa: B018
    with producer.transaction():
        producer.send("t", value=b"c", partition=0)
        producer.abort_transaction()
    with producer.transaction():
        producer.send("t", value=b"d", partition=0)
        producer.commit_transaction()
    assert values(broker) == [[b"a", b"d"], []]
    with producer.transaction():
        pass


def test_the_context_aborts_a_transaction_whose_commit_fails(broker: fl.Broker, producers: Producers) -> None:
    broker.create_topic("small", config={"max.message.bytes": 200})
    producer = producers()
    with pytest.raises(errors.TransactionAbortableError, match=r"larger than max\.message\.bytes"), producer.transaction():
        producer.send("t", value=b"with it", partition=0)
        producer.send("small", value=bytes(500))
    with producer.transaction():
        producer.send("t", value=b"next", partition=0)
    assert values(broker) == [[b"next"], []]


def test_an_exception_keeps_its_class_when_the_abort_fails_too(broker: fl.Broker, producers: Producers) -> None:
    old = producers()
    with pytest.raises(KeyError) as raised, old.transaction():
        old.send("t", value=b"a", partition=0)
        old.flush()
        producers()
        raise KeyError("mine")
    assert any("could not be aborted" in note for note in raised.value.__notes__)


def test_arrow_columns_are_sent_in_a_transaction(broker: fl.Broker, producers: Producers) -> None:
    producer = producers(batch_size=1000)
    table = pa.table({"value": [b"%05d" % i for i in range(5000)], "partition": pa.array([i % 2 for i in range(5000)], pa.int32())})
    with pytest.raises(errors.IllegalStateError, match="begin_transaction"):
        producer.send_arrow("t", table)
    with producer.transaction():
        producer.send_arrow("t", table)
    with pytest.raises(ValueError, match="stop"), producer.transaction():
        producer.send_arrow("t", table)
        raise ValueError("stop")
    assert [len(v) for v in values(broker)] == [2500, 2500]
    producer.flush()  # rows of the aborted transaction are nobody's failure any more


def test_a_newer_producer_fences_the_older_one(broker: fl.Broker, producers: Producers) -> None:
    old = producers()
    old.begin_transaction()
    old.send("t", value=b"old", partition=0)
    old.flush()
    new = producers()
    with pytest.raises(errors.ProducerFencedError) as raised:
        old.commit_transaction()
    assert (raised.value.code, raised.value.name) == (90, "PRODUCER_FENCED")
    with pytest.raises(errors.ProducerFencedError):
        old.send("t", value=b"zombie", partition=0)
    with new.transaction():
        assert old.producer_id is not None
        assert new.producer_id == (old.producer_id[0], old.producer_id[1] + 2)
        new.send("t", value=b"new", partition=0)
    assert values(broker) == [[b"new"], []]


def test_closing_a_producer_aborts_its_open_transaction(broker: fl.Broker, producers: Producers) -> None:
    producer = producers()
    producer.begin_transaction()
    producer.send("t", value=b"open", partition=0)
    producer.flush()
    assert broker.transactions()[0].state == "Ongoing"
    producer.close()
    (known,) = broker.transactions()
    assert (known.transactional_id, known.state, known.partitions) == ("id", "CompleteAbort", [])
    description = broker.describe_topic("t").partitions[0]
    assert description.last_stable_offset == description.high_watermark == 2


def test_a_producer_that_is_dropped_aborts_its_open_transaction(broker: fl.Broker) -> None:
    producer = fl.Producer(broker, {"transactional.id": "id"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", value=b"open", partition=0)
    producer.flush()
    del producer
    deadline = time.monotonic() + 30
    while broker.transactions()[0].state != "CompleteAbort":
        assert time.monotonic() < deadline, broker.transactions()
        time.sleep(0.01)


def test_the_broker_lists_its_transactional_ids(broker: fl.Broker, producers: Producers) -> None:
    assert broker.transactions() == []
    producer = producers("b", transaction_timeout_ms=12_345)
    producers("a")
    producer.begin_transaction()
    producer.send("t", value=b"x", partition=1)
    producer.flush()
    first, second = broker.transactions()
    assert (first.transactional_id, first.state, first.start_ms) == ("a", "Empty", -1)
    assert (second.transactional_id, second.state, second.timeout_ms) == ("b", "Ongoing", 12_345)
    assert second.partitions == [fl.TopicPartition("t", 1)]
    assert (second.producer_id, second.producer_epoch) == producer.producer_id
    assert abs(second.start_ms - time.time() * 1000) < 60_000


def test_faults_lose_and_double_nothing(broker: fl.Broker, producers: Producers) -> None:
    faults = fl.testing.FaultPlan()
    faults.random(seed=11, rate=0.25, api="Produce", kinds=["lose_response", "close"])
    producer = producers(faults=faults, batch_size=200)
    expected: list[bytes] = []
    for round_ in range(12):
        producer.begin_transaction()
        sent = [b"%d.%d" % (round_, i) for i in range(20)]
        for value in sent:
            producer.send("t", value=value, partition=0)
        if round_ % 3 == 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
            expected += sent
    assert values(broker)[0] == expected
    assert {"response lost", "closed"} <= {request.outcome for request in faults.requests(api="Produce")}


@pytest.mark.parametrize("release", ["2.6", "4.4"])
def test_a_transaction_that_is_open_too_long_is_aborted_without_anyone_asking(release: str) -> None:
    aborting = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 20}
    with fl.Broker.in_memory(config=aborting) as broker:
        broker.create_topic("t")
        config = {"transactional.id": "id", "transaction.timeout.ms": 50, "fletchlog.producer.version": release}
        with fl.Producer(broker, config) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", value=b"late")
            producer.flush()
            broker.append_batches("t", 0, _plain_batch())
            with fl.Consumer(broker, {"isolation.level": "read_committed"}) as consumer:
                consumer.assign([("t", 0)])
                consumer.seek_to_beginning()
                assert [r.value for r in consumer.poll(timeout_ms=30_000)] == [b"hello"]
            with pytest.raises(errors.ProducerFencedError if release == "2.6" else errors.InvalidTxnStateError):
                producer.commit_transaction()


def _plain_batch() -> bytes:
    """Golden vector G1 of the format: one record `hello`."""
    return bytes.fromhex(
        "00000000000000000000003dffffffff02e641a44b0000000000000000018bcfe568000000018bcfe56800ffffffffffffffffffffffffffff0000000116000000010a68656c6c6f00"
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p.begin_transaction(), "init_transactions"),
        (lambda p: p.commit_transaction(), "init_transactions"),
        (lambda p: p.abort_transaction(), "init_transactions"),
        (lambda p: p.send("t", value=b"x"), "init_transactions"),
        (lambda p: p.transaction().__enter__(), "init_transactions"),
    ],
)
def test_calls_before_init_transactions_say_what_is_missing(producers: Producers, call: Callable[[fl.Producer], object], message: str) -> None:
    producer = producers(init=False)
    with pytest.raises(errors.IllegalStateError, match=message):
        call(producer)


def test_bad_configurations_are_refused_with_what_to_do(broker: fl.Broker) -> None:
    for config, message in [
        ({"transactional.id": ""}, "transactional.id"),
        ({"transactional.id": "x", "enable.idempotence": False}, "enable.idempotence"),
        ({"transactional.id": "x", "acks": "1"}, "acks"),
    ]:
        with pytest.raises(errors.ConfigError, match=message):
            fl.Producer(broker, config)
    with fl.Producer(broker, {"transactional.id": "x", "transaction.timeout.ms": 900_001}) as producer:
        with pytest.raises(errors.InvalidTxnTimeoutError) as raised:
            producer.init_transactions()
        assert raised.value.code == 50
    with fl.Producer(broker) as plain, pytest.raises(errors.IllegalStateError, match=r"transactional\.id"):
        plain.init_transactions()


def test_a_read_only_broker_has_no_transactions_to_offer(tmp_path: object) -> None:
    path = str(tmp_path)
    with fl.Broker(path, create=True) as broker:
        broker.create_topic("t")
    with (
        fl.Broker(path, read_only=True) as reader,
        reader.listen() as listener,
        fl.Producer(f"kafka://{listener.bootstrap}", {"transactional.id": "x"}) as producer,
    ):
        with pytest.raises(errors.KafkaError) as raised:
            producer.init_transactions()
        assert raised.value.code == 44


def test_after_offsets_that_are_refused_the_transaction_can_be_aborted_and_closing_ends(broker: fl.Broker, producers: Producers) -> None:
    with fl.Consumer(broker, {"group.id": "g"}) as consumer:
        group = consumer.group_metadata()
    assert group is not None
    producer = producers(max_block_ms=200)
    producer.begin_transaction()
    producer.send("t", value=b"v", partition=0)
    with pytest.raises(errors.KafkaTimeoutError, match="missing-0"):
        producer.send_offsets_to_transaction({("missing", 0): 1}, group)
    producer.abort_transaction()
    with producer.transaction():
        producer.send("t", value=b"w", partition=0)
    assert values(broker) == [[b"w"], []]
    # a commit waits behind the offsets, as in Kafka, and may be called again; closing gives it max.block.ms once more
    producer.begin_transaction()
    with pytest.raises(errors.KafkaTimeoutError, match="missing-0"):
        producer.send_offsets_to_transaction({("missing", 0): 1}, group)
    with pytest.raises(errors.KafkaTimeoutError, match="missing-0"):
        producer.commit_transaction()
    with pytest.raises(errors.IllegalStateError, match="call commit_transaction again"):
        producer.abort_transaction()
    producer.close()
