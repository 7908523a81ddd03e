"""`Consumer.read_to_end` and `poll(until=)`: every record up to the ends of one moment, and none behind them."""

from __future__ import annotations

from typing import Any

import pytest

import fletchlog as fl

PARTITIONS = [fl.TopicPartition("t", number) for number in range(3)]
Place = tuple[fl.Broker, fl.Broker | str]


@pytest.fixture
def broker() -> Any:
    with fl.Broker.in_memory(config={"log.cleaner.enable": False}) as made:
        made.create_topic("t", 3)
        yield made


def send(broker: fl.Broker, count: int, partition: int = 0, **config: Any) -> None:
    with fl.Producer(broker, config) as producer:
        for number in range(count):
            producer.send("t", b"%d" % number, b"%d" % number, partition=partition)


def consumer(peer: fl.Broker | str, **config: Any) -> fl.Consumer:
    return fl.Consumer(peer, {"auto.offset.reset": "earliest", "max.poll.records": 40, **config})


def offsets(polls: Any) -> list[tuple[int, int]]:
    return sorted((record.partition, record.offset) for records in polls for record in records)


def test_it_ends_at_the_ends_of_its_call(place: Place) -> None:
    broker, peer = place
    send(broker, 100)
    send(broker, 50, partition=1)
    with consumer(peer) as reader:
        reader.assign(PARTITIONS)
        polls = reader.read_to_end()
        send(broker, 10)
        send(broker, 10, partition=2)
        assert offsets(polls) == [(0, number) for number in range(100)] + [(1, number) for number in range(50)]
        assert list(polls) == []
        assert [reader.position(tp) for tp in PARTITIONS] == [100, 50, 0]
        assert reader.paused() == []
        # goes on where it ended
        assert offsets(reader.read_to_end()) == [(0, number) for number in range(100, 110)] + [(2, number) for number in range(10)]


def test_records_that_arrive_with_those_before_the_end_are_left_for_later(place: Place) -> None:
    broker, peer = place
    send(broker, 5)
    with consumer(peer) as reader:
        reader.assign([PARTITIONS[0]])
        polls = reader.read_to_end()
        send(broker, 5)  # in the same fetch as the first five
        assert offsets(polls) == [(0, number) for number in range(5)]
        assert reader.position(PARTITIONS[0]) == 5
        assert [record.offset for record in reader.poll(1000)] == [5, 6, 7, 8, 9]


def test_an_end_in_the_middle_of_a_batch_holds(place: Place) -> None:
    broker, peer = place
    send(broker, 30, **{"linger.ms": 1000, "compression.type": "lz4"})
    with consumer(peer) as reader:
        reader.assign(PARTITIONS)
        for end in (7, 7, 8, 30):
            while reader.position(PARTITIONS[0]) < end:
                records = reader.poll(1000, until={PARTITIONS[0]: end})
                assert all(record.offset < end for record in records)
            assert reader.position(PARTITIONS[0]) == end
            assert len(reader.poll(0, until={PARTITIONS[0]: end})) == 0


def test_poll_until_reads_no_other_partition(place: Place) -> None:
    broker, peer = place
    send(broker, 5)
    send(broker, 5, partition=1)
    with consumer(peer) as reader:
        reader.assign(PARTITIONS)
        found: list[Any] = []
        while reader.position(PARTITIONS[1]) < 5:
            found += reader.poll(1000, until={("t", 1): 5})
        assert {record.partition for record in found} == {1}
        assert offsets(reader.read_to_end()) == [(0, number) for number in range(5)]


def test_empty_partitions_end_at_once(place: Place) -> None:
    _, peer = place
    with consumer(peer) as reader:
        reader.assign(PARTITIONS)
        assert list(reader.read_to_end()) == []


