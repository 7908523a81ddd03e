"""The story that `explain` tells agrees with what the consumer does."""

import pytest

import fletchlog as fl
from fletchlog.explain import explain, java_hash
from fletchlog.plot import PollOrder, run_lengths


@pytest.fixture
def broker():
    with fl.Broker.in_memory(nodes=2) as broker:
        for topic, partitions in (("orders", 3), ("payments", 3), ("test", 24)):
            broker.create_topic(topic, partitions=partitions)
            with fl.Producer(broker) as producer:
                for partition in range(partitions):
                    for _ in range(30):
                        producer.send(topic, value=b"x", partition=partition)
        yield broker


def test_hashes_are_those_that_java_computes():
    assert java_hash("test", 0) == 3557459
    assert [java_hash(f"t{i}", 0) for i in range(4)] == [4605, 4606, 4607, 4608]
    assert java_hash("orders", 0) == -1008769370


@pytest.mark.parametrize("subscribe", [False, True])
@pytest.mark.parametrize("topics", [["test"], ["payments", "orders"], ["orders", "test", "payments"]])
def test_the_buckets_shown_lead_to_the_order_of_the_consumer(broker, topics, subscribe):
    told = explain(broker, topics, {"max.poll.records": 5}, polls=3, subscribe=subscribe)
    assert told.buckets is not None
    assert all(place.bucket is not None for place in told.places)
    assert len(told.places) == sum(len(broker.describe_topic(topic).partitions) for topic in topics)


def test_known_orders():
    with fl.Broker.in_memory() as broker:
        broker.create_topic("test", partitions=6)
        for subscribe, version, order in (
            (False, "2.6", [1, 0, 3, 2, 5, 4]),
            (True, "2.6", [5, 4, 1, 0, 3, 2]),
            (True, "4.2", [0, 1, 2, 3, 4, 5]),
        ):
            told = explain(broker, ["test"], {"fletchlog.consumer.version": version}, polls=1, subscribe=subscribe, timeout_ms=10)
            assert [place.partition for place in told.places] == order
            assert (told.buckets is None) == (version == "4.2")


def test_every_record_taken_is_told(broker):
    told = explain(broker, ["orders", "payments"], {"max.poll.records": 7}, polls=40)
    taken = [(run.topic, run.partition, run.first_offset, run.last_offset) for runs in told.polls for run in runs]
    events = [
        (e["topic"], e["partition"], e["offset"], int(e["text"])) for e in told.events if e["kind"] == "records-returned"
    ]
    assert events == taken
    assert sum(last - first + 1 for _, _, first, last in taken) == 180
    text = told.text()
    for number in range(1, len(told.polls) + 1):
        assert f"poll {number}:" in text or "the same" in text
    assert "goes behind all others" in text


def test_stretches_join_runs_of_one_partition_across_polls():
    run = lambda partition, count: fl.types.Run("t", partition, 0, count - 1, count)  # noqa: E731
    order = PollOrder("x", [[run(0, 3)], [run(0, 1), run(1, 2)], [run(1, 3)], [run(0, 3)]])
    stretches = order.stretches()
    assert [(s.partition, s.records, s.first_poll, s.last_poll) for s in stretches] == [(0, 4, 0, 1), (1, 5, 1, 2), (0, 3, 3, 3)]
    assert [(round(s.start, 3), round(s.end, 3)) for s in stretches] == [(0, 1.333), (1.333, 3), (3, 4)]
    assert run_lengths(stretches) == {("t", 0): [4, 3], ("t", 1): [5]}


def test_the_same_polls_give_the_same_picture(broker, tmp_path):
    pytest.importorskip("matplotlib")
    from fletchlog.plot import poll_order

    told = explain(broker, ["orders"], {"max.poll.records": 7}, polls=10)
    for name in ("a.png", "b.png"):
        poll_order(tmp_path / name, [PollOrder("x", told.polls)], title="t")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    with pytest.raises(ValueError, match="nothing to draw"):
        poll_order(tmp_path / "c.png", [PollOrder("x", [])], title="t")