@pytest.mark.parametrize("version", ["2.4", "2.8", "3.6", "4.3"])
@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_markers_at_the_end_are_passed(broker: fl.Broker, version: str, outcome: str) -> None:
    send(broker, 3)
    with fl.Producer(broker, {"transactional.id": "x"}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"in a transaction", partition=0)
        producer.flush()
        getattr(producer, f"{outcome}_transaction")()
        with consumer(broker, **{"isolation.level": "read_committed", "fletchlog.consumer.version": version}) as reader:
            reader.assign(PARTITIONS)
            assert offsets(reader.read_to_end()) == [(0, number) for number in range(4 if outcome == "commit" else 3)]
            assert reader.position(PARTITIONS[0]) == 5


def test_read_committed_ends_before_an_open_transaction(broker: fl.Broker) -> None:
    send(broker, 3)
    with fl.Producer(broker, {"transactional.id": "x"}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"open", partition=0)
        producer.flush()
        with consumer(broker, **{"isolation.level": "read_committed"}) as reader, consumer(broker) as other:
            reader.assign(PARTITIONS)
            other.assign(PARTITIONS)
            assert offsets(reader.read_to_end()) == [(0, 0), (0, 1), (0, 2)]
            assert len(offsets(other.read_to_end())) == 4
        producer.abort_transaction()


def test_gaps_of_compaction_are_passed() -> None:
    config = {"cleanup.policy": "compact", "segment.bytes": 1_000_000, "min.cleanable.dirty.ratio": 0.0}
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t", config=config)
        with fl.Producer(broker) as producer:
            for number in range(100):
                producer.send("t", b"v", b"%d" % (number % 3))
        broker.clean_topic("t", force=True)
        with consumer(broker) as reader:
            reader.assign(("t", 0))
            assert [offset for _, offset in offsets(reader.read_to_end())] == [97, 98, 99]


def test_paused_partitions_are_left_out_and_stay_paused(place: Place) -> None:
    broker, peer = place
    send(broker, 5)
    send(broker, 5, partition=1)
    with consumer(peer) as reader:
        reader.assign(PARTITIONS)
        reader.pause([PARTITIONS[0]])
        assert offsets(reader.read_to_end()) == [(1, number) for number in range(5)]
        assert reader.paused() == [PARTITIONS[0]]
        reader.resume([PARTITIONS[0]])
        assert offsets(reader.read_to_end()) == [(0, number) for number in range(5)]


def test_a_member_of_a_group_reads_what_it_is_assigned(place: Place) -> None:
    broker, peer = place
    for partition in range(3):
        send(broker, 60, partition=partition)
    with consumer(peer, **{"group.id": "g"}) as reader:
        reader.subscribe(["t"])
        assert len(offsets(reader.read_to_end())) == 180
    assert {tp: offset.offset for tp, offset in broker.group_offsets("g").items()} == dict.fromkeys(PARTITIONS, 60)


def test_merged_by_timestamp_it_ends_too(broker: fl.Broker) -> None:
    with fl.Producer(broker) as producer:
        for number in range(90):
            producer.send("t", b"v", partition=number % 3, timestamp_ms=1000 + number)
    with consumer(broker, **{"fletchlog.fetch.order": "timestamp"}) as reader:
        reader.assign(PARTITIONS)
        polls = reader.read_to_end()
        with fl.Producer(broker) as producer:
            producer.send("t", b"later", partition=0, timestamp_ms=1001)
        times = [record.timestamp for records in polls for record in records]
        assert times == [1000 + number for number in range(90)]


def test_without_an_assignment_it_is_an_error(broker: fl.Broker) -> None:
    with consumer(broker) as reader, pytest.raises(fl.errors.IllegalStateError):
        reader.read_to_end()


def test_a_wait_for_records_that_are_gone_is_an_error(broker: fl.Broker) -> None:
    send(broker, 5)
    with consumer(broker) as reader:
        reader.assign(PARTITIONS)
        polls = reader.read_to_end(100)
        broker.delete_topic("t")
        with pytest.raises(fl.errors.KafkaTimeoutError, match=r"no records of t-\d, t-\d, t-\d within 100 ms, and the end is not reached"):
            list(polls)
